"""How fast a world in real time runs: its rate over the last seconds, and what a tick costs."""

from __future__ import annotations

from collections import deque
from typing import Final

from clawblox.protocol import TickRate

WINDOW_S: Final = 10
"""Seconds of real time over which the rate is measured."""


class RateMeter:
    """Measures the rate at which a world ticks.

    Args:
        nominal_hz: Ticks per second of real time that it should reach.
    """

    def __init__(self, nominal_hz: float) -> None:
        self._nominal_hz = nominal_hz
        self._ticks = 0
        self._cost_s = 0.0
        # The time, ticks and cost at about each second; the oldest is the begin of the window.
        self._marks: deque[tuple[float, int, float]] = deque(maxlen=WINDOW_S + 1)

    def begin(self, now: float) -> None:
        """Measure from this moment on.

        Args:
            now: The time, in seconds of a steady clock.
        """
        self._marks.clear()
        self._mark(now)

    def note_tick(self, now: float, cost_s: float) -> None:
        """Count a tick.

        Args:
            now: The time at its end, in seconds.
            cost_s: The processor time that it took, in seconds.
        """
        self._ticks += 1
        self._cost_s += cost_s
        if now - self._marks[-1][0] >= 1.0:
            self._mark(now)

    def _mark(self, now: float) -> None:
        self._marks.append((now, self._ticks, self._cost_s))

    def read(self, now: float) -> TickRate | None:
        """Return the rate; None within the first second.

        Args:
            now: The time, in seconds.
        """
        if not self._marks or now - self._marks[0][0] < 1.0:
            return None
        since, ticks, cost_s = self._marks[0]
        count = self._ticks - ticks
        return TickRate(
            nominal_hz=self._nominal_hz,
            achieved_hz=count / (now - since),
            tick_cost_s=(self._cost_s - cost_s) / count if count else None,
        )
