"""A WebSocket route that shows every client the latest state of the world.

Clients are served between ticks, by the thread of the simulation. There is no queue: a client that
reads slowly skips states. What clients send is ignored.
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

__all__ = ["Feed"]

INTERVAL_S: Final = 1 / 30
REPEAT_AFTER: Final = 5
"""A state that stays the same is sent again after this many intervals, as a sign of life."""
MAX_CLIENTS: Final = 32
_TRY_LATER: Final = 503
_INTERNAL_ERROR: Final = 1011

_log = logging.getLogger("clawblox.server")


class Feed:
    """Sends the state of a world to WebSocket clients, 30 times a second while it changes.

    Use it as the endpoint of a route: ``WebSocketRoute("/spectate/ws", feed.serve)``.

    Args:
        world: The world.
        read: Returns the state as JSON values. It is called at most once a tick.
    """

    def __init__(self, world: WorldState, read: Callable[[], Json]) -> None:
        self._world = world
        self._read = read
        self._clients = 0
        self._version: tuple[int, bool] | None = None
        self._text = ""

    async def serve(self, websocket: WebSocket) -> None:
        """Serve one client until it leaves; refuse it with 503 if there are 32 already."""
        if self._clients >= MAX_CLIENTS:
            refusal = PlainTextResponse("Too many spectators", _TRY_LATER)
            await websocket.send_denial_response(refusal)
            return
        self._clients += 1
        try:
            await websocket.accept()
            async with anyio.create_task_group() as tasks:
                for task in (self._send_states, _ignore_messages):
                    tasks.start_soon(_run_until_closed, task, websocket, tasks.cancel_scope)
        finally:
            self._clients -= 1

    async def _send_states(self, websocket: WebSocket) -> None:
        sent: tuple[int, bool] | None = None
        unchanged = 0
        while True:
            unchanged = unchanged + 1 if sent == self._current() else REPEAT_AFTER
            if unchanged >= REPEAT_AFTER:
                unchanged = 0
                try:
                    text = self._encoded()
                except Exception:  # noqa: BLE001 - the author's code may raise anything
                    _log.exception("the state for spectators failed")
                    await websocket.close(_INTERNAL_ERROR)
                    return
                sent = self._version
                await websocket.send_text(text)
            await anyio.sleep(INTERVAL_S)

    def _current(self) -> tuple[int, bool]:
        return self._world.tick, self._world.failure is not None

    def _encoded(self) -> str:
        if self._version != self._current():
            self._text = encode_json(self._read()).decode("ascii")
            self._version = self._current()
        return self._text


async def _run_until_closed(
    task: Callable[[WebSocket], object], websocket: WebSocket, scope: anyio.CancelScope
) -> None:
    try:
        await task(websocket)  # type: ignore[misc]
    except WebSocketDisconnect:
        pass
    finally:
        scope.cancel()


async def _ignore_messages(websocket: WebSocket) -> None:
    while (await websocket.receive())["type"] != "websocket.disconnect":
        pass
