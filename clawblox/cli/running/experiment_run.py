"""Runs an experiment from start to end, here or in the background."""

from __future__ import annotations

import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs
import click

from clawblox.cli.parameters import background_option, json_option
from clawblox.cli.running.background import (
    StarterChannel,
    StartResult,
    spawn_in_background,
    start_in_background,
)
from clawblox.cli.running.displays import Display, show_warnings
from clawblox.cli.running.experiment_scenes import ExperimentLook, ExperimentScene
from clawblox.cli.running.live_table import make_display
from clawblox.cli.running.runner import run_until_asked
from clawblox.cli.terminal.output import Output, note
from clawblox.cli.terminal.reports import DisplayContainment
from clawblox.concurrency.tasks import Tasks
from clawblox.experiment.async_experiment import AsyncExperiment
from clawblox.experiment.history.state import AttemptState
from clawblox.experiment.running.events import ExperimentEvent
from clawblox.experiment.running.experiment_run import EXIT_STATUS, RunOutcome
from clawblox.telemetry.events import Subscription
from clawblox.views.experiments import describe_waits, summarise_experiment
from clawblox.views.formatting import format_json, shorten_path, suggest

_ADVICE: Final = "Ctrl-C saves and stops, a second one kills."
_STOPPING: Final = "Saving and stopping. A second Ctrl-C kills everything."

Prepare: TypeAlias = Callable[[AsyncExperiment], Awaitable[Sequence[str]]]
"""Adds branches to an open experiment and returns their names; only these branches run."""


@attrs.frozen(kw_only=True)
class ExperimentCall:
    """Options for running an experiment from a command.

    Attributes:
        directory: The directory of the experiment.
        command: The words of the command.
        args: Its arguments, for a process in the background.
        detach: Whether to run in the background.
        starter_fd: Socket of the command that spawned this process in the background; None if this
            process is the command itself.
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
        """True if another command has checked the arguments and spawned this process."""
        return self.starter_fd is not None


_detach = click.option(
    "--detach",
    is_flag=True,
    help="Return when the experiment has started, and keep running in the background.",
)


pause_on_term_option = click.option(
    "--pause-on-term",
    is_flag=True,
    help="Exit with status 75, as after a pause, if a SIGTERM ended the run and all work was "
    "saved; otherwise with 143, as without this option.",
)


def running_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options of a command that runs an experiment."""
    return _detach(json_option(background_option(click.pass_context(command))))


def make_call(ctx: click.Context, directory: Path, **how: Any) -> ExperimentCall:
    """Return the options for running an experiment from a command.

    Args:
        ctx: The context of the command.
        directory: The directory of the experiment.
        **how: The values of :func:`running_options`.
    """
    group, name, *others = ctx.obj
    return ExperimentCall(directory=directory, command=(group, name), args=others, **how)


async def run_experiment(
    call: ExperimentCall, make: Callable[[], AsyncExperiment], prepare: Prepare | None = None
) -> int:
    """Run an experiment to its end, here or in the background, and return the exit status.

    Args:
        call: The options.
        make: Returns the experiment, not open yet.
        prepare: Called with the open experiment before it is run.

    Raises:
        ClawbloxError: The experiment cannot be run.

    Cancellation: the experiment is saved and stopped; in the background it continues.
    """
    if call.detach and not call.is_spawned:
        return await _run_in_background(call)
    starter = None if call.starter_fd is None else StarterChannel(call.starter_fd)
    with Output(sys.stderr if call.as_json else sys.stdout) as output:
        runner = ExperimentRunner(
            make(), output, starter, prepare, pause_on_term=call.pause_on_term
        )
        status = await runner.run_until_asked()
    outcome = runner.outcome
    if call.as_json:
        click.echo(format_json(describe_outcome(outcome, status)))
    elif outcome is not None and outcome.status == "done" and not outcome.rows:
        note("Nothing was left to do: all generations are committed.")
    return status


