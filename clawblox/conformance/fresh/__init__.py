"""Further restored runs of a world, each in places that no other run has used.

A world could keep its state in a file or a process and save only the name. A restored run in the
same places would find the state again. Runs in fresh places cannot: each has its own temporary
directories, home, caches, run directory and copy of the world, and with bubblewrap also its own
processes, network and memory.

- ``lives``: makes such runs, and compares them.
- ``messages``: the request for such a run, and its result.
- ``places``: the directories of such a run, and its command.
- ``enter``: prepares the sandbox, in a separate process that becomes bubblewrap.
- ``views``: directories as they were before the first start.
- ``inside``: the program that starts and plays the world in these places.
- ``footprints``: files and Unix listeners that processes leave.
"""
