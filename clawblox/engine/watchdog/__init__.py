"""The watchdog: the last line that keeps scripts from using up the machine.

The limits of steps and of the heap come first and are the same in every run. What they miss is
found by CPU time and resident memory, which are not: a run that the watchdog ends cannot be
repeated exactly. A helper process measures, so that nothing that the world does can keep it from
that. First it asks the VM to stop at its next charge point, which halts the world; if that does not
come, it ends the process with a status of its own.

- ``client``: in the world's process.
- ``program``: the helper process, standard library only.
- ``slot``: the memory that the two share.
"""
