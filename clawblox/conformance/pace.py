"""The time to wait for a world that runs by itself, depending on its speed.

A simulation that needs more than a CPU core runs slower than real time. It gets proportionally more
time, down to 1/50 of real time. The time limit of the check always applies.
"""

from __future__ import annotations

import math
from typing import Final

import anyio

from clawblox.conformance.exchange import Exchange
from clawblox.conformance.registry import CouldNotRun

_SLOW: Final = 2.0
"""Real seconds per simulated second from which a world counts as slow."""
_ADVISED_S: Final = 60
"""Simulated seconds within which every check of a world ends."""
SLOWEST: Final = 50.0
"""Maximum slowness to assume, in real seconds per simulated second."""


class SimulationPace:
    """The pace of a run, from its observed simulated times.

    Args:
        now: The real time at the start of the observation, in seconds.
    """

    def __init__(self, now: float) -> None:
        self._begun_at = self._moved_at = self._first_at = now
        self._first: float | None = None
        self._latest = 0.0

    @property
    def seen_slowness(self) -> float:
        """The slowness up to the last observed progress of the world."""
        return self.slowness(self._moved_at)

    def note(self, time: float, now: float) -> bool:
        """Record an observed simulated time; return whether the world has advanced.

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
        """Return the real seconds per simulated second: 1 to :data:`SLOWEST`."""
        moved = 0.0 if self._first is None else self._latest - self._first
        return min(max((now - self._first_at) / moved, 1.0), SLOWEST) if moved > 0 else 1.0

    def is_hopeless(self, now: float, *, still_s: float, longest_s: float) -> bool:
        """Return whether to stop waiting.

        Args:
            now: The real time in seconds.
            still_s: Seconds of real time after which a world without progress counts as stopped.
            longest_s: Maximum seconds to wait for a world in real time; slower worlds get more.
        """
        is_still = now - self._moved_at > still_s
        return is_still or now - self._begun_at > longest_s * self.slowness(now)


def has_time_for(seconds: float) -> bool:
    """Return whether there are this many seconds left before the time limit of the check."""
    return anyio.current_time() + seconds < anyio.current_effective_deadline()


def has_moved(first: Exchange, second: Exchange) -> bool:
    """Return whether time has passed between two observations.

    Raises:
        CouldNotRun: One of the observations was not accepted.
    """
    for exchange in (first, second):
        if not exchange.is_accepted:
            raise CouldNotRun(f"an observation was not accepted: {exchange.outcome}")
    before, after = first.time, second.time
    return first.content != second.content if None in (before, after) else before != after


def advise_time(slowness: float, timeout: float) -> str:
    """Return the advice to give the checks of a slow world more time; empty for other worlds.

    Args:
        slowness: Real seconds per simulated second.
        timeout: The time limit of a check, in seconds.
    """
    if slowness < _SLOW:
        return ""
    seconds = math.ceil(max(2 * timeout, _ADVISED_S * slowness) / _ADVISED_S) * _ADVISED_S
    return (
        f"the world ran at 1/{slowness:.1f} of real time; give each check more time with"
        f" --check-timeout {seconds}"
    )
