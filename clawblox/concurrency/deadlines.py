"""Deadlines that count only the time in which this process ran, and the lag of the event loop.

A process that was stopped (SIGSTOP), or whose event loop was blocked, finds its deadlines passed
when it continues, although the awaited event may have happened long ago. Here the time is counted
in ticks, and a late tick does not count, because the process was not running.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio

from clawblox.concurrency.tasks import Tasks

_TICK_S = 0.5
"""Longest tick in seconds: a stop of this process takes no more from a deadline."""

_LEAST_TICKS = 4

GAP_S = 2.0
"""Lag in seconds from which a tick counts as missed, and an event is reported."""

_LAG_TICK_S = 0.5


@asynccontextmanager
async def running_deadline(seconds: float) -> AsyncIterator[anyio.CancelScope]:
    """Leave the block early, like ``anyio.move_on_after``, but count only running time.

    The number of late ticks forgiven is limited, so the block also ends in a loop that is always
    late.

    Args:
        seconds: Time for the block in seconds; ``math.inf`` sets no limit.

    Yields:
        The scope of the block; its ``cancelled_caught`` is true when the block was left early.

    Cancellation: cancels the block.
    """
    async with Tasks() as tasks:
        with anyio.CancelScope() as scope:
            tasks.start_soon(_run_out, seconds, scope)
            yield scope


async def _run_out(seconds: float, scope: anyio.CancelScope) -> None:
    """Cancel ``scope`` when ``seconds`` have been counted."""
    if seconds == math.inf:
        return
    left = forgivable = max(_LEAST_TICKS, math.ceil(seconds / _TICK_S))
    tick_s = max(0.0, seconds) / left
    while left:
        begun_at = anyio.current_time()
        await anyio.sleep(tick_s)
        is_late = anyio.current_time() - begun_at > 2 * tick_s
        if is_late and forgivable:
            forgivable -= 1
        else:
            left -= 1
    scope.cancel()


async def watch_loop(note: Callable[[float], None]) -> None:
    """Report the lag of the event loop twice a second, until cancelled.

    A stopped process, a suspended machine and a blocked loop look the same from inside: a tick
    comes late. The lag lets a person tell a slow world from a slow orchestrator.

    Args:
        note: Called with the lag in seconds.

    Cancellation: immediate.
    """
    now = anyio.current_time()
    while True:
        due = now + _LAG_TICK_S
        await anyio.sleep(_LAG_TICK_S)
        now = anyio.current_time()
        note(max(0.0, now - due))
