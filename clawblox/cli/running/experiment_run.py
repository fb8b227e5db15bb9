"""An experiment from its start to its end, here or in the background."""

from __future__ import annotations

import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, TypeAlias

import anyio
import attrs
import click

from clawblox.cli.parameters import json_option
from clawblox.cli.running.background import (
    StarterChannel,
    StartResult,
    background_option,
    spawn_in_background,
    start_in_background,
)
from clawblox.cli.running.command_signals import CommandSignals
from clawblox.cli.running.experiment_table import (
    ExperimentDisplay,
    ExperimentLook,
    ExperimentTable,
    make_display,
)
from clawblox.cli.terminal.containment import DisplayContainment
from clawblox.cli.terminal.output import Output, note
from clawblox.cli.terminal.warnings import configure_logging
from clawblox.concurrency.tasks import Tasks
from clawblox.experiment.experiment import Experiment
from clawblox.experiment.history.state import AttemptState
from clawblox.experiment.session.events import ExperimentEvent
from clawblox.experiment.session.experiment_run import EXIT_STATUS, RunOutcome
from clawblox.telemetry.events import Subscription
from clawblox.views.experiments import describe_waits, summarise_experiment
from clawblox.views.formatting import format_json, shorten_path, suggest

_ADVICE: Final = "Ctrl-C saves and stops, a second one kills."
_STOPPING: Final = "Saving and stopping. A second Ctrl-C kills everything."

Prepare: TypeAlias = Callable[[Experiment], Awaitable[Sequence[str]]]
"""Adds branches to an open experiment, and returns their names: only these are run."""


@attrs.frozen(kw_only=True)
class ExperimentCall:
    """How a command runs an experiment.

    Attributes:
        directory: The directory of the experiment.
        command: The words of the command.
        args: Its arguments, for a process in the background.
        detach: Whether to run in the background.
        starter_fd: Socket of the command that spawned this process to run in the background; None
            when this is the command itself.
        as_json: Whether to print the outcome as JSON; events then go to standard error.
        pause_on_term: Whether a SIGTERM that has saved everything counts as a pause.
    """

    directory: Path
    command: Sequence[str]
    args: Sequence[str]
    detach: bool = False
    starter_fd: int | None = None
    as_json: bool = False
    pause_on_term: bool = False

    @property
    def is_spawned(self) -> bool:
        """Whether another command has spawned this process, and checked the arguments."""
        return self.starter_fd is not None


_detach = click.option(
    "--detach",
    is_flag=True,
    help="Return when the experiment has begun, and keep running in the background.",
)


pause_on_term_option = click.option(
    "--pause-on-term",
    is_flag=True,
    help="Exit with status 75 after a SIGTERM, as after a pause, if everything that ran was saved; "
    "else with 143, as without this option.",
)


