"""World output: a file that the world writes itself, and readers that follow it.

A world's standard output and error are the log file's own descriptor, opened for appending.
There is no pipe, so a stalled or dead orchestrator never blocks a world and never loses its last
lines.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import anyio

from clawblox.concurrency.threads import current_batcher, run_blocking
from clawblox.protocol import MASK
from clawblox.results import LogLine
from clawblox.telemetry.own_log import OwnLog

__all__ = ["DEFAULT_MAX_BYTES", "LogReader", "last_lines", "open_log", "trim_log", "trim_logs"]

_log = OwnLog(__name__)

DEFAULT_MAX_BYTES = 1 << 30
"""Size at which a log is cut to its newer half, in bytes."""

LAST_LINES = 50
_TAIL_BYTES = 64 * 1024
_CHUNK_BYTES = 256 * 1024
_LINE_BYTES = 64 * 1024
_FOLLOW_INTERVAL_S = 0.05


def open_log(path: Path) -> tuple[int, int]:
    """Open a log for appending; the file is created private.

    Returns:
        Its descriptor, and the offset at which the new output begins.

    Raises:
        OSError: It cannot be created or written.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    fd = os.open(path, flags, 0o600)
    return fd, os.fstat(fd).st_size


def last_lines(
    path: Path, *, start: int = 0, count: int = LAST_LINES, secrets: Iterable[str] = ()
) -> tuple[str, ...]:
    """Return the last lines of a log, at most 64 KiB of it. Blocks.

    Args:
        path: The log; a missing one has no lines.
        start: Offset of the first byte that counts, which excludes the lines of an older run.
        count: Largest number of lines.
        secrets: Values to mask.
    """
    secrets = tuple(secrets)
    # Read this much more, and leave it out, so that no secret begins before what is read.
    margin = max(map(len, secrets), default=0)
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            start = start if start <= size else 0
            first = max(start, size - _TAIL_BYTES - margin)
            file.seek(first)
            text = file.read(_TAIL_BYTES + margin).decode(errors="replace")
    except OSError:
        return ()
    for secret in secrets:
        text = text.replace(secret, MASK)
    if first > start:
        text = text[margin:]
    return tuple(line[:1000] for line in text.splitlines()[-count:])


