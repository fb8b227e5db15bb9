"""When the log of an agent is looked at next. Pure.

The first look after something was said comes soon, because a short answer may be there. Then the
pauses grow. How much is written does not change the pace, so that a line in a flood costs little.
"""

from __future__ import annotations

import math
from typing import Final

_FIRST_S: Final = 0.005
_WORKING_S: Final = 0.05
_QUIET_S: Final = 1.0
"""Longest pauses."""

_LATE_S: Final = 2.0
"""A longer time from one look to the next is one in which this process was stopped."""

_LONGER: Final = 1.3
"""How much longer each pause is than the one before."""


class Looks:
    """The pauses between the looks at one log."""

    def __init__(self) -> None:
        self._pause_s = _FIRST_S
        self._looked_at = math.inf

    def begin_look(self, now: float) -> float:
        """Return how long this process was stopped since the last look, in seconds; mostly 0.

        Args:
            now: Monotonic time in seconds.
        """
        since_s, self._looked_at = now - self._looked_at, now
        return since_s if since_s > _LATE_S else 0.0

    def begin_anew(self) -> None:
        """Let the next look come soon."""
        self._pause_s = _FIRST_S

    def next_pause(self, now: float, *, is_quiet: bool) -> float:
        """Return the seconds until the next look.

        Args:
            now: Monotonic time in seconds.
            is_quiet: Whether nothing is expected of the program.
        """
        pause_s = min(self._pause_s, _QUIET_S if is_quiet else _WORKING_S)
        self._pause_s = pause_s * _LONGER
        # Working agents are looked at in the same moments: one hop into a thread reads for all.
        return _WORKING_S - now % _WORKING_S if pause_s == _WORKING_S else pause_s
