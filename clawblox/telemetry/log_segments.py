"""Logs in numbered segments, with offsets that never change.

A log is never cut if others refer to its offsets. When it is too long, it is renamed, and a new
file gets its name: ``agent.log.1.0-1073741903``, then ``agent.log``. The numbers in the name are
the number of the segment, and the offsets of its start and its end. Offsets count from the start of
the first segment. Older segments may be removed; the name of the newest contains the offset at
which the log's own file starts. Each segment has its own index (``log_times``), and keeps it when
it is renamed. Everything here blocks.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from clawblox.system.append_log import append_lines
from clawblox.system.regular_files import open_own
from clawblox.telemetry.log_times import LogTimes, index_path

SEGMENT_SUFFIX: Final = r"\.[1-9][0-9]{0,5}\.[0-9]{1,15}-[0-9]{1,15}"
"""Regular expression for the suffix in the names of a log's older segments."""

_NUMBERS: Final = re.compile(r"\.(\d+)\.(\d+)-(\d+)")


class LogSegment(NamedTuple):
    """A part of a log.

    Attributes:
        path: Its file.
        start: Offset of its first byte in the log.
        end: Offset after its last byte. The file may be longer: later writes of a background
            process are not part of the log.
        number: Its number, from 1.
    """

    path: Path
    start: int
    end: int
    number: int


def list_segments(log: Path) -> list[LogSegment]:
    """Return the segments of a log, the oldest first; the last is the log itself.

    Args:
        log: The log; if it is missing and has no older segments, the result is empty.
    """
    segments: list[LogSegment] = []
    for segment in sorted(_older_segments(log), key=lambda segment: segment.start):
        if segment.start >= (segments[-1].end if segments else 0) and segment.end > segment.start:
            segments.append(segment)
    start, number = (segments[-1].end, segments[-1].number) if segments else (0, 0)
    with contextlib.suppress(OSError):
        segments.append(LogSegment(log, start, start + log.lstat().st_size, number + 1))
    return segments


def _older_segments(log: Path) -> Iterable[LogSegment]:
    pattern = re.compile(re.escape(log.name) + SEGMENT_SUFFIX)
    try:
        names = os.listdir(log.parent)  # noqa: PTH208 - names, not paths
    except OSError:
        return
    for name in filter(pattern.fullmatch, names):
        number, start, end = map(int, _NUMBERS.findall(name[len(log.name) :])[0])
        yield LogSegment(log.with_name(name), start, end, number)


def log_end(log: Path) -> int:
    """Return the offset after the last byte of a log; 0 if it is missing."""
    segments = list_segments(log)
    return segments[-1].end if segments else 0


def begin_segment(log: Path, max_bytes: int) -> LogSegment:
    """Prepare a log for another writer, in a new segment if the log is too long.

    An incomplete line of a killed writer is terminated, so that the next writer's line stays
    separate. A process that still has the log open continues to write to its file.

    Args:
        log: The log; a missing log is created private.
        max_bytes: Length of a segment in bytes after which the next segment starts.

    Returns:
        The current segment.

    Raises:
        OSError: The log cannot be written.
    """
    append_lines(log, b"")
    newest = list_segments(log)[-1]
    if newest.end - newest.start < max_bytes:
        return newest
    old = log.with_name(f"{log.name}.{newest.number}.{newest.start}-{newest.end}")
    with contextlib.suppress(FileNotFoundError):
        index_path(log).rename(index_path(old))
    log.rename(old)
    os.close(open_own(log, os.O_WRONLY | os.O_CREAT))
    return LogSegment(log, newest.end, newest.end, newest.number + 1)


class LogArrivals:
    """Arrival times of a log's bytes in all segments; :meth:`read_on` updates them.

    Times are unknown if an index is missing or cannot be read.

    Args:
        log: The log.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        self._parts: list[tuple[LogSegment, LogTimes]] = []

    @property
    def segments(self) -> list[LogSegment]:
        """Segments of the log at the time of the latest read."""
        return [segment for segment, _ in self._parts]

    def read_on(self) -> None:
        """Read new entries of the indexes."""
        known = {segment.path: times for segment, times in self._parts}
        self._parts = []
        for segment in list_segments(self._log):
            times = known.get(segment.path) or LogTimes(segment.path)
            with contextlib.suppress(OSError):
                times.read_on()
            self._parts.append((segment, times))

    def arrival(self, offset: int) -> str | None:
        """Return the UTC time by which the byte at ``offset`` had arrived; None if unknown."""
        for segment, times in reversed(self._parts):
            if segment.start <= offset:
                return times.arrival(offset - segment.start)
        return None

    def find_since(self, since: str) -> int | None:
        """Return the offset of the first byte that arrived at or after a time; None if unknown.

        Args:
            since: UTC time with milliseconds.
        """
        for segment, times in self._parts:
            found = None if times.is_empty else times.find_since(since, None)[0]
            if found is not None:
                return min(segment.end, segment.start + found)
        return None
