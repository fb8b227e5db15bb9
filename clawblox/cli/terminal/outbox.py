"""Lines that wait to be written, so that whoever has one need not."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

import anyio

__all__ = ["Outbox"]

_BACKLOG = 4096


class Outbox:
    """Lines that a task writes. The oldest of more than 4096 are lost.

    Args:
        write: Writes one.
    """

    def __init__(self, write: Callable[[str], Awaitable[None]]) -> None:
        self._write = write
        self._lines: deque[str] = deque(maxlen=_BACKLOG)
        self._has_news = anyio.Event()

    def put(self, line: str) -> None:
        """Have a line written."""
        self._lines.append(line)
        self._has_news.set()

    async def run(self) -> None:
        """Write lines until it is cancelled. Raises whatever the writing does.

        Cancellation: a part of a line may have been written.
        """
        while True:
            self._has_news = anyio.Event()
            await self.flush()
            await self._has_news.wait()

    async def flush(self) -> None:
        """Write the lines that wait; not while :meth:`run` does.

        Cancellation: as there.
        """
        while self._lines:
            await self._write(self._lines.popleft())
