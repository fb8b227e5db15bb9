"""Watching runs from outside, for ``ps --watch``: the live table, or a line for each change."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter, deque
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import anyio

from clawblox.cli.running.displays import LiveTable, Look, make_rows, pressure_between
from clawblox.cli.running.scopes import Scope
from clawblox.cli.running.start_progress import SlowStarts
from clawblox.cli.terminal.output import Output, OutputGone
from clawblox.concurrency.threads import run_blocking
from clawblox.rundir.status import OVER, InstanceStatus, read_runs
from clawblox.system.clock import utc_now
from clawblox.views.board import View
from clawblox.views.event_lines import EventLine, RecentEvents, changes_between
from clawblox.views.formatting import shorten_path
from clawblox.views.rows import name_runs
from clawblox.views.summary import summarise

_INTERVAL_S = 1.0
_RECENT_EVENTS = 16


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
    table = LiveTable(output, watcher.look, watcher.compose)
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
        found = [status for status in instances if self._is_shown(status)]
        run_names = {} if self._scope.is_one_run else name_runs(runs)
        self.news.extend(changes_between(self._last, found, run_names))
        self._waiting = sum(run.waiting for run in states)
        self._last = found
        has_owner = any(run.owner_pid is not None for run in states)
        self.is_finished = not has_owner and all(status.state in OVER for status in found)
        return Look(found, self._slow_starts.look(found), self._scope.read_agents(runs))

    def _is_shown(self, status: InstanceStatus) -> bool:
        key = status.run_dir, status.name
        if self._scope.shows(status):
            self._seen.add(key)
        return key in self._seen  # an instance that was shown running is also shown ending

    def compose(self, before: Look | None, now: Look) -> View:
        """Return the view of the table."""
        while self.news:
            change = self.news.popleft()
            if self._has_drawn or change.is_trouble:  # the table itself shows the first state
                self._recent_events.add(change)
        self._has_drawn = True
        waiting = {"waiting": self._waiting} if self._waiting else {}
        return View(
            title=self._scope.title or self._describe_run(now.instances),
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
