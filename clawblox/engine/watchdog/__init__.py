"""The watchdog: the last defence against scripts that exhaust the machine's resources.

The limits of steps and of the heap apply first and are the same in every run. The watchdog catches
the rest with limits on CPU time and resident memory. These values differ between runs, so a run
that the watchdog ends cannot be repeated exactly. A helper process measures them, where the world
cannot prevent it. The helper first asks the VM to stop at its next charge point, which halts the
world. If the VM does not reach a charge point, the helper ends the process with a special status.

- ``client``: the part in the world's process.
- ``watcher``: the helper process and the memory that both share; standard library only.
"""
