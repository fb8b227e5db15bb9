"""How simulation time passes: in ticks of one length."""

from __future__ import annotations

import math
from typing import Final

TICK_RATE: Final = 60
"""Ticks per second of simulation time."""
TICK_S: Final = 1.0 / TICK_RATE
"""The simulated length of a tick, in seconds."""

_LONGEST_S: Final = 1e15
"""A longer wait never ends, in seconds."""


def ticks_in(seconds: float) -> int:
    """Return the number of ticks after which a wait is over: at least one."""
    if not seconds > 0:
        return 1
    if seconds > _LONGEST_S:
        return 1 << 61  # from any tick on, it ends at one that a snapshot can hold
    return max(1, math.ceil(seconds * TICK_RATE - 1e-9))
