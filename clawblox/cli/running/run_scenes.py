"""Runs as a display sees them: the run of this process, or the runs of ``ps --watch``."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import ClassVar

import anyio
import attrs

from clawblox.agents.listing import Scope
from clawblox.agents.status import AgentStatus, read_agents
from clawblox.cli.running.instance_states import InstanceStates
from clawblox.cli.running.live_table import watch
from clawblox.cli.running.run_actions import act_on_instance, read_agent_logs, read_log
from clawblox.cli.running.slow_work import SlowStarts
from clawblox.cli.terminal.output import Output, OutputGone
from clawblox.concurrency.threads import run_blocking
from clawblox.instance.ramp import read_stall_s
from clawblox.rundir.status import OVER, InstanceStatus, read_run, read_runs
from clawblox.system.clock import utc_now
from clawblox.views.board import BoardFrame, BoardView, render
from clawblox.views.event_lines import EventLine, changes_between
from clawblox.views.formatting import shorten_path
from clawblox.views.rows import InstanceRow, make_row, name_runs, summarise
from clawblox.views.steering import Action, Steering, Verb


@attrs.frozen
class Look:
    """Instances and agents at one moment.

    Attributes:
        instances: The instances, running or not.
        notes: Progress of slow starts, by run directory and name.
        agents: The agents.
        at: Monotonic time, in seconds.
        stall_s: Total seconds in which some task waited for a processor, from an arbitrary origin;
            None if the kernel does not count them.
    """

    instances: Sequence[InstanceStatus]
    notes: Mapping[tuple[Path, str], str] = attrs.field(factory=dict)
    agents: Sequence[AgentStatus] = ()
    at: float = attrs.field(factory=time.monotonic)
    stall_s: float | None = attrs.field(factory=read_stall_s)


def make_rows(
    before: Look | None, now: Look, states: Mapping[str, str], *, names_runs: bool = False
) -> list[InstanceRow]:
    """Return the rows of the table.

    Args:
        before: An earlier look, to measure the CPU share from; None leaves it out.
        now: The later look.
        states: States by name of the instance; they override the states on disk.
        names_runs: Whether the rows include the names of the runs.
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
    return [
        *rows,
        *(InstanceRow(name, state) for name, state in states.items() if name not in shown),
    ]


def pressure_between(before: Look | None, now: Look) -> float | None:
    """Return the share of time in which some task waited for a processor; None if unknown."""
    if before is None or before.stall_s is None or now.stall_s is None or now.at <= before.at:
        return None
    return min(1.0, (now.stall_s - before.stall_s) / (now.at - before.at))


class _Runs:
    """Scene with a row for each instance; keys select the rows."""

    verbs: ClassVar[Sequence[Verb]] = ("save", "fork", "restart", "stop")
    _names_runs = False
    _limiter: anyio.CapacityLimiter | None = None

    def rows(self, now: Look) -> list[str]:
        """Return the keys of all rows with an instance, in order."""
        return list(self._by_key(now))

    def _by_key(self, now: Look) -> dict[str, InstanceStatus]:
        rows = make_rows(None, now, {}, names_runs=self._names_runs)
        rows.sort(key=lambda row: (row.run, row.name))
        return {row.key: row.status for row in rows if row.status is not None}

    async def read_pane(self, now: Look, steering: Steering, lines: int) -> list[str]:
        """Return the log of the selected instance, or the agents of its run.

        Cancellation: has no effect.
        """
        status = self._by_key(now)[steering.selected]
        if steering.pane == "agents":
            return await run_blocking(read_agent_logs, status, limiter=self._limiter)
        return await run_blocking(read_log, status, lines, limiter=self._limiter)

    async def act(self, action: Action, now: Look) -> str:
        """Apply an action to an instance; return a line with the result.

        Raises:
            ClawbloxError: The action is not possible.
            OSError: A file cannot be read or written.

        Cancellation: as for the command of that name.
        """
        return await act_on_instance(action.verb, self._by_key(now)[action.target])


class OwnRun(_Runs):
    """A run whose instances this process started.

    Args:
        run_dir: The run directory.
        world: Name of the world.
        states: The states of the instances.
        facts: Lasting facts for the title, such as an address; the caller may append to the list.
    """

    def __init__(
        self, run_dir: Path, world: str, states: InstanceStates, facts: Sequence[str]
    ) -> None:
        self._run_dir = run_dir
        self._world = world
        self._states = states
        self._facts = facts
        self._begun_at = time.monotonic()
        self._slow_starts = SlowStarts()
        self._limiter = anyio.CapacityLimiter(1)  # the shared threads may be busy with many starts

    async def read_state(self) -> Look:
        """Return the state of the run, without the ended instances of other orchestrators.

        Raises:
            OSError: This process lacks descriptors.

        Cancellation: has no effect.
        """
        return await run_blocking(self._read, limiter=self._limiter)

    def _read(self) -> Look:
        statuses = [
            status
            for status in read_run(self._run_dir).instances
            if status.orchestrator_pid == os.getpid() or status.state not in OVER
        ]
        return Look(statuses, self._slow_starts.describe(statuses), read_agents(self._run_dir))

    def take_news(self, _now: Look) -> Iterable[EventLine]:
        """Return no events, since the orchestrator adds them to the display."""
        return ()

    def draw(self, before: Look | None, now: Look, frame: BoardFrame) -> list[str]:
        """Return the lines of the table."""
        counts = self._states.counts()
        view = BoardView(
            title=" · ".join((self._world, *self._facts, shorten_path(self._run_dir))),
            elapsed_s=time.monotonic() - self._begun_at,
            counts=counts,
            rows=make_rows(before, now, self._states.by_name),
            pressure=pressure_between(before, now),
            ramp=self._states.ramp if "waiting" in counts else "",
            agents=now.agents,
        )
        return render(view, frame)


