"""How often and how soon something that died is restarted. Pure."""

from __future__ import annotations

from collections import deque


class RestartBudget:
    """Limits the restarts within a window that moves.

    Args:
        max_restarts: Number of restarts allowed within the window.
        window: Length of the window in seconds.
    """

    def __init__(self, max_restarts: int, window: float) -> None:
        self._max_restarts = max_restarts
        self._window = window
        self._times: deque[float] = deque()

    def take(self, now: float) -> int | None:
        """Use up one restart.

        Args:
            now: Monotonic time in seconds.

        Returns:
            The number of earlier restarts in the window; None if no restart is left in it.
        """
        while self._times and self._times[0] <= now - self._window:
            self._times.popleft()
        before = len(self._times)
        if before >= self._max_restarts:
            return None
        self._times.append(now)
        return before


def exponential_delay(before: int, first: float, last: float) -> float:
    """Return how long to wait, twice as long with each time before.

    Args:
        before: Number of times before.
        first: The first delay in seconds.
        last: The longest delay in seconds.
    """
    return min(first * 2.0 ** min(before, 16), last)
