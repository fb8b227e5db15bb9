"""A server that sends exactly the bytes that a test gives it."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence

import attrs

from tests.support.waiting import HANG_S

End = Callable[["Peer"], None]


@attrs.define(eq=False)
class Peer:
    """One connection of the server."""

    connection: socket.socket
    received: bytes = b""

    def read_request(self) -> bytes:
        """Return the next request with its body; empty once the client has disconnected."""
        while b"\r\n\r\n" not in self.received and self._receive():
            pass
        head, separator, rest = self.received.partition(b"\r\n\r\n")
        size = next(
            (int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length:")),
            0,
        )
        while len(rest) < size and self._receive():
            rest = self.received.partition(b"\r\n\r\n")[2]
        self.received = rest[size:]
        return head + separator + rest[:size]

    def _receive(self) -> bool:
        try:
            data = self.connection.recv(65536)
        except (ConnectionError, TimeoutError):
            return False
        self.received += data
        return bool(data)


def close(peer: Peer) -> None:
    """Close the connection immediately."""


def close_at_request(peer: Peer) -> None:
    """Close the connection when one more request has arrived."""
    peer.read_request()


def reset(peer: Peer) -> None:
    """Reset the connection."""
    peer.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def hold(peer: Peer) -> None:
    """Send no more data, and wait until the client disconnects."""
    while peer.read_request():
        pass


@attrs.define(eq=False)
class Script:
    """The script of one connection: an answer to each request, then the end.

    An answer is a sequence of pieces that are sent separately; a bytes object is one piece.
    """

    answers: Sequence[bytes | Sequence[bytes]] = ()
    end: End = hold
    is_over: threading.Event = attrs.field(factory=threading.Event)

    def play(self, peer: Peer, requests: list[bytes]) -> None:
        for answer in self.answers:
            if not (request := peer.read_request()):
                return
            requests.append(request)
            for piece in (answer,) if isinstance(answer, bytes) else answer:
                peer.connection.sendall(piece)
        self.end(peer)


@attrs.define(eq=False)
class Server:
    """The server.

    Attributes:
        url: Address of the server.
        requests: The answered requests, in the order of their arrival.
        accepted: The accepted connections.
    """

    url: str
    requests: list[bytes] = attrs.field(factory=list)
    accepted: int = 0


@contextlib.contextmanager
def scripted(*scripts: Script, host: str = "127.0.0.1") -> Iterator[Server]:
    """Serve one connection for each script, in this order."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as listener:
        port = listener.getsockname()[1]
        server = Server(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
        thread = threading.Thread(target=_serve, args=(listener, scripts, server))
        thread.start()
        try:
            yield server
        finally:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _serve(listener: socket.socket, scripts: Sequence[Script], server: Server) -> None:
    threads = []
    for script in scripts:
        try:
            connection, _ = listener.accept()
        except OSError:
            break  # the test needs no further connection
        server.accepted += 1
        threads.append(threading.Thread(target=_play, args=(script, connection, server)))
        threads[-1].start()
    for thread in threads:
        thread.join()


def _play(script: Script, connection: socket.socket, server: Server) -> None:
    with connection:
        connection.settimeout(HANG_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(ConnectionError, TimeoutError):  # the client gave up
            script.play(Peer(connection), server.requests)
    script.is_over.set()
