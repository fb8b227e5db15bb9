"""Files that pages show: opened below one directory only, and read in windows of whole lines.

A path may come from the records of a stranger. So it is resolved first, must then be below the
directory of the pages, and is opened without following a link, without waiting, and only if it is
a regular file. Everything here blocks no longer than the disk does.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs

from clawblox.system.regular_files import open_file

WINDOW_BYTES: Final = 64 << 10
"""Usual size of a window."""
MAX_WINDOW_BYTES: Final = 256 << 10
_MIN_WINDOW_BYTES: Final = 8
"""Longer than any character, so that each window has at least one."""


@contextlib.contextmanager
def opened_below(root: Path, path: Path) -> Iterator[int]:
    """Open a regular file for reading while the block runs, and yield its descriptor.

    Args:
        root: The directory that it must be in, once every link in both paths is resolved.
        path: The file; a relative path starts from ``root``.

    Raises:
        OSError: It is not below ``root``, cannot be opened, or is not a regular file. It names the
            path.
    """
    try:
        top, place = Path(os.path.realpath(root)), Path(os.path.realpath(root / path))
    except ValueError as error:  # a NUL, which a record can hold
        raise OSError(errno.EINVAL, "is no path", str(path)) from error
    if not place.is_relative_to(top):
        raise OSError(errno.EACCES, f"is not below {top}", str(path))
    # A directory that becomes a link from now on is refused.
    fd = open_file(top, str(place.relative_to(top)))
    try:
        yield fd
    finally:
        os.close(fd)


@attrs.frozen
class Window:
    """A part of a file.

    Attributes:
        start: Offset of its first byte.
        data: Its bytes.
        size: Length of the whole file when the window was read, in bytes.
        starts_line: Whether a line begins at ``start``.
    """

    start: int
    data: bytes = attrs.field(repr=False)
    size: int
    starts_line: bool

    @property
    def end(self) -> int:
        """Offset after its last byte, where the next window begins."""
        return self.start + len(self.data)

    @property
    def ends_line(self) -> bool:
        """Whether its last line is complete; a later window continues the line otherwise."""
        return self.data.endswith(b"\n")

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield the offset and the text of each line, as :func:`decode` shows it."""
        position = self.start
        for line in self.data.split(b"\n"):
            if position < self.end:  # the last newline begins no line
                yield position, decode(line)
            position += len(line) + 1


def decode(data: bytes) -> str:
    r"""Return bytes as text; a byte that is not UTF-8 is shown as an escape like ``\xff``."""
    return data.decode(errors="backslashreplace")


def read_from(fd: int, start: int, max_bytes: int = WINDOW_BYTES) -> Window:
    """Return the window that begins at an offset and ends with a line.

    It ends within a line, but not within a character, if the line is longer than the window; and at
    the end of the file. Windows that each begin at the end of the one before give the whole file.

    Args:
        fd: Descriptor of the file.
        start: The offset, such as ``Window.end``; beyond the end of the file it is the end.
        max_bytes: Maximum size of the window, at most 256 KiB.

    Raises:
        OSError: The file cannot be read.
    """
    return _read(fd, start, max_bytes, start)


def read_before(fd: int, end: int, max_bytes: int = WINDOW_BYTES) -> Window:
    """Return the window that ends at an offset and begins with a line.

    Args:
        fd: Descriptor of the file.
        end: The offset, such as ``Window.start``; beyond the end of the file it is the end.
        max_bytes: Maximum size of the window, at most 256 KiB.

    Raises:
        OSError: The file cannot be read.
    """
    size = os.fstat(fd).st_size
    end = min(max(end, 0), size)
    first = max(0, end - _clamp(max_bytes))
    before, data = _pread(fd, first, end)
    skipped = 0
    if before not in (b"", b"\n"):
        skipped = data.find(b"\n", 0, -1) + 1 or _start_of_characters(data)
    starts_line = (before + data[:skipped])[-1:] in (b"", b"\n")
    return Window(first + skipped, data[skipped:], size, starts_line)


def read_around(fd: int, at: int, max_bytes: int = WINDOW_BYTES) -> Window:
    """Return a window that begins with a line and has the byte at an offset near its middle.

    Args:
        fd: Descriptor of the file.
        at: The offset.
        max_bytes: Maximum size of the window, at most 256 KiB.

    Raises:
        OSError: The file cannot be read.
    """
    max_bytes = max(max_bytes, 2 * _MIN_WINDOW_BYTES)
    return _read(fd, read_before(fd, at, max_bytes // 2).start, max_bytes, at)


def cut_window(data: bytes, lead: bytes, start: int, size: int, at: int = 0) -> Window:
    """Return bytes of a file as a window that ends with a line.

    Args:
        data: The bytes.
        lead: The byte before them; empty at the start of the file.
        start: Offset of the first byte.
        size: Length of the whole file.
        at: Offset of a byte that the window must include.
    """
    end = len(data)
    if start + end < size:
        end = data.rfind(b"\n", max(at - start, 0)) + 1 or _end_of_characters(data)
    return Window(start, data[:end], size, lead in (b"", b"\n"))


def _read(fd: int, start: int, max_bytes: int, at: int) -> Window:
    size = os.fstat(fd).st_size
    start = min(max(start, 0), size)
    lead, data = _pread(fd, start, start + _clamp(max_bytes))
    return cut_window(data, lead, start, size, at)


def _clamp(max_bytes: int) -> int:
    return min(max(max_bytes, _MIN_WINDOW_BYTES), MAX_WINDOW_BYTES)


def _pread(fd: int, start: int, end: int) -> tuple[bytes, bytes]:
    """Return the byte before a range of a file, none at the start of the file, and the range."""
    first = max(start - 1, 0)
    data = os.pread(fd, end - first, first)
    return data[: start - first], data[start - first :]


def _start_of_characters(data: bytes) -> int:
    """Return an offset near the start at which a UTF-8 character begins."""
    return next((at for at in range(min(4, len(data))) if data[at] & 0xC0 != 0x80), 0)


def _end_of_characters(data: bytes) -> int:
    """Return an offset near the end at which no UTF-8 character is cut in two."""
    for back in range(1, min(4, len(data) - 1) + 1):
        if data[-back] & 0xC0 != 0x80:  # the first byte of the last character
            return len(data) - (back if data[-back] >= 0xC0 else 0)
    return len(data)
