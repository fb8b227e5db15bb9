"""Relays: forward a sandboxed program's connections from this machine.

Many hosts share an address, especially behind a content delivery network: a client allowed to
connect to one host could request another host there. The relay therefore reads the requested server
from the client's ClientHello; see RFC 8446, section 4.1.2, and RFC 6066, section 3.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Final

import anyio

from clawblox.agents.sandbox.endpoints import Endpoint
from clawblox.system.sockets import (
    Place,
    close_in_forked_child,
    connect,
    receive,
    send_all,
    serve_connections,
)

_MOST_CONNECTIONS: Final = 64
_BEGIN_TIMEOUT_S: Final = 20.0


class Relays:
    """The relays of one agent; each of its processes brings new listening sockets.

    Call the other methods in the event loop of :meth:`serve`, or while it does not run.
    """

    def __init__(self) -> None:
        self._sockets: list[tuple[socket.socket, Endpoint]] = []
        self._served: list[tuple[socket.socket, Endpoint]] | None = None
        self._changed: anyio.Event | None = None

    def replace(self, sockets: Sequence[tuple[socket.socket, Endpoint]]) -> None:
        """Serve these sockets instead of the previous ones, and own them."""
        old, self._sockets = self._sockets, list(sockets)
        for listener, _ in sockets:
            listener.setblocking(False)
            close_in_forked_child(listener)
        if old is not self._served:
            _close(old)
        if self._changed is not None:
            self._changed.set()

    async def serve(self) -> None:
        """Serve until cancelled.

        Cancellation: connections are closed; the next call serves the sockets again.
        """
        while True:
            served = self._served = self._sockets
            self._changed = changed = anyio.Event()
            try:
                async with anyio.create_task_group() as relays:
                    for listener, endpoint in served:
                        relays.start_soon(relay, listener, endpoint)
                    await changed.wait()
                    relays.cancel_scope.cancel()
            finally:
                self._served = self._changed = None
                if served is not self._sockets:
                    _close(served)


def _close(sockets: Sequence[tuple[socket.socket, Endpoint]]) -> None:
    for listener, _ in sockets:
        listener.close()


async def relay(listener: socket.socket, endpoint: Endpoint) -> None:
    """Forward each connection to ``listener`` to the far end of ``endpoint``, until cancelled.

    A connection is closed if its far end cannot be reached, or if it lacks the required TLS for
    this host. Bytes are forwarded unchanged.

    Args:
        listener: The listening socket; it must not block.
        endpoint: The far end of its connections.

    Cancellation: connections are closed; the listening socket stays open.
    """

    async def serve(near: socket.socket, _: Place) -> None:
        with anyio.fail_after(_BEGIN_TIMEOUT_S):  # TimeoutError is an OSError
            begin = await _receive_hello(near, endpoint) if endpoint.is_tls else b""
            far = await connect(endpoint.host, endpoint.port)
        with far:
            await send_all(far, begin)
            await _join(near, far)

    places = anyio.Semaphore(_MOST_CONNECTIONS)
    async with anyio.create_task_group() as connections:
        await serve_connections(listener, serve, tasks=connections, places=places)


async def _receive_hello(near: socket.socket, endpoint: Endpoint) -> bytes:
    """Return the first bytes of a TLS client, after checking that they request this host.

    Raises:
        ConnectionError: The bytes request another host, or are not TLS.
    """
    received = b""
    try:
        while (name := read_server_name(received)) is None:
            data = await receive(near)
            if not data:
                raise ConnectionAbortedError
            received += data
    except NoClientHello as error:
        raise ConnectionRefusedError(str(error)) from error
    if name != endpoint.host:
        raise ConnectionRefusedError(f"it is for {name!r}")
    return received


async def _join(near: socket.socket, far: socket.socket) -> None:
    """Pass bytes in both directions until both have ended or either has failed."""
    async with anyio.create_task_group() as ways:

        async def pass_on(source: socket.socket, target: socket.socket) -> None:
            try:
                while data := await receive(source):
                    await send_all(target, data)
                target.shutdown(socket.SHUT_WR)
            except OSError:
                ways.cancel_scope.cancel()

        ways.start_soon(pass_on, near, far)
        ways.start_soon(pass_on, far, near)


MAX_HELLO_BYTES: Final = 32 << 10
"""Maximum length of a ClientHello; with post-quantum keys it has about 2 kB."""

_HANDSHAKE_RECORD: Final = 22
_CLIENT_HELLO: Final = 1
_SERVER_NAME: Final = 0
_HOST_NAME: Final = 0
_RECORD_HEAD: Final = 5
_MESSAGE_HEAD: Final = 4
_VERSION_AND_RANDOM: Final = 2 + 32


class NoClientHello(ValueError):  # noqa: N818 - named after the condition
    """The bytes are not the start of a TLS connection, or name no server."""


def read_server_name(data: bytes) -> str | None:
    """Return the server name that a client requests; None if more bytes are needed.

    Raises:
        NoClientHello: The bytes are not a ClientHello.
    """
    message = _first_message(data)
    if message is None:
        if len(data) > MAX_HELLO_BYTES:
            raise NoClientHello("it is too long")
        return None
    try:
        return _server_name(_Fields(message))
    except IndexError:
        raise NoClientHello("it is truncated") from None


def _first_message(data: bytes) -> bytes | None:
    """Return the first handshake message, joined from its records; None if incomplete."""
    content = b""
    while data:
        if data[0] != _HANDSHAKE_RECORD:
            raise NoClientHello("it is not a TLS handshake")
        end = _RECORD_HEAD + int.from_bytes(data[3:_RECORD_HEAD], "big")
        if len(data) < _RECORD_HEAD or len(data) < end:
            return None
        content += data[_RECORD_HEAD:end]
        data = data[end:]
        if len(content) >= _MESSAGE_HEAD:
            if content[0] != _CLIENT_HELLO:
                raise NoClientHello("it is not a ClientHello")
            length = _MESSAGE_HEAD + int.from_bytes(content[1:_MESSAGE_HEAD], "big")
            if len(content) >= length:
                return content[_MESSAGE_HEAD:length]
    return None


class _Fields:
    """Reads consecutive fields.

    Raises:
        IndexError: A field is longer than the remaining bytes.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def is_empty(self) -> bool:
        return self._position == len(self._data)

    def take(self, length: int) -> bytes:
        end = self._position + length
        if end > len(self._data):
            raise IndexError
        taken, self._position = self._data[self._position : end], end
        return taken

    def number(self, length: int) -> int:
        return int.from_bytes(self.take(length), "big")

    def vector(self, length: int) -> bytes:
        """Read a vector preceded by its length, a number of ``length`` bytes."""
        return self.take(self.number(length))


def _server_name(hello: _Fields) -> str:
    hello.take(_VERSION_AND_RANDOM)
    for length in (1, 2, 1):  # session id, cipher suites, compression methods
        hello.vector(length)
    extensions = _Fields(hello.vector(2))
    server_names: list[bytes] = []
    while not extensions.is_empty:
        kind, content = extensions.number(2), extensions.vector(2)
        if kind == _SERVER_NAME:
            server_names.append(content)
    if len(server_names) != 1:
        raise NoClientHello("it does not name one server")
    names = _Fields(_Fields(server_names[0]).vector(2))
    kind, name = names.number(1), names.vector(2)
    if kind != _HOST_NAME or not names.is_empty:
        raise NoClientHello("it does not name one server")
    return name.decode("ascii", "replace").lower()
