"""The ramp: how many starts may be under way at once on this machine.

Many starts at once only make each of them slow when the processors are busy, and cost nothing
when the worlds wait for something else. So the limit follows the pressure: it doubles while the
processors have room, and shrinks to a few per processor while tasks wait for them and worlds take
longer to get ready. The pressure is Linux's own: ``/proc/pressure/cpu`` (PSI), the share of time
in which some task waited for a processor. Where there is none, the times to readiness decide.

One ramp serves all worlds of an event loop.
"""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import attrs

from clawblox.concurrency.threads import run_blocking

__all__ = ["Governor", "Ramp", "Reading", "current_ramp", "read_stall_s"]

_PRESSURE_FILE = Path("/proc/pressure/cpu")
_LOOK_INTERVAL_S = 0.05
_HIGH_PRESSURE, _LOW_PRESSURE = 0.8, 0.5
_SLOWDOWN = 2.0
"""Getting ready so many times slower than the fastest counts as slower."""
_MAX_LIMIT = 4096
_HELD_S = 5.0
"""So long a start that is not ready counts; one that only hangs shall not hold up the others."""


@attrs.frozen
class Reading:
    """What a look at the machine came to.

    Attributes:
        at: Monotonic time, in seconds.
        stall_s: Time that some task has waited for a processor, in seconds since some beginning;
            None where the kernel does not tell.
    """

    at: float
    stall_s: float | None


def read_stall_s() -> float | None:
    """Return the stall time of ``/proc/pressure/cpu`` in seconds; None where there is none. Blocks.

    Format: Documentation/accounting/psi.rst of the Linux kernel.
    """
    try:
        line = _PRESSURE_FILE.read_text().splitlines()[0]
    except (OSError, IndexError):
        return None
    total = line.rpartition("total=")[2]
    return int(total) / 1e6 if line.startswith("some ") and total.isdigit() else None


class Governor:
    """Decides on the limit; pure.

    Args:
        cores: Processors of the machine.

    Attributes:
        limit: How many starts may be under way.
        pressure: Share of the last interval in which some task waited for a processor; None when
            it is not known.
    """

    def __init__(self, cores: int) -> None:
        self.limit = 8 * cores
        self.pressure: float | None = None
        self._least = 2 * cores
        self._last: Reading | None = None
        self._fastest_s = float("inf")
        self._latest_s = 0.0

    def note_ready(self, ready_s: float) -> None:
        """Take the seconds that a world took from its spawn to its readiness."""
        self._fastest_s = min(self._fastest_s, ready_s)
        self._latest_s = ready_s

    @property
    def fastest_s(self) -> float:
        """Seconds that the fastest world took; 0 before there was one."""
        return self._fastest_s if math.isfinite(self._fastest_s) else 0.0

    @property
    def is_slowing_down(self) -> bool:
        """Whether worlds take much longer to get ready than the fastest did."""
        return self._latest_s > _SLOWDOWN * self._fastest_s

    def decide(self, reading: Reading) -> None:
        """Set the limit by what was seen since the last reading."""
        last, self._last = self._last, reading
        if last is None and reading.stall_s is not None:
            return  # the first of two that are needed
        self.pressure = _pressure_between(last, reading)
        is_busy = self.pressure is None or self.pressure > _HIGH_PRESSURE
        if is_busy and self.is_slowing_down:
            self.limit = max(self._least, self.limit // 2)
        elif self.pressure is None or self.pressure < _LOW_PRESSURE:
            self.limit = min(_MAX_LIMIT, 2 * self.limit)


def _pressure_between(last: Reading | None, now: Reading) -> float | None:
    if last is None or last.stall_s is None or now.stall_s is None or now.at <= last.at:
        return None
    return min(1.0, (now.stall_s - last.stall_s) / (now.at - last.at))


@attrs.define(eq=False)
class _Place:
    """A place in the queue of the starts that wait."""

    is_called: anyio.Event = attrs.field(factory=anyio.Event)


class Ramp:
    """Lets starts begin as fast as the machine can take them.

    Args:
        read_stall: Returns the stall time of the processors, in seconds.
        cores: Processors of the machine.
    """

    def __init__(self, read_stall: Callable[[], float | None], cores: int) -> None:
        self._governor = Governor(cores)
        self._read_stall = read_stall
        self._under_way: dict[object, float] = {}
        self._queue: deque[_Place] = deque()
        self._looked_at = -_LOOK_INTERVAL_S
        self._is_slow = False

    @property
    def limit(self) -> int:
        """How many starts may be under way now."""
        return self._governor.limit

    @property
    def fastest_s(self) -> float:
        """Seconds from the spawn to readiness of the fastest start so far; 0 without any."""
        return self._governor.fastest_s

    @asynccontextmanager
    async def turn(self, tell: Callable[..., None]) -> AsyncIterator[None]:
        """Wait for a turn to start a world; the block is the start, until it is ready or failed.

        Args:
            tell: Called as ``tell("ramp_slowed", limit=…, pressure=…)`` when the starts are held
                back, and with ``"ramp_recovered"`` when they no longer are.

        Cancellation: gives the turn back.
        """
        if self._queue or self._is_full():
            await self._queue_up(tell)
        me = object()
        self._under_way[me] = begun_at = time.monotonic()
        try:
            yield
            self._governor.note_ready(time.monotonic() - begun_at)
        finally:
            del self._under_way[me]
            self._wake_first()

    def _is_full(self) -> bool:
        oldest = time.monotonic() - _HELD_S
        count = sum(begun_at > oldest for begun_at in self._under_way.values())
        return count >= self.limit

    async def _queue_up(self, tell: Callable[..., None]) -> None:
        place = _Place()
        self._queue.append(place)
        try:
            while self._queue[0] is not place or self._is_full():
                # The first in the queue looks at the machine, for all.
                is_first = self._queue[0] is place
                with anyio.move_on_after(_LOOK_INTERVAL_S if is_first else math.inf):
                    await place.is_called.wait()
                    place.is_called = anyio.Event()
                if time.monotonic() - self._looked_at >= _LOOK_INTERVAL_S:
                    await self._look(tell)
        finally:
            self._queue.remove(place)
            self._wake_first()

    def _wake_first(self) -> None:
        if self._queue:
            self._queue[0].is_called.set()

    async def _look(self, tell: Callable[..., None]) -> None:
        before = self.limit
        self._looked_at = time.monotonic()
        stall_s = await run_blocking(self._read_stall)
        self._governor.decide(Reading(time.monotonic(), stall_s))
        if self.limit == before or self._is_slow == (self.limit < before):
            return
        self._is_slow = self.limit < before
        tell(
            "ramp_slowed" if self._is_slow else "ramp_recovered",
            limit=self.limit,
            pressure=self._governor.pressure,
        )


_ramp: anyio.lowlevel.RunVar[Ramp] = anyio.lowlevel.RunVar("clawblox_ramp")


def current_ramp() -> Ramp:
    """Return the ramp of the running event loop."""
    ramp = _ramp.get(None)
    if ramp is None:
        ramp = Ramp(read_stall_s, os.cpu_count() or 1)
        _ramp.set(ramp)
    return ramp
