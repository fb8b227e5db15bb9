"""The kernel reports the user of exactly the given connection, or no user."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from clawblox.system import sock_diag
from clawblox.system.sock_diag import peer_uid, read_peer_uid

WAYS = {"sock_diag": peer_uid, "proc": read_peer_uid}
OTHER_USER = 65533

CONNECT = """
import os, socket, sys
os.setuid(int(sys.argv[2]))
client = socket.socket()
client.connect(("127.0.0.1", int(sys.argv[1])))
print(flush=True)
sys.stdin.read()
"""


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10.0)
        yield server


@pytest.fixture(params=WAYS)
def ask(request: pytest.FixtureRequest) -> Callable[[socket.socket], int | None]:
    return WAYS[request.param]


def test_a_connection_of_this_process_belongs_to_its_user(
    listener: socket.socket, ask: Callable[[socket.socket], int | None]
) -> None:
    with socket.create_connection(listener.getsockname()), listener.accept()[0] as accepted:
        assert ask(accepted) == os.getuid()


def test_a_client_that_has_closed_its_sending_side_still_belongs_to_its_user(
    listener: socket.socket, ask: Callable[[socket.socket], int | None]
) -> None:
    with socket.create_connection(listener.getsockname()) as client, listener.accept()[0] as end:
        client.shutdown(socket.SHUT_WR)
        assert end.recv(1) == b""
        assert ask(end) == os.getuid()


def test_a_connection_closed_by_its_process_has_no_user(
    listener: socket.socket, ask: Callable[[socket.socket], int | None]
) -> None:
    # The kernel reports root as its user.
    client = socket.create_connection(listener.getsockname())
    with listener.accept()[0] as accepted:
        client.close()
        assert ask(accepted) is None


def test_a_socket_that_listens_on_the_peers_port_is_not_the_peer(
    listener: socket.socket, ask: Callable[[socket.socket], int | None]
) -> None:
    with socket.socket() as holder, socket.socket() as client:
        for bound in (holder, client):  # the holder keeps other connections off the client's port
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind((listener.getsockname()[0], 0))
        client.bind(holder.getsockname())
        client.connect(listener.getsockname())
        accepted, peer = listener.accept()
        with accepted:
            # A reset ends the connection without a trace, so that its port can be listened on.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes([1, 0, 0, 0, 0, 0, 0, 0]))
            client.close()
            with pytest.raises(ConnectionResetError):
                accepted.recv(1)
            frozen = Frozen(peer, accepted.getsockname())
            with socket.create_server(peer):
                assert ask(frozen) is None  # type: ignore[arg-type]


class Frozen:
    """The ends of a closed connection."""

    def __init__(self, peer: tuple[str, int], own: tuple[str, int]) -> None:
        self.getpeername, self.getsockname = lambda: peer, lambda: own


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_a_connection_of_another_user_belongs_to_that_user(
    listener: socket.socket, ask: Callable[[socket.socket], int | None]
) -> None:
    command = [sys.executable, "-c", CONNECT, str(listener.getsockname()[1]), str(OTHER_USER)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as client:
        with listener.accept()[0] as accepted:
            assert client.stdout is not None
            client.stdout.readline()
            assert ask(accepted) == OTHER_USER
        client.communicate()


def test_a_failed_query_of_the_kernel_is_an_error(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sock_diag, "_NETLINK_SOCK_DIAG", 63)  # it does not exist anywhere
    with (
        socket.create_connection(listener.getsockname()),
        listener.accept()[0] as accepted,
        pytest.raises(OSError, match="rotocol"),
    ):
        peer_uid(accepted)
