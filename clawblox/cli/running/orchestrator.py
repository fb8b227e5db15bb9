"""Many instances of a world from their start to their end, and the signals that end them."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeAlias

import anyio
import attrs

from clawblox.cli.running.background import Reporter
from clawblox.cli.running.displays import Display
from clawblox.cli.running.foreground import stop_signals
from clawblox.cli.tables.instance_states import Roster
from clawblox.cli.terminal.output import format_seconds, printable, suggest
from clawblox.concurrency.batch import Batch
from clawblox.concurrency.tasks import Tasks
from clawblox.errors import BatchError
from clawblox.results import StartedWorld
from clawblox.telemetry.events import EventStream
from clawblox.world.async_world import AsyncWorld

__all__ = ["Care", "Orchestrator", "Start"]

Start: TypeAlias = Callable[[], Awaitable[Batch[StartedWorld]]]
"""Starts the instances; the world is open."""


@attrs.frozen
class Care:
    """What an orchestrator does for its instances beside starting them.

    Attributes:
        autosave: Seconds from one round of saves to the next; None makes none.
        keep: So many of these saves stay for each instance.
        grace: Seconds between TERM and KILL.
        save_at_end: Whether the first signal saves what it stops.
        metrics_port: Where metrics are served, 0 for any free port; None serves none.
    """

    autosave: float | None
    keep: int
    grace: float
    save_at_end: bool
    metrics_port: int | None


class Orchestrator:
    """Instances that live as long as this program.

    The first signal stops them all, or saves them first; the second one kills them.

    Args:
        world: The world, not open yet.
        run_dir: The run directory.
        start: Starts them.
        roster: Where they stand.
        display: What a person sees of it.
        care: What else is done for them.
        reporter: Tells whoever started this program in the background; None tells nobody.
    """

    def __init__(
        self,
        world: AsyncWorld,
        run_dir: Path,
        start: Start,
        *,
        roster: Roster,
        display: Display,
        care: Care,
        reporter: Reporter | None,
    ) -> None:
        self._world = world
        self._run_dir = run_dir
        self._start = start
        self._roster = roster
        self._display = display
        self._care = care
        self._reporter = reporter
        self._facts: list[str] = []
        self._signals: list[signal.Signals] = []
        self._is_output_gone = False
        self._starting = anyio.CancelScope()
        self._patience = anyio.CancelScope()
        self._has_been_asked = False
        self._is_ending = False
        self._is_settled = anyio.Event()
        self._is_over = anyio.Event()

    async def run(self) -> int:
        """Start the instances and return when all of them have ended.

        Returns:
            The exit status: 128 and the signal that asked for the end, 1 when nobody reads the
            output any more, else 0.

        Raises:
            BatchError: Instances failed to start, or ended by themselves.
            ClawbloxError: None of them could even be tried.
        """
        with anyio.open_signal_receiver(*stop_signals()) as received:
            try:
                async with Tasks() as tasks:
                    tasks.start_soon(self._show, tasks)
                    tasks.start_soon(self._obey, received, tasks)
                    if self._reporter is not None:
                        tasks.start_soon(self._reporter.run)
                    async with self._world, self._world.events() as events, self._metrics():
                        tasks.start_soon(self._follow, events)
                        await self._come_up()
                        await self._is_over.wait()
            except BaseException:
                await self._display.clear()
                raise
            finally:
                if self._reporter is not None:
                    await self._reporter.finish()
            await self._display.finish()
        return self._status()

    def _status(self) -> int:
        if self._signals:
            return 128 + self._signals[0]
        if self._is_output_gone:
            return 1
        if failures := self._roster.failures:
            raise BatchError(
                f"{len(failures)} of {self._roster.total} instances failed",
                failed=failures,
                hint=suggest("logs", self._run_dir, next(iter(failures))),
            )
        return 0

    # -- the start ------------------------------------------------------------------------------

    async def _come_up(self) -> None:
        begun_at = anyio.current_time()
        self._say_with_hint(f"Starting {_instances(self._roster.total)}.")
        with self._starting:
            batch = await self._start()
            # What is in it was told by events before, and those have been taken.
            self._roster.settle(batch.failed, batch.done)
            self._tell_start(batch, anyio.current_time() - begun_at)
            if self._care.autosave is not None:
                await self._world.autosave(every=self._care.autosave, keep=self._care.keep)
        if self._starting.cancelled_caught:
            self._roster.settle({}, ())
        self._is_settled.set()
        self._end_if_over()

    def _tell_start(self, batch: Batch[StartedWorld], elapsed_s: float) -> None:
        ready, total = len(batch), self._roster.total
        ready_of = _instances(ready) if ready == total else f"{ready} of {_instances(total)}"
        text = f"{ready_of} ready after {format_seconds(elapsed_s)}."
        self._say_with_hint(text)
        if self._reporter is not None:
            self._reporter.settle((text, *self._facts), batch)

    def _say_with_hint(self, text: str) -> None:
        first = "saves and stops" if self._care.save_at_end else "stops"
        hint = f" Ctrl-C {first} what runs, a second one kills it."
        self._display.say(text if self._reporter else text + hint)

    # -- what goes on -----------------------------------------------------------------------------

    async def _show(self, tasks: Tasks) -> None:
        await self._display.run()
        self._is_output_gone = True
        self._ask_to_end(tasks)

    async def _follow(self, events: EventStream) -> None:
        async for event in events:
            self._roster.take(event)
            self._display.take(event)
            if self._reporter is not None:
                self._reporter.take(event)
            self._end_if_over()

    def _end_if_over(self) -> None:
        if self._roster.is_over and not self._is_ending:
            self._is_over.set()

    @asynccontextmanager
    async def _metrics(self) -> AsyncIterator[None]:
        if self._care.metrics_port is None:
            yield
            return
        from clawblox.telemetry.prometheus import MetricsEndpoint

        endpoint = MetricsEndpoint(
            lambda: self._world.metrics, self._roster.counts, port=self._care.metrics_port
        )
        async with endpoint:
            self._facts.append(f"metrics at {endpoint.url}")
            self._display.announce(self._facts[-1])
            yield

    # -- the end ----------------------------------------------------------------------------------

    async def _obey(self, received: AsyncIterator[signal.Signals], tasks: Tasks) -> None:
        async for number in received:
            self._signals.append(number)
            if self._has_been_asked:
                self._patience.cancel()
            self._ask_to_end(tasks)

    def _ask_to_end(self, tasks: Tasks) -> None:
        if not self._has_been_asked:
            self._has_been_asked = True
            tasks.start_soon(self._end)

    async def _end(self) -> None:
        """Stop everything, and save it before if that is wanted; when patience ends, kill it."""
        self._is_ending = True
        self._starting.cancel()
        await self._is_settled.wait()
        with self._patience:
            await (self._drain() if self._care.save_at_end else self._stop())
        if self._patience.cancelled_caught and not self._is_over.is_set():
            self._display.say("Killing all instances.")
            await self._stop_all(0.0)
        self._is_over.set()

    async def _drain(self) -> None:
        self._display.say("Saving and stopping all instances. A second Ctrl-C kills them.")
        batch = await self._world.drain(grace_seconds=self._care.grace)
        if left := [name for name in sorted(batch.failed) if self._roster.runs(name)]:
            names = ", ".join(left)
            self._display.say(f"Not saved, so still running: {names}. A second Ctrl-C kills them.")
            self._is_ending = False
            self._end_if_over()
            await anyio.sleep_forever()

    async def _stop(self) -> None:
        self._display.say("Stopping all instances. A second Ctrl-C kills them.")
        await self._stop_all(self._care.grace)

    async def _stop_all(self, grace_seconds: float) -> None:
        if self._is_over.is_set():
            return
        self._roster.stop()
        await self._world.autosave(every=None)
        stops = await self._world.stop_all(grace_seconds=grace_seconds)
        for result in stops:
            for each in result.killed:
                self._display.warn(f"killed {each}")
        for error in stops.failed.values():
            self._display.warn(printable(str(error)))


def _instances(count: int) -> str:
    return f"{count} instance{'' if count == 1 else 's'}"
