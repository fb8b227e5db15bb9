"""A world on a socket that it was started with: sd_listen_fds(3), with real processes."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from tests.server.conftest import TALLY
from tests.support.sockets import free_port, is_listening
from tests.support.waiting import HANG_S
from tests.support.worlds import ask

REQUEST = b"GET /api.md HTTP/1.1\r\nHost: localhost:%d\r\nConnection: close\r\n\r\n"


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as opened:
        yield opened


@pytest.fixture
def port(listener: socket.socket) -> int:
    return listener.getsockname()[1]


def connect_early(port: int) -> socket.socket:
    """Send a request to a world that is not there yet."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=HANG_S)
    connection.sendall(REQUEST % port)
    return connection


def test_a_world_on_an_inherited_socket_does_not_bind_its_port(launch, listener, port):
    told = free_port()
    world = launch(descriptor=listener.fileno(), env={"WORLD_PORT": str(told)})
    assert world.port == port
    assert world.ask("GET", "/api.md").status == 200
    assert not is_listening(told)
    assert "WARNING" not in world.log


def test_a_client_that_connects_before_the_world_is_up_is_answered(launch, listener, port):
    with connect_early(port) as early:
        launch(descriptor=listener.fileno())
        assert early.recv(65536).startswith(b"HTTP/1.1 200")


def test_further_descriptors_and_their_names_are_ignored(launch, listener, port):
    env = {"LISTEN_FDS": "2", "LISTEN_FDNAMES": "http:spare"}
    assert launch(descriptor=listener.fileno(), env=env).port == port


@pytest.mark.parametrize(
    "env", [{"LISTEN_PID": "1"}, {"LISTEN_PID": ""}, {"LISTEN_FDS": " "}, {"LISTEN_PID": "self"}]
)
def test_a_socket_for_another_process_is_ignored(launch, listener, port, env):
    world = launch(descriptor=listener.fileno(), env=env)
    assert world.port != port
    assert world.ask("GET", "/api.md").status == 200


def test_a_world_that_a_wrapper_starts_says_who_has_its_socket(launch, listener, port):
    world = launch(descriptor=listener.fileno(), env={"LISTEN_PID": "1", "WORLD_PORT": str(port)})
    assert world.process.wait(10) == 1
    assert "Address already in use; a socket was handed to process 1, which must exec" in world.log


@pytest.mark.parametrize("count", ["0", "-1", "two", "1.0"])
def test_a_count_that_is_not_a_number_is_refused(launch, listener, count):
    world = launch(descriptor=listener.fileno(), env={"LISTEN_FDS": count})
    assert world.process.wait(HANG_S) == 1
    assert world.log == (
        "tally.py: cannot serve on the inherited descriptor 3: "
        f"LISTEN_FDS must be a number above 0, not '{count}'\n"
    )


def bound_socket(kind: socket.SocketKind) -> socket.socket:
    bound = socket.socket(type=kind)
    bound.bind(("127.0.0.1", 0))
    return bound


def unix_listener() -> socket.socket:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind("")  # the system names it, and it is not a file
    listening.listen()
    return listening


NO_LISTENER = "it is not a listening TCP socket"


@pytest.mark.parametrize(
    ("open_descriptor", "complaint"),
    [
        (TALLY.open, "Socket operation on non-socket"),
        (lambda: bound_socket(socket.SOCK_STREAM), NO_LISTENER),
        (lambda: bound_socket(socket.SOCK_DGRAM), NO_LISTENER),
        (unix_listener, NO_LISTENER),
    ],
    ids=["no socket", "does not listen", "no TCP", "no internet socket"],
)
def test_an_unusable_descriptor_ends_the_world_with_one_line(launch, open_descriptor, complaint):
    with open_descriptor() as opened:
        world = launch(descriptor=opened.fileno())
        assert world.process.wait(HANG_S) == 1
    assert world.log.startswith("tally.py: cannot serve on the inherited descriptor 3: ")
    assert complaint in world.log
    assert world.log.count("\n") == 1


# ------------------------------------------------------------------------------ its address


def test_the_socket_decides_the_address_over_flags(launch):
    with socket.create_server(("127.0.0.2", 0)) as listener:
        flags = ("--host", "127.0.0.1", "--port", "1")
        world = launch(TALLY, *flags, descriptor=listener.fileno())
        assert f"Listening on http://127.0.0.2:{world.port}" in world.log
        assert world.ask("GET", "/api.md", host="127.0.0.2").status == 200


