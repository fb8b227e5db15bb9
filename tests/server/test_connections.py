"""Clients that take what others need: half a request, no end of a body, an answer left unread."""

from __future__ import annotations

import contextlib
import select
import shlex
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.conftest import TALLY, Launch, LaunchedWorld
from tests.support.waiting import HANG_S, wait_until

NEVER = ("--request-timeout", "1000")
HASTY = ("--request-timeout", "0.2")


@contextlib.contextmanager
def connections(world: LaunchedWorld, count: int, sent: bytes) -> Iterator[list[socket.socket]]:
    """Connect again and again and send the beginning of a request."""
    with contextlib.ExitStack() as stack:
        peers = []
        for _ in range(count):
            peer = stack.enter_context(socket.create_connection(("127.0.0.1", world.port), HANG_S))
            peer.sendall(sent.replace(b"%port", str(world.port).encode()))
            peers.append(peer)
        yield peers


def read_all(peer: socket.socket) -> bytes:
    """Return everything until the world closes the connection."""
    answer = b""
    with contextlib.suppress(ConnectionResetError):
        while chunk := peer.recv(1 << 16):
            answer += chunk
    return answer


def read_until(peer: socket.socket, end: bytes) -> bytes:
    """Return everything up to what an answer ends with."""
    answer = b""
    while not answer.endswith(end):
        chunk = peer.recv(1 << 16)
        assert chunk, answer
        answer += chunk
    return answer


def cpu_ticks(world: LaunchedWorld) -> int:
    fields = Path(f"/proc/{world.process.pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


HALF_HEAD = b"GET /api.md HTTP/1.1\r\nHost: 127"
HALF_BODY = (
    b"POST /input HTTP/1.1\r\nHost: 127.0.0.1:%port\r\nX-Session: SESSION\r\n"
    b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
)


def half_body(world: LaunchedWorld) -> bytes:
    session = world.ask("POST", "/join?name=a").json()["session"]
    return HALF_BODY.replace(b"SESSION", session.encode())


@pytest.fixture
def poor(tmp_path: Path) -> Path:
    """A world's program that may open 128 descriptors."""
    script = tmp_path / "poor.py"
    argv = shlex.join([sys.executable, str(TALLY)])
    script.write_text(
        f"import os, sys\nos.chdir({str(TALLY.parent)!r})\n"
        f"os.execv('/bin/sh', ['sh', '-c', 'ulimit -n 128; exec {argv} \"$@\"', 'sh',"
        " *sys.argv[1:]])\n"
    )
    return script


@pytest.mark.thorough
@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(HALF_HEAD, id="half a head"),
        pytest.param(b"", id="nothing", marks=pytest.mark.thorough),
    ],
)
def test_two_hundred_unfinished_requests_do_not_block_others(
    launch: Launch, poor: Path, sent: bytes
) -> None:
    world = launch(poor, *NEVER)
    before = len(world.log)
    with connections(world, 200, sent):
        for _ in range(3):
            assert world.ask("GET", "/api.md").status == 200
        assert len(world.log) - before < 1000
        assert cpu_ticks(world) < 500


