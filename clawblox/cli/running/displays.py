"""The two displays of runs and experiments: lines, or a live table on a terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final, Generic, Protocol, TypeVar

import anyio

from clawblox.cli.terminal.output import Outbox, Output, OutputGone
from clawblox.cli.terminal.reports import configure_logging
from clawblox.system.clock import format_utc, utc_now
from clawblox.views.event_lines import EventLine

if TYPE_CHECKING:
    from clawblox.views.board import BoardFrame
    from clawblox.views.steering import Action, Steering, Verb

FINISH_TIMEOUT_S: Final = 1.0
"""Seconds for the last output of a display; a stopped terminal must not keep the command."""
_INTERVAL_S = 1.0


class Sight(Protocol):
    """A run or an experiment at one moment."""

    @property
    def at(self) -> float:
        """Monotonic time, in seconds."""


Seen = TypeVar("Seen", bound=Sight)


class Scene(Protocol[Seen]):
    """A run or an experiment as a display sees it: its current state and its events.

    Attributes:
        verbs: The possible actions on a row.
    """

    verbs: ClassVar[Sequence[Verb]]

    async def read_state(self) -> Seen:
        """Return the current state.

        Raises:
            OSError: The state cannot be read now, for example because descriptors are lacking.

        Cancellation: has no effect.
        """

    def take_news(self, now: Seen) -> Iterable[EventLine]:
        """Return the events up to a state, without events that were returned before."""

    def draw(self, before: Seen | None, now: Seen, frame: BoardFrame) -> Sequence[str]:
        """Return the lines of a table.

        Args:
            before: An earlier state, to measure changes from; None at first.
            now: The latest state.
            frame: The rest of the picture.
        """

    def rows(self, now: Seen) -> Sequence[str]:
        """Return the keys of all rows, in the order of the table."""

    async def read_pane(self, now: Seen, steering: Steering, lines: int) -> Sequence[str]:
        """Return a heading and the last lines of the log of the selected row.

        Args:
            now: The latest state, in which the row is.
            steering: What a person has typed.
            lines: Maximum number of lines.

        Raises:
            ClawbloxError: The log cannot be read.
            OSError: A file cannot be read.

        Cancellation: has no effect.
        """

    async def act(self, action: Action, now: Seen) -> str:
        """Apply an action to a row; return a line with the result.

        Args:
            action: The action.
            now: The latest state, in which the row is.

        Raises:
            ClawbloxError: The action is not possible.
            OSError: A file cannot be read or written.

        Cancellation: part of the action may be done.
        """


class Display:
    """Shows the work of a command while it runs.

    Attributes:
        is_table: Whether the lines are redrawn in place.
    """

    is_table: ClassVar[bool] = False

    async def run(self) -> None:
        """Show the work until cancelled, or until the work is over.

        Raises:
            OutputGone: The reader of the output is gone.
            OSError: The output is a file, and the disk is full.

        Cancellation: :meth:`finish` shows the remaining lines.
        """

    async def finish(self, summary: Sequence[str]) -> None:
        """Show the end of the work, then the summary.

        Args:
            summary: The last lines of the output.

        Cancellation: part of this may be shown.
        """

    async def clear(self) -> None:
        """Clear the display before an error message.

        Cancellation: part of the display may still be there.
        """

    async def leave(self) -> None:
        """Leave the display in its last state.

        Cancellation: typed characters may still be below a table.
        """

    def add(self, line: EventLine, *, is_in_rows: bool = False) -> None:
        """Show an event; may be called from any thread.

        Args:
            line: The event.
            is_in_rows: Whether the rows of a table also show the event.
        """

    def report(self, text: str) -> None:
        """Show the current activity, or a fact."""

    def warn(self, text: str) -> None:
        """Show a warning with the time; may be called from any thread."""
        self.add(EventLine(format_utc(utc_now()), "", text, needs_attention=True))


class LiveLines(Display, Generic[Seen]):
    """A display with a line for each event. Beyond 4096 waiting lines, the oldest are dropped.

    Args:
        output: Output that gets the lines.
        scene: Checked for events every second; None if all events are added.
        until: Called after each check for events; returns whether the work is over.
    """

    def __init__(
        self,
        output: Output,
        scene: Scene[Seen] | None = None,
        until: Callable[[], bool] = lambda: False,
    ) -> None:
        self._output = output
        self._scene = scene
        self._until = until
        self._outbox = Outbox(output.write_line)

    async def run(self) -> None:
        """Write the lines until cancelled, or until the work is over.

        Raises:
            OutputGone: The reader is gone.
            OSError: The output is a file, and the disk is full.

        Cancellation: :meth:`finish` writes the remaining lines.
        """
        if self._scene is None:
            await self._outbox.run()
        while True:
            await self._write_news()
            if self._until():
                return
            await anyio.sleep(_INTERVAL_S)

    async def _write_news(self) -> None:
        if self._scene is not None:
            for event in self._scene.take_news(await self._scene.read_state()):
                await self._output.write_line(str(event))
        await self._outbox.flush()

    async def finish(self, summary: Sequence[str] = ()) -> None:
        """Write the remaining lines, then the summary.

        Cancellation: has no effect for up to a second.
        """
        with (
            anyio.move_on_after(FINISH_TIMEOUT_S, shield=True),
            contextlib.suppress(OutputGone, OSError),
        ):
            try:
                await self._write_news()
            finally:
                for line in summary:
                    await self._output.write_line(line)

    async def clear(self) -> None:
        """Write the remaining lines before an error message.

        Cancellation: has no effect for up to a second.
        """
        await self.finish()

    def add(self, line: EventLine, *, is_in_rows: bool = False) -> None:
        """Write an event."""
        self._outbox.put(str(line))

    def report(self, text: str) -> None:
        """Write the current activity, or a fact."""
        self._outbox.put(text)


def show_warnings(display: Display) -> None:
    """Show warnings of the library in a table if standard error is the table's terminal."""
    is_shared = display.is_table and sys.stderr.isatty()
    configure_logging(display.warn if is_shared else None)
