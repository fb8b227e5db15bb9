"""The watchdog: the last defence against scripts that exhaust the machine.

The limits of steps and of the heap come first and are the same in every run. The watchdog catches
the rest by CPU time and resident memory. These differ between runs: a run that the watchdog ends
cannot be repeated exactly. A helper process measures, so nothing in the world can prevent it. First
it asks the VM to stop at its next charge point and so halts the world; if the VM does not get
there, it ends the process with a status of its own.

- ``client``: in the world's process.
- ``watcher``: the helper process and the memory that the two share, standard library only.
"""
