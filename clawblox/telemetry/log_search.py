"""Places in a log of any length: the borders of its lines, and where a text occurs. Blocks.

Offsets count over all segments of the log (``log_segments``). No more than a block of the log is in
memory.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from clawblox.system.regular_files import open_regular
from clawblox.telemetry.log_segments import LogSegment, list_segments
from clawblox.telemetry.tail import MAX_LINE_BYTES, read_segment

_STEP_BYTES: Final = 16 * 1024
_BLOCK_BYTES: Final = 1 << 20


class FoundLines(NamedTuple):
    """Result of a search.

    Attributes:
        offsets: Where the lines begin that contain the text.
        end: Where to continue the search, also once the log has grown.
        is_all: Whether the log was searched to its end.
    """

    offsets: list[int]
    end: int
    is_all: bool


class _Part(NamedTuple):
    """An open segment; without a descriptor, the empty end of the log."""

    fd: int
    start: int
    end: int

    def read(self, offset: int, size: int) -> bytes:
        size = min(size, self.end - offset)
        return os.pread(self.fd, size, offset - self.start) if size > 0 else b""

    def find_start(self, offset: int) -> int:
        """Return the offset behind the last newline before, at most the longest line away."""
        least = max(self.start, offset - MAX_LINE_BYTES)
        while offset > least:
            begin = max(least, offset - _STEP_BYTES)
            if (found := self.read(begin, offset - begin).rfind(b"\n")) >= 0:
                return begin + found + 1
            offset = begin
        return least

    def find_data(self, offset: int) -> int:
        """Return the offset of the next byte outside of the holes of a sparse file."""
        try:
            return self.start + os.lseek(self.fd, offset - self.start, os.SEEK_DATA)
        except OSError:  # no more data follows
            return self.end


def _find_segment(log: Path, offset: int) -> LogSegment | None:
    """Return the segment that contains a byte, or the next one."""
    return next((part for part in list_segments(log) if part.end > offset), None)


@contextmanager
def _open_part(log: Path, offset: int) -> Iterator[_Part]:
    """Open the segment that contains a byte, or the next one."""
    segment = _find_segment(log, offset)
    if segment is None:
        yield _Part(-1, offset, offset)
        return
    fd = open_regular(segment.path)
    try:
        yield _Part(fd, segment.start, segment.end)
    finally:
        os.close(fd)


def find_line_end(log: Path, offset: int) -> int:
    """Return the offset behind the line that contains a byte.

    Raises:
        OSError: The log cannot be read.
    """
    segment = _find_segment(log, offset)
    if segment is None:
        return offset
    with closing(read_segment(segment, max(offset, segment.start))) as lines:
        return min(segment.end, next((line.offset + line.size + 1 for line in lines), offset))


def find_line_start(log: Path, offset: int) -> int:
    """Return the offset of the line that contains a byte; of a line over 8 MiB, only near the byte.

    Raises:
        OSError: The log cannot be read.
    """
    with _open_part(log, offset) as part:
        return part.find_start(max(offset, part.start))


def find_lines(log: Path, text: str, *, start: int = 0, max_lines: int = 100) -> FoundLines:
    """Find the lines of a log that contain a text, as it is or as in a JSON document.

    ASCII letters match in upper and lower case.

    Args:
        log: The log; a missing log has no lines.
        text: The text.
        start: Offset of the first line to search.
        max_lines: Maximum number of lines to return.

    Raises:
        OSError: The log cannot be read.
    """
    offsets: list[int] = []
    forms, resume = _encode(text), start
    while forms:
        with _open_part(log, start) as part:
            if part.fd < 0:
                break
            start = max(start, part.start)
            while (hit := _find(part, forms, start)) is not None:
                if len(offsets) == max_lines:
                    return FoundLines(offsets, start, is_all=False)
                offsets.append(part.find_start(hit))
                start = find_line_end(log, hit)
            # A last line that is incomplete is to be searched again.
            resume, start = part.find_start(part.end), part.end
    return FoundLines(offsets, resume, is_all=True)


def _encode(text: str) -> list[bytes]:
    """Return the forms in which a text may stand in a line, in lower case."""
    escaped = (json.dumps(text, ensure_ascii=is_ascii)[1:-1] for is_ascii in (True, False))
    forms = {form.encode(errors="replace").lower() for form in (text, *escaped)}
    return [form for form in forms if form]


def _find(part: _Part, forms: list[bytes], offset: int) -> int | None:
    """Return the offset of the first of several texts."""
    overlap = max(map(len, forms)) - 1
    offset = part.find_data(offset)
    while block := part.read(offset, _BLOCK_BYTES + overlap).lower():
        places = (block.find(form) for form in forms)
        if (hit := min((place for place in places if place >= 0), default=-1)) >= 0:
            return offset + hit
        offset = part.find_data(offset + _BLOCK_BYTES)
    return None
