"""Append-only logs: files of lines that any number of processes extend and read. All of it blocks.

Writers take turns through a lock on the file, so the order of the lines is the order of the writes,
independent of clocks. A line counts once its newline is written. A killed writer may leave an
incomplete last line: readers ignore it, and the next writer ends it, so that no later line is
joined to it. A reader must therefore skip lines that it cannot parse. Nothing here drops a line.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from clawblox.system.files import fsync_directory, write_all
from clawblox.system.locks import lock_descriptor
from clawblox.system.regular_files import open_own, read_regular

LOCK_WAIT_S: Final = 10.0
"""Seconds to wait for another writer by default."""
MAX_LOG_BYTES: Final = 64 << 20
"""Size above which a log is neither read nor extended, by default."""


def append_lines(
    path: Path, lines: bytes, *, durable: bool = False, lock_wait: float = LOCK_WAIT_S
) -> None:
    """Append lines to a log; a missing log is created private.

    Args:
        path: The log; its directory must exist.
        lines: The lines, each with its newline.
        durable: Whether the lines must survive a loss of power; living readers see them anyway.
        lock_wait: Time to wait for other writers, in seconds.

    Raises:
        OSError: The lines are not in the log; or, if an fsync failed, they are but may not be
            durable. A TimeoutError if another process, perhaps suspended, keeps the lock.
    """
    with open_log(path, lock_wait=lock_wait) as fd:
        is_new = not append(fd, lines)
        if durable:
            os.fsync(fd)
            if is_new:
                fsync_directory(path.parent)


def read_complete_lines(path: Path, *, max_bytes: int = MAX_LOG_BYTES) -> list[bytes]:
    """Return the complete lines of a log, each with its newline; empty if it is missing.

    Raises:
        OSError: It cannot be read, is not a regular file, or is larger than ``max_bytes``.
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
        OSError: It cannot be opened, or is not one of our files. A TimeoutError if another process
            keeps the lock.
    """
    while True:
        fd = open_own(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            if not lock_descriptor(fd, lock_wait):
                raise TimeoutError(f"another process keeps the lock of {path}")
            if os.fstat(fd).st_nlink == 0:
                continue  # it was replaced while we waited
            yield fd
            return
        finally:
            # Closing is not enough: a child that was forked meanwhile has the lock too.
            fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)


def append(fd: int, lines: bytes, *, max_bytes: int = MAX_LOG_BYTES) -> int:
    """Append lines to an open log, and end an incomplete line before.

    Args:
        fd: A descriptor that :func:`open_log` yielded.
        lines: The lines, each with its newline.
        max_bytes: Size that the log must not exceed.

    Returns:
        The previous size of the log, in bytes.

    Raises:
        OSError: The log is unchanged.
    """
    size = os.fstat(fd).st_size
    if size + len(lines) > max_bytes:
        raise OSError(errno.EFBIG, f"would be larger than {max_bytes} bytes")
    is_torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
    try:
        write_all(fd, b"\n" * is_torn + lines)
    except OSError:
        os.ftruncate(fd, size)
        raise
    return size