async def watch_runs(scope: Scope) -> None:
    """Show the events of runs until no instance is running.

    Raises:
        OSError: The output is a file, and the disk is full.

    Cancellation: the table stays on the terminal in its last state.
    """
    with Output(sys.stdout) as output, contextlib.suppress(OutputGone):
        runs = WatchedRuns(scope, in_table=output.is_terminal)
        await watch(output, runs, lambda: runs.is_finished)
        summary = await run_blocking(runs.summarise)
        for line in ["", *summary] if output.is_terminal and summary else summary:
            await output.write_line(line)


class WatchedRuns(_Runs):
    """Runs of any processes.

    Args:
        scope: The runs.
        in_table: Whether a table shows the first state of the instances.

    Attributes:
        is_finished: Whether no instance is running, and no orchestrator is about to start one.
    """

    def __init__(self, scope: Scope, *, in_table: bool) -> None:
        self.is_finished = False
        self._scope = scope
        self._names_runs = not scope.is_one_run
        self._is_first_shown = in_table
        self._news: deque[EventLine] = deque()
        self._seen: set[tuple[Path, str]] = set()
        self._last: Sequence[InstanceStatus] = ()
        self._waiting = 0
        self._slow_starts = SlowStarts()

    async def read_state(self) -> Look:
        """Return the state of the runs.

        Raises:
            OSError: This process lacks descriptors.

        Cancellation: has no effect.
        """
        return await run_blocking(self._read)

    def _read(self) -> Look:
        runs = self._scope.find()
        states = read_runs(runs)
        instances = (status for run in states for status in run.instances)
        shown = [status for status in instances if self._is_shown(status)]
        run_names = {} if self._scope.is_one_run else name_runs(runs)
        self._news.extend(changes_between(self._last, shown, run_names))
        self._waiting = sum(run.waiting for run in states)
        self._last = shown
        has_owner = any(run.owner_pid is not None for run in states)
        self.is_finished = not has_owner and all(status.state in OVER for status in shown)
        return Look(shown, self._slow_starts.describe(shown), self._scope.read_agents(runs))

    def _is_shown(self, status: InstanceStatus) -> bool:
        key = status.run_dir, status.name
        if self._scope.shows(status):
            self._seen.add(key)
        return key in self._seen  # shows the end of an instance that was shown running

    def take_news(self, _now: Look) -> Iterable[EventLine]:
        """Return the changes since the last call; the first state is left to the table."""
        news = [
            change for change in self._news if change.needs_attention or not self._is_first_shown
        ]
        self._news.clear()
        self._is_first_shown = False
        return news

    def draw(self, before: Look | None, now: Look, frame: BoardFrame) -> list[str]:
        """Return the lines of the table."""
        waiting = {"waiting": self._waiting} if self._waiting else {}
        view = BoardView(
            title=self._describe(now.instances),
            elapsed_s=None if self.is_finished else _run_time(now.instances),
            counts={**waiting, **Counter(status.state for status in now.instances)},
            rows=make_rows(before, now, {}, names_runs=self._names_runs),
            pressure=None if self.is_finished else pressure_between(before, now),
            agents=now.agents,
        )
        return render(view, attrs.evolve(frame, notice="") if self.is_finished else frame)

    def _describe(self, instances: Sequence[InstanceStatus]) -> str:
        if not self._scope.is_one_run:
            directory = self._scope.directory
            return "this machine" if directory is None else shorten_path(directory)
        worlds = ", ".join(sorted({status.world for status in instances}))
        return " · ".join((worlds, *map(shorten_path, self._scope.find())))

    def summarise(self) -> list[str]:
        """Summarise a single run that has ended; empty for several runs."""
        if not self._scope.is_one_run:
            return []
        (run_dir,) = self._scope.find()
        return summarise(run_dir, self._last, agents=self._scope.read_agents([run_dir]))


def _run_time(instances: Sequence[InstanceStatus]) -> float | None:
    """Return the time since the start of the oldest running instance, in seconds."""
    starts = [status.started_at for status in instances if status.state not in OVER]
    if not starts:
        return None
    return (utc_now() - datetime.fromisoformat(min(starts))).total_seconds()
