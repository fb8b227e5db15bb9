"""Reads the lines of a growing log, with notes of its instance's ends and restarts."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Self

import anyio
import attrs

from clawblox.concurrency.threads import current_batcher, run_blocking
from clawblox.results import LogLine
from clawblox.telemetry.log_times import IndexEntry, LogTimes, may_read
from clawblox.telemetry.logs import open_to_read

_CHUNK_BYTES = 256 * 1024
_LINE_BYTES = 64 * 1024
_FOLLOW_INTERVAL_S = 0.05
_MOST_LOCKED_LOOKS = 100
"""Number of attempts before a log that another program has locked is read anyway."""


@attrs.define(eq=False, kw_only=True)
class LogReader:
    """The lines of a log file, starting at an offset; an async context manager and iterator.

    Args:
        instance: Name of the instance in the lines.
        path: The log file.
        follow: Whether to wait for more lines until ``is_over`` returns true.
        tail: Number of last lines to start with; None starts at ``start``.
        start: Offset to start from.
        since: UTC time with milliseconds of the first wanted line; None wants all lines. It has no
            effect on a log without an index.
        pattern: Only matching lines are returned and counted by ``tail``; None matches all lines.
        has_notes: Whether to insert notes at the ends and restarts of the instance.
        was_restarted: Whether ``start`` is the offset of a restart, in which case the run
            started earlier.
        tail_counts_notes: Whether notes count among the lines of ``tail``.
        is_watched: Whether an orchestrator watches the log, so that its modification time is the
            arrival time of the last lines.
        is_over: Returns whether the writer has ended.

    Raises:
        OSError: The file cannot be read; a missing file has no lines.

    Cancellation: has no further effect; the file is open only while it is read.
    """

    _instance: str
    _path: Path
    _follow: bool
    _tail: int | None
    _offset: int = attrs.field(default=0, alias="start")
    _since: str | None = None
    _pattern: re.Pattern[str] | None = None
    _has_notes: bool = False
    _tail_counts_notes: bool = False
    _was_restarted: bool = False
    _is_watched: bool = True
    _is_over: Callable[[], bool] = attrs.field(default=lambda: True)
    _times: LogTimes = attrs.field(init=False)
    _last_event: IndexEntry | None = attrs.field(default=None, init=False)
    _lines: deque[LogLine] = attrs.field(factory=deque, init=False)
    _has_started: bool = attrs.field(default=False, init=False)
    _has_caught_up: bool = attrs.field(default=False, init=False)
    _has_ended: bool = attrs.field(default=False, init=False)
    _moved: int = attrs.field(default=0, init=False)
    _locked_looks: int = attrs.field(default=0, init=False)

    @_times.default
    def _open_times(self) -> LogTimes:
        return LogTimes(self._path, is_watched=self._is_watched)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._has_ended = True

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> LogLine:
        while not self._lines:
            if self._has_ended:
                raise StopAsyncIteration
            if self._has_caught_up:
                # All readers read at the same moments, so that they share a thread.
                now = anyio.current_time()
                await anyio.sleep(_FOLLOW_INTERVAL_S - now % _FOLLOW_INTERVAL_S)
            await self._read_more()
        return self._lines.popleft()

    async def next_written(self) -> LogLine | None:
        """Return the next line without waiting; None at the end of the log."""
        while not (self._lines or self._has_caught_up or self._has_ended):
            await self._read_more()
        return self._lines.popleft() if self._lines else None

    async def _read_more(self) -> None:
        if not self._has_started:
            await run_blocking(self._find_start)
            self._has_started = True
            if self._tail is not None and self._tail_counts_notes:
                # Read to the end of the log, keeping the last lines and notes.
                while not (self._has_caught_up or self._has_ended):
                    await self._read_lines()
                    while len(self._lines) > self._tail:
                        self._lines.popleft()
                return
        await self._read_lines()

    async def _read_lines(self) -> None:
        is_last, chunk = await current_batcher().run(self._read_on)
        self._has_caught_up = len(chunk) < _CHUNK_BYTES
        is_last = is_last and self._has_caught_up
        pattern = self._pattern
        self._lines.extend(
            line
            for line in self._split_at_notes(chunk, is_last=is_last)
            if pattern is None or pattern.search(line.text)
        )
        self._has_ended |= is_last

    def _find_start(self) -> None:
        """Find the first line to return. Blocks."""
        times = self._times
        times.read_on()
        self._moved = 0 if times.cut is None else times.cut.moved
        try:
            with open_to_read(self._path) as file:
                end = file.seek(0, os.SEEK_END)
                self._go_to_run(end)
                if self._since is not None and not times.is_empty:
                    found, self._last_event = times.find_since(self._since, self._last_event)
                    if found is None:
                        self._offset = end
                    elif found > self._offset:
                        self._offset = _next_line(file, found)
                if self._tail is not None:
                    found = _find_tail(file, self._offset, end, self._tail, self._pattern)
                    if found > self._offset or not self._tail:
                        self._last_event = times.last_event(found) or self._last_event
                    self._offset = found
        except FileNotFoundError:
            pass

    def _go_to_run(self, end: int) -> None:
        """Go to the first byte of the run.

        Args:
            end: Length of the log.
        """
        times, start = self._times, self._offset
        # An index that ends before the start has no entry for this run yet.
        may_have_begun = self._was_restarted or times.end > start or start > end
        if may_have_begun and (begin := times.run_start) is not None:
            self._offset, self._last_event = begin.size, begin
            return
        # A log that was cut in the meantime may be shorter.
        self._offset = start if start <= end else 0
        self._last_event = times.last_event(self._offset)

    def _read_on(self) -> tuple[bool, bytes]:
        """Return whether the writer has ended, and its new bytes. Blocks."""
        # Checked first, so that all output before the end is read.
        is_over = not self._follow or self._is_over()
        try:
            with open_to_read(self._path) as file:
                if not self._may_read(file):
                    return False, b""
                wanted = self._offset
                self._offset, chunk = _read_from(file, wanted)
                # Read last: the end of a process is recorded before another process writes.
                self._times.read_on()
                if self._follow_cut(wanted):
                    self._offset, chunk = _read_from(file, self._offset)
        except FileNotFoundError:
            self._times.read_on()
            chunk = b""
        return is_over, chunk

    def _may_read(self, file: BinaryIO) -> bool:
        """Return whether the log can be read; a log that stays locked is read anyway."""
        if may_read(file, waits=not self._follow):
            self._locked_looks = 0
            return True
        self._locked_looks += 1
        return not self._follow or self._locked_looks > _MOST_LOCKED_LOOKS

    def _follow_cut(self, wanted: int) -> bool:
        """Adjust the position if a cut has moved the next line; return whether the log was cut."""
        cut = self._times.cut
        moved = 0 if cut is None else cut.moved - self._moved
        if cut is None or moved <= 0:
            return False
        unread = max(0, cut.size + moved - wanted)
        self._offset = max(wanted - moved, cut.size)
        self._moved = cut.moved
        loss = f"; {unread} bytes were removed unread" if unread else ""
        text = f"the log was cut to its newer half{loss}"
        self._lines.append(LogLine(self._instance, text, self._offset, None, "cut"))
        return True

    def _split_at_notes(self, chunk: bytes, *, is_last: bool) -> Iterator[LogLine]:
        """Yield the complete lines of ``chunk`` with the notes between them; a note ends a line."""
        begin, position = self._offset, 0
        for note in self._times.notes_after(self._last_event) if self._has_notes else ():
            if note.size > begin + len(chunk):
                break
            border = max(note.size - begin, position)
            yield from self._split(chunk[position:border], is_last=True)
            position, self._last_event = border, note
            yield LogLine(self._instance, note.text, note.size, note.at, note.event)
        yield from self._split(chunk[position:], is_last=is_last)

    def _split(self, chunk: bytes, *, is_last: bool) -> Iterator[LogLine]:
        """Yield the complete lines of ``chunk``; an endless line is split into pieces."""
        position = 0
        while position < len(chunk):
            end = chunk.find(b"\n", position, position + _LINE_BYTES + 1)
            following = end + 1
            if end < 0:
                if len(chunk) - position <= _LINE_BYTES and not is_last:
                    break
                end = following = min(position + _LINE_BYTES, len(chunk))
            text = _decode(chunk[position:end])
            yield LogLine(self._instance, text, self._offset, self._times.arrival(self._offset))
            self._offset += following - position
            position = following


def _decode(line: bytes) -> str:
    return line.decode(errors="replace").rstrip("\r")


def _read_from(file: BinaryIO, offset: int) -> tuple[int, bytes]:
    """Return the bytes from ``offset`` on, with their offset, which is smaller after a cut."""
    offset = min(offset, file.seek(0, os.SEEK_END))
    file.seek(offset)
    return offset, file.read(_CHUNK_BYTES)


def _next_line(file: BinaryIO, position: int) -> int:
    """Return the offset of the first line that starts at or after ``position``."""
    file.seek(position - 1)
    while (piece := file.readline(_CHUNK_BYTES)) and not piece.endswith(b"\n"):
        pass
    return file.tell()


def _find_tail(
    file: BinaryIO, start: int, end: int, count: int, pattern: re.Pattern[str] | None
) -> int:
    """Return the offset of the first of the last ``count`` lines, or ``start``."""
    if not count:
        return end
    for offset, line in _lines_backwards(file, start, end):
        count -= pattern is None or pattern.search(_decode(line)) is not None
        if not count:
            return offset
    return start


def _lines_backwards(file: BinaryIO, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield the lines between two offsets with their offsets, from the last to the first."""
    position, rest = end, b""
    while position > start:
        size = min(_CHUNK_BYTES, position - start)
        position -= size
        file.seek(position)
        lines = (file.read(size) + rest).split(b"\n")
        offset = position + size + len(rest)
        rest = lines[0]
        for line in reversed(lines[1:]):
            offset -= len(line)
            if line or offset < end:  # no line follows the last newline
                yield offset, line
            offset -= 1
        if len(rest) > _LINE_BYTES:  # part of an endless line
            yield position, rest
            rest = b""
    if end > start:
        yield start, rest
