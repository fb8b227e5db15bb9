"""A world's program as the orchestrator sees it: flags, refusals, signals, the wire."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

import pytest

from tests.server.conftest import PROTECTION, TALLY, TOKEN
from tests.support.sockets import free_port, is_listening
from tests.support.waiting import HANG_S, wait_until

JSON = {"Content-Type": "application/json"}


def test_the_environment_sets_where_a_world_serves(launch):
    port = free_port()
    world = launch(env={"WORLD_PORT": str(port), "WORLD_BASE_PATH": "/one/"})
    assert world.port == port
    assert world.ask("GET", "/one/api.md").status == 200
    assert f"Listening on http://127.0.0.1:{port}/one" in world.log


def test_flags_override_the_environment(launch):
    world = launch(
        TALLY, "--port", "0", "--base-path", "/two", env={"WORLD_PORT": "1", "WORLD_BASE_PATH": "/"}
    )
    assert world.ask("GET", "/two/api.md").status == 200


def test_a_world_can_be_bound_to_ipv6(launch):
    world = launch(TALLY, "--host", "::1")
    assert f"Listening on http://[::1]:{world.port}" in world.log
    assert world.ask("GET", "/api.md", host="::1").status == 200


def test_a_world_that_listens_beyond_this_machine_warns(launch):
    world = launch(TALLY, "--host", "0.0.0.0")
    assert world.ask("GET", "/api.md").status == 200
    assert "WARNING: this world can be reached from other machines" in world.log


def test_answers_carry_no_time_of_the_host_and_no_server_name(launch):
    answer = launch().ask("GET", "/api.md")
    assert answer.headers.keys() == {"content-length", "content-type", *PROTECTION}


@pytest.mark.parametrize("token", [b"\xe9", "é".encode(), b"wrong", b"\xff" * 500])
def test_a_token_of_arbitrary_bytes_is_refused(launch, token):
    world = launch()
    answer = world.ask("GET", "/snapshot", headers={"X-Operator-Token": token})
    assert (answer.status, answer.body) == (401, b"Invalid operator token")
    assert world.snapshot().status == 200
    assert "Traceback" not in world.log


def test_foreign_hosts_and_origins_are_refused_on_the_real_port(launch):
    world = launch()
    assert world.ask("GET", "/api.md", headers={"Host": "evil.example"}).status == 421
    own = f"http://127.0.0.1:{world.port}"
    assert world.ask("POST", "/join?name=a", headers={"Origin": own}).status == 200
    assert world.ask("POST", "/join?name=a", headers={"Origin": "http://evil"}).status == 403


@pytest.mark.thorough
@pytest.mark.parametrize(
    "request_head",
    [
        b"GET /api.md HTTP/1.0\r\n\r\n",
        b"GET /api.md HTTP/1.1\r\n\r\n",
        b"GET http://evil.example/api.md HTTP/1.1\r\nHost: 127.0.0.1:%(port)d\r\n\r\n",
        b"GET /api.md HTTP/1.1\r\nHost: 127.0.0.1:%(port)d\r\nHost: evil.example\r\n\r\n",
        b"GET /api.md HTTP/1.1\r\nHost: 127.0.0.1:%(port)d\r\nX: " + b"x" * 200_000,
        b"nonsense\r\n\r\n",
    ],
    ids=["no host 1.0", "no host", "absolute form", "two hosts", "long header", "nonsense"],
)
def test_a_malformed_request_is_refused_and_the_world_runs_on(launch, request_head):
    world = launch()
    head = request_head.replace(b"%(port)d", str(world.port).encode())
    with socket.create_connection(("127.0.0.1", world.port), timeout=HANG_S) as connection:
        connection.sendall(head)
        status_line = connection.recv(4096).split(b"\r\n")[0]
    assert status_line.split()[1] in (b"400", b"404", b"421")
    assert world.ask("GET", "/api.md").status == 200


def test_no_argument_and_no_log_contains_the_token(launch):
    world = launch()
    world.snapshot()
    with open(f"/proc/{world.process.pid}/cmdline") as arguments:
        assert TOKEN not in arguments.read()
    assert TOKEN not in world.log


# --------------------------------------------------------------------------- the two clocks


def test_in_real_time_the_world_runs_by_itself_and_answers_after_a_tick(launch):
    world = launch(TALLY, "--clock", "realtime")
    session = {"X-Session": world.ask("POST", "/join?name=a").json()["session"]}
    first = world.ask("GET", "/observe", headers=session).json()["tick"]
    wait_until(lambda: world.ask("GET", "/observe", headers=session).json()["tick"] > first + 20)
    body = b'{"type":"Add","data":2}'
    seen = world.ask("POST", "/input", headers={**session, **JSON}, body=body).json()
    assert seen["sum"] == 2
    assert seen["tick"] > first


def test_a_halted_real_time_world_keeps_answering(launch):
    world = launch(TALLY, "--clock", "realtime")
    headers = {"X-Session": world.ask("POST", "/join?name=a").json()["session"], **JSON}
    body = b'{"type":"FailAtNextStep"}'
    answer = world.ask("POST", "/input", headers=headers, body=body)
    assert answer.status == 503
    assert answer.body.startswith(b"Game halted: OverflowError: the sums are too high")
    assert world.ask("GET", "/api.md").status == 200
    assert "Traceback" in world.log
    assert world.stop() == 0


@pytest.mark.thorough
@pytest.mark.parametrize("clock", ["lockstep", "realtime"])
def test_with_exit_on_halt_a_halted_world_exits_with_status_70(launch, clock):
    world = launch(TALLY, "--exit-on-halt", "--clock", clock)
    headers = {"X-Session": world.ask("POST", "/join?name=a").json()["session"], **JSON}
    answer = world.ask("POST", "/input", headers=headers, body=b'{"type":"FailAtNextStep"}')
    assert answer.status == 503
    assert answer.body.startswith(b"Game halted: OverflowError")
    assert world.process.wait(HANG_S) == 70
    assert world.log.splitlines()[-1] == (
        "tally.py: the world halted: OverflowError: the sums are too high"
    )


def test_with_exit_on_halt_a_running_world_stops_with_status_0(launch):
    world = launch(TALLY, "--exit-on-halt")
    assert world.port
    assert world.stop() == 0


# -------------------------------------------------------------------------------- snapshots


@pytest.fixture
def snapshot(launch, tmp_path):
    world = launch()
    world.ask("POST", "/join?name=Rocky")
    path = tmp_path / "snapshot.json"
    path.write_bytes(world.snapshot().body)
    world.stop()
    return path


def test_a_resumed_world_returns_the_snapshot_it_restored(launch, snapshot):
    world = launch(env={"WORLD_RESUME_PATH": str(snapshot)})
    assert world.snapshot().body == snapshot.read_bytes()


def test_each_launch_from_one_snapshot_issues_sessions_of_its_own(launch, snapshot):
    worlds = [launch(env={"WORLD_RESUME_PATH": str(snapshot)}) for _ in range(2)]
    joined = [world.ask("POST", "/join?name=Ada").json() for world in worlds]
    assert joined[0]["agent_id"] == joined[1]["agent_id"]
    for world, other in zip(worlds, reversed(joined), strict=True):
        answer = world.ask("GET", "/observe", headers={"X-Session": other["session"]})
        assert (answer.status, answer.body) == (401, b"Invalid session")


def test_a_resume_flag_overrides_the_environment(launch, snapshot):
    env = {"WORLD_RESUME_PATH": "/nonexistent"}
    world = launch(TALLY, "--resume", os.path.relpath(snapshot, TALLY.parent), env=env)
    assert world.snapshot().body == snapshot.read_bytes()


def test_a_snapshot_is_not_needed_after_the_launch(launch, snapshot):
    body = snapshot.read_bytes()
    world = launch(env={"WORLD_RESUME_PATH": str(snapshot)})
    assert world.port
    snapshot.unlink()
    assert world.snapshot().body == body


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda body: body[:-20], "it is not JSON"),
        (lambda body: body.replace(b'"version":1', b'"version":9'), "its version is 9"),
        (None, "No such file or directory"),
    ],
    ids=["cut", "version", "no file"],
)
def test_a_foreign_snapshot_is_refused_before_the_port_opens(launch, snapshot, damage, complaint):
    if damage is None:
        snapshot.unlink()
    else:
        snapshot.write_bytes(damage(snapshot.read_bytes()))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]  # had it tried to bind, it would have complained of this
        env = {"WORLD_RESUME_PATH": str(snapshot), "WORLD_PORT": str(port)}
        world = launch(env=env)
        assert world.process.wait(HANG_S) == 65
    assert world.log.startswith(f"tally.py: refusing the snapshot {snapshot}: ")
    assert complaint in world.log
    assert world.log.count("\n") == 1


@pytest.mark.thorough
@pytest.mark.parametrize("is_resumed", [False, True])
def test_a_world_without_reseed_refuses_a_seed_with_one_line(launch, snapshot, is_resumed):
    env = {"WORLD_RESEED": "0", "WORLD_RESUME_PATH": str(snapshot) if is_resumed else ""}
    world = launch(env=env)
    assert world.process.wait(HANG_S) == 2
    assert world.log == (
        "tally.py: this world has no reseed(): start it without WORLD_RESEED and --reseed\n"
    )


def test_a_busy_port_is_reported_in_one_line(launch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        world = launch(env={"WORLD_PORT": str(port)})
        assert world.process.wait(HANG_S) == 1
    assert world.log.startswith(f"tally.py: cannot listen on 127.0.0.1:{port}: ")
    assert "Address already in use" in world.log
    assert world.log.count("\n") == 1


# ---------------------------------------------------------------------------------- signals


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("clock", ["lockstep", "realtime"])
def test_a_signal_stops_a_world_cleanly(launch, stop, clock):
    world = launch(TALLY, "--clock", clock)
    port = world.port
    world.ask("POST", "/join?name=a")
    world.process.send_signal(stop)
    assert world.process.wait(HANG_S) == 0
    assert not is_listening(port)
    assert "Traceback" not in world.log


@pytest.mark.thorough
def test_an_endless_request_does_not_keep_a_world_from_stopping(launch):
    world = launch()
    session = world.ask("POST", "/join?name=a").json()["session"]
    head = (
        f"POST /input HTTP/1.1\r\nHost: 127.0.0.1:{world.port}\r\nX-Session: {session}\r\n"
        "Content-Type: application/json\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", world.port)) as unfinished:
        unfinished.sendall(head.encode())
        assert unfinished.recv(100).startswith(b"HTTP/1.1 100")  # it waits for the body
        assert world.stop() == 0


# ---------------------------------------------------------------------------------- imports


def test_importing_the_kit_loads_nothing_of_the_orchestrator():
    code = (
        "import sys; before = set(sys.modules); import clawblox.server; "
        "print(*sorted(set(sys.modules) - before))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    loaded = shown.stdout.split()
    top_level = {name.partition(".")[0] for name in loaded}
    assert not top_level & {"httpx", "tomlkit", "msgspec", "structlog", "click", "uvicorn"}
    ours = {name for name in loaded if name.startswith("clawblox")}
    assert {name for name in ours if not name.startswith("clawblox.server")} == {
        "clawblox",
        "clawblox.extras",
        "clawblox.foreign_values",
        "clawblox.host_gate",
        "clawblox.lazy_exports",
        "clawblox.printable",
        "clawblox.protocol",
        "clawblox.recording",
        "clawblox.recording.background",
        "clawblox.recording.blocks",
        "clawblox.recording.writer",
        "clawblox.telemetry",
        "clawblox.telemetry.throttle",
        "clawblox.zstd",
    }