def describe_outcome(outcome: RunOutcome | None, status: int) -> dict[str, object]:
    """Return the outcome of a run as plain values.

    Args:
        outcome: The outcome; None if the run was interrupted before it started.
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

    The first signal saves and stops the experiment; the second kills it.

    Args:
        experiment: The experiment, not open yet.
        output: Output that shows its table or its events.
        starter: Channel to the command that spawned this process in the background; None if it
            runs in the foreground.
        prepare: Called with the open experiment before it is run.
        is_summarised: Whether to summarise its end, with the commands for the next steps.
        pause_on_term: Whether a SIGTERM that has saved everything counts as a pause.

    Attributes:
        outcome: The outcome of the run; None before its end.
        contained: Keeps defects of the display from the experiment.
    """

    _experiment: AsyncExperiment
    _output: Output
    _starter: StarterChannel | None = None
    _prepare: Prepare | None = None
    _is_summarised: bool = attrs.field(default=True, kw_only=True)
    _pause_on_term: bool = attrs.field(default=False, kw_only=True)
    outcome: RunOutcome | None = attrs.field(init=False, default=None)
    contained: DisplayContainment = attrs.field(init=False, factory=DisplayContainment)
    _display: Display = attrs.field(init=False)
    _is_saved: bool = attrs.field(init=False, default=True)
    """True if all attempts that were ended are saved."""
    _asked_at: int = attrs.field(init=False, default=0)
    """Number of the last line of the journal when the experiment was asked to end."""

    async def run_until_asked(self) -> int:
        """Run the experiment until it ends, or a signal ends it.

        Returns:
            The exit status: 128 plus the signal that ended the run, 1 if the output is gone, else
            the status of the outcome. If a SIGTERM counts as a pause, the status is 75 instead of
            143.

        Raises:
            ClawbloxError: The experiment cannot be run.

        Cancellation: the experiment is saved and stopped.
        """
        status = await run_until_asked(self, self._experiment, self._starter)
        if status == 128 + signal.SIGTERM and self._pause_on_term and self._is_saved:
            if self.outcome is None or self.outcome.status == "stopped":
                return EXIT_STATUS["paused"]
            return self.outcome.exit_status
        if status is None:
            return 1 if self.outcome is None else self.outcome.exit_status
        return status

    def make_display(self) -> Display:
        """Return the display of the open experiment."""
        scene = ExperimentScene(self._look, since=len(self._experiment.record.lines))
        self._display = make_display(self._output, scene, _ADVICE)
        show_warnings(self._display)
        return self._display

    async def run(self, tasks: Tasks) -> None:
        """Run the open experiment to its end.

        Cancellation: the experiment is saved and stopped.
        """
        async with self._experiment.events() as events:
            if self._starter is not None:
                tasks.start_soon(self._report_start, self._starter, events)
            chains = None if self._prepare is None else await self._prepare(self._experiment)
            self.outcome = await self._experiment.run(chains)
        self._is_saved = all(
            _is_saved(attempt)
            for chain in self._experiment.record.state.chains.values()
            for attempt in chain.attempts
            if attempt.ending is None or attempt.ending.seq > self._asked_at
        )

    async def stop(self, number: signal.Signals | None) -> None:
        """Save and stop all chains.

        Cancellation: as for :meth:`AsyncExperiment.stop`.
        """
        self._asked_at = len(self._experiment.record.lines)
        if self._display.is_table:
            self._display.report(_STOPPING)
        elif number is not None:
            note(_STOPPING)
        await self._experiment.stop()

    async def kill(self) -> None:
        """Stop all chains immediately, without checkpoints.

        Cancellation: as for :meth:`AsyncExperiment.stop`.
        """
        await self._experiment.stop(now=True)

    async def summarise(self) -> list[str]:
        """Return a summary of how the experiment ended, with the commands for the next steps.

        Cancellation: has no effect.
        """
        status = self._experiment.status()
        is_summarised = self._is_summarised
        return [*describe_waits(status), *summarise_experiment(status)] if is_summarised else []

    async def _look(self) -> ExperimentLook:
        return ExperimentLook(self._experiment.status(), self._experiment.record.lines)

    async def _report_start(
        self, starter: StarterChannel, events: Subscription[ExperimentEvent]
    ) -> None:
        """Report to the command that spawned this process when the run has passed its checks."""
        async for event in events:
            if event.kind == "experiment.started":
                starter.send(StartResult([], 1, {}))
                return


def _is_saved(attempt: AttemptState) -> bool:
    """Return whether all work of an attempt is committed or in a checkpoint."""
    if attempt.outcome != "paused":
        return attempt.outcome == "committed"
    if attempt.phase != "work" or not attempt.working:
        return True  # a resume repeats the attempt from its first checkpoint
    return bool(attempt.checkpoints) and attempt.checkpoints[-1].kind != "periodic"
