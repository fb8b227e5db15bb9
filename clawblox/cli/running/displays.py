"""The output of an orchestrator: a live table on a terminal, else a line for each event."""

from __future__ import annotations

import contextlib
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import anyio
import attrs

from clawblox.agents.status import AgentStatus, read_agents
from clawblox.cli.running.instance_states import InstanceStates
from clawblox.cli.running.start_progress import SlowStarts
from clawblox.cli.terminal.output import Outbox, Output, OutputGone
from clawblox.cli.terminal.screen import Screen
from clawblox.concurrency.tasks import Tasks
from clawblox.concurrency.threads import run_blocking
from clawblox.instance.ramp import read_stall_s
from clawblox.results import WorldEvent
from clawblox.rundir.status import OVER, InstanceStatus, read_run
from clawblox.system.clock import format_utc, utc_now
from clawblox.views.board import View, render
from clawblox.views.event_lines import EventLine, RecentEvents, describe_event
from clawblox.views.formatting import shorten_path
from clawblox.views.rows import Row, make_row, name_runs

_RECENT_EVENTS = 16
_FINISH_TIMEOUT_S = 1.0


class Display(Protocol):
    """Shows the work of an orchestrator."""

    async def run(self) -> None:
        """Show it until it is cancelled; return when the output is gone.

        Cancellation: :meth:`finish` shows the rest.
        """

    async def finish(self, summary: Sequence[str]) -> None:
        """Show how it ended.

        Args:
            summary: The last lines.

        Cancellation: part of it may be shown.
        """

    async def clear(self) -> None:
        """Remove everything that would mix with an error message.

        Cancellation: it may still be there.
        """

    def take(self, event: WorldEvent) -> None:
        """Show the next event."""

    def announce(self, text: str) -> None:
        """Show a lasting fact, such as an address."""

    def say(self, text: str) -> None:
        """Show the present activity."""

    def warn(self, text: str) -> None:
        """Show a warning."""


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
        """Write the lines; see :class:`Display`."""
        with contextlib.suppress(OutputGone):
            await self._outbox.run()

    async def finish(self, summary: Sequence[str] = ()) -> None:
        """Write the last lines; see :class:`Display`."""
        for line in summary:
            self._outbox.put(line)
        with anyio.move_on_after(_FINISH_TIMEOUT_S, shield=True), contextlib.suppress(OutputGone):
            await self._outbox.flush()

    async def clear(self) -> None:
        """Write the last lines; see :class:`Display`."""
        await self.finish()

    def take(self, event: WorldEvent) -> None:
        """Write an event."""
        self._outbox.put(str(describe_event(event)))

    def announce(self, text: str) -> None:
        """Write a fact."""
        self._outbox.put(text)

    def say(self, text: str) -> None:
        """Write what happens now."""
        self._outbox.put(text)

    def warn(self, text: str) -> None:
        """Write a warning with the time."""
        self._outbox.put(f"{format_utc(utc_now())} {text}")


class TableDisplay:
    """The live table.

    Args:
        output: The terminal.
        run_dir: The run directory.
        world: Name of the world.
        states: The states of the instances.
        pid: The orchestrator; ended instances of others in the run directory are not shown.
    """

    def __init__(
        self, output: Output, run_dir: Path, world: str, states: InstanceStates, *, pid: int
    ) -> None:
        self._world = world
        self._place = shorten_path(run_dir)
        self._facts: list[str] = []
        self._states = states
        self._pid = pid
        self._begun_at = time.monotonic()
        self._recent_events = RecentEvents(_RECENT_EVENTS)
        self._ramp = ""
        self._notice = ""
        self._run_dir = run_dir
        self._slow_starts = SlowStarts()
        self._output = output
        self._table = LiveTable(output, self._look, self._compose)

    async def run(self) -> None:
        """Draw the table; see :class:`Display`.

        Raises:
            OSError: The output is a file, and the disk is full.
        """
        await self._table.run()

    async def finish(self, summary: Sequence[str]) -> None:
        """Draw the table for the last time, and the summary below it; see :class:`Display`."""
        self._notice = ""
        await self._table.finish()
        with anyio.move_on_after(_FINISH_TIMEOUT_S), contextlib.suppress(OutputGone, OSError):
            for line in ["", *summary] if summary else []:
                await self._output.write_line(line)

    async def clear(self) -> None:
        """Remove the table; see :class:`Display`."""
        await self._table.clear()

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

    def say(self, text: str) -> None:
        """Show in the last line what happens now."""
        self._notice = text
        self._table.touch()

    def warn(self, text: str) -> None:
        """Show a warning below the table; may be called in any thread."""
        self._recent_events.add(EventLine(format_utc(utc_now()), "", text, is_trouble=True))

    def _look(self) -> Look:
        statuses = [
            status
            for status in read_run(self._run_dir).instances
            if status.orchestrator_pid == self._pid or status.state not in OVER
        ]
        return Look(statuses, self._slow_starts.look(statuses), read_agents(self._run_dir))

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
            notice=self._notice,
        )


_SHORT_REST_S, _LONG_REST_S = 0.25, 1.0
"""Seconds between two looks when something happens, and when nothing does."""
_MAX_SHARE = 0.05
"""Largest share of the time to spend looking and drawing, however many instances there are."""
_LOOKS_KEPT = 8
_DRAW_TIMEOUT_S = 1.0


