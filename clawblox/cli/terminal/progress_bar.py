"""A progress bar on standard error, and lines that are printed above it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import anyio

from clawblox.cli.tables.formatting import format_seconds
from clawblox.cli.terminal.output import Output, OutputGone
from clawblox.cli.terminal.screen import Screen
from clawblox.concurrency.tasks import Tasks

_FULL, _EMPTY = "━", "─"
_COLUMNS = 24
_DELAY_S = 0.3
"""Work that is done sooner needs no bar."""
_INTERVAL_S = 0.2
_REMOVE_TIMEOUT_S = 1.0


class Bar:
    """A progress bar; :func:`progress_bar` makes one.

    Args:
        output: Standard error.
        verb: What is being done, for example ``Saving``.
        total: The amount of work.
        format_amount: Returns an amount as text.
    """

    def __init__(
        self, output: Output, verb: str, total: int, format_amount: Callable[[int], str] = str
    ) -> None:
        self._output = output
        self._screen = Screen(output)
        self._is_shown = output.is_terminal
        self._verb = verb
        self._total = total
        self._format_amount = format_amount
        self._done = 0
        self._failed = 0
        self._begun_at = anyio.current_time()
        self._lock = anyio.Lock()

    def advance(self, *, is_failed: bool = False) -> None:
        """Count one more that is done or has failed."""
        self._done += 1
        self._failed += is_failed

    def reach(self, done: int, total: int) -> None:
        """Set how much is done, and of how much; may be called in any thread."""
        self._done, self._total = done, total

    async def write_line(self, output: Output, text: str) -> None:
        """Write a line above the bar, to a stream that may be the same terminal.

        Raises:
            OutputGone: The reader is gone.
            OSError: The stream is a file, and the disk is full.

        Cancellation: a part of it may have been written.
        """
        async with self._lock:
            was_drawn = self._screen.is_drawn
            await self._draw(())
            await output.write_line(text)
            if was_drawn:
                await self._draw((self._text(),))

    async def note(self, text: str) -> None:
        """Write a line above the bar to standard error; one that was closed is ignored.

        Cancellation: a part of it may have been written.
        """
        with contextlib.suppress(OutputGone, OSError):
            await self.write_line(self._output, text)

    async def run(self) -> None:
        """Show the bar until it is cancelled; it never fails.

        Cancellation: the bar may still be there; :meth:`remove` removes it.
        """
        await anyio.sleep(_DELAY_S)
        while self._is_shown:
            async with self._lock:
                await self._draw((self._text(),))
            await anyio.sleep(_INTERVAL_S)

    async def remove(self) -> None:
        """Remove the bar for good.

        Cancellation: has no effect for up to a second.
        """
        with anyio.move_on_after(_REMOVE_TIMEOUT_S, shield=True):
            async with self._lock:
                await self._draw(())
                self._is_shown = False

    async def _draw(self, lines: Sequence[str]) -> None:
        if self._is_shown and (lines or self._screen.is_drawn):
            with contextlib.suppress(OutputGone):
                await self._screen.draw(lines)

    def _text(self) -> str:
        full = _COLUMNS * min(self._done, self._total) // max(self._total, 1)
        bar = (_FULL * full).ljust(_COLUMNS, _EMPTY)
        failed = f", {self._failed} failed" if self._failed else ""
        elapsed = format_seconds(anyio.current_time() - self._begun_at)
        amount = f"{self._format_amount(self._done)}/{self._format_amount(self._total)}"
        text = f"{self._verb} {bar} {amount}{failed}, {elapsed}"
        return text[: self._screen.columns]


@asynccontextmanager
async def progress_bar(
    verb: str, total: int, format_amount: Callable[[int], str] = str
) -> AsyncIterator[Bar]:
    """Show a bar while the block runs, when standard error is a terminal.

    Args:
        verb: What is being done, for example ``Saving``.
        total: The amount of work.
        format_amount: Returns an amount as text.

    Cancellation: the bar is removed.
    """
    with Output(sys.stderr) as output:
        bar = Bar(output, verb, total, format_amount)
        async with Tasks() as tasks:
            tasks.start_soon(bar.run)
            try:
                yield bar
            finally:
                await bar.remove()
