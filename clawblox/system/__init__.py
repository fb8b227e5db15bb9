"""What is asked of Linux: processes, ports, files, HTTP and the wall clock.

- ``process``: starting, watching and ending processes.
- ``process_tree``: which processes belong to an instance.
- ``process_finder``: one pass over ``/proc`` for all tasks that ask at the time.
- ``guard``: the small process that ends what a dead orchestrator left.
- ``helper``: how our own small processes are started.
- ``short_process``: running a program that ends soon.
- ``network_namespace``: the helper that gives a program a network of its own.
- ``outer_user``: how that program runs as another user where root starts it.
- ``control_groups``: groups of our own, in which the kernel limits programs.
- ``tmux``: windows for instances and agents that a person wants to watch.
- ``ports``: free ports, and who listens on one.
- ``sock_diag``: what the kernel knows of TCP sockets.
- ``port_leases``: leases of ports that all processes of a machine share.
- ``files``: files that are complete or absent, and private directories.
- ``locks``: locks on files.
- ``append_log``: files of lines that only grow.
- ``regular_files``: the one way to open a file that others can replace.
- ``foreign_files``: files below a directory that another program may change meanwhile.
- ``foreign_database``: SQLite databases of other programs, opened as private copies only.
- ``sqlite_program``: the small process that opens such a copy.
- ``http``: downloads from public hosts; the only module that knows httpx.
- ``request``: requests and answers.
- ``sockets``: sockets that never block.
- ``connection``: kept connections to worlds; the only module that knows httptools.
- ``clock``: the wall clock, and a clock that tests can replace.
"""
