"""More restored lives of a world, each in places that no other life of it has used.

A world could keep its state in a file or with a process, and save only its name. Every other life
would find it again. These cannot: each has its own temporary directories, home, caches, run
directory and copy of the world, and with bubblewrap its own processes, network and memory too.

- ``lives``: lives such a life, and compares it.
- ``messages``: the order for it, and its result.
- ``places``: the directories of such a life, and the command that lives it there.
- ``enter``: makes the sandbox, in a process of its own that becomes bubblewrap.
- ``views``: directories as they were before the first start.
- ``inside``: the program that starts and plays the world there.
- ``footprints``: files and Unix listeners that processes leave.
"""