def test_a_host_name_of_the_socket_is_kept(launch, listener, port):
    world = launch(descriptor=listener.fileno(), env={"WORLD_HOST": "localhost"})
    assert world.port == port
    assert f"Listening on http://localhost:{port}" in world.log


def test_an_ipv6_socket_is_served(launch):
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as listener:
        world = launch(descriptor=listener.fileno())
        assert f"Listening on http://[::1]:{world.port}" in world.log
        assert world.ask("GET", "/api.md", host="::1").status == 200


def test_a_socket_that_listens_beyond_this_machine_is_a_warning(launch):
    with socket.create_server(("0.0.0.0", 0)) as listener:
        world = launch(descriptor=listener.fileno())
        assert world.ask("GET", "/api.md").status == 200
        assert "WARNING: this world can be reached from other machines" in world.log


# ------------------------------------------------------------------------------- its life


CURIOUS = f"""
import subprocess
import sys
from clawblox.server import serve
sys.path.append({str(TALLY.parent)!r})
from tally import Tally

class Curious(Tally):
    @property
    def api_doc(self):
        look = ["sh", "-c", "env; ls -l /proc/self/fd"]
        return subprocess.run(look, close_fds=False, stdout=subprocess.PIPE, text=True).stdout

serve(Curious())
"""


def test_a_child_process_gets_neither_the_socket_nor_its_variables(launch, listener, tmp_path):
    program = tmp_path / "world.py"
    program.write_text(CURIOUS)
    world = launch(program, descriptor=listener.fileno(), env={"MARK": "seen"})
    seen = world.ask("GET", "/api.md").body.decode()
    assert "MARK=seen" in seen
    assert " 2 -> " in seen
    assert "LISTEN_" not in seen
    assert f"socket:[{os.fstat(listener.fileno()).st_ino}]" not in seen


def test_variables_for_another_process_are_not_passed_to_children(launch, listener, tmp_path):
    program = tmp_path / "world.py"
    program.write_text(CURIOUS)
    world = launch(program, descriptor=listener.fileno(), env={"LISTEN_PID": "1"})
    assert "LISTEN_" not in world.ask("GET", "/api.md").body.decode()


def test_sigterm_stops_a_world_on_an_inherited_socket_cleanly(launch, listener, port):
    world = launch(descriptor=listener.fileno())
    listener.close()
    assert world.port == port
    assert is_listening(port)
    assert world.stop() == 0
    assert not is_listening(port)
    assert "Traceback" not in world.log


def test_a_refused_snapshot_resets_waiting_clients(launch, listener, port, tmp_path):
    snapshot = tmp_path / "snapshot.json"
    snapshot.write_text("{}")
    with connect_early(port) as early:
        env = {"WORLD_RESUME_PATH": str(snapshot)}
        world = launch(descriptor=listener.fileno(), env=env)
        listener.close()
        with pytest.raises(ConnectionResetError):
            early.recv(65536)
        assert world.process.wait(HANG_S) == 65
    assert world.log.startswith(f"tally.py: refusing the snapshot {snapshot}: ")
    assert world.log.count("\n") == 1
    assert not is_listening(port)


@pytest.mark.thorough
def test_a_restored_world_answers_waiting_clients_from_its_restored_state(
    launch, listener, port, tmp_path
):
    original = launch()
    session = original.ask("POST", "/join?name=Rocky").json()["session"]
    snapshot = tmp_path / "snapshot.json"
    snapshot.write_bytes(original.snapshot().body)
    original.stop()
    with socket.create_connection(("127.0.0.1", port), timeout=HANG_S) as early:
        head = f"GET /observe HTTP/1.1\r\nHost: localhost:{port}\r\nX-Session: {session}\r\n\r\n"
        early.sendall(head.encode())
        world = launch(descriptor=listener.fileno(), env={"WORLD_RESUME_PATH": str(snapshot)})
        assert early.recv(65536).startswith(b"HTTP/1.1 200")
    assert ask(port, "GET", "/observe", headers={"X-Session": session}).status == 200
    assert world.stop() == 0
