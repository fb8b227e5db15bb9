"""Events of instances and agents, passed to all listeners in memory."""

from __future__ import annotations

from collections import deque
from typing import Generic, Self, TypeAlias, TypeVar

import anyio

from clawblox.results import WorldEvent

_T = TypeVar("_T")
_BACKLOG = 4096


class Subscription(Generic[_T]):
    """The events since the subscription; an async context manager and iterator.

    It ends when the world or the agent is closed. A listener that falls more than 4096 events
    behind loses the oldest events; publishers never wait for a listener.
    """

    def __init__(self, hub: Hub[_T]) -> None:
        self._hub = hub
        self._events: deque[_T] = deque(maxlen=_BACKLOG)
        self._news = anyio.Event()
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._hub.unsubscribe(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> _T:
        while not self._events:
            if self._is_closed:
                raise StopAsyncIteration
            await self._news.wait()
        event = self._events.popleft()
        if not self._events and not self._is_closed:
            self._news = anyio.Event()
        return event

    def put(self, event: _T) -> None:
        """Add an event; called by the hub."""
        self._events.append(event)
        self._news.set()

    def close(self) -> None:
        """End the stream after its queued events; called by the hub."""
        self._is_closed = True
        self._news.set()


class Hub(Generic[_T]):
    """Passes every event to the current streams."""

    def __init__(self) -> None:
        self._streams: list[Subscription[_T]] = []

    def subscribe(self) -> Subscription[_T]:
        """Return a stream of all future events."""
        stream = Subscription(self)
        self._streams.append(stream)
        return stream

    def unsubscribe(self, stream: Subscription[_T]) -> None:
        """End a stream; idempotent."""
        stream.close()
        if stream in self._streams:
            self._streams.remove(stream)

    @property
    def has_listeners(self) -> bool:
        """True if any stream receives the events."""
        return bool(self._streams)

    def publish(self, event: _T) -> None:
        """Pass an event to every stream."""
        for stream in self._streams:
            stream.put(event)

    def close(self) -> None:
        """End every stream."""
        while self._streams:
            self._streams.pop().close()


EventStream: TypeAlias = Subscription[WorldEvent]
"""Events of a world's instances."""
