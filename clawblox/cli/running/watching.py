"""Watching a run that another process owns, or has left: the live table, or a line a change."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter, deque
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import anyio

from clawblox.cli.running.live import LiveTable, Look, look_at, pressure_between, rows_between
from clawblox.cli.tables.board import View
from clawblox.cli.tables.event_lines import Chronicle, Happening, changes_between
from clawblox.cli.terminal.output import Output, OutputGone, shorten_path
from clawblox.concurrency.threads import run_blocking
from clawblox.rundir.status import OVER, InstanceStatus, count_waiting, run_owner
from clawblox.system.clock import utc_now

__all__ = ["watch"]

_INTERVAL_S = 1.0
_CHRONICLE = 16


async def watch(run_dir: Path) -> None:
    """Show what goes on in a run directory until nothing does.

    Cancellation: leaves on the terminal what was shown last.
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
            await output.write_line(watcher.news.popleft().line)
        if watcher.is_finished:
            return
        await anyio.sleep(_INTERVAL_S)


class _Watcher:
    """Looks at a run directory, and knows what has changed.

    Attributes:
        news: What has happened and nobody was told yet.
        is_finished: Whether nothing runs, and nobody is about to start anything.
    """

    def __init__(self, run_dir: Path) -> None:
        self.news: deque[Happening] = deque()
        self.is_finished = False
        self._run_dir = run_dir
        self._last: Sequence[InstanceStatus] = ()
        self._waiting = 0
        self._chronicle = Chronicle(_CHRONICLE)

    def look(self) -> Look:
        """Look once more. Blocks."""
        has_owner = run_owner(self._run_dir) is not None
        now = look_at(self._run_dir)
        for happening in changes_between(self._last, now.instances):
            self.news.append(happening)
        self._waiting = count_waiting(self._run_dir)
        self._last = now.instances
        self.is_finished = not has_owner and all(one.state in OVER for one in now.instances)
        return now

    def compose(self, before: Look | None, now: Look) -> View:
        """Return what is to be seen."""
        while self.news:
            happening = self.news.popleft()
            if happening.is_trouble:
                self._chronicle.add(happening)
        waiting = {"waiting": self._waiting} if self._waiting else {}
        worlds = ", ".join(sorted({one.world for one in now.instances}))
        return View(
            title=f"{worlds} · {shorten_path(self._run_dir)}",
            elapsed_s=None if self.is_finished else _age_of(now.instances),
            counts={**waiting, **Counter(one.state for one in now.instances)},
            rows=rows_between(before, now, {}),
            pressure=None if self.is_finished else pressure_between(before, now),
            happenings=self._chronicle.last(_CHRONICLE),
            notice="" if self.is_finished else "Ctrl-C ends this view, and nothing else.",
        )


def _age_of(instances: Sequence[InstanceStatus]) -> float | None:
    """Return how long ago the first instance that lives was started, in seconds."""
    begun = min((one.started_at for one in instances if one.state not in OVER), default=None)
    return None if begun is None else (utc_now() - datetime.fromisoformat(begun)).total_seconds()
