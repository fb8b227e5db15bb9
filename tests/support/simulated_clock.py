"""A clock that stands still until a test lets it jump to the next deadline."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import anyio
import anyio.lowlevel

BEGIN = datetime(2026, 6, 22, 18, 59, 25, tzinfo=UTC)


class SimulatedClock:
    """See :class:`clawblox.system.clock.TimeSource`."""

    def __init__(self) -> None:
        self._elapsed_s = 0.0
        self._waiting: list[tuple[float, anyio.Event]] = []
        self._somebody_waits = anyio.Event()

    def utc(self) -> datetime:
        return BEGIN + timedelta(seconds=self._elapsed_s)

    def utc_in(self, seconds: float) -> datetime:
        return self.utc() + timedelta(seconds=seconds)

    def monotonic(self) -> float:
        return self._elapsed_s

    async def sleep_until(self, deadline: float) -> None:
        if deadline <= self._elapsed_s:
            await anyio.lowlevel.checkpoint()
            return
        waiting = deadline, anyio.Event()
        self._waiting.append(waiting)
        self._somebody_waits.set()
        try:
            await waiting[1].wait()
        finally:
            self._waiting.remove(waiting)

    @property
    def sleepers(self) -> int:
        """Number of tasks that sleep."""
        return len(self._waiting)

    async def settle(self) -> None:
        """Wait until every other task waits."""
        await _settle()

    async def jump(self) -> float:
        """Wait until a task sleeps, jump to the earliest deadline, and return it."""
        await _settle()
        while not self._waiting:
            self._somebody_waits = anyio.Event()
            await self._somebody_waits.wait()
            await _settle()
        self._elapsed_s = min(deadline for deadline, _ in self._waiting)
        for deadline, event in self._waiting:
            if deadline <= self._elapsed_s:
                event.set()
        await _settle()
        return self._elapsed_s


async def _settle() -> None:
    """Wait until every other task waits."""
    try:
        ready = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]
    except RuntimeError:  # not asyncio
        await anyio.wait_all_tasks_blocked()
        return
    while ready:  # anyio's own function sleeps for 0.1 s between two checks
        await asyncio.sleep(0)
