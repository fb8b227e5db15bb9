"""uvicorn, configured for a world. Import it late: uvicorn loads a command-line parser."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from types import FrameType
from typing import Final, Literal

import uvicorn
from starlette.types import ASGIApp

from clawblox.server.connections import Acceptor, Connection
from clawblox.server.settings import Settings
from clawblox.server.signals import StopSignals

BACKLOG: Final = 2048
CLOSE_TIMEOUT_S: Final = 1
"""Seconds that requests in progress get when the world is stopped."""
MAX_HEADER_BYTES: Final = 16 * 1024
MAX_MESSAGE_BYTES: Final = 64 * 1024
"""Maximum size of a message that comes over a WebSocket."""


class _Server(uvicorn.Server):
    """Returns on SIGTERM and SIGINT, so a stopped world exits with status 0."""

    def __init__(
        self,
        config: uvicorn.Config,
        settings: Settings,
        on_listening: Callable[[], None],
        is_over: Callable[[], bool],
    ) -> None:
        super().__init__(config)
        self._on_listening = on_listening
        self._is_over = is_over
        self._settings = settings
        self._acceptors: list[asyncio.Task[None]] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])
        make_connection = partial(
            Connection,
            self._settings.request_timeout,
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )
        for listener in sockets or ():
            listener.setblocking(False)
            listener.listen(BACKLOG)
            acceptor = Acceptor(
                listener, make_connection, self.server_state.connections, self._settings
            )
            task = asyncio.create_task(acceptor.run())
            task.add_done_callback(self._stop)
            self._acceptors.append(task)
        self._on_listening()

    async def on_tick(self, counter: int) -> bool:
        return await super().on_tick(counter) or self._is_over()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for acceptor in self._acceptors:
            acceptor.cancel()
            with suppress(asyncio.CancelledError):
                await acceptor
        await super().shutdown(sockets)

    def _stop(self, acceptor: asyncio.Task[None]) -> None:
        self.should_exit = True  # a world that accepts no connections must not stay

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.force_exit = self.should_exit
        self.should_exit = True


def _find_websockets() -> type[asyncio.Protocol] | Literal["none"]:
    """Return the protocol of WebSockets; there is none without wsproto, which is optional."""
    if find_spec("wsproto") is None:
        return "none"
    from clawblox.server.websockets import LimitedWebSocket

    return LimitedWebSocket


def run_server(
    app: ASGIApp,
    listener: socket.socket,
    settings: Settings,
    on_listening: Callable[[], None],
    is_over: Callable[[], bool],
    signals: StopSignals | None = None,
) -> None:
    """Serve until the world is over, or until SIGTERM or SIGINT; a second signal drops requests.

    Args:
        app: The application.
        listener: A bound socket; it starts to listen when the application is up.
        settings: Limits of clients.
        on_listening: Called when clients can connect.
        is_over: Returns whether the world is over; called ten times a second.
        signals: Receives the signals, if this is not the main thread.
    """
    config = uvicorn.Config(
        app,
        loop="asyncio",
        http="h11",
        ws=_find_websockets(),
        ws_max_size=MAX_MESSAGE_BYTES,
        ws_per_message_deflate=False,  # it would take longer than a tick
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,  # it would show agents the host's time
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        timeout_graceful_shutdown=CLOSE_TIMEOUT_S,
    )
    server = _Server(config, settings, on_listening, is_over)
    if signals is not None:
        signals.receiver = server.handle_exit
    server.run(sockets=[listener])
