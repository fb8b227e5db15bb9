"""Clients that send requests to a world at the maximum rate; `floods` runs them in a process.

    python -m benchmarks.flooder KIND PORT CONNECTIONS [SESSION ...]

A client whose connection is closed reconnects. The program runs until it is killed.
"""

from __future__ import annotations

import re
import selectors
import socket
import sys
import time
from collections.abc import Sequence
from typing import Final

from benchmarks.worlds import HOST

__all__ = ["KINDS"]

_PING: Final = b"\x89\x80mask"  # an empty frame, as short as a client's frame can be
_PING_BYTES_PER_S: Final = 100_000
_PAUSE_S: Final = 1.0
_CHUNK: Final = 1 << 16
_LENGTH: Final = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


def _head(port: int, method_and_path: str, *headers: str) -> bytes:
    lines = (f"{method_and_path} HTTP/1.1", f"Host: {HOST}:{port}", *headers, "", "")
    return "\r\n".join(lines).encode()


def _ping(port: int, connections: int, sessions: Sequence[str]) -> None:
    """Send empty pings on all connections, 0.1 MB/s in total."""
    opening = _head(
        port,
        "GET /spectate/ws",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
    )
    pings = _PING * round(_PING_BYTES_PER_S * _PAUSE_S / len(_PING) / connections)
    clients: list[socket.socket | None] = [None] * connections
    due = time.monotonic()
    while True:
        for place, client in enumerate(clients):
            try:
                if client is None:
                    client = clients[place] = socket.create_connection((HOST, port))
                    client.sendall(opening)
                    client.recv(_CHUNK)
                    client.setblocking(False)
                client.sendall(pings)
                if not client.recv(_CHUNK):
                    raise ConnectionResetError
            except BlockingIOError:
                continue
            except OSError:
                clients[place] = _closed(client)
        due = max(due + _PAUSE_S, time.monotonic() - 1.0)
        time.sleep(max(0.0, due - time.monotonic()))


def _closed(client: socket.socket | None) -> None:
    if client is not None:
        client.close()


def _pipeline(port: int, connections: int, sessions: Sequence[str]) -> None:
    """Request the spectator state without waiting for answers."""
    requests = _head(port, "GET /spectate") * 64
    with selectors.DefaultSelector() as selector:
        for _ in range(connections):
            client = socket.create_connection((HOST, port))
            client.setblocking(False)
            selector.register(client, selectors.EVENT_READ | selectors.EVENT_WRITE, b"")
        while True:
            for key, events in selector.select():
                unsent: bytes = key.data
                if events & selectors.EVENT_READ and not key.fileobj.recv(_CHUNK):  # type: ignore[union-attr]
                    raise ConnectionResetError
                if events & selectors.EVENT_WRITE:
                    unsent = unsent or requests
                    sent = key.fileobj.send(unsent)  # type: ignore[union-attr]
                    selector.modify(key.fileobj, key.events, unsent[sent:])


def _observe(port: int, connections: int, sessions: Sequence[str]) -> None:
    """Let agents observe in a closed loop on each connection."""
    with selectors.DefaultSelector() as selector:
        for number in range(connections):
            session = sessions[number % len(sessions)]
            request = _head(port, "GET /observe", f"X-Session: {session}")
            client = socket.create_connection((HOST, port))
            client.sendall(request)
            selector.register(client, selectors.EVENT_READ, (request, bytearray()))
        while True:
            for key, _ in selector.select():
                request, answer = key.data
                answer += key.fileobj.recv(_CHUNK)  # type: ignore[union-attr]
                head, separator, body = answer.partition(b"\r\n\r\n")
                length = _LENGTH.search(head)
                if separator and length and len(body) == int(length[1]):
                    answer.clear()
                    key.fileobj.sendall(request)  # type: ignore[union-attr]


KINDS: Final = {"ping": _ping, "pipeline": _pipeline, "observe": _observe}
"""The behaviours of clients, by name."""


if __name__ == "__main__":
    KINDS[sys.argv[1]](int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
