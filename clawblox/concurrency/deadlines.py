"""Deadlines that count only the time in which this process ran.

A process that was stopped (SIGSTOP), or whose event loop was blocked, finds its deadlines passed
when it continues, although what it waited for may have arrived long ago. Here the time is counted
in ticks, and a late tick, which the process slept through, does not count.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from clawblox.concurrency.tasks import Tasks

_TICK_S = 0.5
"""Longest tick: the most that one stop of this process takes from a deadline, in seconds."""

_LEAST_TICKS = 4


@asynccontextmanager
async def running_deadline(seconds: float) -> AsyncIterator[anyio.CancelScope]:
    """Leave the block early, as ``anyio.move_on_after`` does, after some time of running.

    As many late ticks are forgiven as there are ticks, so that a loop that is always late ends too.

    Args:
        seconds: How long the block may take; ``math.inf`` sets no limit.

    Yields:
        The scope of the block; its ``cancelled_caught`` is true when the block was left early.

    Cancellation: as that of the block.
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
