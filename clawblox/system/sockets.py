"""Sockets that never block, in any event loop: connecting, accepting, sending, forking.

Sockets wait with ``anyio.wait_readable`` and ``anyio.wait_writable``, because anyio's streams cost
twice as much.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from typing import Any, Final, NoReturn, TypeAlias
from weakref import WeakSet

import anyio
import anyio.abc

from clawblox.host_gate import is_ip_address

_RECEIVE_BYTES: Final = 64 << 10
_ACCEPT_PAUSE_S: Final = 0.1
"""Pause in seconds after a connection could not be accepted."""

Place: TypeAlias = ExitStack
"""A slot for a connection that is served; closing it frees the slot."""


async def connect(host: str, port: int) -> socket.socket:
    """Return a connected socket that never blocks.

    Raises:
        OSError: No address of the host accepts a connection.

    Cancellation: the socket is closed.
    """
    if is_ip_address(host):
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


async def send_all(connection: socket.socket, data: bytes) -> None:
    """Send all of ``data``, without waiting if it fits into the buffer of the socket."""
    sent = 0
    while True:
        with suppress(BlockingIOError):
            sent += connection.send(memoryview(data)[sent:])
        if sent == len(data):
            return
        await anyio.wait_writable(connection)


async def receive(connection: socket.socket) -> bytes:
    """Return the next bytes that arrive; empty at the end of the stream.

    Raises:
        OSError: The connection broke.
    """
    while True:
        with suppress(BlockingIOError):
            return connection.recv(_RECEIVE_BYTES)
        await anyio.wait_readable(connection)


async def serve_connections(
    listener: socket.socket,
    serve: Callable[[socket.socket, Place], Awaitable[None]],
    *,
    tasks: anyio.abc.TaskGroup,
    places: anyio.Semaphore,
    accept: Callable[[socket.socket], tuple[socket.socket, Any]] | None = None,
    on_failure: Callable[[OSError], None] = lambda _: None,
) -> NoReturn:
    """Accept the connections of a listening socket until cancelled; serve each in a task.

    Accepted connections are non-blocking, and are closed in a forked child.

    Args:
        listener: The non-blocking socket.
        serve: Called with each connection and its place. When it returns, the connection is closed
            and the place freed; it may free the place earlier. An ``OSError`` ends only that
            connection.
        tasks: Task group that serves the connections.
        places: Limit of served connections; others wait in the backlog of the socket.
        accept: Accepts a connection; None calls ``socket.accept``.
        on_failure: Called if a connection cannot be accepted, for example for lack of descriptors.

    Cancellation: no more connections are accepted; accepted connections belong to ``tasks``.
    """
    while True:
        await anyio.wait_readable(listener)
        await places.acquire()
        with ExitStack() as place:
            place.callback(places.release)
            try:
                connection, _ = (accept or socket.socket.accept)(listener)
            except (BlockingIOError, ConnectionAbortedError):
                continue
            except OSError as error:
                on_failure(error)
                await anyio.sleep(_ACCEPT_PAUSE_S)  # back off to avoid a busy loop
            else:
                tasks.start_soon(_serve, connection, serve, place.pop_all())


async def _serve(
    connection: socket.socket,
    serve: Callable[[socket.socket, Place], Awaitable[None]],
    place: Place,
) -> None:
    with place, connection, suppress(OSError):
        close_in_forked_child(connection)
        connection.setblocking(False)
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await serve(connection, place)


_owned: WeakSet[socket.socket] = WeakSet()


def close_in_forked_child(owned: socket.socket) -> None:
    """Close a socket in each child that this process forks from now on.

    In a child, the socket would outlive this process, and its clients would wait. Programs that are
    started do not inherit sockets.
    """
    _owned.add(owned)


def _close_inherited() -> None:
    for inherited in list(_owned):
        inherited.close()


os.register_at_fork(after_in_child=_close_inherited)
