"""A command with limited memory that records the files it opens; run as a program.

Variables: ``OPENED`` is the file that gets the paths, one per line; with ``WITHOUT_PRIVILEGE``,
root may open only files whose mode allows it, like other users.
"""

from __future__ import annotations

import ctypes
import os
import resource
import runpy
import sys
import threading

MOST_MEMORY_BYTES = 1 << 30
MOST_FILE_BYTES = 256 << 20
CAPABILITY_VERSION = 0x20080522
DAC_OVERRIDE, DAC_READ_SEARCH = 1, 2  # capabilities(7)

_opened: set[str] = set()
_is_noting = threading.local()


def note(event: str, arguments: tuple[object, ...]) -> None:
    """Record the path of an opened file; files in an open directory are recorded by ``os.open``."""
    if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
        path = os.fsdecode(arguments[0])
        if os.path.isabs(path):
            _opened.add(path)


def open_and_note(*arguments, _open=os.open, **options):
    """Open like ``os.open``, and record the path of the descriptor."""
    fd = _open(*arguments, **options)
    if options.get("dir_fd") is not None:
        _opened.add(os.readlink(f"/proc/self/fd/{fd}"))
    return fd


def lose_privilege() -> None:
    """Drop the capabilities with which root ignores the modes of files; see capset(2)."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted and inheritable, 32 bits each, twice
    assert libc.capget(header, sets) == 0, os.strerror(ctypes.get_errno())
    for index in range(3):
        sets[index] &= ~(1 << DAC_OVERRIDE | 1 << DAC_READ_SEARCH)
    assert libc.capset(header, sets) == 0, os.strerror(ctypes.get_errno())


def main() -> None:
    # Limits of the fork, without the memory of the template.
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY_BYTES, MOST_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_FILE_BYTES, MOST_FILE_BYTES))
    report = os.environ.pop("OPENED", None)
    if os.environ.pop("WITHOUT_PRIVILEGE", None):
        lose_privilege()
    if report is not None:
        sys.addaudithook(note)
        os.open = open_and_note
    try:
        sys.argv[0] = "clawblox"
        runpy.run_module("clawblox", run_name="__main__", alter_sys=True)
    finally:
        if report is not None:
            with open(report, "a") as file:
                file.writelines(f"{path}\n" for path in sorted(_opened))


if __name__ == "__main__":
    main()
