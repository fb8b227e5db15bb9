"""Reads the lines of a growing log one by one, and finds their borders. Blocks.

The writer never waits for a reader. Memory per line is bounded: a line that is too long is counted
and skipped. Offsets count over all segments of the log (``log_segments``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from clawblox.system.regular_files import closing_fd, last_line_start, open_regular
from clawblox.telemetry.log_segments import LogSegment, list_segments

CHUNK_BYTES: Final = 64 * 1024
"""Maximum bytes per call."""

MAX_LINE_BYTES: Final = 8 * 1024 * 1024
"""Maximum length of a line that is kept, in bytes."""

_STEP_BYTES: Final = 16 * 1024


class FileLine(NamedTuple):
    """A line of a file, without its newline.

    Attributes:
        offset: Offset of its first byte in the log.
        size: Its length in bytes.
        data: The line; None if it was too long to keep.
    """

    offset: int
    size: int
    data: bytes | None


def read_lines(log: Path, start: int = 0) -> Generator[FileLine, None, None]:
    """Yield the lines of a log and of its older segments; the last line may lack its newline.

    Args:
        log: The log; a missing log has no lines.
        start: Offset of the first line.

    Raises:
        OSError: A segment cannot be read.
    """
    for segment in list_segments(log):
        if segment.end > start:
            yield from read_segment(segment, max(start, segment.start))


def read_segment(segment: LogSegment, start: int) -> Generator[FileLine, None, None]:
    """Yield the lines of a log's segment, starting at an offset, like :func:`read_lines`."""
    tail = Tail(segment.path, start, begins_at=segment.start, end=segment.end)
    try:
        yield from tail.read_on()
        yield from tail.take_rest()
    finally:
        tail.close()


