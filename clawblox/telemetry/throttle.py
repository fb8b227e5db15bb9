"""Limiting how often a repeated event is reported. Pure; the caller writes the report."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Throttle"]

_INTERVAL_S = 60.0


class Throttle:
    """Counts how often something happens, and when to report it: at once, then once a minute.

    Args:
        clock: Returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next_at = -float("inf")
        self._count = 0

    def count(self) -> int:
        """Count one more; return the count since the last report, or 0 for no report."""
        self._count += 1
        now = self._clock()
        if now < self._next_at:
            return 0
        self._next_at = now + _INTERVAL_S
        times, self._count = self._count, 0
        return times
