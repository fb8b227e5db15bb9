"""Showing results in the order they arrive, while the work goes on."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from clawblox.cli.terminal.output import OutputGone
from clawblox.concurrency.tasks import Tasks

_T = TypeVar("_T")
_R = TypeVar("_R")
_SHOW_TIMEOUT_S = 1.0


async def relay(
    work: Callable[[Callable[[_T], None]], Awaitable[_R]], show: Callable[[_T], Awaitable[None]]
) -> _R:
    """Do work that calls back with results, and show these in order.

    The work never waits for the output. If the output is gone, it goes on without showing.

    Args:
        work: Does the work, given the callback.
        show: Shows a result.

    Returns:
        What the work returns, once every result is shown.

    Raises:
        Exception: What ``work`` raised; or ``show``, unless it is ``OutputGone`` or ``OSError``.

    Cancellation: cancels the work; results so far are shown, for a second at most.
    """
    send, receive = anyio.create_memory_object_stream[_T](math.inf)
    is_shown = anyio.Event()

    async def show_all() -> None:
        with contextlib.suppress(OutputGone, OSError):
            async for item in receive:
                await show(item)
        is_shown.set()

    with receive:
        async with Tasks() as tasks:
            tasks.start_soon(show_all)
            try:
                with send:
                    result = await work(send.send_nowait)
            except BaseException:
                with anyio.move_on_after(_SHOW_TIMEOUT_S, shield=True):
                    await is_shown.wait()
                raise
            await is_shown.wait()
    return result
