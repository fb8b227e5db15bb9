"""Locks on files (flock(2)); the kernel releases them when their owner dies. Everything blocks.

A lock file names its owner and is removed with the release. A lock on the descriptor of another
file only orders its writers. A forked child keeps no lock of its parent.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple, Self, TypeVar

from clawblox.system.clock import format_utc, utc_now
from clawblox.system.regular_files import open_own, read_regular

_T = TypeVar("_T")

_FIRST_PAUSE_S: Final = 0.0005
_LONGEST_PAUSE_S: Final = 0.02
_MAX_LOCK_BYTES: Final = 4096

_held_locks: set[int] = set()


class LockOwner(NamedTuple):
    """Owner of a lock: its process, the machine, and the time of the lock (UTC)."""

    pid: int
    host: str
    since: str

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Parse the content of a lock file; None if it is malformed."""
        try:
            pid, host, since = text.split()
            return cls(int(pid), host, since)
        except ValueError:
            return None


def own_lock() -> LockOwner:
    """Return this process as the owner of a lock that is taken now."""
    return LockOwner(os.getpid(), os.uname().nodename, format_utc(utc_now()))


def lock_file(path: Path) -> int | None:
    """Take the lock ``path``, until :func:`unlock_file` or the end of this process.

    Returns:
        An open descriptor, or None if the lock is taken, by another process or within this process.

    Raises:
        OSError: The file cannot be opened, or is not one of ours; see
            :func:`clawblox.system.regular_files.open_own`.
    """
    fd = open_locked(path, os.O_RDWR | os.O_CREAT)
    if fd is None:
        return None
    try:
        os.ftruncate(fd, 0)
        os.pwrite(fd, " ".join(map(str, own_lock())).encode(), 0)
    except BaseException:
        close_locked(fd)
        raise
    return fd


def open_locked(path: Path, flags: int) -> int | None:
    """Open a file that this package writes, and lock it until :func:`close_locked`.

    Args:
        path: The file.
        flags: As for :func:`clawblox.system.regular_files.open_own`.

    Returns:
        An open descriptor of the file that has the path; None if the file is locked already.

    Raises:
        OSError: As for :func:`lock_file`.
    """
    while True:
        fd = open_own(path, flags)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if is_file_at(path, fd):
                _held_locks.add(fd)
                return fd
        except BlockingIOError:
            os.close(fd)
            return None
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def close_locked(fd: int) -> None:
    """Close a file that :func:`open_locked` opened. In a forked child, this does nothing."""
    if fd in _held_locks:
        _held_locks.remove(fd)
        os.close(fd)


def renew_lock(path: Path, fd: int) -> int:
    """Take a lock again whose file was removed or replaced; return its descriptor from now on.

    That is the same descriptor if the file is still there, or if another owner has the lock by now.

    Raises:
        OSError: The file cannot be opened, or is not one of ours.
    """
    if fd not in _held_locks or is_file_at(path, fd) or (new := lock_file(path)) is None:
        return fd
    close_locked(fd)
    return new


def is_file_at(path: Path | str, fd: int) -> bool:
    """Return whether a path still leads to an open file; its owner may have removed or replaced it.

    A link to the file is another file.
    """
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except OSError:
        return False


def unlock_file(path: Path, fd: int) -> None:
    """Release a lock and remove its file, unless the file was replaced.

    In a forked child, which has no lock, this does nothing.

    Raises:
        OSError: The file cannot be removed; the lock is released nevertheless.
    """
    if fd not in _held_locks:
        return
    try:
        if is_file_at(path, fd):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
    finally:
        close_locked(fd)


def _drop_inherited_locks() -> None:
    # A fork shares the open file, and with it the lock: the child would keep it for ever.
    while _held_locks:
        with contextlib.suppress(OSError):
            os.close(_held_locks.pop())


os.register_at_fork(after_in_child=_drop_inherited_locks)


def lock_owner(path: Path) -> LockOwner | None:
    """Return the owner that a lock file names, for messages; None if it cannot be read."""
    try:
        return LockOwner.parse(read_regular(path, max_bytes=_MAX_LOCK_BYTES).decode())
    except (OSError, ValueError):
        return None


def retry(attempt: Callable[[], _T | None], seconds: float) -> _T | None:
    """Call a function until it returns a value that is not None, or until the time is up.

    Args:
        attempt: The function; it is called at least once.
        seconds: The time, in seconds.

    Returns:
        Its value; None when the time is up.
    """
    deadline = time.monotonic() + seconds
    pause_s = _FIRST_PAUSE_S
    while (value := attempt()) is None:
        if time.monotonic() >= deadline:
            return None
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
    return value


@contextlib.contextmanager
def locking(fd: int, seconds: float) -> Iterator[bool]:
    """Lock an open file as :func:`lock_descriptor` does until the end of the block.

    Yields:
        Whether it is locked.
    """
    try:
        yield lock_descriptor(fd, seconds)
    finally:
        # Closing is not enough: a child that was forked meanwhile has the lock too.
        fcntl.flock(fd, fcntl.LOCK_UN)


def lock_descriptor(fd: int, seconds: float, *, kind: int = fcntl.LOCK_EX) -> bool:
    """Lock an open file (flock(2)) until every copy of the descriptor is closed.

    Args:
        fd: The open file.
        seconds: Time to wait for another owner to unlock it, in seconds.
        kind: ``fcntl.LOCK_EX``, or ``fcntl.LOCK_SH`` to share it with others of this kind.

    Returns:
        Whether the file is locked now.

    Raises:
        OSError: The file cannot be locked.
    """
    return retry(lambda: _try_lock(fd, kind), seconds) is not None


def _try_lock(fd: int, kind: int) -> int | None:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return None
    return fd
