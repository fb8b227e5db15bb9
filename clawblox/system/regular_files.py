"""Opens files that a world, an agent or a stranger can replace at any moment.

Opening never waits, does not follow links, and accepts only regular files. So a pipe, a device or a
link in place of a file is an error that names the path. Every read has a limit; a sparse file of
terabytes is refused before any byte is read. If directories can be replaced too, every path is
walked through directory descriptors, one component at a time, so replacing a directory with a link
does not redirect the path. Everything here blocks only for disk access.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath
from typing import Final, NamedTuple

PRIVATE_FILE: Final = 0o600
PRIVATE_DIR: Final = 0o700

OPEN_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
"""Flags that open a directory without following a link."""

_WILDCARD: Final = re.compile(r"[*?[]")
_PIECE_BYTES: Final = 1 << 16
_DIGESTED_BYTES: Final = 1 << 20
_MAX_LINE_BYTES: Final = 64 << 20
_SAFE: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


@contextlib.contextmanager
def closing_fd(fd: int) -> Iterator[int]:
    """Yield an open descriptor, and close it at the end of the block."""
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def naming(root: Path, path: str | PurePath) -> Iterator[None]:
    """Add the path of a file below a directory to an OSError in the block."""
    try:
        yield
    except OSError as error:
        error.filename = str(root / path)
        raise


def open_regular(
    path: Path | str, *, dir_fd: int | None = None, max_bytes: int | None = None
) -> int:
    """Open a regular file for reading and return its descriptor.

    Args:
        path: The file. Its directory is trusted; use :func:`open_file` if another program can
            replace the directory too.
        dir_fd: Descriptor of the directory that a relative path is in.
        max_bytes: Maximum apparent size in bytes; None means no limit.

    Raises:
        OSError: The file cannot be opened, is not a regular file, or is larger. The error names the
            path.
    """
    return _open(path, os.O_RDONLY, dir_fd=dir_fd, max_bytes=max_bytes)


def read_regular(path: Path | str, *, dir_fd: int | None = None, max_bytes: int) -> bytes:
    """Return the content of a regular file.

    Args:
        path: The file, as for :func:`open_regular`.
        dir_fd: Descriptor of the directory that a relative path is in.
        max_bytes: Maximum size in bytes.

    Raises:
        OSError: The file cannot be read, is not a regular file, or is larger. The error names the
            path.
    """
    with closing_fd(open_regular(path, dir_fd=dir_fd, max_bytes=max_bytes)) as fd:
        data = read_rest(fd, max_bytes=max_bytes + 1)
    if len(data) > max_bytes:  # it grew in the meantime
        raise _too_large(path, max_bytes)
    return data


def read_rest(fd: int, *, max_bytes: int) -> bytes:
    """Return the rest of an open file, from its position to its end.

    The file is read in pieces, because a single read of ``max_bytes`` would reserve that much
    memory.

    Args:
        fd: Descriptor of the file.
        max_bytes: Maximum number of bytes to return.

    Raises:
        OSError: The file cannot be read.
    """
    rest = os.fstat(fd).st_size - os.lseek(fd, 0, os.SEEK_CUR)
    pieces: list[bytes] = []
    asked = min(max(rest, 0) + 1, max_bytes)
    while asked > 0:
        pieces.append(os.read(fd, asked))
        max_bytes -= len(pieces[-1])
        # A read of a regular file is short only at its end.
        asked = min(_PIECE_BYTES, max_bytes) if len(pieces[-1]) == asked else 0
    return b"".join(pieces)


def digest_open(fd: int, *, max_bytes: int, check: Callable[[], object] = lambda: None) -> str:
    """Return the SHA-256 digest of the rest of an open file, in hexadecimal.

    Args:
        fd: Descriptor of the file.
        max_bytes: Maximum number of bytes to read, including holes of a sparse file.
        check: Called for each mebibyte; ends the call by raising an error.

    Raises:
        OSError: The file cannot be read, or is larger.
    """
    digest = hashlib.sha256()
    while piece := os.read(fd, _DIGESTED_BYTES):
        check()
        max_bytes -= len(piece)
        if max_bytes < 0:
            raise OSError(errno.EFBIG, "has become too large")
        digest.update(piece)
    return digest.hexdigest()


def open_own(path: Path | str, flags: int) -> int:
    """Open a regular file that this package writes, and return its descriptor.

    A file with a second hard link is refused, because that may be a file of the user.

    Args:
        path: The file, as for :func:`open_regular`.
        flags: Flags such as ``os.O_RDWR | os.O_CREAT | os.O_APPEND``. Truncate the descriptor
            afterwards, because ``os.O_TRUNC`` would act before the checks.

    Raises:
        OSError: The file cannot be opened, is not a regular file, or has a second hard link. The
            error names the path.
    """
    return _open(path, flags, is_own=True)


def _open(
    path: Path | str,
    flags: int,
    *,
    dir_fd: int | None = None,
    max_bytes: int | None = None,
    is_own: bool = False,
) -> int:
    try:
        fd = os.open(path, flags | _SAFE, PRIVATE_FILE, dir_fd=dir_fd)
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
        # A file without a name was just replaced; its writers check that themselves.
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


# -- below a directory that another program may change -----------------------------------------


class FoundFile(NamedTuple):
    """A regular file found by :func:`find_files`.

    Attributes:
        path: Path of the file.
        size: Size of the file in bytes.
        mtime_ns: Time of the last change, in nanoseconds of Unix time.
    """

    path: Path
    size: int
    mtime_ns: int


def last_line_start(fd: int, end: int, *, least: int = 0) -> int:
    """Return the offset after the last newline between two offsets of an open file.

    Args:
        fd: The open file.
        end: Upper offset, where the backward search starts.
        least: Lower offset, which is returned if no newline is found.
    """
    while end > least:
        start = max(least, end - _PIECE_BYTES)
        newline = os.pread(fd, end - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return least


def open_directory(root: Path, path: str = "") -> int:
    """Open a directory and return its descriptor.

    Args:
        root: A directory; its own path is trusted.
        path: Path below ``root``, with ``/`` between components; links are not followed.

    Raises:
        OSError: The path does not exist or is not a directory.
    """
    return _open_directory(root, path, creates=False)


def open_file(root: Path, path: str) -> int:
    """Open a regular file for reading without waiting, and return its descriptor.

    Args:
        root: A directory; its own path is trusted.
        path: Path below ``root``, with ``/`` between components; links are not followed.

    Raises:
        OSError: The path does not exist or is not a regular file.
    """
    with opened_parent(root, path) as (parent, name):
        return open_regular(name, dir_fd=parent)


def read_file(root: Path, path: str, *, max_bytes: int) -> bytes:
    """Return the content of a regular file.

    Args:
        root: A directory; its own path is trusted.
        path: Path below ``root``, with ``/`` between components; links are not followed.
        max_bytes: Maximum size in bytes.

    Raises:
        OSError: The path does not exist, is not a regular file, or the file is larger.
    """
    with opened_parent(root, path) as (parent, name):
        return read_regular(name, dir_fd=parent, max_bytes=max_bytes)


def find_outsider(root: Path, path: str) -> str | None:
    """Return how another user may have placed a file or directory; None if that is impossible.

    Every path component from ``root`` down to the file must belong to the caller or root, be
    writable only by them, and not be a link. Sticky directories are no exception, because everyone
    can add entries to them.

    Args:
        root: A directory, resolved.
        path: Path below ``root``, with ``/`` between components; empty means ``root`` itself.
    """
    place = root
    for part in ("", *path.split("/")):
        place /= part
        try:
            # The directories above have passed, so other users cannot replace it after this check.
            status = place.lstat()
        except OSError as error:
            return f"{place} cannot be inspected: {error.strerror}"
        if stat.S_ISLNK(status.st_mode):
            return f"{place} is a symbolic link"
        if status.st_uid not in (0, os.geteuid()):
            return f"{place} belongs to user {status.st_uid}"
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return f"other users can write {place}"
    return None


@contextlib.contextmanager
def opened_parent(root: Path, path: str, *, creates: bool = False) -> Iterator[tuple[int, str]]:
    """Open the directory that a file is in, for the duration of the block.

    Args:
        root: A directory; its own path is trusted.
        path: Path of the file below ``root``; links are not followed.
        creates: Whether missing directories below ``root`` are created as 0700.

    Yields:
        A descriptor of the directory, and the name of the file in it.

    Raises:
        OSError: The directory cannot be opened. An OSError in the block names the file.
    """
    directory, _, name = path.rpartition("/")
    opened = closing_fd(_open_directory(root, directory, creates=creates))
    with opened as parent, naming(root, path):
        yield parent, name


def rewrite_lines(
    root: Path,
    path: str,
    rewrite: Callable[[bytes], bytes],
    *,
    max_bytes: int,
) -> None:
    """Rewrite a regular file line by line; a reader finds either the old file or the new file.

    Args:
        root: A directory; its own path is trusted.
        path: Path below ``root``, with ``/`` between components; links are not followed.
        rewrite: Returns the replacement of a line; lines include their newline.
        max_bytes: Maximum apparent size of the file.

    Raises:
        OSError: The file does not exist, is not a regular file, is larger, has a line of more than
            64 MiB, or cannot be written. The file is unchanged.
    """
    directory, _, name = path.rpartition("/")
    parent, new_name = open_directory(root, directory), f".{name}.partial"
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new_name, dir_fd=parent)
        with (
            os.fdopen(open_regular(name, dir_fd=parent, max_bytes=max_bytes), "rb", 1 << 20) as old,
            os.fdopen(create_regular(new_name, dir_fd=parent), "wb") as new,
        ):
            while line := old.readline(_MAX_LINE_BYTES + 1):
                if len(line) > _MAX_LINE_BYTES:
                    message = f"has a line of more than {_MAX_LINE_BYTES} bytes"
                    raise OSError(errno.EFBIG, message, str(root / path))
                new.write(rewrite(line))
            new.flush()
            os.fsync(new.fileno())
        os.rename(new_name, name, src_dir_fd=parent, dst_dir_fd=parent)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(new_name, dir_fd=parent)
        os.close(parent)


def create_regular(path: Path | str, *, dir_fd: int | None = None) -> int:
    """Create a private file for writing and return its descriptor.

    Args:
        path: The file. Its directory is trusted.
        dir_fd: Descriptor of the directory that a relative path is in.

    Raises:
        OSError: The file cannot be created, or an entry has its name, even a link.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(path, flags, PRIVATE_FILE, dir_fd=dir_fd)


