"""Which entries of ``/proc`` are covered in a sandbox. Reads ``/proc``.

``/proc`` of a new process namespace shows the kernel's own settings and triggers, too. Its files
ask for root's user id alone, and programs of a sandbox may have that outside. So a sandbox keeps
what anybody may read, and what belongs to its processes.
"""

from __future__ import annotations

import os

import attrs

_WRITABLE = 0o222
_READABLE = 0o004


@attrs.frozen
class ProcCovers:
    """Names of entries of ``/proc``.

    Attributes:
        read_only: Directories that are shown read-only.
        hidden: Files that are not for everybody, or can be written.
    """

    read_only: tuple[str, ...]
    hidden: tuple[str, ...]


def find_proc_covers() -> ProcCovers:
    """Return what is covered on this machine. Blocks.

    Raises:
        OSError: ``/proc`` cannot be read.
    """
    read_only, hidden = [], []
    with os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdigit() or entry.is_symlink():  # of processes, or leads there
                continue
            if entry.is_dir(follow_symlinks=False):
                read_only.append(entry.name)
                continue
            mode = entry.stat(follow_symlinks=False).st_mode
            if mode & _WRITABLE or not mode & _READABLE:
                hidden.append(entry.name)
    return ProcCovers(tuple(sorted(read_only)), tuple(sorted(hidden)))