@attrs.frozen
class Look:
    """Instances and agents at one moment.

    Attributes:
        instances: The instances, running or not.
        notes: How slow starts are going, by run directory and name.
        agents: The agents.
        at: Monotonic time, in seconds.
        stall_s: Seconds in which some task waited for a processor, since an arbitrary beginning;
            None if the kernel does not count them.
    """

    instances: Sequence[InstanceStatus]
    notes: Mapping[tuple[Path, str], str] = attrs.field(factory=dict)
    agents: Sequence[AgentStatus] = ()
    at: float = attrs.field(factory=time.monotonic)
    stall_s: float | None = attrs.field(factory=read_stall_s)


def make_rows(
    before: Look | None, now: Look, states: Mapping[str, str], *, names_runs: bool = False
) -> list[Row]:
    """Return the rows of the table.

    Args:
        before: An earlier look, to measure the CPU share from; None leaves it out.
        now: The later look.
        states: States by name of the instance; they override the states on disk.
        names_runs: Whether the rows name the runs.
    """
    cpu_before = (
        {(old.run_dir, old.name, old.pid): old.cpu_s for old in before.instances}
        if (before)
        else {}
    )
    elapsed_s = now.at - before.at if before else 0.0
    runs = sorted({status.run_dir for status in now.instances}) if names_runs else []
    run_names = name_runs(runs)

    def cpu_share(status: InstanceStatus) -> float | None:
        earlier_s = cpu_before.get((status.run_dir, status.name, status.pid))
        if earlier_s is None or status.cpu_s is None or not elapsed_s:
            return None
        return max(0.0, status.cpu_s - earlier_s) / elapsed_s

    rows = [
        make_row(
            status,
            states.get(status.name, status.state),
            cpu_share(status),
            run=run_names.get(status.run_dir, ""),
            note=now.notes.get((status.run_dir, status.name), ""),
        )
        for status in now.instances
    ]
    known = {status.name for status in now.instances}
    return [*rows, *(Row(name, state) for name, state in states.items() if name not in known)]


def pressure_between(before: Look | None, now: Look) -> float | None:
    """Return the share of time in which some task waited for a processor; None if not known."""
    if before is None or before.stall_s is None or now.stall_s is None or now.at <= before.at:
        return None
    return min(1.0, (now.stall_s - before.stall_s) / (now.at - before.at))


class LiveTable:
    """Draws a run on a terminal until it is cancelled.

    Args:
        output: The terminal.
        look: Looks at the run directory. Blocks.
        compose: Returns the view, given an earlier look and the latest.
    """

    def __init__(
        self,
        output: Output,
        look: Callable[[], Look],
        compose: Callable[[Look | None, Look], View],
    ) -> None:
        self._screen = Screen(output)
        self._look = look
        self._compose = compose
        # Of its own: many starts may be waiting for the shared threads.
        self._limiter = anyio.CapacityLimiter(1)
        self._looks: deque[Look] = deque(maxlen=_LOOKS_KEPT)
        self._has_news = anyio.Event()

    def touch(self) -> None:
        """Look and draw soon: something happened."""
        self._has_news.set()

    async def run(self, until: Callable[[], bool] = lambda: False) -> None:
        """Look and draw until the terminal is gone.

        Args:
            until: Called after each look; returns whether to stop.

        Raises:
            OSError: The output is a file, and the disk is full.

        Cancellation: the last lines may be drawn in part; :meth:`finish` draws them again.
        """
        async with Tasks() as tasks:
            tasks.start_soon(self._watch_terminal)
            with contextlib.suppress(OutputGone):
                while True:
                    self._has_news = anyio.Event()
                    begun_at = time.monotonic()
                    await self._refresh()
                    if until():
                        return
                    await self._rest((time.monotonic() - begun_at) / _MAX_SHARE)

    async def _rest(self, least_s: float) -> None:
        await anyio.sleep(max(_SHORT_REST_S, least_s))
        with anyio.move_on_after(_LONG_REST_S - _SHORT_REST_S):
            await self._has_news.wait()

    async def leave(self) -> None:
        """Leave the table as it was drawn last.

        Cancellation: typed characters may still be below it.
        """
        await self._screen.leave()

    async def finish(self) -> None:
        """Look and draw for the last time, for at most a second.

        Cancellation: the lines may be drawn in part.
        """
        with anyio.move_on_after(_DRAW_TIMEOUT_S), contextlib.suppress(OutputGone):
            await self._refresh()

    async def clear(self) -> None:
        """Remove the table.

        Cancellation: it may still be there.
        """
        with anyio.move_on_after(_DRAW_TIMEOUT_S, shield=True), contextlib.suppress(OutputGone):
            await self._screen.draw(())

    async def _refresh(self) -> None:
        try:
            self._looks.append(await run_blocking(self._look, limiter=self._limiter))
        except OSError:  # such as a lack of descriptors; that must not end the orchestrator
            return
        view = self._compose(self._earlier_look(), self._looks[-1])
        await self._screen.draw(render(view, self._screen.columns, self._screen.lines))

    def _earlier_look(self) -> Look | None:
        """Return a look from long enough ago to measure the CPU share from."""
        *others, last = self._looks
        old = [look for look in others if look.at <= last.at - _LONG_REST_S]
        return old[-1] if old else next(iter(others), None)

    async def _watch_terminal(self) -> None:
        with anyio.open_signal_receiver(signal.SIGWINCH, signal.SIGCONT) as received:
            async for number in received:
                if number == signal.SIGCONT:  # the shell has written below the table
                    self._screen.forget()
                self.touch()
