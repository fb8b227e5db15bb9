"""The misbehaving world conforms without flags, and each flag breaks what it says."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import time
import tomllib
import zlib
from pathlib import Path
from typing import Any

import pytest

from tests.support import (
    MISBEHAVING,
    RunningWorld,
    ask,
    descendants,
    free_port,
    is_alive,
    is_listening,
    live_processes,
    make_world,
    marked_processes,
    processes_in,
    running_world,
    wait_until,
    world_command,
)


def run_world(directory: Path, *flags: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a world that ends by itself."""
    return subprocess.run(
        world_command(*flags),
        cwd=directory,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=20,
    )


def add(world: RunningWorld, session: dict[str, str], number: int) -> Any:
    body = json.dumps({"type": "add", "data": number}).encode()
    return world.ask("POST", "/input", body=body, headers=session).json()


def ignores_sigterm(pid: int) -> bool:
    """Read it from the process itself: to send a signal and look proves nothing at once."""
    status = Path(f"/proc/{pid}/status").read_text()
    ignored = next(line for line in status.splitlines() if line.startswith("SigIgn:"))
    return bool(int(ignored.split()[1], 16) >> (signal.SIGTERM - 1) & 1)


def read_pid(path: Path) -> int:
    wait_until(path.exists, what=f"{path.name} is written")
    return int(path.read_text())


# ------------------------------------------------------------------------- it conforms


@pytest.mark.parametrize("route", ["/api.md", "/skill.md"])
def test_the_agent_document_needs_no_header(tmp_path: Path, route: str) -> None:
    with running_world(tmp_path) as world:
        answer = world.ask("GET", route)
    assert answer.status == 200
    assert b"/input" in answer.body
    assert b"snapshot" not in answer.body


def test_it_starts_fast_because_it_imports_little() -> None:
    command = world_command("--exit-at-once", "0")
    command[1:1] = ["-X", "importtime"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=20).stderr
    imported = {line.rpartition("|")[2].strip() for line in told.splitlines()}
    assert {"socket", "argparse"} <= imported
    assert not {"http", "email", "ssl", "asyncio", "subprocess", "inspect", "zlib"} & imported


def test_an_agent_joins_acts_observes_and_leaves(tmp_path: Path) -> None:
    with running_world(tmp_path) as world:
        joined = world.ask("POST", "/join?name=Rocky%20Two").json()
        session = {"X-Session": joined["session"]}
        assert (joined["agent_id"], joined["name"]) == ("agent-1", "Rocky Two")
        assert add(world, session, 5) == {"agent_id": "agent-1", "time": 0.5, "counter": 5}
        assert world.ask("GET", "/observe", headers=session).json()["counter"] == 5
        assert world.ask("POST", "/leave", headers=session).status == 200
        assert world.ask("GET", "/observe", headers=session).status == 401


def test_joining_again_with_the_session_gives_the_same_session(tmp_path: Path) -> None:
    with running_world(tmp_path) as world:
        first = world.join()
        assert (
            world.ask("POST", "/join?name=Rocky", headers=first).json()["session"]
            == (first["X-Session"])
        )
        assert world.join() != first


def test_an_unknown_input_and_an_unknown_route_are_refused(tmp_path: Path) -> None:
    with running_world(tmp_path) as world:
        session = world.join()
        assert world.ask("POST", "/input", body=b"{}", headers=session).status == 400
        assert world.ask("GET", "/nothing").status == 404


def test_chat_is_kept_and_read_in_pages(tmp_path: Path) -> None:
    with running_world(tmp_path) as world:
        session = world.join()
        for text in ("one", "two", "three"):
            body = json.dumps({"content": text}).encode()
            world.ask("POST", "/chat", body=body, headers=session)
        page = world.ask("GET", "/chat/messages?after=1&limit=1").json()
    assert page == [{"id": 2, "name": "Rocky", "content": "two"}]


def test_several_requests_travel_on_one_connection(tmp_path: Path) -> None:
    with running_world(tmp_path) as world:
        connection = http.client.HTTPConnection("127.0.0.1", world.port, timeout=5)
        for _ in range(3):
            connection.request("GET", "/api.md")
            assert connection.getresponse().read()
        connection.close()


