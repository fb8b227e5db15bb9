"""The ramp: limits how many starts are under way at the same time on this machine.

Concurrent starts slow each other down when the processors are busy, and cost nothing when the
worlds wait for something else. So the limit follows the pressure: it doubles while processors are
idle, and shrinks to a few per processor while tasks wait for them and worlds take longer to get
ready. The pressure is that of Linux, ``/proc/pressure/cpu`` (PSI): the share of time in which some
task waited for a processor. On kernels without it, the times to readiness decide.

One ramp serves all worlds of an event loop.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import attrs

from clawblox.concurrency.per_loop import per_loop

_PRESSURE_FILE = Path("/proc/pressure/cpu")
LOOK_INTERVAL_S = 0.05
"""Seconds between two readings of the pressure while starts are delayed."""
_HIGH_PRESSURE, _LOW_PRESSURE = 0.8, 0.5
_SLOWDOWN = 2.0
"""A world that takes this many times as long as the fastest counts as slow."""
_MAX_LIMIT = 4096
_HELD_S = 5.0
"""A start counts for this many seconds at most; one that hangs must not hold up the others."""


@attrs.frozen
class Reading:
    """One measurement of the machine.

    Attributes:
        at: Monotonic time, in seconds.
        stall_s: Total time that some task has waited for a processor, in seconds; None if the
            kernel does not count it.
    """

    at: float
    stall_s: float | None


def read_stall_s() -> float | None:
    """Return the stall time of ``/proc/pressure/cpu`` in seconds, or None without PSI. Blocks.

    Format: Documentation/accounting/psi.rst of the Linux kernel.
    """
    try:
        line = _PRESSURE_FILE.read_text().splitlines()[0]
    except (OSError, IndexError):
        return None
    total = line.rpartition("total=")[2]
    return int(total) / 1e6 if line.startswith("some ") and total.isdigit() else None


@attrs.frozen
class Pace:
    """The current limit on starts.

    Attributes:
        is_slow: Whether starts are delayed.
        limit: Number of starts that may be under way.
        pressure: Share of the last interval in which some task waited for a processor, 0 to 1;
            None if not known.
    """

    is_slow: bool
    limit: int
    pressure: float | None


class RampController:
    """Decides on the limit; pure.

    Args:
        cores: Processors of the machine.

    Attributes:
        limit: Number of starts that may be under way.
        pressure: Share of the last interval in which some task waited for a processor, 0 to 1;
            None if not known.
    """

    def __init__(self, cores: int) -> None:
        self.limit = 8 * cores
        self.pressure: float | None = None
        self._least = 2 * cores
        self._last: Reading | None = None
        self._fastest_s = float("inf")
        self._latest_s = 0.0

    def note_ready(self, ready_s: float) -> None:
        """Record the seconds that a world took from its spawn to its readiness."""
        self._fastest_s = min(self._fastest_s, ready_s)
        self._latest_s = ready_s

    @property
    def fastest_s(self) -> float:
        """Seconds that the fastest world took; 0 before the first."""
        return self._fastest_s if math.isfinite(self._fastest_s) else 0.0

    @property
    def is_slowing_down(self) -> bool:
        """Whether worlds take much longer to get ready than the fastest did."""
        return self._latest_s > _SLOWDOWN * self._fastest_s

    def decide(self, reading: Reading) -> None:
        """Set the limit from the events since the last reading."""
        last, self._last = self._last, reading
        if last is None and reading.stall_s is not None:
            return  # a pressure needs two readings
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


class Ramp:
    """Lets starts begin as fast as the machine can take them, those of all worlds together.

    Args:
        read_stall: Returns the stall time of the processors, in seconds.
        cores: Processors of the machine.
    """

    def __init__(self, read_stall: Callable[[], float | None], cores: int) -> None:
        self._controller = RampController(cores)
        self._read_stall = read_stall
        self._lock = threading.Lock()
        self._under_way: dict[object, float] = {}
        self._looked_at = -LOOK_INTERVAL_S
        self._is_slow = False

    @property
    def limit(self) -> int:
        """Number of starts that may be under way now."""
        return self._controller.limit

    @property
    def fastest_s(self) -> float:
        """Seconds from spawn to readiness of the fastest start so far; 0 before the first."""
        return self._controller.fastest_s

    def begin(self, start: object) -> bool:
        """Count ``start`` as under way if there is room; return whether there was."""
        with self._lock:
            now = time.monotonic()
            held = sum(begun_at > now - _HELD_S for begun_at in self._under_way.values())
            if held >= self.limit:
                return False
            self._under_way[start] = now
            return True

    def end(self, start: object, *, is_ready: bool) -> None:
        """Stop counting ``start``; if it became ready, record how long that took."""
        with self._lock:
            begun_at = self._under_way.pop(start)
            if is_ready:
                self._controller.note_ready(time.monotonic() - begun_at)

    def look(self) -> Pace | None:
        """Look at the machine, unless that was done just now, and set the limit. Blocks.

        Returns:
            The new pace if starts are delayed from now on, or no longer are; else None.
        """
        with self._lock:
            now = time.monotonic()
            if now - self._looked_at < LOOK_INTERVAL_S:
                return None
            self._looked_at = now
            before = self.limit
            stall_s = self._read_stall()
            self._controller.decide(Reading(time.monotonic(), stall_s))
            is_slow = self.limit < before
            if self.limit == before or is_slow == self._is_slow:
                return None
            self._is_slow = is_slow
            return Pace(is_slow, self.limit, self._controller.pressure)


@per_loop
def current_ramp() -> Ramp:
    """Return the ramp of the running event loop."""
    return Ramp(read_stall_s, os.cpu_count() or 1)
