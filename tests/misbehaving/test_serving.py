"""Faults of the ready misbehaving world: listener, snapshots and sessions."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import time
import zlib
from pathlib import Path

import pytest

from tests.misbehaving.support import add
from tests.support.processes import is_alive
from tests.support.sockets import is_listening
from tests.support.waiting import HANG_S, wait_until
from tests.support.worlds import RunningWorld, running_world

pytestmark = pytest.mark.thorough
"""By default, tests of the package show that these faults match their names."""

# --------------------------------------------------------------------------- faults when ready


@pytest.mark.parametrize(
    ("query", "status"), [("signal=SIGKILL", -signal.SIGKILL), ("status=4", 4), ("status=0", 0)]
)
def test_world_dies_on_request(tmp_path: Path, query: str, status: int) -> None:
    with running_world(tmp_path) as world:
        assert world.ask("POST", f"/__die?{query}").status == 200
        assert world.wait() == status


def test_world_closes_its_listener_and_keeps_running(tmp_path: Path) -> None:
    with running_world(tmp_path) as world:
        connection = http.client.HTTPConnection("127.0.0.1", world.port, timeout=HANG_S)
        for method, target in (("GET", "/api.md"), ("POST", "/__close-listener")):
            connection.request(method, target)
            connection.getresponse().read()
        connection.close()
        wait_until(lambda: not is_listening(world.port))
        assert is_alive(world.process.pid)
        world.process.terminate()
        assert world.wait() == 0


def test_world_serves_its_snapshot_to_everybody(tmp_path: Path) -> None:
    with running_world(tmp_path, "--ungated") as world:
        answer = world.ask("GET", "/snapshot", headers={"X-Operator-Token": "wrong"})
    assert answer.json()["format"] == "counter-v1"


def test_faults_are_switched_at_run_time(tmp_path: Path) -> None:
    with running_world(tmp_path) as world:
        world.set(snapshot="truncated", after_bytes=7)
        with pytest.raises(http.client.IncompleteRead) as caught:
            world.snapshot()
        assert len(caught.value.partial) == 7
        world.set(snapshot="sized")
        assert world.snapshot().status == 200


# ------------------------------------------------------------------------------ snapshots


@pytest.mark.parametrize("way", ["sized", "chunked", "close-delimited"])
def test_complete_snapshot_is_sent_in_three_ways(tmp_path: Path, way: str) -> None:
    with running_world(tmp_path, "--snapshot", way, "--snapshot-mb", "1") as world:
        answer = world.snapshot()
    assert answer.json()["format"] == "counter-v1"
    assert ("content-length" in answer.headers) == (way == "sized")
    assert ("transfer-encoding" in answer.headers) == (way == "chunked")
    assert 900_000 < len(answer.body) < 1_100_000


@pytest.mark.parametrize("flags", [(), ("--format-last",)])
def test_format_and_time_may_be_the_first_or_last_keys(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    with running_world(tmp_path, *flags) as world:
        names = list(world.snapshot().json())
    assert (names[-2:] if flags else names[:2]) == ["format", "time"]


def test_a_snapshot_is_json_without_a_format(tmp_path: Path) -> None:
    with running_world(tmp_path, "--snapshot", "no-format") as world:
        assert "format" not in world.snapshot().json()


def test_snapshot_time_is_not_a_number(tmp_path: Path) -> None:
    with running_world(tmp_path, "--snapshot", "nan") as world:
        assert b'"time": NaN' in world.snapshot().body


def test_an_opaque_snapshot_restores_too(tmp_path: Path) -> None:
    saved = tmp_path / "saved.bin"
    with running_world(tmp_path, "--snapshot", "opaque") as world:
        session = world.join()
        add(world, session, 3)
        answer = world.snapshot()
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.body.startswith(b"COUNTER\x00")
    saved.write_bytes(answer.body)
    with running_world(tmp_path, "--resume", str(saved)) as world:
        assert world.ask("GET", "/observe", headers=session).json()["counter"] == 3


@pytest.mark.parametrize(
    ("way", "status", "body"),
    [
        ("status-401", 401, b"who are you?"),
        ("status-404", 404, b"there is no such thing"),
        ("status-500", 500, b"Traceback (most recent call last): ..."),
        ("empty", 200, b""),
        ("html", 200, b"<!doctype html><h1>It works!</h1>"),
        ("garbage", 200, bytes(range(256))),
    ],
)
def test_snapshot_route_gives_another_answer(
    tmp_path: Path, way: str, status: int, body: bytes
) -> None:
    with running_world(tmp_path, "--snapshot", way) as world:
        answer = world.snapshot()
    assert (answer.status, answer.body) == (status, body)


def test_snapshot_answer_redirects(tmp_path: Path) -> None:
    target = "http://127.0.0.1:9/elsewhere"
    with running_world(tmp_path, "--snapshot", "redirect", "--redirect-to", target) as world:
        answer = world.snapshot()
    assert (answer.status, answer.headers["location"]) == (302, target)


@pytest.mark.parametrize("way", ["truncated", "truncated-chunked", "die-in-body"])
def test_a_snapshot_ends_too_early(tmp_path: Path, way: str) -> None:
    with running_world(tmp_path, "--snapshot", way, "--after-bytes", "20") as world:
        with pytest.raises(http.client.IncompleteRead) as caught:
            world.snapshot()
        if way == "die-in-body":
            assert world.wait() == -signal.SIGKILL
    assert len(caught.value.partial) == 20


def test_truncated_snapshot_looks_complete_without_a_length(tmp_path: Path) -> None:
    with running_world(tmp_path, "--snapshot", "truncated-close-delimited") as world:
        answer = world.snapshot()
    assert (answer.status, len(answer.body)) == (200, 40)
    with pytest.raises(json.JSONDecodeError):
        answer.json()


@pytest.mark.parametrize(
    ("way", "has_headers"),
    [("hang-before-headers", False), ("hang-in-body", True), ("declared-huge", True)],
)
def test_a_snapshot_hangs(tmp_path: Path, way: str, has_headers: bool) -> None:
    with running_world(tmp_path, "--snapshot", way) as world:
        received = receive_snapshot(world, silence_s=0.2)
        assert received.startswith(b"HTTP/1.1 200") == has_headers
        _, _, body = received.partition(b"\r\n\r\n")
        assert len(body) == (40 if has_headers else 0)
        assert (b"Content-Length: 1000000000000000" in received) == (way == "declared-huge")
        # Only this connection hangs; the world itself keeps working.
        assert world.ask("GET", "/api.md").status == 200


def receive_snapshot(world: RunningWorld, *, silence_s: float, limit: int = 1 << 20) -> bytes:
    """Return the raw answer up to a period of silence or a maximum length."""
    request = f"GET /snapshot HTTP/1.1\r\nX-Operator-Token: {world.token}\r\n\r\n".encode()
    received = b""
    with socket.create_connection(("127.0.0.1", world.port), timeout=silence_s) as peer:
        peer.sendall(request)
        try:
            while len(received) < limit and (chunk := peer.recv(65536)):
                received += chunk
        except TimeoutError:
            pass
    return received


def test_snapshot_arrives_slowly(tmp_path: Path) -> None:
    flags = ("--drip-bytes", "30", "--drip-interval", "0.05")
    began = time.monotonic()
    with running_world(tmp_path, "--snapshot", "slow-loris", *flags) as world:
        body = world.snapshot().body
    assert json.loads(body)["format"] == "counter-v1"
    assert time.monotonic() - began >= 0.05 * (len(body) // 30)


def test_a_snapshot_never_ends(tmp_path: Path) -> None:
    with running_world(tmp_path, "--snapshot", "endless") as world:
        received = receive_snapshot(world, silence_s=5, limit=10_000_000)
    assert b"Transfer-Encoding: chunked" in received
    assert len(received) >= 10_000_000


def test_snapshot_is_compressed_without_a_request(tmp_path: Path) -> None:
    with running_world(tmp_path, "--snapshot", "gzip", "--snapshot-mb", "5") as world:
        answer = world.snapshot()
    assert answer.headers["content-encoding"] == "gzip"
    assert len(answer.body) < 100_000
    assert len(zlib.decompress(answer.body, wbits=31)) > 4_900_000


# ------------------------------------------------------------------------------- sessions


def test_joining_fails(tmp_path: Path) -> None:
    with running_world(tmp_path, "--join", "status-500") as world:
        answer = world.ask("POST", "/join?name=Rocky")
    assert (answer.status, answer.body) == (500, b"out of bodies")


@pytest.mark.parametrize(
    ("fault", "session"),
    [("another-session", "another"), ("no-session", None)],
)
def test_joining_gives_a_wrong_session(tmp_path: Path, fault: str, session: str | None) -> None:
    with running_world(tmp_path) as world:
        own = world.join()
        world.set(join=fault)
        answer = world.ask("POST", "/join?name=Rocky", headers=own).json()
    assert answer.get("session") == session


def test_joining_answers_with_additional_members(tmp_path: Path) -> None:
    with running_world(tmp_path, "--join", "extra-fields") as world:
        assert world.ask("POST", "/join").json()["spawn"] == {"x": 1.5}


def test_joining_hangs(tmp_path: Path) -> None:
    with running_world(tmp_path, "--join", "hang") as world, pytest.raises(TimeoutError):
        world.ask("POST", "/join", timeout=0.1)


# -------------------------------------------------------------------------------------- acting


@pytest.mark.parametrize(
    ("fault", "status", "body"),
    [
        ("status-500", 500, b"Traceback (most recent call last): ..."),
        ("redirect", 302, b""),
        ("not-json", 200, b"{oops"),
        ("unsized-number", 200, b"12"),
    ],
)
def test_an_input_is_applied_and_answered_badly(
    tmp_path: Path, fault: str, status: int, body: bytes
) -> None:
    with running_world(tmp_path) as world:
        session = world.join()
        world.set(acting=fault)
        message = b'{"type": "add", "data": 3}'
        answer = world.ask("POST", "/input", headers=session, body=message)
        assert (answer.status, answer.body) == (status, body)
        assert ("content-length" in answer.headers) == (not fault.startswith("unsized"))
        world.set(acting="unsized")
        assert world.ask("GET", "/observe", headers=session).json()["counter"] == 3
        world.set(acting="unsized-truncated")
        assert world.ask("GET", "/observe", headers=session).body.endswith(b'"counter": 3')


def test_world_dies_in_the_head_of_an_answer(tmp_path: Path) -> None:
    with running_world(tmp_path, "--acting", "die") as world:
        assert world.ask("GET", "/observe", headers=world.join()).body == b""
        assert world.wait() == -signal.SIGKILL


def test_world_leaves_an_observation_unanswered(tmp_path: Path) -> None:
    with running_world(tmp_path, "--acting", "hang") as world, pytest.raises(TimeoutError):
        world.ask("GET", "/observe", headers=world.join(), timeout=0.2)


def test_world_sends_a_document_without_a_length(tmp_path: Path) -> None:
    with running_world(tmp_path) as world:
        world.set(doc="unsized")
        assert world.ask("GET", "/api.md").body == b"# Coun"
