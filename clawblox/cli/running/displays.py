"""What a person sees of an orchestrator: a live table on a terminal, else a line an event."""

from __future__ import annotations

import contextlib
import time
from functools import partial
from pathlib import Path
from typing import Protocol

import anyio

from clawblox.cli.running.live import LiveTable, Look, look_at, pressure_between, rows_between
from clawblox.cli.tables.board import View
from clawblox.cli.tables.event_lines import Chronicle, Happening, happening_of
from clawblox.cli.tables.instance_states import Roster
from clawblox.cli.terminal.outbox import Outbox
from clawblox.cli.terminal.output import Output, OutputGone, shorten_path
from clawblox.results import WorldEvent
from clawblox.rundir.status import OVER
from clawblox.system.clock import format_utc, utc_now

__all__ = ["Display", "LineDisplay", "TableDisplay"]

_CHRONICLE = 16
_PATIENCE_S = 1.0


class Display(Protocol):
    """Shows what an orchestrator does."""

    async def run(self) -> None:
        """Show it until it is cancelled; return when nobody looks any more.

        Cancellation: :meth:`finish` shows the rest.
        """

    async def finish(self) -> None:
        """Show how it ended.

        Cancellation: a part of it may be shown.
        """

    async def clear(self) -> None:
        """Make room for an error.

        Cancellation: something may still be in the way.
        """

    def take(self, event: WorldEvent) -> None:
        """Take the next event."""

    def announce(self, text: str) -> None:
        """Say what is so from now on."""

    def say(self, text: str) -> None:
        """Say what is going on now."""

    def warn(self, text: str) -> None:
        """Say what somebody should look at."""


class LineDisplay:
    """A line for each event. Who reads slowly loses the oldest of more than 4096.

    Args:
        output: Where they go.
    """

    def __init__(self, output: Output) -> None:
        self._output = output
        self._outbox = Outbox(self._write)

    async def _write(self, line: str) -> None:
        with contextlib.suppress(OSError):  # a full disk costs the line, and not the worlds
            await self._output.write_line(line)

    async def run(self) -> None:
        """Write lines; see :class:`Display`."""
        with contextlib.suppress(OutputGone):
            await self._outbox.run()

    async def finish(self) -> None:
        """Write the last lines; see :class:`Display`."""
        with anyio.move_on_after(_PATIENCE_S, shield=True), contextlib.suppress(OutputGone):
            await self._outbox.flush()

    async def clear(self) -> None:
        """Write the last lines; see :class:`Display`."""
        await self.finish()

    def take(self, event: WorldEvent) -> None:
        """Write an event."""
        self._outbox.put(happening_of(event).line)

    def announce(self, text: str) -> None:
        """Write it."""
        self._outbox.put(text)

    def say(self, text: str) -> None:
        """Write it."""
        self._outbox.put(text)

    def warn(self, text: str) -> None:
        """Write it with the time."""
        self._outbox.put(f"{format_utc(utc_now())} {text}")


class TableDisplay:
    """The live table.

    Args:
        output: The terminal.
        run_dir: The run directory.
        world: Name of the world.
        roster: Where the instances stand.
        pid: The orchestrator; what others left in the run directory, and is over, is not shown.
    """

    def __init__(
        self, output: Output, run_dir: Path, world: str, roster: Roster, *, pid: int
    ) -> None:
        self._world = world
        self._place = shorten_path(run_dir)
        self._facts: list[str] = []
        self._roster = roster
        self._pid = pid
        self._begun_at = time.monotonic()
        self._chronicle = Chronicle(_CHRONICLE)
        self._ramp = ""
        self._notice = ""
        self._table = LiveTable(output, partial(look_at, run_dir), self._compose)

    async def run(self) -> None:
        """Draw; see :class:`Display`."""
        await self._table.run()

    async def finish(self) -> None:
        """Draw for the last time; see :class:`Display`."""
        self._notice = ""
        await self._table.finish()

    async def clear(self) -> None:
        """Remove the table; see :class:`Display`."""
        await self._table.clear()

    def take(self, event: WorldEvent) -> None:
        """Note an event below the table, if the table does not show it."""
        happening = happening_of(event)
        if event.kind in ("ramp_slowed", "ramp_recovered"):
            self._ramp = happening.text if event.kind == "ramp_slowed" else ""
        elif event.kind not in ("started", "ready", "saved", "stopped"):
            self._chronicle.add(happening)
        self._table.touch()

    def announce(self, text: str) -> None:
        """Say it in the first line."""
        self._facts.append(text)

    def say(self, text: str) -> None:
        """Say it in the last line."""
        self._notice = text
        self._table.touch()

    def warn(self, text: str) -> None:
        """Say it below the table; may be called in any thread."""
        self._chronicle.add(Happening(format_utc(utc_now()), "", text, is_trouble=True))

    def _compose(self, before: Look | None, now: Look) -> View:
        ours = [
            one
            for one in now.instances
            if one.orchestrator_pid == self._pid or one.state not in OVER
        ]
        return View(
            title=" · ".join((self._world, *self._facts, self._place)),
            elapsed_s=time.monotonic() - self._begun_at,
            counts=self._roster.counts(),
            rows=rows_between(before, Look(now.at, ours, now.stall_s), self._roster.states),
            pressure=pressure_between(before, now),
            ramp=self._ramp if "waiting" in self._roster.counts() else "",
            happenings=self._chronicle.last(_CHRONICLE),
            notice=self._notice,
        )
