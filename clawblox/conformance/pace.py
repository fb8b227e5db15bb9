"""Time to wait for a world that runs by itself, by its own rate.

A simulation that costs more than its core gives runs slower than real time. It gets as much more
time as it is slower, down to a fiftieth. The time limit of the check stays above all.
"""

from __future__ import annotations

import math
from typing import Final

import anyio

from clawblox.conformance.exchange import Exchange
from clawblox.conformance.registry import CouldNotRun

_SLOW: Final = 2.0
"""Real seconds for a simulated one from which a world is called slow."""
_ADVISED_S: Final = 60
"""Seconds of simulated time in which every check of a world ends."""
SLOWEST: Final = 50.0
"""Real seconds for a simulated one that are believed at most."""


class SimulationPace:
    """The pace of one life, from the simulated times at which it was seen.

    Args:
        now: The real time at which it begins to be watched, in seconds.
    """

    def __init__(self, now: float) -> None:
        self._begun_at = self._moved_at = self._first_at = now
        self._first: float | None = None
        self._latest = 0.0

    @property
    def seen_slowness(self) -> float:
        """The slowness until the world was last seen to move."""
        return self.slowness(self._moved_at)

    def note(self, time: float, now: float) -> bool:
        """Note a simulated time that was seen; return whether the world has moved on.

        Args:
            time: The simulated time.
            now: The real time in seconds.
        """
        if self._first is None:
            self._first, self._first_at = time, now
        elif time <= self._latest:
            return False
        self._latest, self._moved_at = time, now
        return True

    def slowness(self, now: float) -> float:
        """Return the real seconds for a simulated one: 1 to :data:`SLOWEST`."""
        moved = 0.0 if self._first is None else self._latest - self._first
        return min(max((now - self._first_at) / moved, 1.0), SLOWEST) if moved > 0 else 1.0

    def is_hopeless(self, now: float, *, still_s: float, longest_s: float) -> bool:
        """Return whether to wait no longer.

        Args:
            now: The real time in seconds.
            still_s: Real time in which a world that has not moved does not move any more.
            longest_s: Longest wait for a world in real time; slower ones get more.
        """
        is_still = now - self._moved_at > still_s
        return is_still or now - self._begun_at > longest_s * self.slowness(now)


def has_time_for(seconds: float) -> bool:
    """Return whether something that takes so long ends before the time limit of the check."""
    return anyio.current_time() + seconds < anyio.current_effective_deadline()


def has_moved(first: Exchange, second: Exchange) -> bool:
    """Return whether time has passed between two observations.

    Raises:
        CouldNotRun: One of them was not accepted.
    """
    for exchange in (first, second):
        if not exchange.is_accepted:
            raise CouldNotRun(f"an observation was not accepted: {exchange.outcome}")
    before, after = first.time, second.time
    return first.content != second.content if None in (before, after) else before != after


def advise_time(slowness: float, timeout: float) -> str:
    """Return the advice to give the checks of a slow world more time; empty for others.

    Args:
        slowness: Real seconds for a simulated one.
        timeout: The time limit of a check, in seconds.
    """
    if slowness < _SLOW:
        return ""
    seconds = math.ceil(max(2 * timeout, _ADVISED_S * slowness) / _ADVISED_S) * _ADVISED_S
    return (
        f"the world ran at 1/{slowness:.1f} of real time; give each check more time with"
        f" --check-timeout {seconds}"
    )
