"""An experiment as a display sees it, run by this or another process."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import attrs

from clawblox.cli.running.live_table import watch
from clawblox.cli.running.run_actions import read_log
from clawblox.cli.terminal.output import Output, OutputGone
from clawblox.concurrency.threads import run_blocking
from clawblox.errors import ControlError
from clawblox.experiment.history.lines import JournalLine
from clawblox.experiment.reading.inspection import inspect_generation
from clawblox.experiment.reading.record import read_experiment
from clawblox.experiment.running.events import ExperimentEvent, describe_line
from clawblox.experiment.running.open_experiment import ask_experiment
from clawblox.experiment.tables.status import ExperimentStatus, LiveChain, decode_live
from clawblox.foreign_values import finite_number
from clawblox.rundir.experiments import find_experiment_host
from clawblox.rundir.status import read_run
from clawblox.views.board import BoardFrame
from clawblox.views.event_lines import EventLine
from clawblox.views.experiment_events import describe_experiment_event
from clawblox.views.experiment_generation import describe_agents
from clawblox.views.experiments import chain_rows, render_experiment
from clawblox.views.steering import Action, Steering, Verb

_SCORED = ("generation.scored", "generation.rescored")


@attrs.frozen
class ExperimentLook:
    """An experiment at one moment.

    Attributes:
        status: Its status.
        lines: All lines of its journal.
        at: Monotonic time, in seconds.
    """

    status: ExperimentStatus
    lines: Sequence[JournalLine]
    at: float = attrs.field(factory=time.monotonic)


@attrs.define(eq=False)
class ExperimentScene:
    """An experiment as a display sees it; the lines of its journal are the events.

    Args:
        read: Looks at the experiment.
        since: Number of journal lines that were shown before; None means all lines of the first
            look.

    Attributes:
        is_running: Whether a process was running the experiment at the last look.
    """

    verbs: ClassVar[Sequence[Verb]] = ("fork", "pause", "stop")

    _read: Callable[[], Awaitable[ExperimentLook]]
    _since: int | None = None
    _score_errors: set[str] = attrs.field(init=False, factory=set)
    is_running: bool = attrs.field(init=False, default=False)

    async def read_state(self) -> ExperimentLook:
        """Return the state of the experiment.

        Raises:
            ClawbloxError: The experiment cannot be read.

        Cancellation: has no effect.
        """
        now = await self._read()
        self.is_running = now.status.pid is not None
        return now

    def take_news(self, now: ExperimentLook) -> list[EventLine]:
        """Return the events since the last call."""
        new = [] if self._since is None else now.lines[self._since :]
        self._since = len(now.lines)
        events = (describe_experiment_event(self._shorten(describe_line(line))) for line in new)
        return [event for event in events if event is not None]

    def draw(
        self, _before: ExperimentLook | None, now: ExperimentLook, frame: BoardFrame
    ) -> list[str]:
        """Return the lines of the table."""
        return render_experiment(now.status, frame)

    def rows(self, now: ExperimentLook) -> list[str]:
        """Return the names of the chains that have a row."""
        return chain_rows(now.status)

    async def read_pane(self, now: ExperimentLook, steering: Steering, lines: int) -> list[str]:
        """Return the log of the selected chain's world, or the latest actions of its agents.

        Raises:
            ClawbloxError: The experiment cannot be read.
            OSError: A file cannot be read.

        Cancellation: has no effect.
        """
        return await run_blocking(_read_pane, now.status.dir, steering, lines)

    async def act(self, action: Action, now: ExperimentLook) -> str:
        """Fork, pause or stop a chain; return a line with the result.

        Raises:
            ClawbloxError: The action is not possible.

        Cancellation: withdraws the request.
        """
        chain = action.target
        arguments = {"place": chain} if action.verb == "fork" else {"chains": [chain]}
        answer = await ask_experiment(now.status.dir, action.verb, arguments)
        if answer is None:
            return f"{chain}: the experiment is not running"
        if action.verb == "fork":
            return f"{chain}: forked as {', '.join(map(str, answer['branches']))}"
        return f"{chain}: {'stopped' if action.verb == 'stop' else 'pauses at a checkpoint'}"

    def _shorten(self, event: ExperimentEvent) -> ExperimentEvent:
        """Return an event, with its score error shortened if the same error was shown before."""
        error = event.data.get("error") if event.kind in _SCORED else None
        if error is None:
            return event
        if error in self._score_errors:
            return attrs.evolve(event, data={**event.data, "error": "the same error"})
        self._score_errors.add(error)
        return event


def _read_pane(directory: Path, steering: Steering, lines: int) -> list[str]:
    found = inspect_generation(read_experiment(directory), steering.selected, lines)
    if steering.pane == "agents":
        return [f"agents of {steering.selected}", *describe_agents(found)]
    statuses = [] if found.run_dir is None else read_run(found.run_dir).instances
    return read_log(statuses[-1], lines) if statuses else [f"{steering.selected} has no log"]


async def watch_experiment(directory: Path) -> None:
    """Show an experiment that another process runs, until no process runs it.

    Args:
        directory: The directory of the experiment.

    Raises:
        OSError: The output is a file, and the disk is full.

    Cancellation: the table stays on the terminal in its last state.
    """
    scene = ExperimentScene(partial(look_at_experiment, directory))
    with Output(sys.stdout) as output, contextlib.suppress(OutputGone):
        await watch(output, scene, lambda: not scene.is_running)


async def look_at_experiment(directory: Path) -> ExperimentLook:
    """Return the state of an experiment, with the facts that only its process knows.

    Args:
        directory: The directory of the experiment.

    Raises:
        UsageError: The directory contains no experiment.
        ClawbloxError: Its journal or plan cannot be read.

    Cancellation: has no effect.
    """
    answer: Mapping[str, Any] | None = None
    with contextlib.suppress(ControlError):  # the process has just ended, or is suspended
        answer = await ask_experiment(directory, "status")
    record = await run_blocking(read_experiment, directory)
    pid = finite_number((answer or {}).get("pid"), low=1)
    live: dict[str, LiveChain] = {}
    with contextlib.suppress(ValueError):
        live = decode_live((answer or {}).get("live", {}))
    status = record.status(pid=None if pid is None else int(pid), live=live)
    host = await run_blocking(find_experiment_host, directory)
    return ExperimentLook(attrs.evolve(status, host=host), record.lines)
