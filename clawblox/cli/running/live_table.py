"""The live table of runs, and ``ps --watch``."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import anyio
import attrs

from clawblox.agents.listing import Scope
from clawblox.agents.status import AgentStatus
from clawblox.cli.running.scopes import describe_scope
from clawblox.cli.running.start_progress import SlowStarts
from clawblox.cli.terminal.output import Output, OutputGone
from clawblox.cli.terminal.screen import Screen
from clawblox.concurrency.tasks import Tasks
from clawblox.concurrency.threads import run_blocking
from clawblox.instance.ramp import read_stall_s
from clawblox.rundir.status import OVER, InstanceStatus, read_runs
from clawblox.system.clock import utc_now
from clawblox.views.board import View, render
from clawblox.views.event_lines import EventLine, RecentEvents, changes_between
from clawblox.views.formatting import shorten_path
from clawblox.views.rows import Row, make_row, name_runs, summarise

_INTERVAL_S = 1.0
_RECENT_EVENTS = 16
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
    earlier = before.instances if before else ()
    cpu_before = {(old.run_dir, old.name, old.pid): old.cpu_s for old in earlier}
    elapsed_s = now.at - before.at if before else 0.0
    run_names = name_runs(
        sorted({status.run_dir for status in now.instances} if names_runs else ())
    )

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
    shown = {status.name for status in now.instances}
    return [*rows, *(Row(name, state) for name, state in states.items() if name not in shown)]


def pressure_between(before: Look | None, now: Look) -> float | None:
    """Return the share of time in which some task waited for a processor; None if not known."""
    if before is None or before.stall_s is None or now.stall_s is None or now.at <= before.at:
        return None
    return min(1.0, (now.stall_s - before.stall_s) / (now.at - before.at))


class Sight(Protocol):
    """What a look at a run or an experiment returns."""

    @property
    def at(self) -> float:
        """Monotonic time, in seconds."""


_Sight = TypeVar("_Sight", bound=Sight)


@attrs.define(eq=False)
class LiveTable(Generic[_Sight]):
    """Draws a run or an experiment on a terminal until it is cancelled.

    Args:
        output: The terminal.
        look: Looks at its directory.
        draw: Returns the lines, given an earlier look, the latest, and the columns and lines of the
            terminal.
    """

    _screen: Screen = attrs.field(converter=Screen, alias="output")
    _look: Callable[[], Awaitable[_Sight]]
    _draw: Callable[[_Sight | None, _Sight, int, int], Sequence[str]]
    _looks: deque[_Sight] = attrs.field(init=False, factory=lambda: deque(maxlen=_LOOKS_KEPT))
    _has_news: anyio.Event = attrs.field(init=False, factory=anyio.Event)

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
            self._looks.append(await self._look())
        except OSError:  # such as a lack of descriptors; that must not end the orchestrator
            return
        columns, lines = self._screen.columns, self._screen.lines
        shown = self._draw(self._earlier_look(), self._looks[-1], columns, lines)
        await self._screen.draw(shown)

    def _earlier_look(self) -> _Sight | None:
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


async def watch(scope: Scope) -> None:
    """Show what happens until nothing runs any more.

    Raises:
        OSError: The output is a file, and the disk is full.

    Cancellation: the table stays on the terminal as it was drawn last.
    """
    watcher = _Watcher(scope)
    with Output(sys.stdout) as output, contextlib.suppress(OutputGone):
        await (_draw if output.is_terminal else _print)(output, watcher)
        if watcher.is_finished:
            summary = await run_blocking(watcher.summarise)
            for line in ["", *summary] if output.is_terminal and summary else summary:
                await output.write_line(line)


async def _draw(output: Output, watcher: _Watcher) -> None:
    table = LiveTable(output, partial(run_blocking, watcher.look), watcher.draw)
    try:
        await table.run(until=lambda: watcher.is_finished)
    finally:
        await table.leave()


async def _print(output: Output, watcher: _Watcher) -> None:
    while True:
        await run_blocking(watcher.look)
        while watcher.news:
            await output.write_line(str(watcher.news.popleft()))
        if watcher.is_finished:
            return
        await anyio.sleep(_INTERVAL_S)


class _Watcher:
    """Polls runs for changes.

    Attributes:
        news: Changes that have not been shown yet.
        is_finished: Whether nothing runs, and no orchestrator is about to start anything.
    """

    def __init__(self, scope: Scope) -> None:
        self.news: deque[EventLine] = deque()
        self.is_finished = False
        self._scope = scope
        self._seen: set[tuple[Path, str]] = set()
        self._last: Sequence[InstanceStatus] = ()
        self._has_drawn = False
        self._waiting = 0
        self._slow_starts = SlowStarts()
        self._recent_events = RecentEvents(_RECENT_EVENTS)

    def look(self) -> Look:
        """Look once more. Blocks."""
        runs = self._scope.find()
        states = read_runs(runs)
        instances = (status for run in states for status in run.instances)
        shown = [status for status in instances if self._is_shown(status)]
        run_names = {} if self._scope.is_one_run else name_runs(runs)
        self.news.extend(changes_between(self._last, shown, run_names))
        self._waiting = sum(run.waiting for run in states)
        self._last = shown
        has_owner = any(run.owner_pid is not None for run in states)
        self.is_finished = not has_owner and all(status.state in OVER for status in shown)
        return Look(shown, self._slow_starts.look(shown), self._scope.read_agents(runs))

    def _is_shown(self, status: InstanceStatus) -> bool:
        key = status.run_dir, status.name
        if self._scope.shows(status):
            self._seen.add(key)
        return key in self._seen  # an instance that was shown running is also shown ending

    def draw(self, before: Look | None, now: Look, columns: int, lines: int) -> list[str]:
        """Return the lines of the table; see :class:`LiveTable`."""
        return render(self._compose(before, now), columns, lines)

    def _compose(self, before: Look | None, now: Look) -> View:
        while self.news:
            change = self.news.popleft()
            if self._has_drawn or change.is_trouble:  # the table itself shows the first state
                self._recent_events.add(change)
        self._has_drawn = True
        waiting = {"waiting": self._waiting} if self._waiting else {}
        return View(
            title=describe_scope(self._scope) or self._describe_run(now.instances),
            elapsed_s=None if self.is_finished else _run_time(now.instances),
            counts={**waiting, **Counter(status.state for status in now.instances)},
            rows=make_rows(before, now, {}, names_runs=not self._scope.is_one_run),
            pressure=None if self.is_finished else pressure_between(before, now),
            agents=now.agents,
            event_lines=self._recent_events.last(_RECENT_EVENTS),
            notice="" if self.is_finished else "Ctrl-C closes this table and stops nothing.",
        )

    def _describe_run(self, instances: Sequence[InstanceStatus]) -> str:
        worlds = ", ".join(sorted({status.world for status in instances}))
        return " · ".join((worlds, *map(shorten_path, self._scope.find())))

    def summarise(self) -> list[str]:
        """Summarise a single run that has ended; empty for several runs."""
        if not self._scope.is_one_run:
            return []
        (run_dir,) = self._scope.find()
        return summarise(run_dir, self._last, agents=self._scope.read_agents([run_dir]))


def _run_time(instances: Sequence[InstanceStatus]) -> float | None:
    """Return how long ago the first living instance was started, in seconds."""
    starts = [status.started_at for status in instances if status.state not in OVER]
    if not starts:
        return None
    return (utc_now() - datetime.fromisoformat(min(starts))).total_seconds()
