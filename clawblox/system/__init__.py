"""Facts and services of Linux: processes, ports, files, HTTP and the wall clock.

- ``process``: starting, watching and ending processes; running a program that ends soon.
- ``process_tree``: the processes of an instance.
- ``guard``: the small process that ends the processes of a dead orchestrator.
- ``helper``: starting clawblox's own small processes.
- ``network_namespace``: the helper that gives a program its own network.
- ``outer_user``: running that program as another user if root starts it.
- ``tmux``: windows in which a person can watch instances and agents.
- ``ports``: free ports, and the processes that listen on one.
- ``sock_diag``: the TCP sockets that the kernel lists.
- ``port_leases``: leases of ports that all processes of a machine share.
- ``files``: files that are complete or absent, and private directories.
- ``tree_digests``: digests of the files below a directory.
- ``locks``: locks on files.
- ``append_log``: files of lines that only grow.
- ``record_file``: versioned JSON records, one in a file or in a line.
- ``regular_files``: opening files that another program can replace.
- ``trees``: walking, moving and removing trees of directories.
- ``scratch``: temporary directories.
- ``copy_tree``: copies of directories from agents or strangers.
- ``foreign_database``: SQLite databases of other programs, opened as private copies only.
- ``sqlite_program``: the small process that opens such a copy.
- ``request``: requests and answers.
- ``sockets``: sockets that never block.
- ``connection``: persistent connections to worlds; the only module that uses httptools.
- ``amounts``: sizes as short texts.
- ``clock``: the wall clock, and a clock that tests can replace.
"""