class Tail:
    """The lines of a growing file, starting at an offset. The file is opened by the first read.

    Args:
        path: The file.
        offset: Offset of the first line.
        begins_at: Offset of the first byte of the file; above 0 for a log with older segments.
        end: Offset at which reading stops; None reads as long as the file grows.

    Attributes:
        path: The file.
        position: Offset of the next byte to read.
        line_start: Offset of the first line not yet returned.
        end: Offset at which reading stops; earlier holes of a sparse file are skipped.
    """

    def __init__(
        self, path: Path, offset: int = 0, *, begins_at: int = 0, end: int | None = None
    ) -> None:
        self.path = path
        self._fd = self._inode = -1
        self._begins_at = begins_at
        self.end = end
        self.seek(offset)

    def seek(self, offset: int) -> None:
        """Continue with the line at ``offset``."""
        self.position = self.line_start = offset
        self._size = 0
        self._pieces: list[bytes] = []

    def open(self) -> None:
        """Open the file unless it is open.

        Raises:
            OSError: The file cannot be opened.
        """
        if self._fd < 0:
            self._fd = open_regular(self.path)
            self._inode = os.fstat(self._fd).st_ino

    def close(self) -> None:
        """Close the file; the next read opens it again at the same offset."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def follow(self) -> bool:
        """Go to the start of the file if it was replaced or cut.

        Read an open file to its end before the call.

        Returns:
            Whether the file was replaced or cut.

        Raises:
            OSError: The file cannot be opened.
        """
        status = os.stat(self.path)  # noqa: PTH116 - several times a second
        is_new = self._inode not in (-1, status.st_ino) or status.st_size < self.position
        if is_new:
            self.close()
            self.seek(0)
        self.open()
        return is_new

    def read_on(self) -> Iterator[FileLine]:
        """Yield the complete lines up to the end of the file.

        Raises:
            OSError: The file cannot be read.
        """
        position = -1
        while position != self.position:
            position = self.position
            yield from self.read()

    def read(self) -> list[FileLine]:
        """Return the lines that end in the next chunk; empty at the end of the file.

        Raises:
            OSError: The file cannot be read.
        """
        self.open()
        if self.end is None:
            size = CHUNK_BYTES
        else:
            self._skip_hole(self.end)
            size = min(CHUNK_BYTES, self.end - self.position)
        chunk = os.pread(self._fd, size, self.position - self._begins_at)
        self.position += len(chunk)
        return self._split(chunk)

    def _skip_hole(self, end: int) -> None:
        """Skip a hole in a sparse file, which may be terabytes long."""
        hole = pass_hole(self._fd, self.position, self._begins_at, end) - self.position
        if hole > MAX_LINE_BYTES:  # a shorter hole is read as zeros
            self.position += hole
            self._size += hole
            self._pieces.clear()

    def log_size(self) -> int:
        """Return the offset of the end of the file. Cheap if the file is open."""
        self.open()
        return self._begins_at + os.fstat(self._fd).st_size

    def take_rest(self) -> list[FileLine]:
        """Return the last line if it lacks its newline; call this after the writer has ended."""
        return [self._end_line(0)] if self._size else []

    def _split(self, chunk: bytes) -> list[FileLine]:
        first, *others = chunk.split(b"\n")
        self._keep(first)
        if not others:
            return []
        lines = [self._end_line(1)]
        rest = others.pop()
        for piece in others:
            size = len(piece)
            lines.append(FileLine(self.line_start, size, piece if size <= MAX_LINE_BYTES else None))
            self.line_start += size + 1
        self._keep(rest)
        return lines

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size <= MAX_LINE_BYTES:
            self._pieces.append(piece)
        else:
            self._pieces.clear()

    def _end_line(self, newline: int) -> FileLine:
        data = b"".join(self._pieces) if self._size <= MAX_LINE_BYTES else None
        line = FileLine(self.line_start, self._size, data)
        self.line_start += self._size + newline
        self._size = 0
        self._pieces.clear()
        return line


# -- the borders of lines -------------------------------------------------------------------------


def find_line_end(segments: Sequence[LogSegment], offset: int) -> int:
    """Return the offset after the line that contains a byte.

    Args:
        segments: The segments of the log.
        offset: Offset of the byte; an offset after the end of the log is returned unchanged.

    Raises:
        OSError: The log cannot be read.
    """
    return _search(segments, offset, _find_end)


def find_line_start(segments: Sequence[LogSegment], offset: int) -> int:
    """Return the offset of the line that contains a byte; at most 8 MiB before the byte.

    See :func:`find_line_end`.
    """
    return _search(segments, offset, _find_start)


def _search(
    segments: Sequence[LogSegment], offset: int, find: Callable[[int, LogSegment, int], int]
) -> int:
    """Search the segment that contains a byte, or the next segment."""
    segment = next((part for part in segments if part.end > offset), None)
    if segment is None:
        return offset
    with closing_fd(open_regular(segment.path)) as fd:
        return find(fd, segment, max(offset, segment.start))


def _find_end(fd: int, segment: LogSegment, offset: int) -> int:
    """Return the offset after the next newline, or after the last byte."""
    while block := os.pread(fd, _STEP_BYTES, offset - segment.start):
        if (found := block.find(b"\n")) >= 0:
            return min(segment.end, offset + found + 1)
        offset = pass_hole(fd, offset + len(block), segment.start, segment.end)
    return segment.end


def _find_start(fd: int, segment: LogSegment, offset: int) -> int:
    """Return the offset after the preceding newline, at most the maximum line length away."""
    place = offset - segment.start
    least = max(0, place - MAX_LINE_BYTES)
    return segment.start + last_line_start(fd, place, least=least)


def pass_hole(fd: int, offset: int, start: int, end: int) -> int:
    """Return the offset of the next byte outside the holes of a sparse file.

    Args:
        fd: Descriptor of a segment.
        offset: Start of the search.
        start: Offset of the first byte of the segment.
        end: Offset after its last byte.
    """
    try:
        return min(end, start + os.lseek(fd, offset - start, os.SEEK_DATA))
    except OSError:  # no more data follows
        return end
