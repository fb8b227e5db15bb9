"""Reads a file that may change in the meantime, and detects the change.

This module does a single reading; ``packing`` decides whether to read a changed file again.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager

from clawblox.checkpoint.model import MAX_RECORD_BYTES, Source
from clawblox.errors.checkpoint import os_errors_as
from clawblox.foreign_values import parse_object
from clawblox.system.regular_files import closing_fd, last_line_start

CHUNK_BYTES = 256 << 10
"""Size of a piece in bytes; the last piece may be smaller, rewritten pieces may be larger."""

_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EINVAL, errno.ENXIO)
_FORBIDDEN = (errno.EACCES, errno.EPERM)


def read_range(fd: int, start: int, length: int) -> Iterator[bytes]:
    """Yield a range of a file in pieces, up to the end of the file.

    Args:
        fd: The file, open for reading; its position is neither used nor changed.
        start: Offset of the range.
        length: Length of the range in bytes.

    Raises:
        OSError: The file cannot be read.
    """
    end = start + length
    while start < end and (chunk := os.pread(fd, min(CHUNK_BYTES, end - start), start)):
        start += len(chunk)
        yield chunk


class VanishedSource(Exception):  # noqa: N818 - names the condition; the caller decides
    """A regular file has been removed or replaced by another kind of file."""


class UnreadableSource(Exception):  # noqa: N818 - names the condition; the caller decides
    """This process is not permitted to open a file."""


class Intake:
    """A single reading of a source.

    Args:
        source: The file.
        fd: Descriptor of the file, open for reading.

    Attributes:
        status: Its status at the start of the reading.
        length: Number of bytes to read, before any rewriting.
    """

    def __init__(self, source: Source, fd: int) -> None:
        self._source = source
        self._fd = fd
        self._is_short = False
        with _translated(source):
            self.status = os.fstat(fd)
            size = self.status.st_size
            if source.max_bytes is not None and size > source.max_bytes:  # grew since the plan
                raise OSError(errno.EFBIG, f"it is larger than {source.max_bytes} bytes")
            self.length = _end_of_records(fd, size) if source.whole_lines else size
        if not stat.S_ISREG(self.status.st_mode):
            raise VanishedSource

    def chunks(self) -> Iterator[bytes]:
        """Yield the content in pieces, rewritten by the source's transform.

        Raises:
            CheckpointError: The file cannot be read.
        """
        transform = self._source.transform
        return self._read() if transform is None else _regrouped(transform(self._read()))

    def has_changed(self) -> bool:
        """Return whether the file has changed since the start of the reading.

        A file of whole lines that only grew counts as unchanged.

        Raises:
            CheckpointError: The status of the file cannot be read.
        """
        with _translated(self._source):
            now = os.fstat(self._fd)
        if self._source.whole_lines and now.st_size > self.status.st_size:
            return False
        return self._is_short or _stamp(now) != _stamp(self.status)

    def _read(self) -> Iterator[bytes]:
        left = self.length
        with _translated(self._source):
            for chunk in read_range(self._fd, 0, left):
                left -= len(chunk)
                yield chunk
        self._is_short = left > 0


@contextlib.contextmanager
def open_intake(source: Source) -> Iterator[Intake]:
    """Open a source for a single reading.

    Raises:
        VanishedSource: The path is no longer a regular file.
        UnreadableSource: This process is not permitted to open the file.
        CheckpointError: The file cannot be opened for another reason.
    """
    with _translated(source):
        fd = _open(source)
    with closing_fd(fd):
        yield Intake(source, fd)


def _open(source: Source) -> int:
    try:
        return source.open()
    except OSError as error:
        if error.errno in _GONE:
            raise VanishedSource from error
        if error.errno in _FORBIDDEN:
            raise UnreadableSource from error
        raise


def _end_of_records(fd: int, size: int) -> int:
    """Return the offset after the last complete record, which may lack its newline.

    An incomplete JSON object is never valid JSON, so a partially written record does not count as
    complete.
    """
    end = last_line_start(fd, size)
    if end == size or size - end > MAX_RECORD_BYTES:
        return end
    last = b"".join(read_range(fd, end, size - end))
    return end if parse_object(last) is None else size


def _regrouped(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the same content in pieces of the usual size; a transform may yield single lines."""
    held = bytearray()
    for piece in pieces:
        held += piece
        if len(held) >= CHUNK_BYTES:
            yield bytes(held)
            held.clear()
    yield bytes(held)


def _stamp(status: os.stat_result) -> tuple[int, int]:
    return status.st_size, status.st_mtime_ns


def _translated(source: Source) -> AbstractContextManager[None]:
    return os_errors_as("a file cannot be read", source.path, entry=source.name)
