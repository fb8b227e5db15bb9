"""The command line with a world written from the public description only."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from clawblox import World
from tests.cli.conftest import Start, only_run
from tests.support.plain import copy_plain_world, read_players
from tests.support.sockets import free_port
from tests.support.worlds import ask


@pytest.fixture
def world_dir(tmp_path: Path) -> Path:
    return copy_plain_world(tmp_path)


@pytest.fixture
def saved(world_dir: Path, tmp_path: Path) -> tuple[Path, str]:
    """Return a snapshot with one player, and the session of the player."""
    with World(world_dir) as world:
        world.start(run_dir=tmp_path / "first")
        access = world.connect("Builder")
        return Path(world.save()["path"]), access["session"]


@pytest.mark.thorough
def test_a_run_restores_a_snapshot_that_lies_in_the_world_directory(
    start: Start, world_dir: Path, saved: tuple[Path, str]
) -> None:
    snapshot, session = saved
    shutil.copy(snapshot, world_dir / "snapshot.json")
    port = free_port()
    words = ("--port", str(port), "--record", "--record-dir", "recordings")
    command = start("run", str(world_dir), *words, "--resume", "snapshot.json")
    command.wait_for("is ready at")
    headers = {"X-Session": session, "Content-Type": "application/json"}
    seen = ask(port, "POST", "/input", body=b'{"type": "Wait"}', headers=headers)
    assert (seen.status, seen.json()["tick"]) == (200, 1)
    assert command.interrupt() == 130
    (directory,) = re.findall(r"Recording to: (\S+)", command.out)
    assert Path(directory, "inputs.jsonl").exists()


@pytest.mark.thorough
def test_calls_of_act_control_the_same_player(start: Start, call: Start, world_dir: Path) -> None:
    command = start("up", str(world_dir), "--run-dir", "runs/one")
    command.wait_for("ready after")
    positions = [
        json.loads(call("act", "runs/one", "w000", *words, "--as", "red").out)["tick"]
        for words in (("Wait",), ("Wait",), ("MoveTo", '{"position": [1, 0, 1]}'))
    ]
    assert positions == [1, 2, 3]
    assert call("save", "runs/one").wait() == 0
    (snapshot,) = Path("runs/one").rglob("checkpoints/*.json")
    assert read_players(snapshot) == ["red"]
    command.interrupt()


@pytest.mark.thorough
def test_resumed_agent_is_the_same_player(
    call: Start, world_dir: Path, claude_env: dict[str, str]
) -> None:
    words = ("run", str(world_dir), "--port", "0", "--agent", "claude", "--max-turns")
    first = call(*words, "2", env=claude_env)
    assert first.wait() == 0, first.err
    archive = max((only_run(Path.cwd()) / "checkpoints").glob("*.ckpt"))
    again = call(*words, "5", "--resume", str(archive), "--run-dir", "again", env=claude_env)
    assert again.wait() == 0, again.err
    saves = list(Path("again/checkpoints").glob("*.ckpt"))
    assert saves
    assert [read_players(path) for path in saves] == [["Eko"]] * len(saves)


@pytest.mark.thorough
def test_act_in_a_fork_controls_the_same_player(start: Start, call: Start, world_dir: Path) -> None:
    command = start("up", str(world_dir), "--run-dir", "runs/one")
    command.wait_for("ready after")
    json.loads(call("act", "runs/one", "w000", "Wait", "--as", "red").out)
    assert call("save", "runs/one").wait() == 0
    (snapshot,) = Path("runs/one").rglob("checkpoints/*.json")
    command.interrupt()
    again = start(
        "run",
        str(world_dir),
        "--port",
        "0",
        "--run-dir",
        "two",
        "--resume",
        str(snapshot.absolute()),
    )
    again.wait_for("is ready at")
    acted = call("act", "two", "w000", "Wait", "--as", "red")
    assert json.loads(acted.out)["tick"] == 2
    assert acted.err.startswith("'red' is the player of that name in the save")
    assert call("act", "two", "w000", "Wait", "--as", "red").err == ""
    assert call("save", "two").wait() == 0
    (snapshot,) = Path("two").rglob("checkpoints/*.json")
    assert read_players(snapshot) == ["red"]
    again.interrupt()
