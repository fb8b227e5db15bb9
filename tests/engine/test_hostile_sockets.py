"""Spectators that violate the protocol do not harm a world."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from clawblox import World
from tests.support.websockets import Refused, WebSocketClient
from tests.support.worlds import ask

PATH = "/spectate/ws"
MAX_CLIENTS = 32
HUGE = (1 << 63) - 1


def frame(
    opcode: int, payload: bytes = b"", *, fin: bool = True, claims: int | None = None
) -> bytes:
    """Return a frame of a client; ``claims`` is the length in its header."""
    length = len(payload) if claims is None else claims
    mask = b"\0\0\0\0"
    return bytes([fin << 7 | opcode, 0x80 | 127]) + length.to_bytes(8, "big") + mask + payload


FRAMES = {
    "an unknown opcode": frame(3),
    "reserved bits": b"\xf1\x80\0\0\0\0",
    "no mask": b"\x81\x02hi",
    "a continuation of nothing": frame(0, b"x"),
    "a message within a message": frame(1, b"x", fin=False) + frame(1, b"y"),
    "text that is not UTF-8": frame(1, b"\xff\xfe"),
    "a ping in pieces": frame(9, fin=False),
    "a long ping": frame(9, b"x" * 1000),
    "a length with its highest bit set": frame(2, claims=1 << 63),
    "a huge message announced": frame(2, b"x", claims=HUGE),
    "a large message": frame(2, b"x" * (2 << 20)),
    "many small pieces": frame(1, b"x", fin=False) + frame(0, b"x", fin=False) * 5000,
    "many pings": (b"\x89\x80\0\0\0\0") * 5000,
    "a close with a code that there is not": frame(8, b"\0\1"),
    "a close of one byte": frame(8, b"x"),
    "half a header": b"\x81",
}


@pytest.fixture(scope="module")
def port(tmp_path_factory) -> Iterator[int]:
    directory = tmp_path_factory.mktemp("seen")
    (directory / "world.toml").write_text('name = "seen"\n')
    (directory / "main.lua").write_text("Instance.new('Part', workspace)")
    with World(dir=directory) as world:
        started = world.start(run_dir=directory / "run", datastore="none")
        yield started.port
        assert "Traceback" not in started.log_file.read_text()


def is_alive(port: int) -> bool:
    """Return whether the world continues and serves a new spectator."""
    with WebSocketClient(port, PATH) as client:
        states = client.states()
        first, second = next(states)["tick"], next(states)["tick"]
    return bool(first < second) and ask(port, "GET", "/health").status == 200


@pytest.mark.thorough
def test_invalid_frames_from_a_spectator_do_no_harm(port: int) -> None:
    for name, data in FRAMES.items():
        with WebSocketClient(port, PATH) as client, suppress(OSError):
            client.send_raw(data)
        assert is_alive(port), name


@pytest.mark.thorough
def test_random_bytes_from_spectators_do_no_harm(port: int) -> None:
    stream = random.Random(5)
    for _ in range(20):
        with WebSocketClient(port, PATH) as client, suppress(OSError):
            client.send_raw(stream.randbytes(stream.randrange(1, 4000)))
    assert is_alive(port)


@pytest.mark.thorough
def test_invalid_or_endless_handshakes_do_no_harm(port: int) -> None:
    begin = f"GET {PATH} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
    upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\n"
    with ExitStack() as opened:
        for text in (
            begin,
            begin + upgrade,
            begin + upgrade + "Sec-WebSocket-Version: 13\r\n\r\n",
            begin + upgrade + "Sec-WebSocket-Version: 99\r\nSec-WebSocket-Key: x\r\n\r\n",
            begin + "Sec-WebSocket-Key: x\r\n\r\n",
        ):
            half_open = opened.enter_context(socket.create_connection(("127.0.0.1", port), 10))
            half_open.sendall(text.encode())
        assert is_alive(port)


def test_spectators_that_never_read_take_at_most_the_connection_limit(port: int) -> None:
    with ExitStack() as opened:
        for _ in range(MAX_CLIENTS):
            opened.enter_context(WebSocketClient(port, PATH))
        with pytest.raises(Refused) as refused:
            WebSocketClient(port, PATH)
        assert refused.value.status == 503
        assert ask(port, "GET", "/spectate").status == 200
    wait_for_a_place(port)
    assert is_alive(port)


def wait_for_a_place(port: int) -> None:
    """Wait until the server has noticed that other spectators have left."""
    while True:
        with suppress(Refused), WebSocketClient(port, PATH):
            return
