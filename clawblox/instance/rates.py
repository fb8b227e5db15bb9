"""Worlds that cannot keep their rate: each one, and together on the processors of this machine.

A world in real time reports its rate in its health answers. Nothing here reads a clock: callers
pass the time.
"""

from __future__ import annotations

import os
from collections.abc import Hashable
from typing import Final

import anyio

from clawblox.concurrency.per_loop import per_loop
from clawblox.concurrency.threads import current_batcher
from clawblox.errors import UsageError
from clawblox.instance.bookkeeping import Bookkeeping
from clawblox.instance.instance import Instance
from clawblox.instance.startup import Tell
from clawblox.protocol import TickRate

BEHIND_BELOW: Final = 0.9
"""Share of its nominal rate below which a world is behind."""
BEHIND_AFTER_S: Final = 10.0
"""Seconds below that share after which a world counts as behind."""
_RECORDED_STEP: Final = 0.05
"""Change of the share after which the record is written again."""


class BehindDetector:
    """Decides when one world has fallen behind, and when it has caught up.

    Attributes:
        is_behind: Whether the world counts as behind.
    """

    def __init__(self) -> None:
        self.is_behind = False
        self._below_since: float | None = None

    def note(self, rate: TickRate, now: float) -> bool:
        """Take a rate; return whether :attr:`is_behind` has changed.

        Args:
            rate: What the world reports.
            now: The time, in seconds of a steady clock.
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
    """Compares what the ticks of all worlds take with the processors that there are.

    Args:
        cores: Number of processors.

    Attributes:
        cores: The same as the argument.
        needed: Processors that the ticks of all worlds take at their nominal rates.
    """

    def __init__(self, cores: int) -> None:
        self.cores = cores
        self.needed = 0.0
        self._by_world: dict[Hashable, float] = {}
        self._reported: set[Hashable] = set()
        self._is_announced = False

    @property
    def worlds(self) -> int:
        """Number of worlds whose ticks are counted."""
        return len(self._by_world)

    def note(self, world: Hashable, cores: float | None) -> bool:
        """Take what one world needs; return whether to announce that all need too much.

        That is once, when all worlds that report have done so since the processors were exceeded.

        Args:
            world: Identifies the world.
            cores: The processors that its ticks take; None if it has ended, or reports none.
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
    """Return the budget that all worlds of this event loop share."""
    return CoreBudget(len(os.sched_getaffinity(0)))


def current_rate(instance: Instance) -> TickRate | None:
    """Return how fast the world of an instance runs; None if that is not known, or it has ended."""
    try:
        return None if instance.is_over else instance.running.processes.rate
    except UsageError:  # it has ended meanwhile
        return None


class Rates:
    """Takes the rates that one instance reports during one life.

    Args:
        instance: The instance.
        books: Its bookkeeping.
        tell: Called with each event.
    """

    def __init__(self, instance: Instance, books: Bookkeeping, tell: Tell) -> None:
        self._instance = instance
        self._books = books
        self._tell = tell
        self._detector = BehindDetector()
        self._budget = _current_budget()

    async def note(self, rate: TickRate) -> None:
        """Keep a rate, and send an event when the world falls behind or catches up.

        Cancellation: events are sent; the record is written.
        """
        processes = self._instance.running.processes
        before, processes.rate = processes.rate, rate
        rates = {"achieved_hz": rate.achieved_hz, "nominal_hz": rate.nominal_hz}
        has_changed = self._detector.note(rate, anyio.current_time())
        if has_changed:
            self._tell("fell_behind" if self._detector.is_behind else "caught_up", **rates)
        if self._budget.note(self, rate.cores):
            budget = self._budget
            self._tell(
                "overcommitted", needed=budget.needed, cores=budget.cores, worlds=budget.worlds
            )
        if before is None or has_changed or abs(before.share - rate.share) >= _RECORDED_STEP:
            await current_batcher().run(self._books.note_rate)

    def end(self) -> None:
        """Count the instance no more: it has ended."""
        self._budget.note(self, None)
