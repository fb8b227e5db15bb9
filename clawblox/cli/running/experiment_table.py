"""The output of an experiment, here or elsewhere: a live table on a terminal, else lines."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import anyio
import attrs

from clawblox.cli.running.displays import TableOutput
from clawblox.cli.running.live_table import LiveTable
from clawblox.cli.terminal.output import Output, OutputGone
from clawblox.concurrency.threads import run_blocking
from clawblox.experiment.history.lines import Line
from clawblox.experiment.session.events import ExperimentEvent, describe_line
from clawblox.experiment.tables.status import ExperimentStatus
from clawblox.views.event_lines import EventLine
from clawblox.views.experiment_events import describe_experiment_event
from clawblox.views.experiments import ExperimentView, render_experiment

_SCORED = ("generation.scored", "generation.rescored")
_INTERVAL_S = 1.0
_FINISH_TIMEOUT_S = 1.0


@attrs.frozen
class ExperimentLook:
    """An experiment at one moment.

    Attributes:
        status: Its status.
        lines: All lines of its journal.
        at: Monotonic time, in seconds.
    """

    status: ExperimentStatus
    lines: Sequence[Line]
    at: float = attrs.field(factory=time.monotonic)


Read: TypeAlias = Callable[[], Awaitable[ExperimentLook]]
"""Looks at an experiment."""


class _News:
    """The lines of a journal that have not been shown yet, as events.

    Args:
        since: Number of lines that are not news; None means those of the first look.
    """

    def __init__(self, since: int | None) -> None:
        self._seen = since
        self._score_errors: set[str] = set()

    def take(self, lines: Sequence[Line]) -> list[EventLine]:
        """Return the events since the last call."""
        new = [] if self._seen is None else lines[self._seen :]
        self._seen = len(lines)
        events = (describe_experiment_event(self._shorten(describe_line(line))) for line in new)
        return [event for event in events if event is not None]

    def _shorten(self, event: ExperimentEvent) -> ExperimentEvent:
        """Return an event without an error of a score that was shown for another generation."""
        error = event.data.get("error") if event.kind in _SCORED else None
        if error is None:
            return event
        if error in self._score_errors:
            return attrs.evolve(event, data={**event.data, "error": "the same error"})
        self._score_errors.add(error)
        return event


class ExperimentTable(TableOutput[ExperimentLook]):
    """The live table of an experiment.

    Args:
        output: The terminal.
        read: Looks at the experiment.
        since: Number of lines of its journal that are not news; None means those of the first look.
        notice: The last line of the table.
    """

    def __init__(
        self, output: Output, read: Read, *, since: int | None = None, notice: str = ""
    ) -> None:
        super().__init__(output, LiveTable(output, read, self._draw))
        self._news = _News(since)
        self._notice = notice

    def _draw(
        self, _before: ExperimentLook | None, now: ExperimentLook, columns: int, lines: int
    ) -> list[str]:
        for event in self._news.take(now.lines):
            self._recent_events.add(event)
        events = self._recent_events.last(lines)
        return render_experiment(
            ExperimentView(now.status, events, self._last_line()), columns, lines
        )


class ExperimentLines:
    """A line for each event of an experiment; see :class:`ExperimentTable`.

    Args:
        output: Where the lines go.
        read: Looks at the experiment.
        since: Number of lines of its journal that are not news; None means those of the first look.
    """

    def __init__(self, output: Output, read: Read, *, since: int | None = None) -> None:
        self._output = output
        self._read = read
        self._news = _News(since)

    async def run(self, until: Callable[[], bool] = lambda: False) -> None:
        """Write the lines until it is cancelled; return when the output is gone.

        Args:
            until: Called after each look; returns whether to stop.

        Raises:
            OSError: The output is a file, and the disk is full.

        Cancellation: :meth:`finish` writes the rest.
        """
        with contextlib.suppress(OutputGone):
            while True:
                await self._write_news()
                if until():
                    return
                await anyio.sleep(_INTERVAL_S)

    async def _write_news(self) -> None:
        for event in self._news.take((await self._read()).lines):
            await self._output.write_line(str(event))

    async def finish(self, summary: Sequence[str] = ()) -> None:
        """Write the rest, then the last lines.

        Args:
            summary: The last lines.

        Cancellation: has no effect for up to a second.
        """
        with (
            anyio.move_on_after(_FINISH_TIMEOUT_S, shield=True),
            contextlib.suppress(OutputGone, OSError),
        ):
            try:
                await self._write_news()
            finally:
                for line in summary:
                    await self._output.write_line(line)

    async def leave(self) -> None:
        """Do nothing: all lines stay.

        Cancellation: has no effect.
        """

    async def clear(self) -> None:
        """Write the rest, so that it does not mix with an error message.

        Cancellation: has no effect for up to a second.
        """
        await self.finish()


ExperimentDisplay: TypeAlias = ExperimentTable | ExperimentLines
"""Shows an experiment."""


def make_display(
    output: Output, read: Read, *, since: int | None = None, notice: str = ""
) -> ExperimentDisplay:
    """Return what shows an experiment on an output; see :class:`ExperimentTable`."""
    if output.is_terminal:
        return ExperimentTable(output, read, since=since, notice=notice)
    return ExperimentLines(output, read, since=since)


async def watch_experiment(output: Output, read: Callable[[], ExperimentLook]) -> None:
    """Show an experiment that another process runs, until no process does.

    Args:
        output: The output.
        read: Looks at the experiment. Blocks.

    Raises:
        OSError: The output is a file, and the disk is full.

    Cancellation: the table stays on the terminal as it was drawn last.
    """
    pid: int | None = None

    async def look() -> ExperimentLook:
        nonlocal pid
        latest = await run_blocking(read)
        pid = latest.status.pid
        return latest

    notice = "Ctrl-C closes this table and stops nothing."
    display = make_display(output, look, notice=notice)
    try:
        await display.run(until=lambda: pid is None)
    finally:
        await display.leave()
