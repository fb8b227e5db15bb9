"""Sockets that never block, in any event loop: connecting, accepting, sending.

They wait by ``anyio.wait_readable`` and its sibling: a stream of anyio costs twice as much.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from ipaddress import ip_address
from typing import Any, Final

import anyio

_RECEIVE_BYTES: Final = 64 << 10
_ACCEPT_PAUSE_S: Final = 0.1
"""Pause in seconds after a connection could not be accepted."""


async def connect(host: str, port: int) -> socket.socket:
    """Return a socket that is connected and never blocks.

    Raises:
        OSError: None of the addresses of the host can be connected.

    Cancellation: nothing is left open.
    """
    if _is_literal(host):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return await _connect_address(family, (host, port))
    found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for number, (family, _, _, _, address) in enumerate(found, start=1):
        try:
            return await _connect_address(family, address)
        except OSError:
            if number == len(found):
                raise
    raise OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))


async def _connect_address(family: int, address: Any) -> socket.socket:  # noqa: ANN401
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        failure = connection.connect_ex(address)
        if failure == errno.EINPROGRESS:
            await anyio.wait_writable(connection)
            failure = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if failure:
            raise OSError(failure, os.strerror(failure))
    except BaseException:
        connection.close()
        raise
    return connection


def _is_literal(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


async def send_all(connection: socket.socket, data: bytes) -> None:
    """Send all of ``data``; at once as far as it fits into the buffer of the socket."""
    sent = 0
    while True:
        with suppress(BlockingIOError):
            sent += connection.send(memoryview(data)[sent:])
        if sent == len(data):
            return
        await anyio.wait_writable(connection)


async def receive(connection: socket.socket) -> bytes:
    """Return what arrives next; nothing at the end.

    Raises:
        OSError: The connection broke.
    """
    while True:
        with suppress(BlockingIOError):
            return connection.recv(_RECEIVE_BYTES)
        await anyio.wait_readable(connection)


async def serve_connections(
    listener: socket.socket, serve: Callable[[socket.socket], Awaitable[None]], *, most: int
) -> None:
    """Serve the connections of a listening socket until cancelled, each in a task of its own.

    Args:
        listener: The socket; it must not block.
        serve: Called for each connection, which is closed when it returns. What breaks a connection
            (``OSError``) ends that connection only.
        most: Most connections at a time; further ones wait in the backlog of the socket.

    Cancellation: connections are closed; the listening socket stays open.
    """
    places = anyio.Semaphore(most)

    async def serve_one(connection: socket.socket) -> None:
        try:
            with connection, suppress(OSError):
                connection.setblocking(False)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                await serve(connection)
        finally:
            places.release()

    async with anyio.create_task_group() as tasks:
        while True:
            await anyio.wait_readable(listener)
            await places.acquire()
            try:
                connection, _ = listener.accept()
            except OSError as error:
                places.release()
                if not isinstance(error, BlockingIOError | ConnectionAbortedError):
                    # No descriptor or no memory is left: to look again at once would be to spin.
                    await anyio.sleep(_ACCEPT_PAUSE_S)
            else:
                tasks.start_soon(serve_one, connection)