@pytest.mark.parametrize("token", [{}, {"X-Operator-Token": "wrong"}, {"X-Operator-Token": ""}])
def test_the_snapshot_is_for_the_operator_only(tmp_path: Path, token: dict[str, str]) -> None:
    with running_world(tmp_path) as world:
        assert world.ask("GET", "/snapshot", headers=token).status == 401


def test_without_a_token_nobody_gets_the_snapshot(tmp_path: Path) -> None:
    with running_world(tmp_path, env={"WORLD_OPERATOR_TOKEN": ""}) as world:
        answer = world.ask("GET", "/snapshot", headers={"X-Operator-Token": ""})
    assert answer.status == 401


def test_a_snapshot_resumes_exactly_and_sessions_keep_working(tmp_path: Path) -> None:
    saved = tmp_path / "saved.json"
    with running_world(tmp_path) as world:
        session = world.join()
        add(world, session, 3)
        saved.write_bytes(world.snapshot().body)
        trace = [add(world, session, n) for n in (1, 2)]
    with running_world(tmp_path, env={"WORLD_RESUME_PATH": str(saved)}) as world:
        assert world.snapshot().body == saved.read_bytes()
        assert [add(world, session, n) for n in (1, 2)] == trace


def test_a_snapshot_names_format_time_scene_and_sessions(tmp_path: Path) -> None:
    with running_world(tmp_path) as world:
        session = world.join()
        add(world, session, 3)
        document = world.snapshot().json()
    assert list(document)[:2] == ["format", "time"]
    assert (document["format"], document["time"]) == ("counter-v1", 0.5)
    assert document["scene_hash"] == "scene-plain"
    assert [agent["session"] for agent in document["sessions"]] == [session["X-Session"]]


def test_a_snapshot_of_another_scene_is_refused_with_status_3(tmp_path: Path) -> None:
    saved = tmp_path / "saved.json"
    with running_world(tmp_path, "--scene", "moon") as world:
        saved.write_bytes(world.snapshot().body)
    ended = run_world(tmp_path, "--resume", str(saved))
    assert ended.returncode == 3
    assert "its scene is scene-moon, not scene-plain" in ended.stdout


@pytest.mark.parametrize("content", [b"", b"garbage", b'{"format"', None])
def test_what_is_no_snapshot_is_refused_with_status_3(
    tmp_path: Path, content: bytes | None
) -> None:
    saved = tmp_path / "saved.json"
    if content is not None:
        saved.write_bytes(content)
    ended = run_world(tmp_path, WORLD_RESUME_PATH=str(saved))
    assert ended.returncode == 3
    assert f"cannot restore {saved}" in ended.stdout


def test_flags_override_the_environment_and_blank_values_are_unset(tmp_path: Path) -> None:
    port = free_port()
    names = ("WORLD_HOST", "WORLD_PORT", "WORLD_BASE_PATH", "WORLD_RESUME_PATH")
    blank = dict.fromkeys(names, "")
    with running_world(tmp_path, "--port", str(port), env=blank, listens=False) as world:
        wait_until(lambda: is_listening(port))
        assert not is_listening(world.port)
        assert ask(port, "GET", "/api.md").status == 200


def test_the_base_path_is_the_prefix_of_every_route(tmp_path: Path) -> None:
    with running_world(tmp_path, env={"WORLD_BASE_PATH": "/w/7"}) as world:
        assert world.ask("GET", "/w/7/api.md").status == 200
        assert world.ask("GET", "/api.md").status == 404
        assert f"Spectator frontend: http://127.0.0.1:{world.port}/w/7/" in world.log


def test_it_records_when_it_is_told_to(tmp_path: Path) -> None:
    told = {"WORLD_RECORD": "1", "WORLD_RECORD_DIR": str(tmp_path)}
    with running_world(tmp_path, env=told) as world:
        add(world, world.join(), 5)
    assert (tmp_path / "counter.jsonl").read_text() == '{"type": "add", "data": 5}\n'


def test_sigterm_ends_it_cleanly(tmp_path: Path) -> None:
    with running_world(tmp_path) as world:
        world.process.terminate()
        assert world.wait() == 0
        assert world.log.endswith("stopped\n")
        assert not is_listening(world.port)


