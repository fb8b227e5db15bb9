"""A world whose command ends in ``exec "$CLAWBLOX_BIN" run DIR``, on its given port."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from clawblox import World
from tests.cli.conftest import Start, assert_nothing_runs, read_instances
from tests.support.plain import copy_plain_world, read_players
from tests.support.running import manifest_of
from tests.support.sockets import free_port, is_listening
from tests.support.waiting import wait_until
from tests.support.worlds import ask

STACK = """
echo the stack is up
exec "$CLAWBLOX_BIN" run ../plain
"""


@pytest.fixture
def outer(tmp_path: Path) -> Path:
    """Return a world whose command prepares and runs the plain world."""
    copy_plain_world(tmp_path)
    directory = tmp_path / "outer"
    directory.mkdir()
    (directory / "run-stack.sh").write_text(STACK)
    (directory / "world.toml").write_text(
        'name = "outer"\n[run]\ncommand = ["bash", "./run-stack.sh"]\n'
    )
    return directory


def act(port: int, session: str) -> Any:
    headers = {"X-Session": session, "Content-Type": "application/json"}
    return ask(port, "POST", "/input", body=b'{"type": "Wait"}', headers=headers).json()


@pytest.mark.thorough
def test_saves_stops_and_logs_reach_the_inner_world(
    start: Start, call: Start, outer: Path, tmp_path: Path
) -> None:
    port = free_port()
    words = ("--port", str(port), "--run-dir", "r", "--record")
    command = start("run", str(outer), *words)
    command.wait_for("the floor is at ")
    command.wait_for("World 'outer' is ready at ")
    assert "the stack is up" in command.out
    joined = ask(port, "POST", "/join?name=Builder").json()
    act(port, joined["session"])
    assert call("save", "r").out.count("saved ") == 1
    (snapshot,) = Path("r/checkpoints").glob("*.json")
    assert read_players(snapshot) == ["Builder"]
    assert "the floor is at " in call("logs", "r", "w000").out
    assert list(read_instances(Path("r"))) == ["w000"]
    (line,) = Path("r/recordings/inputs.jsonl").read_text().splitlines()
    assert json.loads(line)["tick"] == 1
    assert call("stop", "r").wait() == 0
    command.wait()
    assert not is_listening(port)
    assert_nothing_runs()
    again = start("run", str(outer), *words[:-1], "--resume", str(snapshot.absolute()))
    again.wait_for("World 'outer' is ready at ")
    assert act(port, joined["session"])["tick"] == 2
    assert again.interrupt() == 130
    assert_nothing_runs()


@pytest.mark.thorough
@pytest.mark.parametrize("who", ["outer", "inner", "world"])
def test_killed_outer_run_leaves_no_processes_and_can_be_resumed(
    start: Start, call: Start, outer: Path, tmp_path: Path, who: str
) -> None:
    port = free_port()
    command = start("run", str(outer), "--port", str(port), "--run-dir", "r")
    command.wait_for("World 'outer' is ready at ")
    ask(port, "POST", "/join?name=Builder")
    assert call("save", "r").wait() == 0
    (inner_run,) = Path("r/.clawblox/inner").iterdir()
    pids = {
        "outer": command.process.pid,
        "inner": read_instances(Path("r"))["w000"]["pid"],
        "world": read_instances(inner_run)["w000"]["pid"],
    }
    assert len(set(pids.values())) == 3
    os.kill(pids[who], signal.SIGKILL)
    command.wait()
    wait_until(lambda: not is_listening(port), what="the port is free")
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids.values()))
    resumed = start("resume", "r")
    resumed.wait_for("ready")
    wait_until(lambda: is_listening(port))
    assert call("save", "r").wait() == 0
    *_, latest = sorted(Path("r/checkpoints").glob("*.json"), key=lambda path: path.stat().st_mtime)
    assert read_players(latest) == ["Builder"]
    resumed.interrupt()
    assert_nothing_runs()


@pytest.mark.thorough
def test_inner_world_writes_into_the_outer_manifest(outer: Path, tmp_path: Path) -> None:
    world = tmp_path / "plain" / "world.py"
    world.write_text(
        "import os; print('manifest', os.environ['CLAWBLOX_MANIFEST_PATH'], flush=True)\n"
        "assert 'CLAWBLOX_LEASE' in os.environ\n"
        + world.read_text().replace("from __future__ import annotations\n", "")
    )
    with World(outer) as started_world:
        started = started_world.start(run_dir=tmp_path / "run")
        line = f"manifest {tmp_path}/run/.clawblox/manifest.json"
        wait_until(lambda: line in started.log_file.read_text())  # passed on by the inner run
        assert "CLAWBLOX_LEASE" not in started.command_file.read_text()
        started_world.save()
    assert len(manifest_of(tmp_path / "run")["checkpoints"]) == 1
