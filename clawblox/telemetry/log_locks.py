"""The lock of a log (flock(2)): its readers wait while it is cut and its index replaced."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from clawblox.system.regular_files import open_own

_WAIT_S: Final = 1.0
"""How long to wait for the lock, in seconds; the world itself could have it for ever."""
_INTERVAL_S: Final = 0.002


@contextmanager
def cutting(path: Path) -> Iterator[BinaryIO]:
    """Open a log to cut it, while its readers wait. Blocks.

    Raises:
        OSError: It cannot be opened.
    """
    with os.fdopen(open_own(path, os.O_RDWR), "r+b") as file:
        _wait_for_lock(file, fcntl.LOCK_EX)
        try:
            yield file
        finally:
            # Closing alone would not do: a fork that happened meanwhile has the lock too.
            fcntl.flock(file, fcntl.LOCK_UN)


def may_read(file: BinaryIO, *, waits: bool) -> bool:
    """Return whether an open log is not being cut, now and until it is closed. Blocks.

    Args:
        file: The log.
        waits: Whether to wait for the end of a cut.
    """
    return _wait_for_lock(file, fcntl.LOCK_SH) if waits else _try_lock(file, fcntl.LOCK_SH)


def _wait_for_lock(file: BinaryIO, kind: int) -> bool:
    give_up_at = time.monotonic() + _WAIT_S
    while not (is_locked := _try_lock(file, kind)) and time.monotonic() < give_up_at:
        time.sleep(_INTERVAL_S)
    return is_locked


def _try_lock(file: BinaryIO, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