def find_files(root: Path, pattern: str) -> list[FoundFile]:
    """Return the regular files whose path below ``root`` matches, in no particular order.

    Args:
        root: A directory, which may be missing; its own path is trusted.
        pattern: A pattern of :mod:`fnmatch` for each component, separated by ``/``.
    """
    try:
        fd = open_directory(root)
    except OSError:
        return []
    return [*_find(fd, root, pattern.split("/"))]


def _find(directory: int, place: Path, patterns: list[str]) -> Iterator[FoundFile]:
    """Yield the files of an open directory, and close it."""
    with closing_fd(directory):
        is_name = not _WILDCARD.search(patterns[0])
        names = patterns[:1] if is_name else fnmatch.filter(os.listdir(directory), patterns[0])
        for name in names:
            with contextlib.suppress(OSError):  # it is missing, or has changed its kind
                if patterns[1:]:
                    deeper = os.open(name, OPEN_DIRECTORY, dir_fd=directory)
                    yield from _find(deeper, place / name, patterns[1:])
                    continue
                status = os.stat(name, dir_fd=directory, follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    yield FoundFile(place / name, status.st_size, status.st_mtime_ns)


def make_directory(root: Path, path: str) -> int:
    """Open a directory, creating it and its missing parents as 0700; return its descriptor.

    Args:
        root: An existing directory; its own path is trusted.
        path: Path below ``root``, with ``/`` between components; links are not followed.

    Raises:
        OSError: The directory cannot be created, or another kind of entry has its name.
    """
    return _open_directory(root, path, creates=True)


def _open_directory(root: Path, path: str, *, creates: bool) -> int:
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for part in filter(None, path.split("/")):
        with closing_fd(fd):
            if creates:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, PRIVATE_DIR, dir_fd=fd)
            fd = os.open(part, OPEN_DIRECTORY, dir_fd=fd)
    return fd
