"""Queued output lines; callers never wait for the terminal."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

import anyio

_MAX_LINES = 4096


class Outbox:
    """A queue of lines that one task writes. Beyond 4096 lines the oldest are dropped.

    Args:
        write: Writes a line.
    """

    def __init__(self, write: Callable[[str], Awaitable[None]]) -> None:
        self._write = write
        self._lines: deque[str] = deque(maxlen=_MAX_LINES)
        self._has_news = anyio.Event()

    def put(self, line: str) -> None:
        """Queue a line."""
        self._lines.append(line)
        self._has_news.set()

    async def run(self) -> None:
        """Write lines until it is cancelled.

        Raises:
            Exception: What ``write`` raised.

        Cancellation: a part of a line may have been written.
        """
        while True:
            self._has_news = anyio.Event()
            await self.flush()
            await self._has_news.wait()

    async def flush(self) -> None:
        """Write the queued lines; not to be called while :meth:`run` runs.

        Raises:
            Exception: What ``write`` raised.

        Cancellation: a part of a line may have been written.
        """
        while self._lines:
            await self._write(self._lines.popleft())
