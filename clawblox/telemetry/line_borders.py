"""The borders of the lines in a log of any length. Blocks.

Offsets count over all segments of the log (``log_segments``).
"""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import Final

from clawblox.system.regular_files import open_regular
from clawblox.telemetry.log_segments import LogSegment, list_segments
from clawblox.telemetry.tail import MAX_LINE_BYTES, read_segment

_STEP_BYTES: Final = 16 * 1024


def _find_segment(log: Path, offset: int) -> LogSegment | None:
    """Return the segment that contains a byte, or the next one."""
    return next((part for part in list_segments(log) if part.end > offset), None)


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
    segment = _find_segment(log, offset)
    if segment is None:
        return offset
    fd = open_regular(segment.path)
    try:
        return _find_start(fd, segment, max(offset, segment.start))
    finally:
        os.close(fd)


def _find_start(fd: int, segment: LogSegment, offset: int) -> int:
    """Return the offset behind the last newline before, at most the longest line away."""
    least = max(segment.start, offset - MAX_LINE_BYTES)
    while offset > least:
        begin = max(least, offset - _STEP_BYTES)
        block = os.pread(fd, offset - begin, begin - segment.start)
        if (found := block.rfind(b"\n")) >= 0:
            return begin + found + 1
        offset = begin
    return least
