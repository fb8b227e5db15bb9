"""The last lines of a terminal, redrawn in place; progress bars.

The cursor is never hidden, so it does not need to be restored when the program is killed.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import anyio

from clawblox.cli.terminal.output import Output, OutputGone
from clawblox.cli.terminal.reports import DisplayContainment
from clawblox.concurrency.progress import Report, run_with_progress
from clawblox.concurrency.tasks import Tasks
from clawblox.system.amounts import format_bytes
from clawblox.views.formatting import format_seconds

_UP = "\x1b[{}A"
_CLEAR_REST_OF_LINE = "\x1b[K"
_CLEAR_BELOW = "\x1b[J"
_CLEAR_ALL = "\x1b[H\x1b[2J"
_LEAVE_TIMEOUT_S = 1.0


class Screen:
    """The last lines of a terminal.

    Args:
        output: The terminal.
    """

    def __init__(self, output: Output) -> None:
        self._output = output
        self._drawn = 0
        self._size = output.size

    @property
    def columns(self) -> int:
        """Maximum length of a line; the last column stays empty because terminals wrap there."""
        return self._output.size.columns - 1

    @property
    def lines(self) -> int:
        """Maximum number of lines; the last line of the terminal is for the cursor."""
        return self._output.size.lines - 1

    async def draw(self, lines: Sequence[str]) -> None:
        """Draw lines in place of the previous lines.

        Args:
            lines: The lines, within the limits of :attr:`lines` and :attr:`columns`.

        Raises:
            OutputGone: The terminal is gone.
            OSError: The output is a file, and the disk is full.

        Cancellation: some lines may have been drawn; the next lines are drawn below.
        """
        back = self._way_back()
        self._drawn = 0
        guarded = (self._output.guard(line).replace("\n", " ") for line in lines)
        text = "".join(f"{line}{_CLEAR_REST_OF_LINE}\n" for line in guarded)
        await self._output.write_control(f"{back}{text}{_CLEAR_BELOW}")
        self._drawn = len(lines)

    async def leave(self) -> None:
        """Keep the drawn lines, and clear the characters typed below them.

        Cancellation: the characters may still be there.
        """
        with anyio.move_on_after(_LEAVE_TIMEOUT_S, shield=True), contextlib.suppress(OutputGone):
            await self._output.write_control(f"\r{_CLEAR_BELOW}")

    @property
    def is_drawn(self) -> bool:
        """True if lines are drawn on the terminal."""
        return self._drawn > 0

    def forget(self) -> None:
        """Keep the drawn lines in place because another program has written below them."""
        self._drawn = 0

    def _way_back(self) -> str:
        """Return the control sequence that moves the cursor to the first line."""
        size, self._size = self._size, self._output.size
        if self._drawn and size != self._size:
            return _CLEAR_ALL  # the terminal has rewrapped the lines, so their position is unknown
        return f"\r{_UP.format(self._drawn)}" if self._drawn else "\r"


_FULL, _EMPTY = "━", "─"
_COLUMNS = 24
_DELAY_S = 0.3
"""Seconds before a bar is shown; quicker work needs no bar."""
_INTERVAL_S = 0.2
_REMOVE_TIMEOUT_S = 1.0


class Bar:
    """A progress bar; use :func:`progress_bar`.

    Args:
        output: Standard error.
        verb: The work, for example ``Saving``.
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
        """Count one more item as done or failed."""
        self._done += 1
        self._failed += is_failed

    def reach(self, done: int, total: int) -> None:
        """Set the amount that is done and the total; may be called from any thread."""
        self._done, self._total = done, total

    async def write_line(self, output: Output, text: str) -> None:
        """Write a line above the bar, to a stream that may be the same terminal.

        Raises:
            OutputGone: The reader is gone.
            OSError: The stream is a file, and the disk is full.

        Cancellation: part of it may have been written.
        """
        async with self._lock:
            was_drawn = self._screen.is_drawn
            await self._draw(())
            await output.write_line(text)
            if was_drawn:
                await self._draw((self._text(),))

    async def note(self, text: str) -> None:
        """Write a line above the bar to standard error unless it is closed.

        Cancellation: part of it may have been written.
        """
        with contextlib.suppress(OutputGone, OSError):
            await self.write_line(self._output, text)

    async def run(self) -> None:
        """Show the bar until cancelled.

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
    """Show a bar while the block runs, if standard error is a terminal.

    Args:
        verb: The work, for example ``Saving``.
        total: The amount of work.
        format_amount: Returns an amount as text.

    Cancellation: the bar is removed.
    """
    with Output(sys.stderr) as output:
        bar, contained = Bar(output, verb, total, format_amount), DisplayContainment()
        async with Tasks() as tasks:
            tasks.start_soon(contained.keep_showing, bar.run)
            try:
                yield bar
            finally:
                with contained:
                    await bar.remove()


_T = TypeVar("_T")
_R = TypeVar("_R")


async def work_with_bar(verb: str, work: Callable[[Report], _R]) -> _R:
    """Do work in a thread, and show its progress in bytes with a bar.

    Args:
        verb: The work, for example ``Loading``.
        work: Does the work. It blocks, and calls its argument with the bytes done and in total.

    Raises:
        Exception: The exception that ``work`` raised.

    Cancellation: the call of ``work`` ends when it next counts bytes.
    """
    async with progress_bar(verb, 0, format_bytes) as bar:
        return await run_with_progress(work, bar.reach)


_SHOW_TIMEOUT_S = 1.0


async def relay(
    work: Callable[[Callable[[_T], None]], Awaitable[_R]], show: Callable[[_T], Awaitable[None]]
) -> _R:
    """Do work that calls back with results, and show the results in order.

    The work never waits for the output, and continues even if the output is gone or a result could
    not be shown.

    Args:
        work: Does the work, given the callback.
        show: Shows a result.

    Returns:
        The value of the work, once every result is shown.

    Raises:
        Exception: What ``work`` raised.

    Cancellation: cancels the work; results so far are shown, for at most a second.
    """
    send, receive = anyio.create_memory_object_stream[_T](math.inf)
    is_shown, contained = anyio.Event(), DisplayContainment()

    async def show_all() -> None:
        with contextlib.suppress(OutputGone):
            async for item in receive:
                with contained:
                    await show(item)
        is_shown.set()

    with receive:
        async with Tasks() as tasks:
            tasks.start_soon(show_all)
            try:
                with send:
                    result = await work(send.send_nowait)
            except BaseException:
                with anyio.move_on_after(_SHOW_TIMEOUT_S, shield=True):
                    await is_shown.wait()
                raise
            await is_shown.wait()
    return result
