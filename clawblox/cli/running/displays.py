"""The output of an orchestrator: a live table on a terminal, else a line for each event."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar

import anyio

from clawblox.agents.status import read_agents
from clawblox.cli.running.instance_states import InstanceStates
from clawblox.cli.running.live_table import LiveTable, Look, Sight, make_rows, pressure_between
from clawblox.cli.running.slow_archives import SLOW_S, describe_archives
from clawblox.cli.running.start_progress import SlowStarts
from clawblox.cli.terminal.output import Outbox, Output, OutputGone
from clawblox.concurrency.threads import run_blocking
from clawblox.results import WorldEvent
from clawblox.rundir.status import OVER, read_run
from clawblox.system.clock import format_utc, utc_now
from clawblox.views.board import View, render
from clawblox.views.event_lines import EventLine, RecentEvents, describe_event
from clawblox.views.formatting import shorten_path

_RECENT_EVENTS = 16
_FINISH_TIMEOUT_S = 1.0

_Sight = TypeVar("_Sight", bound=Sight)


class LineDisplay:
    """A line for each event. A slow reader loses the oldest lines beyond 4096.

    Args:
        output: Where the lines go.
    """

    def __init__(self, output: Output) -> None:
        self._output = output
        self._outbox = Outbox(self._write)

    async def _write(self, line: str) -> None:
        with contextlib.suppress(OSError):  # a full disk loses the line, and must not stop worlds
            await self._output.write_line(line)

    async def run(self) -> None:
        """Write the lines until it is cancelled; return when the output is gone.

        Cancellation: :meth:`finish` writes the rest.
        """
        with contextlib.suppress(OutputGone):
            await self._outbox.run()

    async def finish(self, summary: Sequence[str] = ()) -> None:
        """Write the rest, then the last lines.

        Args:
            summary: The last lines.

        Cancellation: has no effect for up to a second.
        """
        for line in summary:
            self._outbox.put(line)
        with anyio.move_on_after(_FINISH_TIMEOUT_S, shield=True), contextlib.suppress(OutputGone):
            await self._outbox.flush()

    async def clear(self) -> None:
        """Write the rest, so that it does not mix with an error message.

        Cancellation: has no effect for up to a second.
        """
        await self.finish()

    def take(self, event: WorldEvent) -> None:
        """Write an event."""
        self._outbox.put(str(describe_event(event)))

    def announce(self, text: str) -> None:
        """Write a lasting fact, such as an address, or the present activity."""
        self._outbox.put(text)

    report = announce

    def warn(self, text: str) -> None:
        """Write a warning with the time."""
        self._outbox.put(f"{format_utc(utc_now())} {text}")


class TableOutput(Generic[_Sight]):
    """A live table, and the lines below it.

    Args:
        output: The terminal.
        table: The table on it.
    """

    def __init__(self, output: Output, table: LiveTable[_Sight]) -> None:
        self._output = output
        self._table = table
        self._recent_events = RecentEvents(_RECENT_EVENTS)
        self._notice = ""

    async def run(self, until: Callable[[], bool] = lambda: False) -> None:
        """Draw the table until it is cancelled; return when the terminal is gone.

        Args:
            until: Called after each look; returns whether to stop.

        Raises:
            OSError: The output is a file, and the disk is full.

        Cancellation: :meth:`finish` draws the rest.
        """
        await self._table.run(until)

    async def leave(self) -> None:
        """Leave the table as it was drawn last.

        Cancellation: typed characters may still be below it.
        """
        await self._table.leave()

    async def finish(self, summary: Sequence[str]) -> None:
        """Draw the table for the last time, and the summary below it.

        Args:
            summary: The last lines.

        Cancellation: part of it may be shown.
        """
        self._notice = ""
        try:
            await self._table.finish()
        finally:
            with anyio.move_on_after(_FINISH_TIMEOUT_S), contextlib.suppress(OutputGone, OSError):
                for line in ["", *summary] if summary else []:
                    await self._output.write_line(line)

    async def clear(self) -> None:
        """Remove the table, so that it does not mix with an error message.

        Cancellation: it may still be there.
        """
        await self._table.clear()

    def _last_line(self) -> str:
        """Return the slow archives and the present activity."""
        return " · ".join(filter(None, (describe_archives(SLOW_S), self._notice)))

    def report(self, text: str) -> None:
        """Show the present activity in the last line."""
        self._notice = text
        self._table.touch()

    def warn(self, text: str) -> None:
        """Show a warning below the table; may be called in any thread."""
        self._recent_events.add(EventLine(format_utc(utc_now()), "", text, is_trouble=True))


class TableDisplay(TableOutput[Look]):
    """The live table.

    Args:
        output: The terminal.
        run_dir: The run directory.
        world: Name of the world.
        states: The states of the instances.
    """

    def __init__(self, output: Output, run_dir: Path, world: str, states: InstanceStates) -> None:
        self._world = world
        self._place = shorten_path(run_dir)
        self._facts: list[str] = []
        self._states = states
        self._begun_at = time.monotonic()
        self._ramp = ""
        self._run_dir = run_dir
        self._slow_starts = SlowStarts()
        self._limiter = anyio.CapacityLimiter(1)  # many starts may wait for the shared threads
        super().__init__(output, LiveTable(output, self._look, self._draw))

    def take(self, event: WorldEvent) -> None:
        """Show an event below the table, unless the table itself shows it."""
        line = describe_event(event)
        if event.kind in ("ramp_slowed", "ramp_recovered"):
            self._ramp = line.text if event.kind == "ramp_slowed" else ""
        elif event.kind not in ("resuming", "started", "saved"):
            self._recent_events.add(line)
        self._table.touch()

    def announce(self, text: str) -> None:
        """Show a fact in the first line."""
        self._facts.append(text)

    async def _look(self) -> Look:
        return await run_blocking(self._read, limiter=self._limiter)

    def _read(self) -> Look:
        """Look at the run, without the ended instances of other orchestrators."""
        statuses = [
            status
            for status in read_run(self._run_dir).instances
            if status.orchestrator_pid == os.getpid() or status.state not in OVER
        ]
        return Look(statuses, self._slow_starts.look(statuses), read_agents(self._run_dir))

    def _draw(self, before: Look | None, now: Look, columns: int, lines: int) -> list[str]:
        return render(self._compose(before, now), columns, lines)

    def _compose(self, before: Look | None, now: Look) -> View:
        counts = self._states.counts()
        return View(
            title=" · ".join((self._world, *self._facts, self._place)),
            elapsed_s=time.monotonic() - self._begun_at,
            counts=counts,
            rows=make_rows(before, now, self._states.by_name),
            pressure=pressure_between(before, now),
            ramp=self._ramp if "waiting" in counts else "",
            agents=now.agents,
            event_lines=self._recent_events.last(_RECENT_EVENTS),
            notice=self._last_line(),
        )


Display: TypeAlias = LineDisplay | TableDisplay
"""Shows the work of an orchestrator."""
