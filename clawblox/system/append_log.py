"""Append-only logs: files of lines that many processes extend and read. Everything here blocks.

Writers take turns through a lock on the file, so the order of the lines is the order of the writes,
independent of clocks. A line counts once its newline is written. A killed writer may leave an
incomplete last line: readers ignore it, and the next writer terminates it, so later lines are not
joined to it. A reader must therefore skip lines that it cannot parse. Lines are never dropped here.

A log that is extended by only one process while that runs is an :class:`OwnedLog`. It contains no
bad lines, and its owner notices when another program replaces, cuts or extends it.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from clawblox.system.files import fsync_directory, write_all
from clawblox.system.locks import close_locked, is_file_at, locking, open_locked
from clawblox.system.regular_files import closing_fd, open_own, read_regular, read_rest

LOCK_WAIT_S: Final = 10.0
"""Seconds to wait for another writer by default."""
MAX_LOG_BYTES: Final = 64 << 20
"""Default maximum size of a log that is read or extended."""


def append_lines(path: Path, lines: bytes) -> None:
    """Append lines to a log; a missing log is created private.

    Args:
        path: The log; its directory must exist.
        lines: The lines, each with its newline.

    Raises:
        OSError: The lines were not appended. A TimeoutError if another process, perhaps suspended,
            holds the lock.
    """
    with open_log(path) as fd:
        append(fd, lines)


def read_complete_lines(path: Path, *, max_bytes: int = MAX_LOG_BYTES) -> list[bytes]:
    """Return the complete lines of a log, each with its newline; empty if it is missing.

    Raises:
        OSError: The log cannot be read, is not a regular file, or is larger than ``max_bytes``.
    """
    try:
        return complete_lines(read_regular(path, max_bytes=max_bytes))
    except FileNotFoundError:
        return []


def complete_lines(data: bytes) -> list[bytes]:
    """Return the complete lines of a part of a log."""
    return data[: data.rfind(b"\n") + 1].splitlines(keepends=True)


@contextlib.contextmanager
def open_log(path: Path, *, lock_wait: float = LOCK_WAIT_S) -> Iterator[int]:
    """Open a log as its only writer; a missing log is created.

    Args:
        path: The log; its directory must exist.
        lock_wait: Time to wait for other writers, in seconds.

    Yields:
        A descriptor for :func:`append`.

    Raises:
        OSError: The log cannot be opened, or is not a file of clawblox. A TimeoutError if another
            process holds the lock.
    """
    while True:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
        with closing_fd(open_own(path, flags)) as fd, locking(fd, lock_wait) as is_locked:
            if not is_locked:
                raise TimeoutError(f"another process holds the lock of {path}")
            if is_file_at(path, fd):  # otherwise it was replaced during the wait
                yield fd
                return


def append(fd: int, lines: bytes, *, max_bytes: int = MAX_LOG_BYTES) -> int:
    """Append lines to an open log, after terminating an incomplete last line.

    Args:
        fd: A descriptor that :func:`open_log` yielded.
        lines: The lines, each with its newline.
        max_bytes: Maximum size of the log.

    Returns:
        The previous size of the log, in bytes.

    Raises:
        OSError: The lines cannot be appended; the log is unchanged.
    """
    size = os.fstat(fd).st_size
    if size + len(lines) > max_bytes:
        raise _too_large(max_bytes)
    is_torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
    try:
        write_all(fd, b"\n" * is_torn + lines)
    except OSError:
        os.ftruncate(fd, size)
        raise
    return size


def _too_large(max_bytes: int) -> OSError:
    return OSError(errno.EFBIG, f"would be larger than {max_bytes} bytes")


class LogChangedError(OSError):
    """Another program has replaced, removed, cut or extended a log that this process owns."""


class OwnedLog:
    """A log that only this process extends, until :meth:`close` or the end of the process.

    Args:
        path: The log; its directory must exist.
        max_bytes: Maximum size of the log, in bytes.
    """

    def __init__(self, path: Path, *, max_bytes: int = MAX_LOG_BYTES) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._fd = -1
        self._size = 0

    @property
    def is_open(self) -> bool:
        """True if lines can be appended."""
        return self._fd >= 0

    def open(self) -> bytes | None:
        """Open the log, and cut off an incomplete last line; a missing log is created.

        Returns:
            The complete lines of the log; None if another process has it open.

        Raises:
            OSError: The log cannot be opened or read, or is not a file of clawblox.
        """
        fd = open_locked(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        if fd is None:
            return None
        try:
            data = self._read(fd)
        except BaseException:
            close_locked(fd)
            raise
        self._fd, self._size = fd, len(data)
        return data

    def _read(self, fd: int) -> bytes:
        if os.fstat(fd).st_size > self._max_bytes:
            raise _too_large(self._max_bytes)
        data = read_rest(fd, max_bytes=self._max_bytes)
        complete = data[: data.rfind(b"\n") + 1]
        if len(complete) < len(data):
            os.ftruncate(fd, len(complete))
        if not complete:
            fsync_directory(self._path.parent)
        return complete

    def append(self, lines: bytes) -> None:
        """Append lines; they are durable when this returns.

        Args:
            lines: The lines, each with its newline.

        Raises:
            LogChangedError: Another program has changed the log, so the lines were not appended.
            OSError: The lines were not appended.
        """
        self.require_unchanged()
        append(self._fd, lines, max_bytes=self._max_bytes)
        try:
            os.fdatasync(self._fd)
        except OSError:
            os.ftruncate(self._fd, self._size)
            raise
        self._size += len(lines)

    def require_unchanged(self) -> None:
        """Check that no other program has changed the log.

        Raises:
            LogChangedError: Another program has changed the log.
        """
        if not is_file_at(self._path, self._fd):
            raise LogChangedError(f"{self._path} was removed or replaced")
        size = os.fstat(self._fd).st_size
        if size != self._size:
            raise LogChangedError(f"{self._path} has {size} bytes, not {self._size}")

    def close(self) -> None:
        """Close the log. Idempotent."""
        fd, self._fd = self._fd, -1
        close_locked(fd)