def trim_log(path: Path, max_bytes: int) -> bool:
    """Cut a log that outgrew ``max_bytes`` to its newer half and mark the cut. Blocks.

    The world keeps appending to the same file. What it writes while the half is copied is lost with
    the older half; the mark in the log says that something was removed.

    Returns:
        Whether the log was cut.

    Raises:
        OSError: It cannot be read or written.
    """
    try:
        with path.open("r+b") as file:
            size = file.seek(0, os.SEEK_END)
            if size <= max_bytes:
                return False
            _move_to_start(file, size - max_bytes // 2, max_bytes)
    except FileNotFoundError:
        return False
    return True


def trim_logs(paths: Iterable[Path], max_bytes: int) -> None:
    """Cut those logs that outgrew ``max_bytes``; one that cannot be cut is reported. Blocks."""
    for path in paths:
        try:
            trim_log(path, max_bytes)
        except OSError as error:
            _log.warning("log not cut", path=str(path), error=str(error))


def _move_to_start(file: BinaryIO, source: int, max_bytes: int) -> None:
    """Copy what stands from ``source`` on to the start, behind a mark, and cut the rest."""
    target = 0
    file.seek(source)
    source += len(file.readline(_LINE_BYTES))
    chunk = f"[clawblox] log over {max_bytes} bytes, older half removed\n".encode()
    while chunk:
        file.seek(target)
        target += file.write(chunk)
        file.seek(source)
        chunk = file.read(_CHUNK_BYTES)
        source += len(chunk)
    file.truncate(target)


class LogReader:
    """The lines of one log file, from a given place on; an async context manager and iterator.

    Args:
        instance: Name that the lines carry.
        path: The log file.
        follow: Wait for more lines until ``is_over`` returns true.
        tail: Number of lines before the end to start at; None starts at ``start``.
        start: Offset to start from.
        is_over: Whether the writer has ended.

    Raises:
        OSError: The file cannot be read; a missing one has no lines.

    Cancellation: leaves nothing behind; the file is open only while it is read.
    """

    def __init__(
        self,
        instance: str,
        path: Path,
        *,
        follow: bool,
        tail: int | None,
        start: int = 0,
        is_over: Callable[[], bool] = lambda: True,
    ) -> None:
        self._instance = instance
        self._path = path
        self._follow = follow
        self._tail = tail
        self._offset = start
        self._is_over = is_over
        self._lines: deque[LogLine] = deque()
        self._has_started = False
        self._has_ended = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._has_ended = True

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> LogLine:
        if not self._has_started:
            await self._find_start()
        while not self._lines:
            if self._has_ended:
                raise StopAsyncIteration
            await self._read_more()
        return self._lines.popleft()

    async def _find_start(self) -> None:
        self._offset = await run_blocking(_start_offset, self._path, self._offset, self._tail)
        self._has_started = True

    async def _read_more(self) -> None:
        is_last, chunk = await current_batcher().run(self._read_on)
        is_end = len(chunk) < _CHUNK_BYTES
        self._lines.extend(self._split(chunk, is_last=is_last and is_end))
        if is_end and is_last:
            self._has_ended = True
        elif is_end and not self._lines:
            await _sleep_to_next_look()

    def _read_on(self) -> tuple[bool, bytes]:
        """Return whether the writer is over, and what it has written. Blocks."""
        # Asked first, so that everything written before the end is read.
        is_over = not self._follow or self._is_over()
        self._offset, chunk = _read_from(self._path, self._offset)
        return is_over, chunk

    def _split(self, chunk: bytes, *, is_last: bool) -> Iterator[LogLine]:
        """Yield the complete lines of ``chunk``; an endless line is cut into pieces."""
        position = 0
        while position < len(chunk):
            end = chunk.find(b"\n", position, position + _LINE_BYTES + 1)
            following = end + 1
            if end < 0:
                if len(chunk) - position <= _LINE_BYTES and not is_last:
                    break
                end = following = min(position + _LINE_BYTES, len(chunk))
            text = chunk[position:end].decode(errors="replace").rstrip("\r")
            yield LogLine(self._instance, text, self._offset)
            self._offset += following - position
            position = following


async def _sleep_to_next_look() -> None:
    """Wait for the moment at which all readers look, so that they share a thread."""
    await anyio.sleep(_FOLLOW_INTERVAL_S - anyio.current_time() % _FOLLOW_INTERVAL_S)


def _read_from(path: Path, offset: int) -> tuple[int, bytes]:
    """Return the bytes from ``offset`` on, and where they begin: a cut log is shorter."""
    try:
        with path.open("rb") as file:
            offset = min(offset, file.seek(0, os.SEEK_END))
            file.seek(offset)
            return offset, file.read(_CHUNK_BYTES)
    except FileNotFoundError:
        return offset, b""


def _start_offset(path: Path, start: int, tail: int | None) -> int:
    """Return ``start``, or the offset of the line that stands ``tail`` lines before the end."""
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            # A log that was cut since may have ended before.
            start = start if start <= end else 0
            return start if tail is None else _find_tail(file, start, end, tail)
    except FileNotFoundError:
        return start


def _find_tail(file: BinaryIO, start: int, end: int, count: int) -> int:
    position = end
    while count and position > start:
        size = min(_CHUNK_BYTES, position - start)
        position -= size
        file.seek(position)
        chunk = file.read(size)
        # The last byte ends the last line, or belongs to it; it never begins the next.
        found = size - 1 if position + size == end else size
        while count and (found := chunk.rfind(b"\n", 0, found)) >= 0:
            count -= 1
            if not count:
                return position + found + 1
    return start if count else end
