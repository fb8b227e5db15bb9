"""The borders of the lines in a log of any length. Blocks.

Offsets count over all segments of the log (``log_segments``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Final

from clawblox.system.regular_files import closing_fd, last_line_start, open_regular
from clawblox.telemetry.log_segments import LogSegment
from clawblox.telemetry.tail import MAX_LINE_BYTES

_STEP_BYTES: Final = 16 * 1024


def find_line_end(segments: Sequence[LogSegment], offset: int) -> int:
    """Return the offset behind the line that contains a byte.

    Args:
        segments: The segments of the log.
        offset: The byte; behind the end of the log it is returned as it is.

    Raises:
        OSError: The log cannot be read.
    """
    return _search(segments, offset, _find_end)


def find_line_start(segments: Sequence[LogSegment], offset: int) -> int:
    """Return the offset of the line that contains a byte; of a line over 8 MiB, only near the byte.

    See :func:`find_line_end`.
    """
    return _search(segments, offset, _find_start)


def _search(
    segments: Sequence[LogSegment], offset: int, find: Callable[[int, LogSegment, int], int]
) -> int:
    """Search the segment that contains a byte, or else the next one."""
    segment = next((part for part in segments if part.end > offset), None)
    if segment is None:
        return offset
    with closing_fd(open_regular(segment.path)) as fd:
        return find(fd, segment, max(offset, segment.start))


def _find_end(fd: int, segment: LogSegment, offset: int) -> int:
    """Return the offset behind the next newline, or behind the last byte."""
    while block := os.pread(fd, _STEP_BYTES, offset - segment.start):
        if (found := block.find(b"\n")) >= 0:
            return min(segment.end, offset + found + 1)
        offset = pass_hole(fd, segment, offset + len(block))
    return segment.end


def _find_start(fd: int, segment: LogSegment, offset: int) -> int:
    """Return the offset behind the last newline before, at most the longest line away."""
    place = offset - segment.start
    least = max(0, place - MAX_LINE_BYTES)
    return segment.start + last_line_start(fd, place, least=least)


def pass_hole(fd: int, segment: LogSegment, offset: int) -> int:
    """Return the offset of the next byte outside of the holes of a sparse file.

    Args:
        fd: Descriptor of the segment.
        segment: The segment.
        offset: Where to begin.
    """
    try:
        found = segment.start + os.lseek(fd, offset - segment.start, os.SEEK_DATA)
        return min(found, segment.end)
    except OSError:  # no more data follows
        return segment.end
