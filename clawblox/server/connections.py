"""The connections of a world, with limits for their number and for slow clients.

uvicorn waits without limit for the rest of a request. asyncio accepts connections until no
descriptor is left, and logs every failure. Here a request must arrive within a time limit; a
connection that is idle, or whose client does not read its answer, makes room for a new connection;
and further connections wait in the backlog of the socket.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import math
import socket
import sys
import termios
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from types import FrameType
from typing import Any, Final, Literal

import anyio
import attrs
import h11
import uvicorn
from anyio.abc import TaskGroup
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from clawblox.server.app import PATIENT
from clawblox.server.launch_settings import Settings
from clawblox.server.stop_signals import StopSignals
from clawblox.telemetry.throttle import Throttle

ACCEPT_PAUSE_S: Final = 0.5
"""Pause in seconds after a connection could not be accepted."""
ACCEPT_BATCH: Final = 32
"""Maximum number of connections that are accepted in one step of the event loop."""
ROOM_PAUSE_S: Final = 0.05
"""Seconds between two searches for an idle connection to close."""
MIN_IDLE_S: Final = 0.5
"""Seconds that a connection must have been idle before it may be closed for a new connection."""
MIN_UNREAD_S: Final = 1.0
"""Seconds that an answer must stay unread before its connection may be closed for a new one."""

_log = logging.getLogger("clawblox.server")


class TimedConnection(H11Protocol):
    """A connection of uvicorn with a time limit for each request.

    Args:
        request_timeout: Seconds within which a complete request must arrive.
        **options: Arguments of uvicorn's protocol.

    Attributes:
        idle_since: Loop time in seconds at which the last request ended.
    """

    def __init__(self, request_timeout: float, **options: Any) -> None:
        super().__init__(**options)
        self._request_timeout = request_timeout
        self._deadline: asyncio.TimerHandle | None = None
        self.idle_since = self.loop.time()

    @property
    def is_idle(self) -> bool:
        """True if no complete request head has arrived and no answer is left to send."""
        if self.transport.is_closing() or self.transport.get_write_buffer_size():
            return False
        return self.conn.their_state is h11.IDLE

    @property
    def is_patient(self) -> bool:
        """True if the answer may stay unread while others wait."""
        scope: Any = self.scope  # None before the first request
        return scope is not None and PATIENT in scope

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time limit of the first request."""
        super().connection_made(transport)
        self._set_deadline()

    def data_received(self, data: bytes) -> None:
        """Receive part of a request; the first part starts its time limit, the last one ends it."""
        super().data_received(data)
        is_websocket = self.transport.get_protocol() is not self
        if is_websocket or self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._clear_deadline()
        elif self._deadline is None:
            self._set_deadline()

    def on_response_complete(self) -> None:
        """Become idle. An incomplete request keeps its time limit, even if it was answered."""
        super().on_response_complete()
        self.idle_since = self.loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the time limit."""
        self._clear_deadline()
        super().connection_lost(exc)

    def _set_deadline(self) -> None:
        self._deadline = self.loop.call_later(self._request_timeout, self._expire)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _expire(self) -> None:
        if self.transport.is_closing():
            return
        has_begun = self.conn.their_state is h11.SEND_BODY or bool(self.conn.trailing_data[0])
        if has_begun and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            if self.conn.their_state is h11.SEND_BODY:
                self.cycle.disconnected = True  # the reader of the body sees its end
                self.cycle.message_event.set()
            text = f"The request did not come within {self._request_timeout:g} s"
            self._send_text(408, b"Request Timeout", text)
        self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Answer a request that is not HTTP, and close; uvicorn calls it."""
        self._send_text(400, b"Bad Request", msg)
        self.transport.close()

    def _send_text(self, status: int, reason: bytes, text: str) -> None:
        headers = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", str(len(text)).encode()),
            (b"connection", b"close"),
            (b"x-content-type-options", b"nosniff"),
        ]
        for event in (
            h11.Response(status_code=status, headers=headers, reason=reason),
            h11.Data(data=text.encode("ascii")),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")


class _UnreadAnswers:
    """Finds the client that has left its answer unread for longest, while others wait."""

    def __init__(self) -> None:
        self._unsent: dict[Any, tuple[int, float]] = {}
        self._looked_at = -math.inf

    def find(self, connections: Iterable[Any], now: float) -> Any | None:  # noqa: ANN401 - uvicorn's
        """Return a connection that may be closed, or None.

        Args:
            connections: All open connections.
            now: Loop time in seconds. Between two calls that are far apart, a client may have read.
        """
        if now - self._looked_at > MIN_UNREAD_S:
            self._unsent.clear()
        self._looked_at = now
        before, self._unsent = self._unsent, {}
        for connection in connections:
            unsent = _count_unsent(connection.transport)
            if unsent and not getattr(connection, "is_patient", False):
                seen, since = before.get(connection, (unsent, now))
                self._unsent[connection] = (unsent, since if seen == unsent else now)
        longest = min(self._unsent, key=lambda each: self._unsent[each][1], default=None)
        if longest is None or now - self._unsent[longest][1] < MIN_UNREAD_S:
            return None
        return longest


def _count_unsent(transport: asyncio.Transport) -> int:
    """Return the bytes that the client has not acknowledged; 0 if the kernel has taken all."""
    unwritten = transport.get_write_buffer_size()
    if not unwritten:
        return 0
    try:
        queued = fcntl.ioctl(transport.get_extra_info("socket"), termios.TIOCOUTQ, bytes(4))
    except (OSError, ValueError):  # it has just been closed
        return 0
    return unwritten + int.from_bytes(queued, sys.byteorder)


@attrs.define(eq=False)
class Acceptor:
    """Accepts connections while there is room for them.

    Args:
        listener: A listening socket that does not block.
        make_connection: Returns the protocol of a new connection.
        connections: All open connections; a connection adds and removes itself.
        settings: Maximum number of connections, and how long a client may take to read.
    """

    _listener: socket.socket
    _make_connection: Callable[[], TimedConnection]
    _connections: Collection[Any]
    _settings: Settings
    _unread: _UnreadAnswers = attrs.field(init=False, factory=_UnreadAnswers)
    _failures: Throttle = attrs.field(init=False, factory=Throttle)
    _shortages: Throttle = attrs.field(init=False, factory=Throttle)

    async def run(self) -> None:
        """Accept connections until cancelled.

        Cancellation: the listening socket and the connections stay open; an accepted socket that is
        no connection yet is closed.
        """
        async with anyio.create_task_group() as tasks:
            while True:
                await self._accept(tasks)

    async def _accept(self, tasks: TaskGroup) -> None:
        """Wait for connections, and accept them if there is room.

        All that wait are accepted in one step of the event loop: in each step it serves every
        client that has a request.
        """
        await anyio.wait_readable(self._listener)
        room = self._settings.max_connections - len(self._connections)
        if room > 0:
            try:
                for _ in range(min(room, ACCEPT_BATCH)):
                    tasks.start_soon(self._connect, self._listener.accept()[0])
            except (BlockingIOError, ConnectionAbortedError):
                pass
            except OSError as error:
                self._make_room()
                if times := self._failures.count():
                    _log.error(
                        "connections cannot be accepted (%d times recently): %s", times, error
                    )
                await anyio.sleep(ACCEPT_PAUSE_S)
        elif not self._make_room():
            if self._shortages.count():
                _log.warning(
                    "all %d connections are in use: new ones wait", self._settings.max_connections
                )
            await anyio.sleep(ROOM_PAUSE_S)

    async def _connect(self, accepted: socket.socket) -> None:
        try:
            accepted.setblocking(False)
            stalled_ms = round(self._settings.answer_timeout * 1000)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, stalled_ms)
            loop = asyncio.get_running_loop()
            await loop.connect_accepted_socket(self._make_connection, accepted)
        except OSError as error:
            accepted.close()
            _log.debug("a connection was lost as it was accepted: %s", error)

    def _make_room(self) -> bool:
        """Close the least needed connection; return False if all are in use.

        Closes the connection that has been idle longest, else the connection whose answer has been
        unread for longest.
        """
        now = asyncio.get_running_loop().time()
        unread = self._unread.find(self._connections, now)
        idle = [
            connection
            for connection in self._connections
            if isinstance(connection, TimedConnection)  # not a WebSocket
            and connection.is_idle
            and connection.idle_since <= now - MIN_IDLE_S
        ]
        if idle:
            min(idle, key=lambda connection: connection.idle_since).transport.close()
        elif unread is not None:
            unread.transport.abort()
        return bool(idle) or unread is not None


BACKLOG: Final = 2048
CLOSE_TIMEOUT_S: Final = 1
"""Seconds that requests in progress get when the world is stopped."""
MAX_HEADER_BYTES: Final = 16 * 1024
MAX_MESSAGE_BYTES: Final = 64 * 1024
"""Maximum size of a message that comes over a WebSocket."""


class _WorldServer(uvicorn.Server):
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
            TimedConnection,
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
    """Return the protocol of WebSockets; None without wsproto, an optional package."""
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
    server = _WorldServer(config, settings, on_listening, is_over)
    if signals is not None:
        signals.receiver = server.handle_exit
    server.run(sockets=[listener])
