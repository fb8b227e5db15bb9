"""Sandboxes: what stands between an agent's program and this machine.

- ``choice``: which sandbox an agent gets.
- ``bubblewrap``: our sandbox, as running agents use it.
- ``native``: Claude Code's own sandbox.
- ``entry``: how a process gets into it.
- ``inside``: what a program sees, as bubblewrap's arguments.
- ``proc``: which entries of ``/proc`` are covered.
- ``limits``: how many processes and how much memory its programs may use.
- ``program_files``: which files a program needs.
- ``system_calls``: which system calls a program may not make.
- ``endpoints``: what can be reached from inside.
- ``client_hello``: which server a TLS client wants.
- ``relay``: connections from inside, continued from this machine.
"""
