"""Connections are accepted together, while the event loop has other work."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any, cast

import pytest

from clawblox.server.connections import ACCEPT_BATCH, Acceptor
from clawblox.server.launch_settings import Settings
from tests.support.waiting import HANG_S

pytestmark = pytest.mark.anyio
COUNT = 20
STEPS = 10
"""Steps of the event loop from the wait for clients until they are connections."""


class Greeter(asyncio.Protocol):
    """A connection that greets its client."""

    def __init__(self, connections: set[Greeter]) -> None:
        self._connections = connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._connections.add(self)
        self.transport.write(b"hello")


@contextlib.contextmanager
def waiting_clients(count: int) -> Iterator[tuple[socket.socket, list[socket.socket]]]:
    """Yield a listening socket, and clients in its backlog."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=count))
        listener.setblocking(False)
        clients = [
            stack.enter_context(socket.create_connection(listener.getsockname(), HANG_S))
            for _ in range(count)
        ]
        yield listener, clients


async def accept(listener: socket.socket, steps: int, most: int = 100) -> set[Greeter]:
    """Accept connections for some steps of the event loop and return them."""
    made: set[Greeter] = set()
    make: Any = lambda: Greeter(made)  # noqa: E731 - a protocol in place of the kit's
    settings = Settings(max_connections=most)
    task = asyncio.create_task(Acceptor(listener, make, made, settings).run())
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await asyncio.sleep(0)  # the loop closes the sockets of connections that were not completed
    return made


async def test_all_clients_that_wait_are_connected_in_a_few_steps_of_the_event_loop() -> None:
    with waiting_clients(COUNT) as (listener, clients):
        connections = await accept(listener, STEPS)
        assert len(connections) == COUNT
        for connection in connections:
            connection.transport.close()
        assert all(client.recv(10) == b"hello" for client in clients)


async def test_no_more_connections_are_accepted_together_than_there_is_room_for() -> None:
    with waiting_clients(COUNT) as (listener, _):
        connections = await accept(listener, STEPS, most=7)
        assert len(connections) == 7
        for connection in connections:
            connection.transport.close()


async def test_a_stop_at_any_step_closes_every_accepted_connection() -> None:
    assert COUNT < ACCEPT_BATCH
    for steps in range(STEPS + 1):
        with waiting_clients(COUNT) as (listener, clients):
            connections = await accept(listener, steps)
            for connection in connections:
                connection.transport.close()
            await asyncio.sleep(0)
            listener.close()  # resets the clients that still wait
            for client in clients:
                with contextlib.suppress(ConnectionResetError):
                    assert client.recv(10) in (b"hello", b"")
