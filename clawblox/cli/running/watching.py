"""Watching a run from outside, for ``ps --follow``: the live table, or a line for each change."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter, deque
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import anyio

from clawblox.cli.running.live_table import LiveTable, Look, look_at, make_rows, pressure_between
from clawblox.cli.tables.board import View
from clawblox.cli.tables.event_lines import EventLine, RecentEvents, changes_between
from clawblox.cli.tables.formatting import shorten_path
from clawblox.cli.terminal.output import Output, OutputGone
from clawblox.concurrency.threads import run_blocking
from clawblox.rundir.status import OVER, InstanceStatus, count_waiting, run_owner
from clawblox.system.clock import utc_now

__all__ = ["watch"]

_INTERVAL_S = 1.0
_RECENT_EVENTS = 16


async def watch(run_dir: Path) -> None:
    """Show what happens in a run directory until nothing runs in it any more.

    Raises:
        OSError: The output is a file, and the disk is full.

    Cancellation: the table stays on the terminal as it was drawn last.
    """
    watcher = _Watcher(run_dir)
    with Output(sys.stdout) as output, contextlib.suppress(OutputGone):
        await (_draw if output.is_terminal else _print)(output, watcher)


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
    """Looks at a run directory again and again, and finds what changed.

    Attributes:
        news: Changes that have not been shown yet.
        is_finished: Whether nothing runs, and no orchestrator is about to start anything.
    """

    def __init__(self, run_dir: Path) -> None:
        self.news: deque[EventLine] = deque()
        self.is_finished = False
        self._run_dir = run_dir
        self._last: Sequence[InstanceStatus] = ()
        self._waiting = 0
        self._recent_events = RecentEvents(_RECENT_EVENTS)

    def look(self) -> Look:
        """Look once more. Blocks."""
        has_owner = run_owner(self._run_dir) is not None
        now = look_at(self._run_dir)
        self.news.extend(changes_between(self._last, now.instances))
        self._waiting = count_waiting(self._run_dir)
        self._last = now.instances
        self.is_finished = not has_owner and all(status.state in OVER for status in now.instances)
        return now

    def compose(self, before: Look | None, now: Look) -> View:
        """Return what the table shows."""
        while self.news:
            change = self.news.popleft()
            if change.is_trouble:
                self._recent_events.add(change)
        waiting = {"waiting": self._waiting} if self._waiting else {}
        worlds = ", ".join(sorted({status.world for status in now.instances}))
        return View(
            title=f"{worlds} · {shorten_path(self._run_dir)}",
            elapsed_s=None if self.is_finished else _run_time(now.instances),
            counts={**waiting, **Counter(status.state for status in now.instances)},
            rows=make_rows(before, now, {}),
            pressure=None if self.is_finished else pressure_between(before, now),
            event_lines=self._recent_events.last(_RECENT_EVENTS),
            notice="" if self.is_finished else "Ctrl-C closes this table; the run goes on.",
        )


def _run_time(instances: Sequence[InstanceStatus]) -> float | None:
    """Return how long ago the first living instance was started, in seconds."""
    starts = [status.started_at for status in instances if status.state not in OVER]
    if not starts:
        return None
    return (utc_now() - datetime.fromisoformat(min(starts))).total_seconds()
