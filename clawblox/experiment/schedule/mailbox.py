"""Messages to the task that runs an attempt, and a wait for the next message or a deadline."""

from __future__ import annotations

import math
from collections import deque
from typing import Generic, TypeVar

import anyio

from clawblox.system.clock import Clock

_T = TypeVar("_T")


async def wait_until(clock: Clock, event: anyio.Event, deadline: float) -> None:
    """Wait for an event, but not longer than until a deadline.

    Args:
        clock: The clock of the deadline.
        event: The event.
        deadline: Time by the clock; infinite for no deadline.

    Cancellation: the wait ends.
    """
    if deadline == math.inf:
        await event.wait()
        return
    async with anyio.create_task_group() as group:
        group.start_soon(_cancel_at, clock, deadline, group.cancel_scope)
        await event.wait()
        group.cancel_scope.cancel()


async def _cancel_at(clock: Clock, deadline: float, scope: anyio.CancelScope) -> None:
    await clock.sleep_until(deadline)
    scope.cancel()


class Mailbox(Generic[_T]):
    """Messages in the order in which they were put; none is lost.

    Args:
        clock: The clock of the deadlines.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._messages: deque[_T] = deque()
        self._news = anyio.Event()

    def put(self, message: _T) -> None:
        """Add a message."""
        self._messages.append(message)
        self._news.set()

    async def take(self, deadline: float = math.inf) -> _T | None:
        """Return the next message; None at a deadline.

        Args:
            deadline: Time by the clock; infinite for no deadline.

        Cancellation: no message is lost.
        """
        if not self._messages:
            await wait_until(self._clock, self._news, deadline)
        if not self._messages:
            return None
        message = self._messages.popleft()
        if not self._messages:
            self._news = anyio.Event()
        return message
