"""Runs many instances from start to end, here or in the background."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import anyio
import attrs
import click

from clawblox.agents.status import describe_metrics, read_agents
from clawblox.cli.field_options import options_from
from clawblox.cli.options import OrchestratorOptions
from clawblox.cli.parameters import background_option
from clawblox.cli.running.displays import Display, LiveLines, show_warnings
from clawblox.cli.running.instance_states import InstanceStates
from clawblox.cli.running.runner import run_until_asked
from clawblox.cli.terminal.output import Output
from clawblox.cli.terminal.reports import DisplayContainment
from clawblox.concurrency.batch import Batch
from clawblox.concurrency.tasks import Tasks
from clawblox.concurrency.threads import run_blocking
from clawblox.errors import BatchError
from clawblox.printable import printable
from clawblox.results import StartedWorld
from clawblox.rundir.interrupted import can_resume
from clawblox.rundir.status import read_run
from clawblox.telemetry.events import EventStream
from clawblox.views.event_lines import describe_event
from clawblox.views.formatting import count_words, format_seconds, shorten_path, suggest
from clawblox.views.rows import summarise
from clawblox.world.async_world import AsyncWorld

if TYPE_CHECKING:
    from clawblox.cli.running.background import BackgroundProcess, StarterChannel, StartResult

_IN_ROWS: Final = ("ramp_slowed", "ramp_recovered", "resuming", "started", "saved")
"""Events that a table shows in its rows, without a line for each."""

_F = TypeVar("_F", bound=Callable[..., Any])

Start: TypeAlias = Callable[[], Awaitable[Batch[StartedWorld]]]
"""Starts the instances; called when the world is open."""


@attrs.frozen
class BatchRun:
    """Many instances to run.

    Attributes:
        world: The world, not open yet.
        run_dir: The run directory, absolute.
        count: Number of instances.
        start: Starts the instances; called when the world is open.
        options: Further duties of the orchestrator.
        starter_fd: Socket of the command that spawned this process in the background; None if this
            process is the command itself.
        verb: Word for the start, for example ``Starting``.
    """

    world: AsyncWorld
    run_dir: Path
    count: int
    start: Start
    options: OrchestratorOptions
    starter_fd: int | None
    verb: str = "Starting"


def add_orchestrator_options(command: _F) -> _F:
    """Add the options of commands that are the orchestrator of their instances."""
    return options_from(OrchestratorOptions, "orchestrator_options")(background_option(command))


async def run_batch(
    ctx: click.Context, batch_run: BatchRun, background_args: Sequence[str] = ()
) -> int:
    """Run instances to their end, here or in the background, and return the exit status.

    Args:
        ctx: Context of the command.
        batch_run: The instances.
        background_args: Further options of the command in the background, which pass on decisions
            that this command made.

    Raises:
        BatchError: Instances failed to start, or ended unexpectedly.
        ClawbloxError: No start could be attempted.

    Cancellation: the instances are stopped; instances in the background continue.
    """
    if batch_run.options.detach and batch_run.starter_fd is None:
        command, *others = ctx.obj
        # If an option is given twice, the last value counts.
        return await _run_in_background(command, (*background_args, *others), batch_run)
    with Output(sys.stdout) as output:
        return await Orchestrator(batch_run, output).run_until_asked()


@attrs.define(eq=False)
class Orchestrator:
    """Many instances that run as long as this program.

    The first signal stops the instances, if requested after saving them; the second kills them.

    Args:
        run: The instances.
        output: Output that shows the instances.

    Attributes:
        contained: Keeps defects of the display from the instances.
    """

    _run: BatchRun
    _output: Output
    _starter: StarterChannel | None = attrs.field(init=False, default=None)
    _states: InstanceStates = attrs.field(init=False)
    _facts: list[str] = attrs.field(init=False, factory=list)
    _display: Display = attrs.field(init=False)
    contained: DisplayContainment = attrs.field(init=False, factory=DisplayContainment)
    _is_signalled: bool = attrs.field(init=False, default=False)
    _starting: anyio.CancelScope = attrs.field(init=False, factory=anyio.CancelScope)
    _gentle_end: anyio.CancelScope = attrs.field(init=False, factory=anyio.CancelScope)
    _is_ending: bool = attrs.field(init=False, default=False)
    _is_start_done: anyio.Event = attrs.field(init=False, factory=anyio.Event)
    _is_over: anyio.Event = attrs.field(init=False, factory=anyio.Event)

    def __attrs_post_init__(self) -> None:
        self._states = InstanceStates(self._run.count)
        if self._run.starter_fd is not None:
            from clawblox.cli.running.background import StarterChannel

            self._starter = StarterChannel(self._run.starter_fd)

    async def run_until_asked(self) -> int:
        """Start the instances and return when all of them have ended.

        Returns:
            The exit status: 128 plus the signal that ended the run, 1 if the output is gone, else
            0.

        Raises:
            BatchError: Instances failed to start, or ended unexpectedly.
            ClawbloxError: No start could be attempted.

        Cancellation: the instances are stopped.
        """
        status = await run_until_asked(self, starter=self._starter)
        if status is None and (failures := self._states.failures):
            raise BatchError(
                f"{len(failures)} of {self._states.total} instances failed",
                failed=failures,
                hint=suggest("logs", self._run.run_dir, next(iter(failures))),
            )
        return status or 0

    def make_display(self) -> Display:
        """Return the display: a live table on a terminal, else lines."""
        if self._output.is_terminal:
            from clawblox.cli.running.live_table import LiveTable  # these take long to load
            from clawblox.cli.running.run_scenes import OwnRun

            scene = OwnRun(self._run.run_dir, self._run.world.name, self._states, self._facts)
            self._display = LiveTable(self._output, scene)
        else:
            self._display = LiveLines(self._output)
            self._display.report(f"Run directory: {shorten_path(self._run.run_dir)}")
        show_warnings(self._display)
        return self._display

    async def run(self, tasks: Tasks) -> None:
        """Start the instances and return when all of them have ended.

        Raises:
            ClawbloxError: No start could be attempted.

        Cancellation: the instances are stopped.
        """
        async with self._run.world, self._run.world.events() as events, self._metrics():
            tasks.start_soon(self._follow, events)
            await self._start_instances()
            await self._is_over.wait()

    async def summarise(self) -> list[str]:
        """Return a summary of how the instances ended.

        Cancellation: has no effect.
        """
        return await run_blocking(self._summarise)

    def _summarise(self) -> list[str]:
        statuses = read_run(self._run.run_dir).instances
        return summarise(
            self._run.run_dir,
            [status for status in statuses if status.orchestrator_pid == os.getpid()],
            agents=read_agents(self._run.run_dir),
            stopped=self._states.stopped,
            may_resume=self._is_signalled,
            can_resume=can_resume(self._run.run_dir),
            names_logs=self._is_signalled,  # otherwise the error names the logs
        )

    # -- the start ------------------------------------------------------------------------------

    async def _start_instances(self) -> None:
        begun_at = anyio.current_time()
        self._report_with_hint(f"{self._run.verb} {count_words(self._states.total, 'instance')}.")
        with self._starting:
            batch = await self._run.start()
            # The events of all results have already been processed.
            self._states.finish_start(batch.failed, batch.done)
            with self.contained:
                self._show_result(batch, anyio.current_time() - begun_at)
            options = self._run.options
            if options.autosave is not None:
                await self._run.world.autosave(
                    every=options.autosave, keep=options.keep, min_free=options.min_free
                )
        if self._starting.cancelled_caught:
            self._states.finish_start({}, ())
        self._is_start_done.set()
        self._end_if_over()

    def _show_result(self, batch: Batch[StartedWorld], elapsed_s: float) -> None:
        ready, total = len(batch), self._states.total
        share = "" if ready == total else f"{ready} of "
        text = f"{share}{count_words(total, 'instance')} ready after {format_seconds(elapsed_s)}."
        self._report_with_hint(text)
        if self._starter is not None:
            self._starter.send_result((text, *self._facts), batch)

    def _report_with_hint(self, text: str) -> None:
        first = "saves and stops" if self._run.options.save_at_end else "stops"
        hint = f" Ctrl-C {first} all; a second Ctrl-C kills them."
        self._display.report(text if self._starter else text + hint)

    # -- while they run ---------------------------------------------------------------------------

    async def _follow(self, events: EventStream) -> None:
        async for event in events:
            with self.contained:
                self._states.take(event)
            with self.contained:
                self._display.add(describe_event(event), is_in_rows=event.kind in _IN_ROWS)
                if self._starter is not None:
                    self._starter.send_event(event)
            self._end_if_over()

    def _end_if_over(self) -> None:
        if self._states.is_over and not self._is_ending:
            self._is_over.set()

    @asynccontextmanager
    async def _metrics(self) -> AsyncIterator[None]:
        if self._run.options.metrics_port is None:
            yield
            return
        from clawblox.telemetry.prometheus import MetricsEndpoint

        endpoint = MetricsEndpoint(
            lambda: self._run.world.metrics,
            self._states.counts,
            lambda: self._run.world.labels,
            lambda: [describe_metrics(status) for status in read_agents(self._run.run_dir)],
            lambda: self._run.world.tick_rates,
            port=self._run.options.metrics_port,
        )
        async with endpoint:
            fact = f"metrics at {endpoint.url}"
            self._facts.append(fact)
            if not self._display.is_table:  # a table shows the fact in its title
                self._display.report(fact)
            yield

    # -- the end ----------------------------------------------------------------------------------

    async def kill(self) -> None:
        """End the grace of the instances.

        Cancellation: has no effect.
        """
        self._gentle_end.cancel()

    async def stop(self, number: signal.Signals | None) -> None:
        """Stop all instances, if requested after saving them; :meth:`kill` kills them.

        Cancellation: some of the instances may be stopped.
        """
        self._is_signalled = number is not None
        self._is_ending = True
        self._run.world.interrupt()
        self._starting.cancel()
        await self._is_start_done.wait()
        with self._gentle_end:
            if self._run.options.save_at_end:
                await self._drain()
            else:
                self._display.report("Stopping all instances. A second Ctrl-C kills them.")
                await self._stop_all(self._run.options.grace_seconds)
        if self._gentle_end.cancelled_caught and not self._is_over.is_set():
            self._display.report("Killing all instances.")
            await self._stop_all(0.0)
        self._is_over.set()

    async def _drain(self) -> None:
        self._display.report("Saving and stopping all instances. A second Ctrl-C kills them.")
        batch = await self._run.world.drain(grace_seconds=self._run.options.grace_seconds)
        if left := [name for name in sorted(batch.failed) if self._states.runs(name)]:
            names = ", ".join(left)
            self._display.report(
                f"Not saved, so still running: {names}. A second Ctrl-C kills them."
            )
            self._is_ending = False
            self._end_if_over()
            await anyio.sleep_forever()

    async def _stop_all(self, grace_seconds: float) -> None:
        if self._is_over.is_set():
            return
        self._states.stop()
        await self._run.world.autosave(every=None)
        stops = await self._run.world.stop_all(grace_seconds=grace_seconds)
        for result in stops:
            for process in result.killed:
                self._display.warn(f"killed {process}")
        for error in stops.failed.values():
            self._display.warn(printable(str(error)))


# -- in the background ------------------------------------------------------------------------


async def _run_in_background(command: str, args: Sequence[str], batch_run: BatchRun) -> int:
    from clawblox.cli.running.background import spawn_in_background, start_in_background

    run_dir = batch_run.run_dir
    background = spawn_in_background([command], args, run_dir)
    click.echo(f"Run directory: {shorten_path(run_dir)}")
    return await start_in_background(
        background,
        batch_run.verb,
        batch_run.count,
        lambda result: click.echo("\n".join(_summary(result, background, run_dir))),
        suggest("ps", run_dir, "-w"),
    )


def _summary(result: StartResult, background: BackgroundProcess, run_dir: Path) -> Iterator[str]:
    yield from result.lines
    for name, reason in result.failed.items():
        yield f"  {name}: {reason}"
    if result.ready:
        yield f"watch:  {suggest('ps', run_dir, '-w')}"
        yield f"stop:   {suggest('stop', run_dir)}"
    yield f"log:    {shorten_path(background.log_file)} (pid {background.pid})"
