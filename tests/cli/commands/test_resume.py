"""``--resume`` and ``fork`` accept paths that a shell has completed."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from clawblox import World
from tests.checkpoint.agents import build_agent
from tests.cli.conftest import Start, read_instances
from tests.support.worlds import make_world

SNAPSHOT = json.dumps(
    {"scene_hash": "scene-plain", "counter": 5, "ticks": 10, "sessions": [], "chat": []}
)


@pytest.fixture
def world_dir(tmp_path: Path) -> Path:
    return make_world(tmp_path)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current directory, which differs from the world's directory."""
    directory = tmp_path / "here"
    directory.mkdir()
    monkeypatch.chdir(directory)
    return directory


def write(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(SNAPSHOT)


@pytest.mark.parametrize("command", ["run", pytest.param("up", marks=pytest.mark.thorough)])
def test_a_file_in_the_current_directory_is_resumed(
    start: Start, call: Start, run_dir: Path, world_dir: Path, here: Path, command: str
) -> None:
    write(here / "saves" / "s1.json")
    words = [command, str(world_dir), "--run-dir", str(run_dir), "--resume", "saves/s1.json"]
    words += ["--port", "0"] if command == "run" else ["--fresh"]
    running = start(*words)
    running.wait_for("ready")
    (one,) = read_instances(run_dir).values()
    assert one["resume_path"] == str(here / "saves" / "s1.json")
    assert running.interrupt() == 130
    write(world_dir / "saves" / "s1.json")
    refused = call(*words)
    assert refused.wait() == 2
    assert str(world_dir / "saves" / "s1.json") in refused.err
    assert str(here / "saves" / "s1.json") in refused.err


@pytest.mark.thorough
@pytest.mark.parametrize("place", ["here", "world"])
def test_a_file_in_either_directory_is_forked_but_two_are_an_error(
    start: Start, call: Start, run_dir: Path, world_dir: Path, here: Path, place: str
) -> None:
    places = {"here": here / "s1.json", "world": world_dir / "s1.json"}
    write(places[place])
    running = start("up", str(world_dir), "--run-dir", str(run_dir))
    running.wait_for("ready")
    assert call("fork", str(run_dir), "s1.json").wait() == 0
    assert read_instances(run_dir)["w001"]["resume_path"] == str(places[place])
    for path in places.values():
        write(path)
    refused = call("fork", str(run_dir), "s1.json")
    assert refused.wait() == 2
    assert all(str(path) in refused.err for path in places.values())
    assert running.interrupt() == 130


def test_a_missing_file_is_an_error_that_names_both_places(
    start: Start, call: Start, run_dir: Path, world_dir: Path, here: Path
) -> None:
    running = start("up", str(world_dir), "--run-dir", str(run_dir))
    running.wait_for("ready")
    for words in (
        ("fork", str(run_dir), "s1.json"),
        ("run", str(world_dir), "--resume", "s1.json"),
    ):
        refused = call(*words)
        assert refused.wait() == 2
        assert str(world_dir / "s1.json") in refused.err
        assert str(here / "s1.json") in refused.err
    assert running.interrupt() == 130


@pytest.fixture
def archive(world_dir: Path, tmp_path: Path) -> Path:
    """Make an archive of a world and two agents, one with a conversation."""
    first = tmp_path / "the first"
    agents = {name: first / "agents" / name for name in ("Rocky", "Eko")}
    build_agent(agents["Rocky"], "claude")
    (agents["Eko"] / "workspace").mkdir(parents=True)
    with World(world_dir, run_dir=first) as world:
        world.start()
        return world.checkpoint(first / "gen1.ckpt", agents).path


@pytest.mark.thorough
def test_an_archive_is_loaded_and_resumed_and_its_files_are_listed(
    start: Start, call: Start, tmp_path: Path, world_dir: Path, archive: Path
) -> None:
    second = tmp_path / "second"
    words = ["run", str(world_dir), "--port", "0", "--resume", str(archive)]
    running = start(*words, "--run-dir", str(second))
    running.wait_for(f"agent Eko       {second}/agents/Eko")
    assert f"world snapshot  {second}/world.snapshot" in running.out
    assert running.interrupt() == 130
    assert (second / "agents" / "Rocky" / "workspace" / "SOUL.md").is_file()
    refused = call(*words, "--run-dir", str(world_dir))
    assert refused.wait() == 2
    assert "must not be the world directory" in refused.err


@pytest.mark.thorough
def test_up_and_fork_start_instances_from_an_archive(
    start: Start, call: Start, run_dir: Path, world_dir: Path, archive: Path
) -> None:
    running = start("up", str(world_dir), "--run-dir", str(run_dir), "--resume", str(archive))
    running.wait_for("ready at")
    assert call("fork", str(run_dir), str(archive)).wait() == 0
    (snapshot,) = (run_dir / "checkpoints").iterdir()
    assert {one["resume_path"] for one in read_instances(run_dir).values()} == {str(snapshot)}
    assert running.interrupt() == 130


@pytest.mark.thorough
def test_an_extraction_ends_with_the_commands_that_continue_from_it(
    start: Start, call: Start, tmp_path: Path, world_dir: Path, archive: Path, here: Path
) -> None:
    second = tmp_path / "the second"
    extracted = call("ckpt", "extract", str(archive), str(second))
    assert extracted.wait() == 0
    run, rocky, eko = (
        line.strip() for line in extracted.out.partition("To continue:\n")[2].splitlines()
    )
    program, *words = shlex.split(run)
    assert (program, words[:2]) == ("clawblox", ["run", str(world_dir)])
    running = start(*words, "--port", "0")
    running.wait_for("ready at")
    assert running.interrupt() == 130
    # A stand-in for the agent's program prints its arguments and its directory.
    session = (second / "agents" / "Rocky" / "claude_session_id.txt").read_text().strip()
    (here / "claude").write_text('#!/bin/sh\necho "$PWD|$CLAUDE_CONFIG_DIR|$*"\n')
    (here / "claude").chmod(0o755)
    told = subprocess.run(
        ["/bin/sh", "-c", rocky],
        env={"PATH": f"{here}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    workspace = second / "agents" / "Rocky" / "workspace"
    where, state_dir, options = told.stdout.strip().split("|")
    assert (where, state_dir) == (str(workspace), str(second / "agents" / "Rocky" / "session"))
    assert f"--resume {session} --append-system-prompt You live in a world." in options
    assert eko.startswith("# Eko has no conversation to resume")
    assert shlex.quote(str(second / "agents" / "Eko" / "workspace")) in eko


def test_the_commands_for_an_unknown_world_have_a_placeholder(
    call: Start, tmp_path: Path, archive: Path
) -> None:
    elsewhere = archive.rename(tmp_path / "sent.ckpt")
    extracted = call("ckpt", "extract", str(elsewhere), str(tmp_path / "second"))
    assert extracted.wait() == 0
    assert f"clawblox run WORLD --run-dir {tmp_path}/second --resume" in extracted.out
    assert "WORLD is the directory of the world" in extracted.out
