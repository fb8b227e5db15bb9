"""How often a thing is told that happens again and again. Pure; the words are the caller's."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Seldom"]

_INTERVAL_S = 60.0


class Seldom:
    """Counts how often something happens, and says when to tell it: at once, then once a minute.

    Args:
        clock: Returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next_at = -float("inf")
        self._count = 0

    def count(self) -> int:
        """Count one more; return how often it happened since it was told, or 0 to keep quiet."""
        self._count += 1
        now = self._clock()
        if now < self._next_at:
            return 0
        self._next_at = now + _INTERVAL_S
        times, self._count = self._count, 0
        return times
