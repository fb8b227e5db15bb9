"""Limits over time for reports of an event, and for admitted amounts. Pure."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

_INTERVAL_S = 60.0


class Throttle:
    """Counts an event and decides when to report it: immediately, then once a minute.

    Args:
        clock: Returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next_at = -math.inf
        self._count = 0

    def count(self) -> int:
        """Count an event; return the count since the last report, or 0 if no report is due."""
        self._count += 1
        now = self._clock()
        if now < self._next_at:
            return 0
        self._next_at = now + _INTERVAL_S
        times, self._count = self._count, 0
        return times


class Rate:
    """Admits an amount per second, after a burst.

    Args:
        per_s: Average amount per second, in any unit.
        burst: Maximum amount at a time after a pause.
    """

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._left = burst
        self._filled_at = 0.0

    def admits(self, now: float, amount: float = 1.0) -> bool:
        """Take an amount if it is admitted at ``now`` (monotonic seconds); return whether so."""
        gained = max(0.0, now - self._filled_at) * self._per_s
        self._left, self._filled_at = min(self._burst, self._left + gained), now
        if self._left < amount:
            return False
        self._left -= amount
        return True
