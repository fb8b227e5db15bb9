"""The clock of a generation, and waits with deadlines by a clock."""

from __future__ import annotations

import math
from collections import deque
from typing import Generic, TypeVar

import anyio

from clawblox.system.clock import TimeSource

_T = TypeVar("_T")


class ActiveClock:
    """Counts the active and the idle seconds of a generation.

    Seconds are idle while every agent only waits for its provider. It only counts between
    :meth:`start` and :meth:`stop`.

    Args:
        clock: The clock.
        active_s: Active seconds of the generation so far.
        idle_s: Idle seconds so far.
    """

    def __init__(self, clock: TimeSource, active_s: float = 0.0, idle_s: float = 0.0) -> None:
        self._clock = clock
        self._counted = {False: active_s, True: idle_s}
        self._is_idle = False
        self._since: float | None = None

    @property
    def active_s(self) -> float:
        """Active seconds so far."""
        return self._counted[False] + (0.0 if self._is_idle else self._running_s)

    @property
    def idle_s(self) -> float:
        """Idle seconds so far."""
        return self._counted[True] + (self._running_s if self._is_idle else 0.0)

    @property
    def is_running(self) -> bool:
        """True while it is counting."""
        return self._since is not None

    @property
    def _running_s(self) -> float:
        return 0.0 if self._since is None else self._clock.monotonic() - self._since

    def start(self) -> None:
        """Start counting."""
        self._since = self._clock.monotonic()

    def stop(self) -> None:
        """Stop counting. Idempotent."""
        self._counted[self._is_idle] += self._running_s
        self._since = None

    def set_idle(self, is_idle: bool) -> None:
        """Set whether every agent is only waiting for its provider."""
        if is_idle != self._is_idle:
            self._counted[self._is_idle] += self._running_s
            self._since = None if self._since is None else self._clock.monotonic()
            self._is_idle = is_idle

    def reaches(self, active_s: float) -> float:
        """Return the time by the clock at ``active_s`` active seconds; infinite while idle."""
        if self._is_idle:
            return math.inf
        return self._clock.monotonic() + active_s - self.active_s


async def wait_until(clock: TimeSource, event: anyio.Event, deadline: float) -> None:
    """Wait for an event, at most until a deadline.

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


async def _cancel_at(clock: TimeSource, deadline: float, scope: anyio.CancelScope) -> None:
    await clock.sleep_until(deadline)
    scope.cancel()


class Mailbox(Generic[_T]):
    """A first-in, first-out queue of messages, none of which is lost.

    Args:
        clock: The clock of the deadlines.
    """

    def __init__(self, clock: TimeSource) -> None:
        self._clock = clock
        self._messages: deque[_T] = deque()
        self._news = anyio.Event()

    def put(self, message: _T) -> None:
        """Add a message."""
        self._messages.append(message)
        self._news.set()

    async def take(self, deadline: float = math.inf) -> _T | None:
        """Return the next message, or None at the deadline.

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
