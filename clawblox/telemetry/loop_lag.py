"""The loop-lag watchdog: how late the event loop is, and whether this process slept.

A stopped process (SIGSTOP), a suspended machine and a blocked loop look the same from inside: a
tick comes late. Deadlines allow for it by themselves (``running_deadline``); here it is measured,
so that a person can tell a slow world from a slow orchestrator.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio

GAP_S = 2.0
"""Lag in seconds from which a tick counts as missed, which is worth an event."""

_TICK_S = 0.5


async def watch_loop(note: Callable[[float], None]) -> None:
    """Report how late the event loop is, twice a second, until it is cancelled.

    Args:
        note: Called with the lag in seconds.

    Cancellation: at once.
    """
    now = anyio.current_time()
    while True:
        due = now + _TICK_S
        await anyio.sleep(_TICK_S)
        now = anyio.current_time()
        note(max(0.0, now - due))
