"""Relays: connections that a program makes in its sandbox are continued from this machine."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Final

import anyio

from clawblox.agents.sandbox.client_hello import NoClientHello, read_server_name
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
    """The relays of one agent, whose listening sockets come with each of its processes.

    All but :meth:`serve` is plain; call it in the event loop that serves, or while none does.
    """

    def __init__(self) -> None:
        self._sockets: list[tuple[socket.socket, Endpoint]] = []
        self._served: list[tuple[socket.socket, Endpoint]] | None = None
        self._changed: anyio.Event | None = None

    def replace(self, sockets: Sequence[tuple[socket.socket, Endpoint]]) -> None:
        """Serve these sockets, which belong to this object now, in place of those before."""
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

        Cancellation: connections are closed; the sockets are served again by the next call.
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
    """Continue each connection to ``listener`` to the far end of ``endpoint``, until cancelled.

    A connection is closed if its far end cannot be reached, or if it is to be TLS for this host and
    is not. Bytes are passed on as they are.

    Args:
        listener: The listening socket; it must not block.
        endpoint: Where its connections lead.

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
    """Return what a TLS client sends first, which must be for this host.

    Raises:
        ConnectionError: It is not.
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
    """Pass bytes both ways, until both ways have ended or one is broken."""
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
