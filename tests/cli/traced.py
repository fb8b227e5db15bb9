"""A command that notes which files it opens, and may not grow; run as a program.

Variables: ``OPENED`` is the file that gets the paths, one a line; with ``WITHOUT_PRIVILEGE``, root
may open what its mode allows, as any other user.
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
    """Note the path of a file that is opened; one in an open directory is found by ``os.open``."""
    if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
        path = os.fsdecode(arguments[0])
        if os.path.isabs(path):
            _opened.add(path)


def open_and_note(*arguments, _open=os.open, **options):
    """Open as ``os.open`` does, and note where the descriptor leads."""
    fd = _open(*arguments, **options)
    if options.get("dir_fd") is not None:
        _opened.add(os.readlink(f"/proc/self/fd/{fd}"))
    return fd


def lose_privilege() -> None:
    """Give up what lets root open files whatever their mode says; see capset(2)."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; twice 32 bits of each
    assert libc.capget(header, sets) == 0, os.strerror(ctypes.get_errno())
    for index in range(3):
        sets[index] &= ~(1 << DAC_OVERRIDE | 1 << DAC_READ_SEARCH)
    assert libc.capset(header, sets) == 0, os.strerror(ctypes.get_errno())


def main() -> None:
    # Those of a fork: what the template needed does not count.
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
