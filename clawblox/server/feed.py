"""A WebSocket route that shows every client the latest state of the world.

Clients are served between ticks, by the thread of the simulation. There is no queue: a client that
reads slowly skips states. What clients send is ignored, and limited.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import anyio
from starlette.responses import PlainTextResponse
from starlette.websockets import WebSocket, WebSocketDisconnect

from clawblox.server.payload import encode_json
from clawblox.server.simulation import Json, WorldState
from clawblox.telemetry.throttle import Rate

INTERVAL_S: Final = 1 / 30
REPEAT_AFTER: Final = 5
"""An unchanged state is sent again after this many intervals, as a heartbeat."""
MAX_CLIENTS: Final = 32
MESSAGES_PER_S: Final = 2.0
MESSAGES_BURST: Final = 32.0
"""Messages that a client may send at a time; each begun kilobyte counts as a message."""
CLOSE_S: Final = 1.0
"""Seconds for a client to read why it was sent away."""
_TRY_LATER: Final = 503
_POLICY_VIOLATION: Final = 1008
_INTERNAL_ERROR: Final = 1011

_log = logging.getLogger("clawblox.server")


class Feed:
    """Sends the state of a world to WebSocket clients, 30 times a second while it changes.

    Use it as the endpoint of a route: ``WebSocketRoute("/spectate/ws", feed.serve)``.

    Args:
        world: The world.
        read: Returns the state as JSON values. It is called once for each version of the state
            that a client gets.
    """

    def __init__(self, world: WorldState, read: Callable[[], Json]) -> None:
        self._world = world
        self._read = read
        self._clients = 0
        self._version: int | None = None
        self._text = ""

    async def serve(self, websocket: WebSocket) -> None:
        """Serve a client until it leaves; refuse it with 503 if there are 32 already."""
        if self._clients >= MAX_CLIENTS:
            refusal = PlainTextResponse("Too many spectators", _TRY_LATER)
            await websocket.send_denial_response(refusal)
            return
        self._clients += 1
        has_exceeded = False
        try:
            await websocket.accept()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._send_until_closed, websocket, tasks.cancel_scope)
                has_exceeded = await _drop_messages(websocket)
                tasks.cancel_scope.cancel()
            if has_exceeded:
                with anyio.move_on_after(CLOSE_S):
                    await websocket.close(_POLICY_VIOLATION, "too many messages")
        finally:
            self._clients -= 1

    def encoded(self) -> str:
        """Return the state as JSON, for a route that shows it without a WebSocket.

        Raises:
            Exception: Whatever ``read`` raises, and as `encode_json` does.
        """
        if self._version != self._world.version:
            self._text = encode_json(self._read()).decode("ascii")
            self._version = self._world.version
        return self._text

    async def _send_until_closed(self, websocket: WebSocket, scope: anyio.CancelScope) -> None:
        with suppress(WebSocketDisconnect):
            await self._send_states(websocket)
        scope.cancel()

    async def _send_states(self, websocket: WebSocket) -> None:
        sent: int | None = None
        unchanged = 0
        while True:
            unchanged = unchanged + 1 if sent == self._world.version else REPEAT_AFTER
            if unchanged >= REPEAT_AFTER:
                unchanged = 0
                try:
                    text = self.encoded()
                except Exception:  # noqa: BLE001 - the author's code may raise anything
                    _log.exception("the state for spectators failed")
                    await websocket.close(_INTERNAL_ERROR)
                    return
                sent = self._version
                await websocket.send_text(text)
            await anyio.sleep(INTERVAL_S)


async def _drop_messages(websocket: WebSocket) -> bool:
    """Receive messages until the client leaves; return True if it has sent more than it may."""
    messages = Rate(MESSAGES_PER_S, MESSAGES_BURST)
    while (message := await websocket.receive())["type"] != "websocket.disconnect":
        size = len(message.get("text") or message.get("bytes") or "")
        kilobytes = 1 + size // 1024
        if not messages.admits(anyio.current_time(), kilobytes):
            return True
    return False
