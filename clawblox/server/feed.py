"""A WebSocket route that shows every client the latest state of the world.

Clients are served between ticks, by the thread of the simulation. There is no queue: a client that
reads slowly skips states. What clients send is ignored, and limited.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import anyio
from starlette.responses import PlainTextResponse
from starlette.websockets import WebSocket, WebSocketDisconnect

from clawblox.server.payload import encode_json
from clawblox.server.simulation import Json, WorldState
from clawblox.telemetry.throttle import Rate

INTERVAL_S: Final = 1 / 30
REPEAT_AFTER: Final = 5
"""A state that stays the same is sent again after this many intervals, as a sign of life."""
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
        try:
            await websocket.accept()
            reader = _Reader()
            async with anyio.create_task_group() as tasks:
                for task in (self._send_states, reader.run):
                    tasks.start_soon(_run_until_closed, task, websocket, tasks.cancel_scope)
            if reader.has_exceeded:
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


async def _run_until_closed(
    task: Callable[[WebSocket], object], websocket: WebSocket, scope: anyio.CancelScope
) -> None:
    try:
        await task(websocket)  # type: ignore[misc]
    except WebSocketDisconnect:
        pass
    finally:
        scope.cancel()


class _Reader:
    """Receives the messages of a client and drops them.

    Attributes:
        has_exceeded: Whether the client has sent more than it may.
    """

    def __init__(self) -> None:
        self.has_exceeded = False
        self._messages = Rate(MESSAGES_PER_S, MESSAGES_BURST)

    async def run(self, websocket: WebSocket) -> None:
        """Return when the client leaves, or has sent too much."""
        while not self.has_exceeded:
            message = await websocket.receive()
            if message["type"] == "websocket.disconnect":
                return
            size = len(message.get("text") or message.get("bytes") or "")
            kilobytes = 1 + size // 1024
            self.has_exceeded = not self._messages.admits(anyio.current_time(), kilobytes)