def test_it_serves_on_a_socket_that_it_inherits(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        listener.setblocking(False)
        inherits = {"descriptor": listener.fileno(), "listens": False}
        with socket.create_connection(("127.0.0.1", port)) as early:
            early.sendall(b"GET /api.md HTTP/1.1\r\n\r\n")
            with running_world(tmp_path, "--listen", "inherit", **inherits) as world:
                assert early.recv(65536).startswith(b"HTTP/1.1 200")
                assert ask(port, "GET", "/api.md").status == 200
                assert not is_listening(world.port)
                assert f"http://127.0.0.1:{port}/" in world.log


@pytest.mark.parametrize(
    ("flags", "env"),
    [((), {}), (("--listen", "inherit"), {"LISTEN_PID": "1"})],
    ids=["not asked to", "meant for another"],
)
def test_it_binds_beside_a_socket_that_it_does_not_serve_on(
    tmp_path: Path, flags: tuple[str, ...], env: dict[str, str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        descriptor = listener.fileno()
        with running_world(tmp_path, *flags, env=env, descriptor=descriptor) as world:
            assert world.ask("GET", "/api.md").status == 200


def test_it_binds_when_there_is_nothing_to_inherit(tmp_path: Path) -> None:
    with running_world(tmp_path, "--listen", "inherit") as world:
        assert world.ask("GET", "/api.md").status == 200


def test_it_tells_the_seed_that_it_was_given(tmp_path: Path) -> None:
    saved = tmp_path / "saved.json"
    with running_world(tmp_path) as world:
        session = world.join()
        saved.write_bytes(world.snapshot().body)
        assert world.snapshot().json()["reseed"] is None
    told = {"WORLD_RESUME_PATH": str(saved), "WORLD_RESEED": "0"}
    with running_world(tmp_path, env=told) as world:
        assert world.ask("GET", "/observe", headers=session).json()["reseed"] == 0
        saved.write_bytes(world.snapshot().body)
    with running_world(tmp_path, "--resume", str(saved)) as world:
        assert world.snapshot().json()["reseed"] == 0


def test_it_lists_the_requests_it_received(tmp_path: Path) -> None:
    with running_world(tmp_path) as world:
        world.snapshot()
        (request,) = world.ask("GET", "/__requests").json()
    assert (request["method"], request["path"]) == ("GET", "/snapshot")
    assert request["headers"]["x-operator-token"] == world.token


def test_it_writes_down_what_its_launcher_decided(tmp_path: Path) -> None:
    dump = tmp_path / "dump.json"
    with running_world(tmp_path, "--dump", str(dump), env={"EXTRA": "yes"}) as world:
        facts = json.loads(dump.read_text())
    assert facts["pid"] == facts["sid"] == facts["pgid"] == world.process.pid
    assert facts["argv"][1:] == [str(MISBEHAVING), "--dump", str(dump)]
    assert facts["cwd"] == str(world.directory)
    assert facts["env"]["EXTRA"] == "yes"
    assert facts["fds"] == {
        "0": "/dev/null",
        "1": f"{world.directory}/world.log",
        "2": f"{world.directory}/world.log",
    }


def test_every_flag_is_explained() -> None:
    helped = subprocess.run(world_command("--help"), capture_output=True, text=True, check=True)
    for flag in ("--exit-at-once", "--bare-daemon", "--long-line", "hang-in-body", "not-json"):
        assert flag in helped.stdout


# -------------------------------------------------------------------- it fails to start


def test_it_exits_at_once(tmp_path: Path) -> None:
    ended = run_world(tmp_path, "--exit-at-once", "7")
    assert (ended.returncode, "exiting with 7" in ended.stdout) == (7, True)


@pytest.mark.parametrize("name", ["SIGKILL", "SIGABRT"])
def test_it_dies_by_a_signal_before_it_is_ready(tmp_path: Path, name: str) -> None:
    ended = run_world(tmp_path, "--die-at-once", name)
    assert ended.returncode == -signal.Signals[name]


def test_it_exits_after_a_while(tmp_path: Path) -> None:
    with running_world(tmp_path, "--exit-after", "0.1") as world:
        assert world.wait() == 9


def test_it_lives_and_never_listens(tmp_path: Path) -> None:
    with running_world(tmp_path, "--never-listen", listens=False) as world:
        wait_until(lambda: "counter world" in world.log)
        # It would have bound right after; SIGTERM shows that it sits in its endless wait.
        assert is_alive(world.process.pid)
        assert not is_listening(world.port)
        world.process.terminate()
        assert world.wait() == 0


def test_it_boots_slowly(tmp_path: Path) -> None:
    began = time.monotonic()
    with running_world(tmp_path, "--slow-boot", "0.3") as world:
        assert time.monotonic() - began >= 0.3
        assert world.ask("GET", "/api.md").status == 200


def test_it_answers_503_for_ever(tmp_path: Path) -> None:
    with running_world(tmp_path, "--unavailable", "inf") as world:
        assert world.ask("GET", "/api.md").status == 503
        assert world.snapshot().status == 503


def test_it_answers_503_from_when_it_is_told_to(tmp_path: Path) -> None:
    with running_world(tmp_path) as world:
        world.set(unavailable="inf")
        assert world.ask("GET", "/api.md").status == 503
        world.set(unavailable=0)
        assert world.ask("GET", "/api.md").status == 200


def test_it_answers_503_for_a_while_and_then_serves(tmp_path: Path) -> None:
    with running_world(tmp_path, "--unavailable", "0.3") as world:
        assert world.ask("GET", "/api.md").status == 503
        wait_until(lambda: world.ask("GET", "/api.md").status == 200)


def test_it_accepts_and_never_answers(tmp_path: Path) -> None:
    with running_world(tmp_path, "--mute") as world, pytest.raises(TimeoutError):
        world.ask("GET", "/api.md", timeout=0.1)


def test_it_falls_silent_when_it_is_told_to(tmp_path: Path) -> None:
    with running_world(tmp_path) as world:
        world.set(mute="")
        with pytest.raises(TimeoutError):
            world.ask("GET", "/api.md", timeout=0.1)


def test_its_document_fails_and_recovers_while_all_else_works(tmp_path: Path) -> None:
    with running_world(tmp_path, "--doc", "status-500") as world:
        assert world.ask("GET", "/api.md").status == 500
        world.set(doc="hang")
        with pytest.raises(TimeoutError):
            world.ask("GET", "/api.md", timeout=0.1)
        assert world.snapshot().status == 200
        world.set(doc="served")
        assert world.ask("GET", "/api.md").status == 200


def test_it_binds_the_ipv6_loopback_only(tmp_path: Path) -> None:
    with running_world(tmp_path, "--bind", "::1") as world:
        assert world.ask("GET", "/api.md", host="::1").status == 200
        with pytest.raises(ConnectionRefusedError):
            world.ask("GET", "/api.md")


def test_it_binds_another_port(tmp_path: Path) -> None:
    other = free_port()
    with running_world(tmp_path, "--bind-port", str(other), listens=False) as world:
        wait_until(lambda: is_listening(other))
        assert not is_listening(world.port)


def test_it_is_ready_by_its_log_and_serves_health(tmp_path: Path) -> None:
    with running_world(tmp_path, "--health", "--say-ready", "0.1") as world:
        assert world.ask("GET", "/api.md").status == 404
        assert world.ask("GET", "/health").status == 200
        wait_until(lambda: "READY to serve\n" in world.log)


# ------------------------------------------------------------------- it fails when ready


@pytest.mark.parametrize(
    ("query", "status"), [("signal=SIGKILL", -signal.SIGKILL), ("status=4", 4), ("status=0", 0)]
)
def test_it_dies_when_told(tmp_path: Path, query: str, status: int) -> None:
    with running_world(tmp_path) as world:
        assert world.ask("POST", f"/__die?{query}").status == 200
        assert world.wait() == status


def test_it_closes_its_listener_and_lives_on(tmp_path: Path) -> None:
    with running_world(tmp_path) as world:
        connection = http.client.HTTPConnection("127.0.0.1", world.port, timeout=5)
        for method, target in (("GET", "/api.md"), ("POST", "/__close-listener")):
            connection.request(method, target)
            connection.getresponse().read()
        connection.close()
        wait_until(lambda: not is_listening(world.port))
        assert is_alive(world.process.pid)
        world.process.terminate()
        assert world.wait() == 0


def test_it_serves_its_snapshot_to_everybody(tmp_path: Path) -> None:
    with running_world(tmp_path, "--ungated") as world:
        answer = world.ask("GET", "/snapshot", headers={"X-Operator-Token": "wrong"})
    assert answer.json()["format"] == "counter-v1"


def test_faults_are_switched_while_it_runs(tmp_path: Path) -> None:
    with running_world(tmp_path) as world:
        world.set(snapshot="truncated", after_bytes=7)
        with pytest.raises(http.client.IncompleteRead) as caught:
            world.snapshot()
        assert len(caught.value.partial) == 7
        world.set(snapshot="sized")
        assert world.snapshot().status == 200


# ------------------------------------------------------------------------------ snapshots


@pytest.mark.parametrize("way", ["sized", "chunked", "close-delimited"])
def test_a_whole_snapshot_travels_in_three_ways(tmp_path: Path, way: str) -> None:
    with running_world(tmp_path, "--snapshot", way, "--snapshot-mb", "1") as world:
        answer = world.snapshot()
    assert answer.json()["format"] == "counter-v1"
    assert ("content-length" in answer.headers) == (way == "sized")
    assert ("transfer-encoding" in answer.headers) == (way == "chunked")
    assert 900_000 < len(answer.body) < 1_100_000


@pytest.mark.parametrize("flags", [(), ("--format-last",)])
def test_format_and_time_stand_first_or_last(tmp_path: Path, flags: tuple[str, ...]) -> None:
    with running_world(tmp_path, *flags) as world:
        names = list(world.snapshot().json())
    assert (names[-2:] if flags else names[:2]) == ["format", "time"]


def test_a_snapshot_is_json_without_a_format(tmp_path: Path) -> None:
    with running_world(tmp_path, "--snapshot", "no-format") as world:
        assert "format" not in world.snapshot().json()


def test_a_snapshot_has_a_time_that_is_no_number(tmp_path: Path) -> None:
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
        ("invalid-json", 200, b'{"format": "counter-v1", "time": oops}'),
    ],
)
def test_something_else_is_answered(tmp_path: Path, way: str, status: int, body: bytes) -> None:
    with running_world(tmp_path, "--snapshot", way) as world:
        answer = world.snapshot()
    assert (answer.status, answer.body) == (status, body)


def test_the_answer_redirects(tmp_path: Path) -> None:
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


def test_a_truncated_snapshot_looks_whole_when_only_the_end_delimits_it(tmp_path: Path) -> None:
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
        # The world itself is well: only this connection hangs.
        assert world.ask("GET", "/api.md").status == 200


def receive_snapshot(world: RunningWorld, *, silence_s: float, limit: int = 1 << 20) -> bytes:
    """Return the raw answer until nothing comes for a while, or until it is long enough."""
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


def test_a_snapshot_comes_in_drips(tmp_path: Path) -> None:
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


def test_a_snapshot_is_compressed_though_nobody_asked(tmp_path: Path) -> None:
    with running_world(tmp_path, "--snapshot", "gzip", "--snapshot-mb", "5") as world:
        answer = world.snapshot()
    assert answer.headers["content-encoding"] == "gzip"
    assert len(answer.body) < 100_000
    assert len(zlib.decompress(answer.body, wbits=31)) > 4_900_000


# ------------------------------------------------------------------------------- sessions


@pytest.mark.parametrize(
    ("fault", "status", "body"),
    [("status-500", 500, b"out of bodies"), ("not-json", 200, b"welcome!")],
)
def test_joining_fails(tmp_path: Path, fault: str, status: int, body: bytes) -> None:
    with running_world(tmp_path, "--join", fault) as world:
        answer = world.ask("POST", "/join?name=Rocky")
    assert (answer.status, answer.body) == (status, body)


@pytest.mark.parametrize(
    ("fault", "session"),
    [("another-session", "another"), ("bad-session", "two\r\nlines"), ("no-session", None)],
)
def test_joining_gives_a_wrong_session(tmp_path: Path, fault: str, session: str | None) -> None:
    with running_world(tmp_path) as world:
        own = world.join()
        world.set(join=fault)
        answer = world.ask("POST", "/join?name=Rocky", headers=own).json()
    assert answer.get("session") == session


def test_joining_answers_a_list(tmp_path: Path) -> None:
    with running_world(tmp_path, "--join", "not-an-object") as world:
        assert isinstance(world.ask("POST", "/join").json(), list)


def test_joining_answers_more_than_asked(tmp_path: Path) -> None:
    with running_world(tmp_path, "--join", "extra-fields") as world:
        assert world.ask("POST", "/join").json()["spawn"] == {"x": 1.5}


def test_joining_hangs(tmp_path: Path) -> None:
    with running_world(tmp_path, "--join", "hang") as world, pytest.raises(TimeoutError):
        world.ask("POST", "/join", timeout=0.1)


# ------------------------------------------------------------------------------ processes


def test_it_ignores_sigterm(tmp_path: Path) -> None:
    with running_world(tmp_path, "--ignore-sigterm") as world:
        assert ignores_sigterm(world.process.pid)
        world.process.terminate()
        assert world.ask("GET", "/api.md").status == 200


def test_it_takes_its_time_to_stop(tmp_path: Path) -> None:
    with running_world(tmp_path, "--slow-stop", "0.3") as world:
        began = time.monotonic()
        world.process.terminate()
        assert world.wait() == 0
        assert time.monotonic() - began >= 0.3


def test_a_daemon_survives_its_session_and_keeps_the_port(tmp_path: Path) -> None:
    with running_world(tmp_path, "--daemon") as world:
        daemon = read_pid(world.directory / "daemon.pid")
        assert daemon not in descendants(world.process.pid)
        assert os.getsid(daemon) != world.process.pid
        assert ignores_sigterm(daemon)
        os.killpg(world.process.pid, signal.SIGKILL)
        world.wait()
        assert is_alive(daemon)
        assert is_listening(world.port)
        assert marked_processes(world.cookie) == {daemon}
    assert not is_alive(daemon)


def test_a_bare_daemon_carries_no_mark(tmp_path: Path) -> None:
    with running_world(tmp_path, "--bare-daemon") as world:
        daemon = read_pid(world.directory / "bare-daemon.pid")
        assert Path(f"/proc/{daemon}/environ").read_bytes() == b""
        assert daemon not in marked_processes(world.cookie)
        assert daemon in processes_in(world.directory)
        assert ignores_sigterm(daemon)
        world.process.kill()
        world.wait()
        assert is_alive(daemon)
        assert not is_listening(world.port)


def test_a_stubborn_child_outlives_its_parent(tmp_path: Path) -> None:
    with running_world(tmp_path, "--stubborn-child") as world:
        child = read_pid(world.directory / "stubborn-child.pid")
        assert descendants(world.process.pid) == {child}
        assert ignores_sigterm(child)
        os.killpg(world.process.pid, signal.SIGTERM)
        assert world.wait() == 0
        assert is_alive(child)
        assert os.getpgid(child) == world.process.pid


def test_a_graceful_child_tidies_up_after_its_parent_ended(tmp_path: Path) -> None:
    with running_world(tmp_path, "--graceful-child", "0.2") as world:
        child = read_pid(world.directory / "graceful-child.pid")
        os.killpg(world.process.pid, signal.SIGTERM)
        assert world.wait() == 0
        tidied = world.directory / "graceful-child.tidied"
        assert not tidied.exists()
        wait_until(tidied.exists)
        wait_until(lambda: not is_alive(child))


@pytest.mark.parametrize("wrapper", ["child", "nohup", "background"])
def test_a_wrapper_script_hides_the_world(tmp_path: Path, wrapper: str) -> None:
    flags = ("--pid-file", "world.pid")
    with running_world(tmp_path, *flags, wrapper=wrapper) as world:
        pid = read_pid(world.directory / "world.pid")
        assert pid != world.process.pid
        assert (os.getsid(pid) == world.process.pid) == (wrapper == "child")
        world.process.terminate()
        world.wait()
        assert is_alive(pid)
        assert is_listening(world.port)


def test_a_sidecar_serves_nothing_and_lives_until_sigterm(tmp_path: Path) -> None:
    dump = tmp_path / "dump.json"
    with running_world(tmp_path, "--sidecar", "--dump", str(dump), listens=False) as world:
        wait_until(dump.exists)
        assert json.loads(dump.read_text())["env"]["WORLD_PORT"] == str(world.port)
        assert not is_listening(world.port)
        world.process.terminate()
        assert world.wait() == 0


# --------------------------------------------------------------------------------- output


def test_it_floods_before_it_listens(tmp_path: Path) -> None:
    with running_world(tmp_path, "--flood-lines", "5000") as world:
        lines = world.log.splitlines()
    numbers = [line.split()[1] for line in lines if line.startswith("flood ")]
    assert numbers == [str(n) for n in range(5000)]


def test_it_floods_while_it_serves(tmp_path: Path) -> None:
    with running_world(tmp_path, "--flood-rate", "2000") as world:
        wait_until(lambda: world.log.count("steady ") > 500)
        assert world.ask("GET", "/api.md").status == 200


def test_it_writes_a_line_without_an_end(tmp_path: Path) -> None:
    with running_world(tmp_path, "--long-line", "300000") as world:
        assert "\n" + "y" * 300_000 in world.log


def test_it_writes_bytes_that_are_not_utf8(tmp_path: Path) -> None:
    with running_world(tmp_path, "--raw-bytes") as world:
        log = (world.directory / "world.log").read_bytes()
    assert b"caf\xe9 \xff\xfe \x00 end\n" in log


def test_it_tells_its_token(tmp_path: Path) -> None:
    with running_world(tmp_path, "--tell-token") as world:
        assert f"my token is {world.token}\n" in world.log


# ------------------------------------------------------------------------------- manifest


def test_it_registers_recordings_and_keeps_what_is_there(tmp_path: Path) -> None:
    manifest = tmp_path / "manifest.json"
    manifest.write_text('{"schema_version": 1, "mine": 7, "recordings": [{"path": "a"}]}')
    told = {"CLAWBLOX_MANIFEST_PATH": str(manifest)}
    with running_world(tmp_path, "--append-manifest", "3", env=told) as world:
        wait_until(lambda: "registered 3 recordings" in world.log)
        written = json.loads(manifest.read_text())
    assert written["mine"] == 7
    paths = [entry["path"] for entry in written["recordings"]]
    assert paths == ["a", *(f"recordings/{world.process.pid}-{n}.jsonl" for n in range(3))]
    assert not (tmp_path / "manifest.json.tmp").exists()


def test_it_registers_again_and_again(tmp_path: Path) -> None:
    manifest = tmp_path / "manifest.json"
    told = {"CLAWBLOX_MANIFEST_PATH": str(manifest)}
    flags = ("--append-manifest", "100000", "--append-interval", "0.005")
    with running_world(tmp_path, *flags, env=told):
        for _ in range(3):
            wait_until(manifest.exists)
            manifest.unlink()


# ------------------------------------------------------------------------ what tests stand on


def test_a_made_world_runs_by_its_own_command(tmp_path: Path) -> None:
    world = make_world(
        tmp_path,
        "--exit-at-once",
        "7",
        toml_extra='[run.ready]\npath = "/health"',
        sidecars={"viewer": ["--exit-at-once", "8"]},
    )
    config = tomllib.loads((world / "world.toml").read_text())
    (sidecar,) = config["run"]["sidecar"]
    assert (config["name"], sidecar["name"]) == ("counter", "viewer")
    assert config["run"]["ready"] == {"path": "/health"}
    commands = (config["run"]["command"], sidecar["command"])
    ended = [subprocess.run(c, stdout=subprocess.DEVNULL, timeout=20) for c in commands]
    assert [e.returncode for e in ended] == [7, 8]


def test_nothing_of_a_running_world_is_left(tmp_path: Path) -> None:
    with running_world(tmp_path, "--daemon", "--bare-daemon", "--stubborn-child") as world:
        for name in ("daemon", "bare-daemon", "stubborn-child"):
            read_pid(world.directory / f"{name}.pid")
        family = processes_in(world.directory)
        assert len(family) == 4
    assert not family & live_processes()
    assert not is_listening(world.port)