def running_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options of a command that runs an experiment."""
    return _detach(json_option(background_option(click.pass_context(command))))


def make_call(ctx: click.Context, directory: Path, **how: Any) -> ExperimentCall:
    """Return how a command runs an experiment.

    Args:
        ctx: The context of the command.
        directory: The directory of the experiment.
        **how: The values of :func:`running_options`.
    """
    group, name, *others = ctx.obj
    return ExperimentCall(directory=directory, command=(group, name), args=others, **how)


async def run_experiment(
    call: ExperimentCall, make: Callable[[], Experiment], prepare: Prepare | None = None
) -> int:
    """Run an experiment to its end, here or in the background, and return the exit status.

    Args:
        call: How to run it.
        make: Returns the experiment, not open yet.
        prepare: Called with the open experiment before it is run.

    Raises:
        ClawbloxError: It cannot be run.

    Cancellation: the experiment is saved and stopped; in the background it continues.
    """
    if call.detach and not call.is_spawned:
        return await _run_in_background(call)
    starter = None if call.starter_fd is None else StarterChannel(call.starter_fd)
    with Output(sys.stderr if call.as_json else sys.stdout) as output:
        runner = ExperimentRunner(
            make(), output, starter, prepare, pause_on_term=call.pause_on_term
        )
        status = await runner.run()
    outcome = runner.outcome
    if call.as_json:
        click.echo(format_json(describe_outcome(outcome, status)))
    elif outcome is not None and outcome.status == "done" and not outcome.rows:
        note("Nothing was left to do: all generations are committed.")
    return status


def describe_outcome(outcome: RunOutcome | None, status: int) -> dict[str, object]:
    """Return the outcome of a run as plain values.

    Args:
        outcome: The outcome; None if it was interrupted before it began.
        status: The exit status.
    """
    rows = () if outcome is None else outcome.rows
    return {
        "status": "stopped" if outcome is None else outcome.status,
        "exit_status": status,
        "text": "" if outcome is None else outcome.text,
        "rows": [attrs.asdict(row) for row in rows],
    }


async def _run_in_background(call: ExperimentCall) -> int:
    directory = call.directory
    background = spawn_in_background(call.command, call.args, directory)
    click.echo(f"Experiment: {shorten_path(directory)}")
    watch = suggest("experiment status", directory, "--watch")

    def show(_result: StartResult) -> None:
        click.echo(f"watch:  {watch}")
        click.echo(f"stop:   {suggest('experiment stop', directory)}")
        click.echo(f"log:    {shorten_path(background.log_file)} (pid {background.pid})")

    return await start_in_background(background, "Starting", 1, show, watch)


@attrs.define(eq=False)
class ExperimentRunner:
    """An experiment that runs as long as this program.

    The first signal saves and stops it, the second one kills it.

    Args:
        experiment: The experiment, not open yet.
        output: Where its table or its events are shown.
        starter: Channel to the command that spawned this process in the background; None if it
            runs in the foreground.
        prepare: Called with the open experiment before it is run.
        is_summarised: Whether its end is summed up, with the commands that follow.
        pause_on_term: Whether a SIGTERM that has saved everything counts as a pause.

    Attributes:
        outcome: The outcome of the run; None before its end.
    """

    _experiment: Experiment
    _output: Output
    _starter: StarterChannel | None = None
    _prepare: Prepare | None = None
    _is_summarised: bool = attrs.field(default=True, kw_only=True)
    _pause_on_term: bool = attrs.field(default=False, kw_only=True)
    outcome: RunOutcome | None = attrs.field(init=False, default=None)
    _display: ExperimentDisplay = attrs.field(init=False)
    _contained: DisplayContainment = attrs.field(init=False, factory=DisplayContainment)
    _signals: CommandSignals = attrs.field(init=False, factory=CommandSignals)
    _is_asked_to_end: anyio.Event = attrs.field(init=False, factory=anyio.Event)
    _is_output_gone: bool = attrs.field(init=False, default=False)
    _asked_at: int = attrs.field(init=False, default=0)
    """Number of the last line of the journal when the experiment was asked to end."""

    async def run(self) -> int:
        """Run the experiment to its end.

        Returns:
            The exit status: 128 and the signal that asked for the end, 1 when the output is gone,
            else that of the outcome. It is 75 instead of 143 where that counts as a pause.

        Raises:
            ClawbloxError: The experiment cannot be run.

        Cancellation: the experiment is saved and stopped.
        """
        async with self._signals.obeyed(self._obey, self._kill), AsyncExitStack() as stack:
            if self._starter is not None:
                stack.push_async_callback(self._starter.finish)
            await stack.enter_async_context(self._experiment)
            is_saved = self._is_asked_to_end.is_set() or await self._run()
        if self._signals.first == signal.SIGTERM and self._pause_on_term and is_saved:
            if self.outcome is None or self.outcome.status == "stopped":
                return EXIT_STATUS["paused"]
            return self.outcome.exit_status
        if self._signals.exit_status is not None:
            return self._signals.exit_status
        return 1 if self._is_output_gone or self.outcome is None else self.outcome.exit_status

    async def _run(self) -> bool:
        """Run the open experiment, and show it; return whether all that was ended is saved."""
        lines = self._experiment.record.lines
        self._display = make_display(self._output, self._look, since=len(lines), notice=_ADVICE)
        is_table = isinstance(self._display, ExperimentTable)
        configure_logging(self._warn if is_table and sys.stderr.isatty() else None)
        try:
            async with Tasks() as tasks, self._experiment.events() as events:
                tasks.start_soon(self._show)
                tasks.start_soon(self._end)
                if self._starter is not None:
                    tasks.start_soon(self._starter.run)
                    tasks.start_soon(self._report_start, self._starter, events)
                chains = None if self._prepare is None else await self._prepare(self._experiment)
                self.outcome = await self._experiment.run(chains)
        except BaseException:
            with self._contained:
                await self._display.clear()
            raise
        with self._contained:
            status = self._experiment.status()
            summary = [*describe_waits(status), *summarise_experiment(status)]
            await self._display.finish(summary if self._is_summarised else [])
        state = self._experiment.record.state
        return all(
            _is_saved(attempt)
            for chain in state.chains.values()
            for attempt in chain.attempts
            if attempt.ending is None or attempt.ending.seq > self._asked_at
        )

    async def _look(self) -> ExperimentLook:
        return ExperimentLook(self._experiment.status(), self._experiment.record.lines)

    def _warn(self, text: str) -> None:
        if isinstance(self._display, ExperimentTable):
            self._display.warn(text)

    async def _show(self) -> None:
        await self._contained.keep_showing(self._display.run)
        self._is_output_gone = self._signals.is_stopping = True
        self._is_asked_to_end.set()

    async def _report_start(
        self, starter: StarterChannel, events: Subscription[ExperimentEvent]
    ) -> None:
        """Tell the command that spawned this process that the run has passed its checks."""
        async for event in events:
            if event.kind == "experiment.started":
                starter.send(StartResult([], 1, {}))
                return

    # -- the end ----------------------------------------------------------------------------------

    async def _obey(self, _number: signal.Signals) -> bool:
        self._is_asked_to_end.set()
        return True

    async def _kill(self) -> None:
        await self._experiment.stop(now=True)

    async def _end(self) -> None:
        """Once asked to, save and stop everything; a second signal kills it."""
        await self._is_asked_to_end.wait()
        self._asked_at = len(self._experiment.record.lines)
        if isinstance(self._display, ExperimentTable):
            self._display.report(_STOPPING)
        elif not self._is_output_gone:
            note(_STOPPING)
        await self._experiment.stop()


def _is_saved(attempt: AttemptState) -> bool:
    """Return whether all that an attempt has done is committed, or in a checkpoint."""
    if attempt.outcome != "paused":
        return attempt.outcome == "committed"
    if attempt.phase != "work" or not attempt.working:
        return True  # it begins again at the checkpoint with which it began
    return bool(attempt.checkpoints) and attempt.checkpoints[-1].kind != "periodic"
