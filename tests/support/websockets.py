"""A small WebSocket client, for tests."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator, Mapping
from typing import Any

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    CloseConnection,
    Event,
    Message,
    Ping,
    RejectConnection,
    Request,
)

from tests.support.waiting import HANG_S


class Refused(Exception):
    """The server answered the handshake with an ordinary response.

    Attributes:
        status: Status of the response.
    """

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class WebSocketClient:
    """An open WebSocket to a server on this machine.

    Args:
        port: Port of the server.
        path: Path of the route.
        headers: Further headers of the handshake; ``Host`` replaces the default.

    Raises:
        Refused: The server does not open a WebSocket.
    """

    def __init__(self, port: int, path: str, headers: Mapping[str, str] | None = None) -> None:
        given = {"Host": f"127.0.0.1:{port}", **(headers or {})}
        host = given.pop("Host")
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=HANG_S)
        self._connection = WSConnection(ConnectionType.CLIENT)
        extra = [(name.encode(), value.encode()) for name, value in given.items()]
        request = Request(host=host, target=path, extra_headers=extra)
        self._socket.sendall(self._connection.send(request))
        self._events = self._receive()
        answer = next(self._events)
        if not isinstance(answer, AcceptConnection):
            self.close()
            raise Refused(answer.status_code if isinstance(answer, RejectConnection) else 0)

    def __enter__(self) -> WebSocketClient:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def send(self, text: str) -> None:
        self._socket.sendall(self._connection.send(Message(data=text)))

    def send_raw(self, data: bytes) -> None:
        """Send bytes that need not be a frame."""
        self._socket.sendall(data)

    def read_until_closed(self) -> None:
        """Read and drop everything until the server closes the connection."""
        with contextlib.suppress(ConnectionResetError):
            while self._socket.recv(65536):
                pass

    def close_code(self) -> int:
        """Return the code with which the server closes."""
        return next(event.code for event in self._events if isinstance(event, CloseConnection))

    def states(self) -> Iterator[Any]:
        """Yield the messages, parsed as JSON, until the server closes."""
        text = ""
        for event in self._events:
            if isinstance(event, Message):
                text += str(event.data)
                if event.message_finished:
                    yield json.loads(text)
                    text = ""

    def _receive(self) -> Iterator[Event]:
        while True:
            for event in self._connection.events():
                if isinstance(event, Ping):
                    self._socket.sendall(self._connection.send(event.response()))
                yield event
                if isinstance(event, CloseConnection):
                    return
            data = self._socket.recv(65536)
            self._connection.receive_data(data or None)
