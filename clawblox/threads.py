"""Blocking work in worker threads, also when the interpreter is about to end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_thread

__all__ = ["run_blocking"]

_T = TypeVar("_T")


async def run_blocking(
    function: Callable[..., _T], *args: object, limiter: anyio.CapacityLimiter | None = None
) -> _T:
    """Run ``function(*args)`` in a worker thread and return what it returns.

    Where no thread can be started, it runs in the event loop itself. That is so while the
    interpreter ends, from Python 3.12 on, and it is just then that worlds have to be stopped.

    Args:
        function: What blocks.
        *args: Its arguments.
        limiter: How many may run at once; None shares anyio's own limit.

    Cancellation: waits for a function that has begun.
    """
    has_begun = False

    def begin() -> _T:
        nonlocal has_begun
        has_begun = True
        return function(*args)

    try:
        return await anyio.to_thread.run_sync(begin, limiter=limiter)
    except RuntimeError:
        if has_begun:
            raise
    return function(*args)