@pytest.mark.thorough
def test_a_connection_without_a_descriptor_waits_and_is_logged_once(
    launch: Launch, poor: Path
) -> None:
    world = launch(poor, *NEVER, "--max-connections", "1000")
    before = len(world.log)
    with connections(world, 200, half_body(world)) as peers:
        wait_until(lambda: "Too many open files" in world.log)
        with socket.create_connection(("127.0.0.1", world.port), HANG_S) as late:
            late.sendall(b"GET /api.md HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % world.port)
            for peer in peers:
                peer.close()
            assert late.recv(100).startswith(b"HTTP/1.1 200")
    assert world.log.count("connections cannot be accepted") == 1
    assert len(world.log) - before < 1000


@pytest.mark.thorough
def test_unfinished_bodies_are_closed_after_their_time_limit(launch: Launch, poor: Path) -> None:
    world = launch(poor, *HASTY)
    with connections(world, 200, half_body(world)) as peers:
        assert world.ask("GET", "/api.md").status == 200
        answers = [read_all(peer) for peer in peers]
    assert {answer.split(b"\r\n")[0] for answer in answers} == {b"HTTP/1.1 408 Request Timeout"}
    assert "Traceback" not in world.log


@pytest.mark.thorough
@pytest.mark.parametrize("part", ["head", "body"])
def test_a_late_request_is_answered_408(launch: Launch, part: str) -> None:
    world = launch(TALLY, *HASTY)
    sent = HALF_HEAD if part == "head" else half_body(world)
    with connections(world, 1, sent) as (peer,):
        head, _, body = read_all(peer).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408 ")
    assert b"connection: close" in head.lower()
    assert b"x-content-type-options: nosniff" in head
    assert body == b"The request did not come within 0.2 s"
    assert "Traceback" not in world.log


@pytest.mark.thorough
def test_a_connection_without_a_request_is_closed_without_an_answer(launch: Launch) -> None:
    world = launch(TALLY, *HASTY)
    with connections(world, 1, b"") as (peer,):
        assert read_all(peer) == b""


def test_a_body_that_continues_after_its_answer_gets_no_more_time(launch: Launch) -> None:
    world = launch(TALLY, *HASTY)
    sent = b"POST /input HTTP/1.1\r\nHost: 127.0.0.1:%port\r\nContent-Length: 99999\r\n\r\n{"
    with connections(world, 1, sent) as (peer,):
        assert peer.recv(100).startswith(b"HTTP/1.1 401")
        with contextlib.suppress(ConnectionError):
            while True:
                peer.sendall(b" ")  # a byte now and then is no new request
                peer.settimeout(0.01)
                with contextlib.suppress(TimeoutError):
                    if not peer.recv(1 << 16):
                        break


def test_a_client_that_disconnects_within_a_body_causes_no_error(
    launch: Launch,
) -> None:
    world = launch()
    sent = half_body(world)
    before = world.log
    with connections(world, 3, sent):
        assert world.ask("GET", "/api.md").status == 200
    assert world.ask("GET", "/api.md").status == 200
    assert world.stop() == 0
    assert world.log == before


def test_malformed_requests_do_not_fill_the_log(launch: Launch) -> None:
    world = launch()
    with connections(world, 20, b"nonsense\r\n\r\n") as peers:
        answers = [read_all(peer) for peer in peers]
    assert all(answer.startswith(b"HTTP/1.1 400 Bad Request\r\n") for answer in answers)
    assert all(b"x-content-type-options: nosniff\r\n" in answer for answer in answers)
    assert world.log.count("\n") == 1


@pytest.mark.thorough
def test_the_time_limit_of_a_request_starts_with_its_first_byte(launch: Launch) -> None:
    """On one connection many requests come, for longer than one of them may take."""
    world = launch(TALLY, "--request-timeout", "2")
    request = b"GET /api.md HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % world.port
    with connections(world, 1, b"") as (peer,):
        for _ in range(16):
            peer.sendall(request[:20])
            peer.settimeout(0.15)
            with pytest.raises(TimeoutError):
                peer.recv(1)
            peer.settimeout(HANG_S)
            peer.sendall(request[20:])
            assert read_until(peer, b"Send Add.\n").startswith(b"HTTP/1.1 200")


@pytest.mark.thorough
def test_a_slow_body_within_its_time_limit_is_accepted(launch: Launch) -> None:
    world = launch(TALLY, "--request-timeout", "20")
    session = world.ask("POST", "/join?name=a").json()["session"]
    body = b'{"type": "Add", "data": 5}' + b" " * 30
    head = (
        f"POST /input HTTP/1.1\r\nHost: 127.0.0.1:{world.port}\r\nX-Session: {session}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    with connections(world, 1, head) as (peer,):
        for at in range(len(body)):
            peer.settimeout(0.01)
            with pytest.raises(TimeoutError):
                peer.recv(1)
            peer.sendall(body[at : at + 1])
        peer.settimeout(HANG_S)
        assert peer.recv(1000).startswith(b"HTTP/1.1 200")


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A world's program whose snapshot fits into no socket's buffer."""
    script = tmp_path / "large.py"
    script.write_text(
        f"import sys\nsys.path.insert(0, {str(TALLY.parent)!r})\n"
        "from tally import Tally, serve\n"
        "class Large(Tally):\n"
        f"    def snapshot(self): return {{'much': 'x' * {LARGE}}}\n"
        "serve(Large())\n"
    )
    return script


LARGE = 10_000_000
GET_SNAPSHOT = (
    b"GET /snapshot HTTP/1.1\r\nHost: 127.0.0.1:%port\r\nX-Operator-Token: canary-token\r\n\r\n"
)


@pytest.mark.thorough
def test_a_slow_client_gets_a_whole_large_snapshot(launch: Launch, large: Path) -> None:
    world = launch(large, *HASTY, "--max-connections", "2")
    with connections(world, 1, GET_SNAPSHOT) as (slow,):
        received = len(slow.recv(1 << 10))
        for _ in range(3):  # others come and go all the while, and need its room
            with connections(world, 2, b"") as others:
                assert [read_all(other) for other in others] == [b"", b""]
            received += len(slow.recv(1 << 10))
        received += len(read_all(slow))
    assert received > LARGE


@pytest.mark.thorough
def test_a_connection_whose_answer_is_never_read_is_closed(launch: Launch, large: Path) -> None:
    world = launch(large, "--answer-timeout", "0.5", "--max-connections", "1")
    with connections(world, 1, GET_SNAPSHOT) as (deaf,):
        assert deaf.recv(15) == b"HTTP/1.1 200 OK"
        assert world.ask("GET", "/api.md").status == 200
        assert len(read_all(deaf)) < LARGE


@pytest.fixture
def poor_gallery(poor: Path, tmp_path: Path) -> Path:
    """A world's program that may open 128 descriptors and serves a large file."""
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "large.glb").write_bytes(bytes(LARGE))
    script = tmp_path / "poor_gallery.py"
    text = poor.read_text().replace(str(TALLY), str(TALLY.with_name("gallery.py")))
    variable = f"os.environ['GALLERY_FILES'] = {str(tmp_path / 'served')!r}\n"
    script.write_text(text.replace("os.execv", f"{variable}os.execv", 1))
    return script


@pytest.mark.thorough
def test_unread_answers_make_room_for_others(launch: Launch, poor_gallery: Path) -> None:
    world = launch(poor_gallery)
    get = b"GET /files/large.glb HTTP/1.1\r\nHost: 127.0.0.1:%port\r\n\r\n"
    with connections(world, 120, get) as deaf:
        for peer in deaf[:90]:
            assert peer.recv(15) == b"HTTP/1.1 200 OK"
        assert world.ask("GET", "/health", timeout=HANG_S).status == 200
    assert "Traceback" not in world.log
    assert "Too many open files" not in world.log
    assert world.ask("GET", "/files/large.glb").body == bytes(LARGE)


@pytest.mark.thorough
def test_slow_reader_is_kept_longer_than_a_client_that_does_not_read(
    launch: Launch, poor_gallery: Path
) -> None:
    world = launch(poor_gallery, "--max-connections", "2")
    get = b"GET /files/large.glb HTTP/1.1\r\nHost: 127.0.0.1:%port\r\nConnection: close\r\n\r\n"
    health = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1:%port\r\n\r\n"
    with connections(world, 2, get) as (slow, deaf):
        received = len(slow.recv(1 << 14))
        assert deaf.recv(15) == b"HTTP/1.1 200 OK"
        with connections(world, 1, health) as (late,):
            while not select.select([late], [], [], 0.02)[0]:
                received += len(slow.recv(1 << 14))
            assert late.recv(15) == b"HTTP/1.1 200 OK"
        assert received < LARGE
        assert received + len(read_all(slow)) > LARGE
        assert len(read_all(deaf)) < LARGE


@pytest.mark.thorough
def test_an_idle_connection_makes_room_for_a_new_one(launch: Launch) -> None:
    world = launch(TALLY, *NEVER, "--max-connections", "1")
    get = b"GET /api.md HTTP/1.1\r\nHost: 127.0.0.1:%port\r\n\r\n"
    with connections(world, 1, get) as (first,):
        assert read_until(first, b"Send Add.\n").startswith(b"HTTP/1.1 200")
        assert world.ask("GET", "/api.md").status == 200
        assert read_all(first) == b""
    assert "all 1 connections are in use" in world.log
