"""The one way to open a file that a world, an agent or a stranger can replace at any moment.

Opening never waits, follows no link, and yields regular files only. So a pipe, a device or a link
in place of a file is an error that names the path, and neither hangs nor leads anywhere else. What
is read has a limit; a sparse file of terabytes is refused before a byte is read. Everything here
blocks no longer than the disk does.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

_PIECE_BYTES: Final = 1 << 16
_SAFE: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


def open_regular(
    path: Path | str, *, dir_fd: int | None = None, max_bytes: int | None = None
) -> int:
    """Open a regular file for reading and return its descriptor.

    Args:
        path: The file. Its directory is trusted; use :mod:`clawblox.system.foreign_files` where
            another program can replace that too.
        dir_fd: Descriptor of the directory that a relative path is in.
        max_bytes: Maximum apparent size in bytes; None means no limit.

    Raises:
        OSError: It cannot be opened, is not a regular file, or is larger. It names the path.
    """
    return _open(path, os.O_RDONLY, dir_fd=dir_fd, max_bytes=max_bytes)


def read_regular(path: Path | str, *, dir_fd: int | None = None, max_bytes: int) -> bytes:
    """Return the content of a regular file.

    Args:
        path: The file, as for :func:`open_regular`.
        dir_fd: Descriptor of the directory that a relative path is in.
        max_bytes: Maximum size in bytes.

    Raises:
        OSError: It cannot be read, is not a regular file, or is larger. It names the path.
    """
    fd = open_regular(path, dir_fd=dir_fd, max_bytes=max_bytes)
    try:
        data = read_rest(fd, max_bytes=max_bytes + 1)
    finally:
        os.close(fd)
    if len(data) > max_bytes:  # it grew meanwhile
        raise _too_large(path, max_bytes)
    return data


def read_rest(fd: int, *, max_bytes: int) -> bytes:
    """Return what an open file holds from its position on.

    To read ``max_bytes`` in one call would reserve the memory for them.

    Args:
        fd: Descriptor of the file.
        max_bytes: Maximum number of bytes to return.

    Raises:
        OSError: It cannot be read.
    """
    rest = os.fstat(fd).st_size - os.lseek(fd, 0, os.SEEK_CUR)
    pieces: list[bytes] = []
    asked = min(max(rest, 0) + 1, max_bytes)
    while asked > 0:
        pieces.append(os.read(fd, asked))
        max_bytes -= len(pieces[-1])
        # A regular file answers with less than it was asked for at its end only.
        asked = min(_PIECE_BYTES, max_bytes) if len(pieces[-1]) == asked else 0
    return b"".join(pieces)


def open_own(path: Path | str, flags: int, *, dir_fd: int | None = None, mode: int = 0o600) -> int:
    """Open a regular file that this package writes, and return its descriptor.

    A file with a second name is refused: that name may be a file of the user.

    Args:
        path: The file, as for :func:`open_regular`.
        flags: How to open it, such as ``os.O_RDWR | os.O_CREAT | os.O_APPEND``. Truncate the
            descriptor afterwards: ``os.O_TRUNC`` would come before the checks.
        dir_fd: Descriptor of the directory that a relative path is in.
        mode: Permissions of a new file.

    Raises:
        OSError: It cannot be opened, is not a regular file, or has a second name. It names the
            path.
    """
    return _open(path, flags, dir_fd=dir_fd, mode=mode, is_own=True)


def _open(
    path: Path | str,
    flags: int,
    *,
    dir_fd: int | None,
    max_bytes: int | None = None,
    mode: int = 0o600,
    is_own: bool = False,
) -> int:
    try:
        fd = os.open(path, flags | _SAFE, mode, dir_fd=dir_fd)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "is a symbolic link", str(path)) from error
        if error.errno == errno.ENXIO:  # a pipe without a reader, a socket
            raise _not_regular(path) from error
        raise
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise _not_regular(path)
        if max_bytes is not None and status.st_size > max_bytes:
            raise _too_large(path, max_bytes)
        # A file without any name was replaced meanwhile; its writers look for that themselves.
        if is_own and status.st_nlink > 1:
            raise OSError(errno.EMLINK, "has a second name (a hard link)", str(path))
    except BaseException:
        os.close(fd)
        raise
    return fd


def _not_regular(path: Path | str) -> OSError:
    return OSError(errno.EINVAL, "is not a regular file", str(path))


def _too_large(path: Path | str, max_bytes: int) -> OSError:
    return OSError(errno.EFBIG, f"is larger than {max_bytes} bytes", str(path))
