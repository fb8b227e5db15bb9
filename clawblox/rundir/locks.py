"""Waiting for a lock that another process holds, for a limited time. Everything here blocks."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable
from typing import Final, TypeVar

_T = TypeVar("_T")

_FIRST_PAUSE_S: Final = 0.0005
_LONGEST_PAUSE_S: Final = 0.02


def retry(attempt: Callable[[], _T | None], seconds: float) -> _T | None:
    """Call ``attempt`` until it returns something, or until the time is up.

    Args:
        attempt: What is tried; it is called once at least.
        seconds: How long to go on trying.

    Returns:
        What it returned; None when the time is up.
    """
    deadline = time.monotonic() + seconds
    pause_s = _FIRST_PAUSE_S
    while (found := attempt()) is None:
        if time.monotonic() >= deadline:
            return None
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
    return found


def lock_descriptor(fd: int, seconds: float) -> bool:
    """Lock an open file (flock(2)), which closing every copy of the descriptor undoes.

    Args:
        fd: The open file.
        seconds: How long to wait for another owner to unlock it.

    Returns:
        Whether the file is locked now.

    Raises:
        OSError: The file cannot be locked.
    """
    return retry(lambda: _try_lock(fd), seconds) is not None


def _try_lock(fd: int) -> int | None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None
    return fd
