"""Chooses the next message to an agent: sent messages first, then the nudge."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import anyio
import attrs

from clawblox.supervision.lifecycle import exponential_delay

_HELD_LOOK_S: Final = 0.05
"""Maximum delay between the end of a hold and the next nudge."""

_SHORT_TURN_S: Final = 1.0
_FREE_SHORT_TURNS: Final = 5
_FIRST_NUDGE_S: Final = 0.1
_LAST_NUDGE_S: Final = 10.0


@attrs.define(eq=False)
class Message:
    """A user message.

    Attributes:
        text: The text.
        is_nudge: Whether it only asks the agent to continue.
        is_settled: Set once delivered or abandoned.
    """

    text: str
    is_nudge: bool = False
    is_settled: anyio.Event = attrs.field(factory=anyio.Event)


@attrs.define(eq=False)
class Hold:
    """Keeps an agent between turns while it is held; the current turn continues."""

    _holders: int = attrs.field(default=0, init=False)

    @property
    def is_on(self) -> bool:
        """True while the agent is held."""
        return self._holders > 0

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the agent while the block runs; holds may overlap."""
        self._holders += 1
        try:
            yield
        finally:
            self._holders -= 1


@attrs.define(eq=False)
class Agenda:
    """The pending messages of one agent.

    Args:
        nudge: The message used when the queue is empty; None lets the agent pause.
        hold: Delays the nudge.

    Attributes:
        news: Set when a message is added or the budget is replaced.
        is_awaited: Whether the agent waits for the next message.
    """

    _nudge: str | None
    _hold: Hold
    _waiting: deque[Message] = attrs.field(factory=deque, init=False)
    _unsettled: list[Message] = attrs.field(factory=list, init=False)
    _short_turns: int = attrs.field(default=0, init=False)
    _nudge_at: float = attrs.field(default=0.0, init=False)
    news: anyio.Event = attrs.field(factory=anyio.Event, init=False)
    is_awaited: bool = attrs.field(default=False, init=False)

    def add(self, message: Message) -> None:
        """Queue a message."""
        self._waiting.append(message)
        self.is_awaited = False
        self._unsettled = [queued for queued in self._unsettled if not queued.is_settled.is_set()]
        self._unsettled.append(message)
        self.news.set()

    def withdraw(self, message: Message) -> bool:
        """Withdraw a message; return whether it was still queued."""
        if message not in self._waiting:
            return False
        self._waiting.remove(message)
        return True

    def end_turn(self, turn_s: float, now: float) -> None:
        """Note that a turn has ended.

        Nudges are delayed if the agent's turns end as soon as they start.

        Args:
            turn_s: Duration of the turn, in seconds.
            now: Monotonic time in seconds.
        """
        self._short_turns = self._short_turns + 1 if turn_s < _SHORT_TURN_S else 0
        before = self._short_turns - _FREE_SHORT_TURNS
        delay_s = exponential_delay(before, _FIRST_NUDGE_S, _LAST_NUDGE_S) if before >= 0 else 0.0
        self._nudge_at = now + delay_s

    def due_in(self, now: float) -> float:
        """Return the seconds until a message is due; ``math.inf`` if none is pending."""
        if self._waiting:
            return 0.0
        if self._nudge is None:
            return math.inf
        return max(_HELD_LOOK_S if self._hold.is_on else 0.0, self._nudge_at - now)

    def take(self, now: float) -> Message | None:
        """Return the message that is due now; None if no message is due."""
        self.is_awaited = False
        if self._waiting:
            return self._waiting.popleft()
        if self._nudge is None or self._hold.is_on or now < self._nudge_at:
            self.is_awaited = True
            return None
        return Message(self._nudge, is_nudge=True)

    async def wait(self) -> None:
        """Wait until a message may be due or :attr:`news` is set.

        Cancellation: has no effect.
        """
        with anyio.move_on_after(self.due_in(anyio.current_time())):
            await self.news.wait()
        self.news = anyio.Event()

    def settle_all(self) -> None:
        """Abandon all messages, and wake their senders.

        This includes the message of a process that was started and then failed.
        """
        self._waiting.clear()
        for message in self._unsettled:
            message.is_settled.set()
        self._unsettled.clear()
