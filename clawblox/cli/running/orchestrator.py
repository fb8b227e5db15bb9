"""Many instances of a world from their start to their end."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeAlias

import anyio
import attrs

from clawblox.agents.status import describe_metrics, read_agents
from clawblox.cli.options import OrchestratorOptions
from clawblox.cli.running.background import StarterChannel
from clawblox.cli.running.command_signals import CommandSignals
from clawblox.cli.running.displays import Display
from clawblox.cli.running.instance_states import InstanceStates
from clawblox.cli.terminal.containment import DisplayContainment
from clawblox.concurrency.batch import Batch
from clawblox.concurrency.tasks import Tasks
from clawblox.concurrency.threads import run_blocking
from clawblox.errors import BatchError
from clawblox.printable import printable
from clawblox.results import StartedWorld
from clawblox.rundir.interrupted import can_resume
from clawblox.rundir.status import read_run
from clawblox.telemetry.events import EventStream
from clawblox.views.formatting import count_words, format_seconds, suggest
from clawblox.views.rows import summarise
from clawblox.world.async_world import AsyncWorld

Start: TypeAlias = Callable[[], Awaitable[Batch[StartedWorld]]]
"""Starts the instances; called when the world is open."""


@attrs.frozen
class BatchRun:
    """Many instances to run.

    Attributes:
        world: The world, not open yet.
        run_dir: The run directory, absolute.
        count: How many instances.
        start: Starts them; called when the world is open.
        options: Further duties of the orchestrator.
        starter_fd: Socket of the command that spawned this process to run them in the background;
            None when this is the command itself.
        verb: Word for their start, for example ``Starting``.
    """

    world: AsyncWorld
    run_dir: Path
    count: int
    start: Start
    options: OrchestratorOptions
    starter_fd: int | None
    verb: str = "Starting"


@attrs.define(eq=False)
class Orchestrator:
    """Many instances that live as long as this program.

    The first signal stops them all, or saves and stops them; the second one kills them.

    Args:
        run: The instances.
        states: Their states.
        display: Shows the work.
        starter: Channel to the command that spawned this process in the background; None if it
            runs in the foreground.
    """

    _run: BatchRun
    _states: InstanceStates
    _display: Display
    _starter: StarterChannel | None
    _contained: DisplayContainment = attrs.field(init=False, factory=DisplayContainment)
    _facts: list[str] = attrs.field(init=False, factory=list)
    _signals: CommandSignals = attrs.field(init=False, factory=CommandSignals)
    _is_output_gone: bool = attrs.field(init=False, default=False)
    _starting: anyio.CancelScope = attrs.field(init=False, factory=anyio.CancelScope)
    _gentle_end: anyio.CancelScope = attrs.field(init=False, factory=anyio.CancelScope)
    _is_asked_to_end: anyio.Event = attrs.field(init=False, factory=anyio.Event)
    _is_ending: bool = attrs.field(init=False, default=False)
    _is_start_done: anyio.Event = attrs.field(init=False, factory=anyio.Event)
    _is_over: anyio.Event = attrs.field(init=False, factory=anyio.Event)

    async def run(self) -> int:
        """Start the instances and return when all of them have ended.

        Returns:
            The exit status: 128 and the signal that asked for the end, 1 when the output
            is gone, else 0.

        Raises:
            BatchError: Instances failed to start, or ended by themselves.
            ClawbloxError: The start could not even be tried.

        Cancellation: the instances are stopped.
        """
        async with self._signals.obeyed(self._obey, self._kill):
            try:
                async with Tasks() as tasks:
                    tasks.start_soon(self._show)
                    tasks.start_soon(self._end)
                    if self._starter is not None:
                        tasks.start_soon(self._starter.run)
                    async with self._run.world, self._run.world.events() as events, self._metrics():
                        tasks.start_soon(self._follow, events)
                        await self._start_instances()
                        await self._is_over.wait()
            except BaseException:
                with self._contained:
                    await self._display.clear()
                raise
            finally:
                if self._starter is not None:
                    await self._starter.finish()
            with self._contained:
                await self._display.finish(await run_blocking(self._summarise))
        return self._status()

    def _summarise(self) -> list[str]:
        statuses = read_run(self._run.run_dir).instances
        return summarise(
            self._run.run_dir,
            [status for status in statuses if status.orchestrator_pid == os.getpid()],
            agents=read_agents(self._run.run_dir),
            stopped=self._states.stopped,
            may_resume=self._signals.first is not None,
            can_resume=can_resume(self._run.run_dir),
            names_logs=self._signals.first is not None,  # otherwise the error does
        )

    def _status(self) -> int:
        if self._signals.exit_status is not None:
            return self._signals.exit_status
        if self._is_output_gone:
            return 1
        if failures := self._states.failures:
            raise BatchError(
                f"{len(failures)} of {self._states.total} instances failed",
                failed=failures,
                hint=suggest("logs", self._run.run_dir, next(iter(failures))),
            )
        return 0

    # -- the start ------------------------------------------------------------------------------

    async def _start_instances(self) -> None:
        begun_at = anyio.current_time()
        self._report_with_hint(f"{self._run.verb} {count_words(self._states.total, 'instance')}.")
        with self._starting:
            batch = await self._run.start()
            # The event of every result has been taken before.
            self._states.finish_start(batch.failed, batch.done)
            with self._contained:
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

    async def _show(self) -> None:
        await self._contained.keep_showing(self._display.run)
        self._is_output_gone = self._signals.is_stopping = True
        self._is_asked_to_end.set()

    async def _follow(self, events: EventStream) -> None:
        async for event in events:
            with self._contained:
                self._states.take(event)
            with self._contained:
                self._display.take(event)
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
            self._facts.append(f"metrics at {endpoint.url}")
            self._display.announce(self._facts[-1])
            yield

    # -- the end ----------------------------------------------------------------------------------

    async def _obey(self, _number: signal.Signals) -> bool:
        self._is_asked_to_end.set()
        return True

    async def _kill(self) -> None:
        self._gentle_end.cancel()

    async def _end(self) -> None:
        """Once asked to, stop everything, perhaps saving it first; a second signal kills it."""
        await self._is_asked_to_end.wait()
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
