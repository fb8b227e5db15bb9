"""The end of a terminal: a few lines that are drawn over again and again, and a progress bar.

The cursor is never hidden and no mode is switched, so that there is nothing to put right however
the program ends.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import anyio

from clawblox.cli.terminal.output import Output, OutputGone, format_seconds
from clawblox.concurrency.tasks import Tasks

__all__ = ["Bar", "Screen", "progress_bar"]

_UP = "\x1b[{}A"
_CLEAR_REST_OF_LINE = "\x1b[K"
_CLEAR_BELOW = "\x1b[J"
_CLEAR_ALL = "\x1b[H\x1b[2J"
_FULL, _EMPTY = "━", "─"
_BAR_COLUMNS = 24
_BAR_FIRST_S = 0.3
_BAR_INTERVAL_S = 0.2
_PATIENCE_S = 1.0


class Screen:
    """Lines at the end of a terminal.

    Args:
        output: The terminal.
    """

    def __init__(self, output: Output) -> None:
        self._output = output
        self._drawn = 0
        self._size = output.size

    @property
    def columns(self) -> int:
        """How long a line may be; the last column is left alone, for terminals wrap there."""
        return self._output.size.columns - 1

    @property
    def lines(self) -> int:
        """How many lines there is room for; the last one is the cursor's."""
        return self._output.size.lines - 1

    async def draw(self, lines: Sequence[str]) -> None:
        """Draw lines over those that were drawn before.

        Args:
            lines: No more and no longer than there is room for.

        Raises:
            OutputGone: There is no terminal any more.

        Cancellation: a part of them may have been drawn; the next ones are drawn below it.
        """
        back = self._way_back()
        self._drawn = 0
        text = "".join(f"{line}{_CLEAR_REST_OF_LINE}\n" for line in lines)
        await self._output.write(f"{back}{text}{_CLEAR_BELOW}")
        self._drawn = len(lines)

    async def leave(self) -> None:
        """Leave the lines as they are, without what the terminal has echoed below them.

        Cancellation: an echo may stand there.
        """
        with anyio.move_on_after(_PATIENCE_S, shield=True), contextlib.suppress(OutputGone):
            await self._output.write(f"\r{_CLEAR_BELOW}")

    @property
    def is_drawn(self) -> bool:
        """Whether lines stand on the terminal."""
        return self._drawn > 0

    def forget(self) -> None:
        """Leave what is drawn where it is: somebody else has written below it."""
        self._drawn = 0

    def _way_back(self) -> str:
        """Return what moves the cursor to the first of the lines."""
        size, self._size = self._size, self._output.size
        if self._drawn and size != self._size:
            return _CLEAR_ALL  # the terminal has moved the lines, nobody knows where
        return f"\r{_UP.format(self._drawn)}" if self._drawn else "\r"


class Bar:
    """A progress bar; :func:`progress_bar` makes one.

    Args:
        output: Standard error.
        verb: What is being done, for example ``Saving``.
        total: How many times, or how much.
        format_amount: Writes an amount for a person.
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
        """Count one more that is done, or that has failed."""
        self._done += 1
        self._failed += is_failed

    def reach(self, done: int, total: int) -> None:
        """Say how much is done, of how much in all; may be called in any thread."""
        self._done, self._total = done, total

    async def write_line(self, output: Output, text: str) -> None:
        """Write a line to another stream of the same terminal, perhaps.

        Raises:
            OutputGone: Nobody reads it.

        Cancellation: a part of it may have been written.
        """
        async with self._lock:
            was_drawn = self._screen.is_drawn
            await self._draw(())
            await output.write_line(text)
            if was_drawn:
                await self._draw((self._text(),))

    async def note(self, text: str) -> None:
        """Write a line to standard error; nobody reading it does not matter.

        Cancellation: a part of it may have been written.
        """
        with contextlib.suppress(OutputGone, OSError):
            await self.write_line(self._output, text)

    async def run(self) -> None:
        """Show the bar until it is cancelled; work that takes but an instant needs none."""
        await anyio.sleep(_BAR_FIRST_S)
        while self._is_shown:
            async with self._lock:
                await self._draw((self._text(),))
            await anyio.sleep(_BAR_INTERVAL_S)

    async def remove(self) -> None:
        """Take it from the terminal, for good."""
        with anyio.move_on_after(_PATIENCE_S, shield=True):
            async with self._lock:
                await self._draw(())
                self._is_shown = False

    async def _draw(self, lines: Sequence[str]) -> None:
        if self._is_shown and (lines or self._screen.is_drawn):
            with contextlib.suppress(OutputGone):
                await self._screen.draw(lines)

    def _text(self) -> str:
        full = _BAR_COLUMNS * min(self._done, self._total) // max(self._total, 1)
        bar = (_FULL * full).ljust(_BAR_COLUMNS, _EMPTY)
        failed = f", {self._failed} failed" if self._failed else ""
        elapsed = format_seconds(anyio.current_time() - self._begun_at)
        amount = f"{self._format_amount(self._done)}/{self._format_amount(self._total)}"
        text = f"{self._verb} {bar} {amount}{failed}, {elapsed}"
        return text[: self._screen.columns]


@asynccontextmanager
async def progress_bar(
    verb: str, total: int, format_amount: Callable[[int], str] = str
) -> AsyncIterator[Bar]:
    """Show a bar on standard error's terminal while the block lasts; elsewhere nothing.

    Args:
        verb: What is being done, for example ``Saving``.
        total: How many times, or how much.
        format_amount: Writes an amount for a person.
    """
    with Output(sys.stderr) as output:
        bar = Bar(output, verb, total, format_amount)
        async with Tasks() as tasks:
            tasks.start_soon(bar.run)
            try:
                yield bar
            finally:
                await bar.remove()
