"""Watches an instance, and handles the reports of its world: halts, rates and script errors.

Worlds send reports in health answers. The detectors do not read a clock: callers pass the time.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Hashable
from typing import Final

import anyio
import attrs
import msgspec

from clawblox.concurrency.per_loop import per_loop
from clawblox.concurrency.tasks import Tasks
from clawblox.concurrency.threads import current_batcher, run_blocking
from clawblox.config.world_toml import LivenessRule
from clawblox.instance.bookkeeping import InstanceBookkeeping, Tell
from clawblox.instance.failures import read_watchdog_end
from clawblox.instance.health import ProbePacer
from clawblox.instance.local import LocalInstance
from clawblox.protocol import HealthReport, ScriptErrors, TickRate
from clawblox.supervision.tree import Grace

BEHIND_BELOW: Final = 0.9
"""Share of its nominal rate below which a world is behind."""
BEHIND_AFTER_S: Final = 10.0
"""Seconds below `BEHIND_BELOW` after which a world counts as behind."""
_RECORDED_STEP: Final = 0.05
"""Minimum change of the share for which the record is written again."""
_LAST_REPORT_S: Final = 1.0
"""Maximum time that a stop waits for the last report of the world, in seconds."""


class BehindDetector(msgspec.Struct):
    """Decides when a world has fallen behind, and when it has caught up.

    Attributes:
        is_behind: Whether the world counts as behind.
    """

    is_behind: bool = False
    _below_since: float | None = None

    def note(self, rate: TickRate, now: float) -> bool:
        """Process a rate; return whether :attr:`is_behind` has changed.

        Args:
            rate: The rate that the world reports.
            now: The time on a monotonic clock, in seconds.
        """
        was_behind = self.is_behind
        if rate.share >= BEHIND_BELOW:
            self.is_behind, self._below_since = False, None
        elif self._below_since is None:
            self._below_since = now
        elif now - self._below_since >= BEHIND_AFTER_S:
            self.is_behind = True
        return self.is_behind is not was_behind


class CoreBudget:
    """Compares the processor needs of the ticks of all worlds with this machine's processors.

    Args:
        cores: Number of processors.

    Attributes:
        cores: The same as the argument.
        needed: Number of processors that the ticks of all worlds need at their nominal rates.
    """

    def __init__(self, cores: int) -> None:
        self.cores = cores
        self.needed = 0.0
        self._by_world: dict[Hashable, float] = {}
        self._reported: set[Hashable] = set()
        self._is_announced = False

    @property
    def worlds(self) -> int:
        """Number of worlds with counted ticks."""
        return len(self._by_world)

    def note(self, world: Hashable, cores: float | None) -> bool:
        """Count the needs of a world; return whether to announce that the total is too high.

        The announcement is due once, when all reporting worlds have reported since the total
        exceeded the number of processors.

        Args:
            world: Identifies the world.
            cores: The processors that its ticks need; None if it has ended or does not report them.
        """
        self._by_world.pop(world, None)
        if cores is not None:
            self._by_world[world] = cores
        self.needed = sum(self._by_world.values())
        if self.needed <= self.cores:
            self._reported.clear()
            self._is_announced = False
            return False
        is_second = world in self._reported
        self._reported.add(world)
        was_announced, self._is_announced = self._is_announced, self._is_announced or is_second
        return is_second and not was_announced


@per_loop
def _current_budget() -> CoreBudget:
    """Return the budget shared by all worlds of this event loop."""
    return CoreBudget(len(os.sched_getaffinity(0)))


@attrs.define(eq=False)
class InstanceWatch:
    """Watches an instance, and writes the reports of its world to its record and to events.

    Args:
        instance: The instance.
        pacer: Decides when its liveness is probed.
        books: Its bookkeeping.
        tell: Sends its events.
        end: Ends the instance if it hangs or has halted; the exit is handled like any other.

    Attributes:
        is_unresponsive: Whether the instance was ended because it did not respond.
    """

    _instance: LocalInstance
    _pacer: ProbePacer
    _books: InstanceBookkeeping
    _tell: Tell
    _end: Callable[[], Awaitable[None]]
    is_unresponsive: bool = attrs.field(default=False, init=False)
    _detector: BehindDetector = attrs.field(factory=BehindDetector, init=False)
    _is_ending: bool = attrs.field(default=False, init=False)
    _budget: CoreBudget = attrs.field(factory=_current_budget, init=False)

    def announce_halt(self, reason: str) -> None:
        """Store the reason of the world's halt, and send the event."""
        self._instance.halt = self._instance.masked(reason)
        self._tell("halted", reason=self._instance.halt)

    async def note_halt(self, reason: str) -> None:
        """Announce and record the reason of the world's halt.

        Cancellation: the event is sent; the record is written.
        """
        self.announce_halt(reason)
        await current_batcher().run(self._books.note_reported)

    async def note_last_report(self, grace: Grace) -> None:
        """Record the halt and the errors of a world that is about to be stopped.

        Args:
            grace: The remaining time of the stop; without time left the world is not asked.

        Cancellation: leaves no connection open.
        """
        instance, rule = self._instance, self._instance.launch.liveness
        if rule is None or instance.is_over or instance.halt is not None:
            return
        left = grace.scope.deadline - anyio.current_time()
        seconds = min(rule.timeout, _LAST_REPORT_S, left)
        report = await instance.ask_report(rule, seconds) if seconds > 0 else None
        if report is None:
            return
        if report.halt is not None:
            await self.note_halt(report.halt)
        elif self._keep_errors(report.errors):
            await current_batcher().run(self._books.note_reported)

    async def note_report(self, report: HealthReport) -> None:
        """Store the report of a healthy world: its rate and its script errors.

        Cancellation: events are sent; the record is written.
        """
        is_news = self._keep_errors(report.errors)
        if report.rate is not None:
            is_news |= self._keep_rate(report.rate)
        if is_news:
            await current_batcher().run(self._books.note_reported)

    def _keep_errors(self, errors: ScriptErrors | None) -> bool:
        """Store script errors, and send an event for the first errors.

        Returns:
            Whether the record must be updated.
        """
        if errors is not None:
            errors = attrs.evolve(errors, last=self._instance.masked(errors.last))
        before, self._instance.script_errors = self._instance.script_errors, errors
        if before is None and errors is not None:
            self._tell("script_error", **attrs.asdict(errors))
        return errors != before

    def _keep_rate(self, rate: TickRate) -> bool:
        """Store a rate, and send an event when the world falls behind or catches up.

        Returns:
            Whether the record must be updated.
        """
        before, self._instance.rate = self._instance.rate, rate
        rates = {"achieved_hz": rate.achieved_hz, "nominal_hz": rate.nominal_hz}
        has_changed = self._detector.note(rate, anyio.current_time())
        if has_changed:
            self._tell("fell_behind" if self._detector.is_behind else "caught_up", **rates)
        if self._budget.note(self, rate.cores):
            budget = self._budget
            self._tell(
                "overcommitted", needed=budget.needed, cores=budget.cores, worlds=budget.worlds
            )
        return before is None or has_changed or abs(before.share - rate.share) >= _RECORDED_STEP

    async def run(self) -> None:
        """Watch a ready instance until the world's process has ended.

        Cancellation: the processes continue; an instance that is being ended is ended first.
        """
        self.is_unresponsive = self._is_ending = False
        launch = self._instance.launch
        async with Tasks() as tasks:
            if launch.config.sidecars:
                tasks.start_soon(self._instance.watch_sidecars, self._tell)
            if launch.liveness is not None:
                tasks.start_soon(self._watch_liveness, launch.liveness)
            if launch.config.watches_listener:
                await self._watch_listener()
            await self._instance.wait_exit()
        reason = await run_blocking(read_watchdog_end, self._instance)
        if reason is not None:
            await self.note_halt(reason)

    async def _watch_liveness(self, rule: LivenessRule) -> None:
        self._pacer.begin()
        try:
            seen, halt = await self._instance.wait_unresponsive(rule, self._pacer, self.note_report)
            if self._is_ending:
                return
            self._is_ending = True
            if halt is not None:
                await self.note_halt(halt)
        finally:
            self._pacer.end()
            self._budget.note(self, None)
            self._detector = BehindDetector()
        if halt is None:
            self.is_unresponsive = True
            self._tell("unresponsive", seen=seen, failures=rule.failure_threshold)
        await self._end()

    async def _watch_listener(self) -> None:
        reason = await self._instance.wait_listener_gone()
        if reason is not None and not self._is_ending:
            self._is_ending = True
            await self.note_halt(reason)
            await self._end()
