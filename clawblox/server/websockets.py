"""WebSockets of uvicorn with a limit for what clients send. Import it late: it loads wsproto."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any, Final

from uvicorn.protocols.websockets.wsproto_impl import WSProtocol
from wsproto import ConnectionType, WSConnection
from wsproto.events import CloseConnection, Event

from clawblox.telemetry.throttle import Rate

FRAMES_PER_S: Final = 256.0
FRAMES_BURST: Final = 256.0
BYTES_PER_S: Final = 256 * 1024.0
BYTES_BURST: Final = 1024 * 1024.0
LINGER_S: Final = 1.0
"""Seconds for which a client that sent too much may read why the WebSocket was closed."""
_POLICY_VIOLATION: Final = 1008
_REASON: Final = "too many frames or bytes"


class _CountedConnection(WSConnection):
    """Stops parsing frames once a client has exceeded the frame limit.

    Attributes:
        is_exceeded: Whether the client has exceeded the limit.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(ConnectionType.SERVER)
        self._loop = loop
        self._frames = Rate(FRAMES_PER_S, FRAMES_BURST)
        self.is_exceeded = False

    def events(self) -> Generator[Event, None, None]:
        """Yield the events of the frames that have arrived, pings and fragments included."""
        for event in super().events():
            if not self._frames.admits(self._loop.time()):
                self.is_exceeded = True
                return
            yield event


class LimitedWebSocket(WSProtocol):
    """A WebSocket that is closed with 1008 when its client sends too many frames or bytes.

    Even an empty ping takes time that the ticks of the world need.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.conn = self._counted = _CountedConnection(self.loop)
        self._bytes = Rate(BYTES_PER_S, BYTES_BURST)
        self._is_refused = False

    def data_received(self, data: bytes) -> None:
        """Receive frames; frames beyond the limit are dropped unread."""
        if self._is_refused:
            return
        if not self._bytes.admits(self.loop.time(), len(data)):
            self._refuse()
            return
        super().data_received(data)
        if self._counted.is_exceeded:
            self._refuse()

    def _refuse(self) -> None:
        self._is_refused = True
        event = {"type": "websocket.disconnect", "code": _POLICY_VIOLATION, "reason": _REASON}
        self.queue.put_nowait(event)  # type: ignore[arg-type]
        if self.transport.is_closing():
            return
        if self.handshake_complete and not self.close_sent:
            closing = CloseConnection(code=_POLICY_VIOLATION, reason=_REASON)
            self.transport.write(self.conn.send(closing))
        self.close_sent = self.disconnected = True  # the application may send no more
        self.transport.resume_reading()  # unread bytes would reset the connection
        timer = getattr(self, "close_timer", None)  # older versions of uvicorn have none
        if timer is not None:
            timer.cancel()
        self.close_timer = self.loop.call_later(LINGER_S, self.transport.abort)
