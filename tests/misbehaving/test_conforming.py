"""Without a fault switched on, the misbehaving world keeps the contract."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
from pathlib import Path

import pytest

from tests.misbehaving.support import add, run_world
from tests.support.sockets import free_port, is_listening
from tests.support.waiting import HANG_S, wait_until
from tests.support.worlds import MISBEHAVING, ask, running_world, world_command


@pytest.mark.thorough
@pytest.mark.parametrize("route", ["/api.md", "/skill.md"])
def test_the_agent_document_needs_no_header(tmp_path: Path, route: str) -> None:
    with running_world(tmp_path) as world:
        answer = world.ask("GET", route)
    assert answer.status == 200
    assert b"/input" in answer.body
    assert b"snapshot" not in answer.body


def test_world_starts_fast_because_it_imports_little() -> None:
    command = world_command("--exit-at-once", "0")
    command[1:1] = ["-X", "importtime"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S).stderr
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


@pytest.mark.thorough
def test_joining_again_with_the_session_gives_the_same_session(tmp_path: Path) -> None:
    with running_world(tmp_path) as world:
        first = world.join()
        assert (
            world.ask("POST", "/join?name=Rocky", headers=first).json()["session"]
            == (first["X-Session"])
        )
        assert world.join() != first


@pytest.mark.thorough
def test_an_unknown_input_and_an_unknown_route_are_refused(tmp_path: Path) -> None:
    with running_world(tmp_path) as world:
        session = world.join()
        assert world.ask("POST", "/input", body=b"{}", headers=session).status == 400
        assert world.ask("GET", "/nothing").status == 404


@pytest.mark.thorough
def test_chat_is_kept_and_read_in_pages(tmp_path: Path) -> None:
    with running_world(tmp_path) as world:
        session = world.join()
        for text in ("one", "two", "three"):
            body = json.dumps({"content": text}).encode()
            world.ask("POST", "/chat", body=body, headers=session)
        page = world.ask("GET", "/chat/messages?after=1&limit=1").json()
    assert page == [{"id": 2, "name": "Rocky", "content": "two"}]


@pytest.mark.thorough
def test_one_connection_carries_several_requests(tmp_path: Path) -> None:
    with running_world(tmp_path) as world:
        connection = http.client.HTTPConnection("127.0.0.1", world.port, timeout=HANG_S)
        for _ in range(3):
            connection.request("GET", "/api.md")
            assert connection.getresponse().read()
        connection.close()


@pytest.mark.thorough
@pytest.mark.parametrize("token", [{}, {"X-Operator-Token": "wrong"}, {"X-Operator-Token": ""}])
def test_the_snapshot_is_for_the_operator_only(tmp_path: Path, token: dict[str, str]) -> None:
    with running_world(tmp_path) as world:
        assert world.ask("GET", "/snapshot", headers=token).status == 401


@pytest.mark.thorough
def test_a_snapshot_requires_a_token(tmp_path: Path) -> None:
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


@pytest.mark.thorough
def test_a_snapshot_names_format_time_scene_and_sessions(tmp_path: Path) -> None:
    with running_world(tmp_path) as world:
        session = world.join()
        add(world, session, 3)
        document = world.snapshot().json()
    assert list(document)[:2] == ["format", "time"]
    assert (document["format"], document["time"]) == ("counter-v1", 0.5)
    assert document["scene_hash"] == "scene-plain"
    assert [agent["session"] for agent in document["sessions"]] == [session["X-Session"]]


@pytest.mark.thorough
def test_a_snapshot_of_another_scene_is_refused_with_status_3(tmp_path: Path) -> None:
    saved = tmp_path / "saved.json"
    with running_world(tmp_path, "--scene", "moon") as world:
        saved.write_bytes(world.snapshot().body)
    ended = run_world(tmp_path, "--resume", str(saved))
    assert ended.returncode == 3
    assert "its scene is scene-moon, not scene-plain" in ended.stdout


@pytest.mark.thorough
@pytest.mark.parametrize("content", [b"", b"garbage", b'{"format"', None])
def test_invalid_snapshot_is_refused_with_status_3(tmp_path: Path, content: bytes | None) -> None:
    saved = tmp_path / "saved.json"
    if content is not None:
        saved.write_bytes(content)
    ended = run_world(tmp_path, WORLD_RESUME_PATH=str(saved))
    assert ended.returncode == 3
    assert f"cannot restore {saved}" in ended.stdout


@pytest.mark.thorough
def test_flags_override_the_environment_and_blank_values_are_unset(tmp_path: Path) -> None:
    port = free_port()
    names = ("WORLD_HOST", "WORLD_PORT", "WORLD_BASE_PATH", "WORLD_RESUME_PATH")
    blank = dict.fromkeys(names, "")
    with running_world(tmp_path, "--port", str(port), env=blank, listens=False) as world:
        wait_until(lambda: is_listening(port))
        assert not is_listening(world.port)
        assert ask(port, "GET", "/api.md").status == 200


@pytest.mark.thorough
def test_the_base_path_is_the_prefix_of_every_route(tmp_path: Path) -> None:
    with running_world(tmp_path, env={"WORLD_BASE_PATH": "/w/7"}) as world:
        assert world.ask("GET", "/w/7/api.md").status == 200
        assert world.ask("GET", "/api.md").status == 404
        assert f"Spectator frontend: http://127.0.0.1:{world.port}/w/7/" in world.log


@pytest.mark.thorough
def test_world_records_when_recording_is_on(tmp_path: Path) -> None:
    told = {"WORLD_RECORD": "1", "WORLD_RECORD_DIR": str(tmp_path)}
    with running_world(tmp_path, env=told) as world:
        add(world, world.join(), 5)
    assert (tmp_path / "counter.jsonl").read_text() == '{"type": "add", "data": 5}\n'


@pytest.mark.thorough
def test_sigterm_ends_it_cleanly(tmp_path: Path) -> None:
    with running_world(tmp_path) as world:
        world.process.terminate()
        assert world.wait() == 0
        assert world.log.endswith("stopped\n")
        assert not is_listening(world.port)


@pytest.mark.thorough
def test_world_serves_on_an_inherited_socket(tmp_path: Path) -> None:
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


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("flags", "env"),
    [((), {}), (("--listen", "inherit"), {"LISTEN_PID": "1"})],
    ids=["not asked to", "meant for another"],
)
def test_world_binds_its_port_despite_an_unused_inherited_socket(
    tmp_path: Path, flags: tuple[str, ...], env: dict[str, str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        descriptor = listener.fileno()
        with running_world(tmp_path, *flags, env=env, descriptor=descriptor) as world:
            assert world.ask("GET", "/api.md").status == 200


@pytest.mark.thorough
def test_world_binds_its_port_without_an_inherited_socket(tmp_path: Path) -> None:
    with running_world(tmp_path, "--listen", "inherit") as world:
        assert world.ask("GET", "/api.md").status == 200


@pytest.mark.thorough
def test_world_reports_its_seed(tmp_path: Path) -> None:
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


@pytest.mark.thorough
def test_world_lists_the_requests_it_received(tmp_path: Path) -> None:
    with running_world(tmp_path) as world:
        world.snapshot()
        (request,) = world.ask("GET", "/__requests").json()
    assert (request["method"], request["path"]) == ("GET", "/snapshot")
    assert request["headers"]["x-operator-token"] == world.token


@pytest.mark.thorough
def test_world_writes_its_launch_settings_to_a_file(tmp_path: Path) -> None:
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
