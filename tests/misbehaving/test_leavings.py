"""Processes, output and manifest entries that the misbehaving world leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import tomllib
from pathlib import Path

import pytest

from tests.support.processes import (
    descendants,
    is_alive,
    live_processes,
    marked_processes,
    processes_in,
)
from tests.support.sockets import is_listening
from tests.support.waiting import HANG_S, wait_until
from tests.support.worlds import make_world, running_world

pytestmark = pytest.mark.thorough
"""By default, tests of the package show that these faults match their names."""


def ignores_sigterm(pid: int) -> bool:
    """Read the signal mask of a process, since sending a signal would prove nothing immediately."""
    status = Path(f"/proc/{pid}/status").read_text()
    ignored = next(line for line in status.splitlines() if line.startswith("SigIgn:"))
    return bool(int(ignored.split()[1], 16) >> (signal.SIGTERM - 1) & 1)


def read_pid(path: Path) -> int:
    wait_until(path.exists, what=f"{path.name} is written")
    return int(path.read_text())


# ------------------------------------------------------------------------------ processes


def test_world_stops_slowly(tmp_path: Path) -> None:
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


def test_stubborn_child_survives_its_parent(tmp_path: Path) -> None:
    with running_world(tmp_path, "--stubborn-child") as world:
        child = read_pid(world.directory / "stubborn-child.pid")
        assert descendants(world.process.pid) == {child}
        assert ignores_sigterm(child)
        os.killpg(world.process.pid, signal.SIGTERM)
        assert world.wait() == 0
        assert is_alive(child)
        assert os.getpgid(child) == world.process.pid


def test_graceful_child_cleans_up_after_the_end_of_its_parent(tmp_path: Path) -> None:
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


def test_sidecar_serves_no_port_and_runs_until_sigterm(tmp_path: Path) -> None:
    dump = tmp_path / "dump.json"
    with running_world(tmp_path, "--sidecar", "--dump", str(dump), listens=False) as world:
        wait_until(dump.exists)
        assert json.loads(dump.read_text())["env"]["WORLD_PORT"] == str(world.port)
        assert not is_listening(world.port)
        world.process.terminate()
        assert world.wait() == 0


# --------------------------------------------------------------------------------- output


def test_world_floods_while_it_serves(tmp_path: Path) -> None:
    with running_world(tmp_path, "--flood-rate", "2000") as world:
        wait_until(lambda: world.log.count("steady ") > 500)
        assert world.ask("GET", "/api.md").status == 200


def test_world_writes_bytes_that_are_not_utf8(tmp_path: Path) -> None:
    with running_world(tmp_path, "--raw-bytes") as world:
        log = (world.directory / "world.log").read_bytes()
    assert b"caf\xe9 \xff\xfe \x00 end\n" in log


def test_world_reports_its_token(tmp_path: Path) -> None:
    with running_world(tmp_path, "--tell-token") as world:
        assert f"my token is {world.token}\n" in world.log


# ------------------------------------------------------------------------------- manifest


def test_world_registers_recordings_and_keeps_existing_entries(tmp_path: Path) -> None:
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


def test_world_registers_recordings_repeatedly(tmp_path: Path) -> None:
    manifest = tmp_path / "manifest.json"
    told = {"CLAWBLOX_MANIFEST_PATH": str(manifest)}
    flags = ("--append-manifest", "100000", "--append-interval", "0.005")
    with running_world(tmp_path, *flags, env=told):
        for _ in range(3):
            wait_until(manifest.exists)
            manifest.unlink()


# -------------------------------------------------------------------------------- test support


def test_generated_world_runs_with_its_own_command(tmp_path: Path) -> None:
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
    ended = [subprocess.run(c, stdout=subprocess.DEVNULL, timeout=HANG_S) for c in commands]
    assert [e.returncode for e in ended] == [7, 8]


def test_fixture_ends_all_processes_of_a_running_world(tmp_path: Path) -> None:
    with running_world(tmp_path, "--daemon", "--bare-daemon", "--stubborn-child") as world:
        for name in ("daemon", "bare-daemon", "stubborn-child"):
            read_pid(world.directory / f"{name}.pid")
        family = processes_in(world.directory)
        assert len(family) == 4
    assert not family & live_processes()
    assert not is_listening(world.port)
