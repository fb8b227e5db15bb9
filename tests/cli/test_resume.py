"""``--resume`` and ``fork`` take the paths that a shell has completed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Start, look
from tests.support import make_world

SNAPSHOT = json.dumps(
    {"scene_hash": "scene-plain", "counter": 5, "ticks": 10, "sessions": [], "chat": []}
)


@pytest.fixture
def world_dir(tmp_path: Path) -> Path:
    return make_world(tmp_path)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current directory, which is not the world's."""
    directory = tmp_path / "here"
    directory.mkdir()
    monkeypatch.chdir(directory)
    return directory


def write(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(SNAPSHOT)


@pytest.mark.parametrize("command", ["run", "up"])
def test_a_file_in_the_current_directory_is_resumed(
    start: Start, call: Start, run_dir: Path, world_dir: Path, here: Path, command: str
) -> None:
    write(here / "saves" / "s1.json")
    words = [command, str(world_dir), "--run-dir", str(run_dir), "--resume", "saves/s1.json"]
    words += ["--port", "0"] if command == "run" else ["--fresh"]
    running = start(*words)
    running.wait_for("ready")
    (one,) = look(run_dir).values()
    assert one["resume_path"] == str(here / "saves" / "s1.json")
    assert running.interrupt() == 130
    write(world_dir / "saves" / "s1.json")
    refused = call(*words)
    assert refused.wait() == 2
    assert str(world_dir / "saves" / "s1.json") in refused.err
    assert str(here / "saves" / "s1.json") in refused.err


@pytest.mark.parametrize("place", ["here", "world"])
def test_a_file_in_either_directory_is_forked_but_two_are_an_error(
    start: Start, call: Start, run_dir: Path, world_dir: Path, here: Path, place: str
) -> None:
    places = {"here": here / "s1.json", "world": world_dir / "s1.json"}
    write(places[place])
    running = start("up", str(world_dir), "--run-dir", str(run_dir))
    running.wait_for("ready")
    assert call("fork", str(run_dir), "s1.json").wait() == 0
    assert look(run_dir)["w001"]["resume_path"] == str(places[place])
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
