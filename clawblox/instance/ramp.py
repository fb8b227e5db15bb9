"""The ramp: limits the number of concurrent starts on this machine.

Concurrent starts slow each other down when the processors are busy, but are free when the worlds
wait for other things. The limit therefore follows the pressure: it doubles while processors are
idle, and shrinks to a few per processor while tasks wait for processors and worlds take longer to
become ready. The pressure comes from Linux, ``/proc/pressure/cpu`` (PSI): the share of time in
which some task waited for a processor. On kernels without PSI, the times to readiness decide.

One ramp serves all worlds of an event loop.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from clawblox.concurrency.per_loop import per_loop

_PRESSURE_FILE = Path("/proc/pressure/cpu")
LOOK_INTERVAL_S = 0.05
"""Seconds between two readings of the pressure while starts are delayed."""
_HIGH_PRESSURE, _LOW_PRESSURE = 0.8, 0.5
_SLOWDOWN = 2.0
"""Ratio to the fastest time to readiness above which a world counts as slow."""
_MAX_LIMIT = 4096
_HELD_S = 5.0
"""Seconds for which a start counts at most, so a hanging start does not delay others."""


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


class StartPace(msgspec.Struct, frozen=True):
    """The current limit on starts.

    Attributes:
        is_slow: Whether starts are delayed.
        limit: Maximum number of concurrent starts.
        pressure: Share of the last interval in which some task waited for a processor, 0 to 1;
            None if not known.
    """

    is_slow: bool
    limit: int
    pressure: float | None


class Ramp:
    """Lets starts of all worlds begin as fast as the machine can handle them.

    Args:
        read_stall: Returns the stall time of the processors, in seconds.
        cores: Processors of the machine.

    Attributes:
        limit: Maximum number of concurrent starts at this time.
        pressure: Share of the last interval in which some task waited for a processor, 0 to 1;
            None if not known.
        fastest_s: Seconds from spawn to readiness of the fastest start so far; 0 before the first.
    """

    def __init__(self, read_stall: Callable[[], float | None], cores: int) -> None:
        self.limit = 8 * cores
        self.pressure: float | None = None
        self.fastest_s = 0.0
        self._least = 2 * cores
        self._latest_s = 0.0
        self._last: tuple[float, float | None] | None = None
        self._read_stall = read_stall
        self._lock = threading.Lock()
        self._under_way: dict[object, float] = {}
        self._looked_at = -LOOK_INTERVAL_S
        self._is_slow = False

    def begin(self, start: object) -> bool:
        """Count ``start`` as running if there is room; return whether there was room."""
        with self._lock:
            now = time.monotonic()
            held = sum(begun_at > now - _HELD_S for begun_at in self._under_way.values())
            if held >= self.limit:
                return False
            self._under_way[start] = now
            return True

    def end(self, start: object, *, is_ready: bool) -> None:
        """Stop counting ``start``; if it became ready, record its duration."""
        with self._lock:
            begun_at = self._under_way.pop(start)
            if is_ready:
                self.note_ready(time.monotonic() - begun_at)

    def note_ready(self, ready_s: float) -> None:
        """Record the seconds that a world took from its spawn to its readiness."""
        self.fastest_s = min(self.fastest_s or ready_s, ready_s)
        self._latest_s = ready_s

    def update(self) -> StartPace | None:
        """Read the pressure, unless it was read very recently, and set the limit. Blocks.

        Returns:
            The new pace if delays of starts begin or end, else None.
        """
        with self._lock:
            now = time.monotonic()
            if now - self._looked_at < LOOK_INTERVAL_S:
                return None
            self._looked_at = now
            before = self.limit
            stall_s = self._read_stall()
            self.decide(time.monotonic(), stall_s)
            is_slow = self.limit < before
            if self.limit == before or is_slow == self._is_slow:
                return None
            self._is_slow = is_slow
            return StartPace(is_slow, self.limit, self.pressure)

    def decide(self, at: float, stall_s: float | None) -> None:
        """Set the limit from the events since the last reading.

        Args:
            at: Monotonic time of this reading, in seconds.
            stall_s: Total time that some task has waited for a processor, in seconds; None if the
                kernel does not count it.
        """
        last, self._last = self._last, (at, stall_s)
        if last is None and stall_s is not None:
            return  # a pressure needs two readings
        self.pressure = None
        if last is not None and last[1] is not None and stall_s is not None and at > last[0]:
            self.pressure = min(1.0, (stall_s - last[1]) / (at - last[0]))
        is_busy = self.pressure is None or self.pressure > _HIGH_PRESSURE
        if is_busy and self._latest_s > _SLOWDOWN * self.fastest_s:
            self.limit = max(self._least, self.limit // 2)
        elif self.pressure is None or self.pressure < _LOW_PRESSURE:
            self.limit = min(_MAX_LIMIT, 2 * self.limit)


@per_loop
def current_ramp() -> Ramp:
    """Return the ramp of the running event loop."""
    return Ramp(read_stall_s, os.cpu_count() or 1)
