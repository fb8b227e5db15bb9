"""Connections from inside are forwarded to their far ends, in any event loop."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from clawblox.agents.sandbox.endpoints import Endpoint
from clawblox.agents.sandbox.relay import Relays
from tests.agents.sandbox.test_relay_client_hello import hello
from tests.support.waiting import HANG_S

pytestmark = pytest.mark.anyio


@pytest.fixture(
    params=["asyncio", pytest.param("trio", marks=pytest.mark.thorough)], scope="module"
)
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def listening() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


@asynccontextmanager
async def relayed(far: socket.socket) -> AsyncIterator[tuple[Relays, int]]:
    """Relay a new port to a listening socket; yield the relays and that port."""
    near = listening()
    host, port = far.getsockname()
    relays = Relays()
    relays.replace([(near, Endpoint("127.0.0.1", near.getsockname()[1], host))])
    relays._sockets[0] = (near, Endpoint("127.0.0.1", port, host))
    with anyio.fail_after(HANG_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(relays.serve)
            yield relays, near.getsockname()[1]
            tasks.cancel_scope.cancel()
    relays.replace([])
    assert near.fileno() == -1


async def receive_all(stream: anyio.abc.SocketStream) -> bytes:
    return b"".join([chunk async for chunk in stream])


async def echo_length(far: socket.socket, got: bytearray) -> None:
    """Accept a connection, receive all bytes, and answer with their number."""
    await anyio.wait_readable(far)
    connection = far.accept()[0]
    with connection:
        connection.setblocking(False)
        while True:
            await anyio.wait_readable(connection)
            data = connection.recv(65536)
            if not data:
                break
            got.extend(data)
        connection.send(b"%d" % len(got))


async def test_bytes_pass_both_ways_until_both_ends_are_closed() -> None:
    sent, got = bytes(range(256)) * 8192, bytearray()
    with listening() as far:
        async with relayed(far) as (_, port), anyio.create_task_group() as tasks:
            tasks.start_soon(echo_length, far, got)
            async with await anyio.connect_tcp("127.0.0.1", port) as client:
                await client.send(sent)
                await client.send_eof()
                assert await receive_all(client) == b"%d" % len(sent)
    assert bytes(got) == sent


async def test_a_far_end_that_refuses_closes_the_connection_and_no_other() -> None:
    with listening() as far:
        async with relayed(far) as (_, port):
            far.close()
            for _ in range(2):
                async with await anyio.connect_tcp("127.0.0.1", port) as client:
                    with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                        await client.receive()


async def test_the_sockets_of_a_new_process_replace_the_old_sockets() -> None:
    with listening() as first, listening() as second:
        async with relayed(first) as (relays, port):
            async with await anyio.connect_tcp("127.0.0.1", port) as old:
                await anyio.wait_readable(first)
                with first.accept()[0]:
                    passed, served = listening(), listening()
                    end = Endpoint("127.0.0.1", second.getsockname()[1], "127.0.0.1")
                    relays.replace([(passed, end)])
                    relays.replace([(served, end)])
                    assert passed.fileno() == -1
                    with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                        await old.receive()
            with pytest.raises(OSError, match="connection"):
                await anyio.connect_tcp("127.0.0.1", port)
            async with await anyio.connect_tcp("127.0.0.1", served.getsockname()[1]):
                await anyio.wait_readable(second)


@pytest.mark.parametrize(("name", "is_passed_on"), [("localhost", True), ("example.org", False)])
async def test_tls_is_passed_on_only_for_the_host_of_the_endpoint(
    name: str, is_passed_on: bool
) -> None:
    got = bytearray()
    with listening() as far:
        async with relayed(far) as (relays, port):
            near, _ = relays._sockets[0]
            end = Endpoint("127.0.0.1", far.getsockname()[1], "localhost", is_tls=True)
            relays.replace([(near.dup(), end)])
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(echo_length, far, got)
                async with await anyio.connect_tcp("127.0.0.1", port) as client:
                    begin = hello(name)
                    for part in (begin[:7], begin[7:]):
                        await client.send(part)
                    if is_passed_on:
                        await client.send_eof()
                        assert await receive_all(client) == b"%d" % len(begin)
                    else:
                        with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                            await client.receive()
                tasks.cancel_scope.cancel()
            assert bytes(got) == (begin if is_passed_on else b"")
