"""Locks on files (flock(2)); the kernel releases them when their owner dies. Everything blocks.

A lock file names its owner and is removed on release. A lock on the descriptor of another file only
orders its writers. A forked child does not keep the locks of its parent.
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
    """Owner of a lock: the process, the machine, and the time of the lock (UTC)."""

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
    """Return this process as the owner of a lock taken now."""
    return LockOwner(os.getpid(), os.uname().nodename, format_utc(utc_now()))


def lock_file(path: Path) -> int | None:
    """Take the lock ``path``, until :func:`unlock_file` or the end of this process.

    Returns:
        An open descriptor; None if another process, or this process, already holds the lock.

    Raises:
        OSError: The file cannot be opened, or is not a file of clawblox; see
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
        An open descriptor of the file; None if the file is already locked.

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
    """Close a file that :func:`open_locked` opened. In a forked child, this has no effect."""
    if fd in _held_locks:
        _held_locks.remove(fd)
        os.close(fd)


def renew_lock(path: Path, fd: int) -> int:
    """Take a lock again if its file was removed or replaced; return the valid descriptor.

    The descriptor stays the same if the file still exists, or if another owner has taken the lock.

    Raises:
        OSError: The file cannot be opened, or is not a file of clawblox.
    """
    if fd not in _held_locks or is_file_at(path, fd) or (new := lock_file(path)) is None:
        return fd
    close_locked(fd)
    return new


def is_file_at(path: Path | str, fd: int) -> bool:
    """Return whether a path still names an open file, which may have been removed or replaced.

    A symbolic link to the file counts as a different file.
    """
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except OSError:
        return False


def unlock_file(path: Path, fd: int) -> None:
    """Release a lock and remove its file unless the file was replaced.

    In a forked child, which has no locks, this has no effect.

    Raises:
        OSError: The file cannot be removed; the lock is still released.
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
    # A forked child shares the open file and its lock, and would keep the lock forever.
    while _held_locks:
        with contextlib.suppress(OSError):
            os.close(_held_locks.pop())


os.register_at_fork(after_in_child=_drop_inherited_locks)


def lock_owner(path: Path) -> LockOwner | None:
    """Return the owner named in a lock file, for messages; None if it cannot be read."""
    try:
        return LockOwner.parse(read_regular(path, max_bytes=_MAX_LOCK_BYTES).decode())
    except (OSError, ValueError):
        return None


def retry(attempt: Callable[[], _T | None], seconds: float) -> _T | None:
    """Call a function until it returns a value other than None, or until a timeout.

    Args:
        attempt: The function; it is called at least once.
        seconds: The timeout, in seconds.

    Returns:
        The function's value; None after the timeout.
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
    """Lock an open file for the duration of the block, as :func:`lock_descriptor` does.

    Yields:
        Whether the file is locked.
    """
    try:
        yield lock_descriptor(fd, seconds)
    finally:
        # Closing is not enough, because a child forked in the meantime also has the lock.
        fcntl.flock(fd, fcntl.LOCK_UN)


def lock_descriptor(fd: int, seconds: float, *, kind: int = fcntl.LOCK_EX) -> bool:
    """Lock an open file (flock(2)) until every copy of the descriptor is closed.

    Args:
        fd: The open file.
        seconds: Time to wait for another owner to unlock it, in seconds.
        kind: ``fcntl.LOCK_EX``, or ``fcntl.LOCK_SH`` to share the lock with others of this kind.

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
