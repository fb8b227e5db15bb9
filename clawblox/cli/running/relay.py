"""Showing what lands, while the rest is still being done."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from clawblox.cli.terminal.output import OutputGone
from clawblox.concurrency.tasks import Tasks

__all__ = ["relay"]

_T = TypeVar("_T")
_R = TypeVar("_R")
_PATIENCE_S = 1.0


async def relay(
    work: Callable[[Callable[[_T], None]], Awaitable[_R]], show: Callable[[_T], Awaitable[None]]
) -> _R:
    """Do something that calls back with what lands, and show that in its order.

    The work never waits for whoever reads; when nobody does any more, it goes on all the same.

    Args:
        work: What is to be done, given what it calls back.
        show: Shows one.

    Returns:
        What the work returns, when all is shown.

    Cancellation: cancels the work; what has landed is shown as far as somebody reads it.
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
                with anyio.move_on_after(_PATIENCE_S, shield=True):
                    await is_shown.wait()
                raise
            await is_shown.wait()
    return result
