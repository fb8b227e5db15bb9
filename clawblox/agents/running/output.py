"""Reading the log that a program appends to, line by line, however long the lines are. Blocks.

The program writes to the log itself, so nothing is lost when this process is slow or dies. Memory
per line is bounded: a longer line is counted and skipped.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from clawblox.agents.drivers.driver import Conversation
from clawblox.agents.values import Report
from clawblox.system.regular_files import open_regular
from clawblox.telemetry.log_segments import LogSegment, list_segments
from clawblox.telemetry.own_log import OwnLog

_log = OwnLog(__name__)

CHUNK_BYTES: Final = 64 * 1024
"""Maximum bytes that one call reads."""

MAX_LINE_BYTES: Final = 8 * 1024 * 1024
"""Longest line that is kept."""


class Line(NamedTuple):
    """One line of output, without its newline.

    Attributes:
        offset: Where it begins in the log.
        size: Its length in bytes.
        data: The line; None if it was too long to keep.
    """

    offset: int
    size: int
    data: bytes | None


def read_lines(log: Path, start: int = 0) -> Iterator[Line]:
    """Yield the lines of a log and of its older segments; the last one may lack its newline.

    Args:
        log: The log; a missing log has no lines.
        start: Offset at which the first line begins.

    Raises:
        OSError: A segment cannot be read.
    """
    for segment in list_segments(log):
        if segment.end > start:
            yield from _read_segment(segment, max(start, segment.start))


def _read_segment(segment: LogSegment, start: int) -> Iterator[Line]:
    reader = OutputReader(segment.path, start, begins_at=segment.start, end=segment.end)
    try:
        position = -1
        while position != reader.position:
            position = reader.position
            yield from reader.read()
        yield from reader.take_rest()
    finally:
        reader.close()


def read_reports(
    conversation: Conversation, lines: Iterable[Line], agent: str
) -> list[tuple[int, Report]]:
    """Return the reports in lines, each with the offset of its line.

    Args:
        conversation: Reads the lines.
        lines: The lines.
        agent: Full name of the agent.
    """
    reports: list[tuple[int, Report]] = []
    for line in lines:
        if line.data is None:
            reports.append((line.offset, Report("oversized", {"size_bytes": line.size})))
            continue
        try:
            for report in conversation.read(line.data):
                reports.append((line.offset, report))  # noqa: PERF401 - a generator costs more
        except Exception as error:  # noqa: BLE001 - an unreadable line has no reports
            _log.defect("line not understood", error, agent=agent, offset=line.offset)
    return reports


class OutputReader:
    """Reads a log from an offset.

    Args:
        path: The log; it exists.
        offset: Where the first line begins.
        begins_at: Offset of the first byte of the file; not 0 for a log with older segments.
        end: Offset at which reading stops; None reads as long as the log grows.

    Raises:
        OSError: It cannot be opened.

    Attributes:
        position: Offset of the next byte to be read.
        line_start: Offset of the first line that has not been returned.
    """

    def __init__(
        self, path: Path, offset: int, *, begins_at: int = 0, end: int | None = None
    ) -> None:
        self._fd = open_regular(path)
        self._begins_at = begins_at
        self._end = end
        self.position = offset
        self.line_start = offset
        self._size = 0
        self._pieces: list[bytes] = []

    def read(self) -> list[Line]:
        """Return the lines that end in the next chunk; none at the end of the log.

        Raises:
            OSError: The log cannot be read.
        """
        if self._end is None:
            size = CHUNK_BYTES
        else:
            self._skip_hole(self._end)
            size = min(CHUNK_BYTES, self._end - self.position)
        chunk = os.pread(self._fd, size, self.position - self._begins_at)
        self.position += len(chunk)
        return self._split(chunk)

    def _skip_hole(self, end: int) -> None:
        """Skip a hole in a sparse file; it may be terabytes long."""
        try:
            data = os.lseek(self._fd, self.position - self._begins_at, os.SEEK_DATA)
        except OSError:  # no more data follows
            data = end - self._begins_at
        hole = min(end, data + self._begins_at) - self.position
        if hole < CHUNK_BYTES:
            return
        self.position += hole
        if self._size + hole <= MAX_LINE_BYTES:
            self._keep(b"\0" * hole)
        else:
            self._size += hole
            self._pieces.clear()

    def touch(self) -> None:
        """Set the modification time of the log to now, because the agent was active.

        Raises:
            OSError: The time cannot be set.
        """
        os.utime(self._fd)

    def log_size(self) -> int:
        """Return the offset of the end of the log. Cheap, because the file is open."""
        return self._begins_at + os.fstat(self._fd).st_size

    def take_rest(self) -> list[Line]:
        """Return the last line if it lacks its newline; call this after its writer has ended."""
        return [self._end_line(0)] if self._size else []

    def close(self) -> None:
        """Close the log."""
        os.close(self._fd)

    def _split(self, chunk: bytes) -> list[Line]:
        first, *others = chunk.split(b"\n")
        self._keep(first)
        if not others:
            return []
        lines = [self._end_line(1)]
        rest = others.pop()
        for piece in others:
            size = len(piece)
            lines.append(Line(self.line_start, size, piece if size <= MAX_LINE_BYTES else None))
            self.line_start += size + 1
        self._keep(rest)
        return lines

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size <= MAX_LINE_BYTES:
            self._pieces.append(piece)
        else:
            self._pieces.clear()

    def _end_line(self, newline: int) -> Line:
        data = b"".join(self._pieces) if self._size <= MAX_LINE_BYTES else None
        line = Line(self.line_start, self._size, data)
        self.line_start += self._size + newline
        self._size = 0
        self._pieces.clear()
        return line


_FIRST_S: Final = 0.005
_WORKING_S: Final = 0.05
_QUIET_S: Final = 1.0
"""Maximum pauses."""

_LATE_S: Final = 2.0
"""A longer interval between two polls means that this process was stopped in between."""

_LONGER: Final = 1.3
"""Factor by which each pause is longer than the pause before."""


class LogPoller:
    """Chooses the pauses between polls of one log."""

    def __init__(self) -> None:
        self._pause_s = _FIRST_S
        self._polled_at = math.inf

    def begin_poll(self, now: float) -> float:
        """Return how long this process was stopped since the last poll, in seconds; usually 0.

        Args:
            now: Monotonic time in seconds.
        """
        since_s, self._polled_at = now - self._polled_at, now
        return since_s if since_s > _LATE_S else 0.0

    def reset(self) -> None:
        """Make the next poll come soon."""
        self._pause_s = _FIRST_S

    def next_pause(self, now: float, *, is_quiet: bool) -> float:
        """Return the seconds until the next poll.

        Args:
            now: Monotonic time in seconds.
            is_quiet: Whether no output is expected.
        """
        longest_s = _QUIET_S if is_quiet else _WORKING_S
        pause_s = min(self._pause_s, longest_s)
        self._pause_s = pause_s * _LONGER
        # All agents are polled at the same moments: the loop wakes up once, and one hop into a
        # thread reads for all.
        return longest_s - now % longest_s if pause_s == longest_s else pause_s
