"""The run directories that ``run`` and ``up`` make."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from clawblox.cli.running import run_dirs
from clawblox.cli.running.run_dirs import inner_runs_dir, opened_run_dir, outer_run_dir
from tests.cli.conftest import Start, assert_nothing_runs, only_run, read_instances
from tests.support.worlds import make_world, world_command

NEW = r"counter-\d{8}T\d{6}Z"
WORDS = {"run": ("--port", "0"), "up": ("-n", "2")}
UP = {"run": "Spectator frontend", "up": "ready after"}


@pytest.mark.thorough
@pytest.mark.parametrize("name", WORDS)
def test_a_new_run_directory_is_made_and_printed_first(
    start: Start, tmp_path: Path, name: str
) -> None:
    world = make_world(tmp_path)
    command = start(name, str(world), *WORDS[name])
    command.wait_for(UP[name])
    run_dir = only_run(Path.cwd())
    assert re.fullmatch(NEW, run_dir.name)
    assert command.out.startswith(f"Run directory: runs/{run_dir.name}\n")
    assert {one["state"] for one in read_instances(run_dir).values()} == {"ready"}
    assert command.interrupt() == 130
    assert f"resume:  clawblox resume runs/{run_dir.name}\n" in command.out + command.err
    assert [path.name for path in world.iterdir()] == ["world.toml"]


@pytest.mark.thorough
@pytest.mark.parametrize("below", [".", "assets"])
def test_run_directory_in_world_sources_is_below_the_state_directory(
    start: Start, call: Start, tmp_path: Path, below: str
) -> None:
    world = make_world(tmp_path)
    (world / "assets").mkdir()
    command = start("up", str(world), cwd=world / below)
    command.wait_for("ready after")
    (run_dir,) = (world / ".clawblox" / "runs").iterdir()
    assert sorted(path.name for path in world.iterdir()) == [".clawblox", "assets", "world.toml"]
    shown = f".clawblox/runs/{run_dir.name}" if below == "." else str(run_dir)
    assert command.out.startswith(f"Run directory: {shown}\n")
    asked = call("stop", cwd=world)
    assert asked.err.endswith(f"there are: .clawblox/runs/{run_dir.name}\n")
    assert command.interrupt() == 130


@pytest.mark.thorough
def test_a_run_in_the_background_uses_the_printed_directory(call: Start, tmp_path: Path) -> None:
    command = call("up", str(make_world(tmp_path)), "--detach")
    run_dir = only_run(Path.cwd())
    first, *_, watch, stop, log = command.out.splitlines()
    assert first == f"Run directory: runs/{run_dir.name}"
    assert watch == f"watch:  clawblox ps runs/{run_dir.name} -w"
    assert log.startswith(f"log:    runs/{run_dir.name}/.clawblox/up.log ")
    assert call(*stop.split()[2:]).wait() == 0
    assert_nothing_runs()


@pytest.mark.thorough
@pytest.mark.parametrize("name", WORDS)
@pytest.mark.parametrize("was_there", [True, False])
def test_failed_start_attempt_leaves_no_run_directory(
    call: Start, tmp_path: Path, name: str, was_there: bool
) -> None:
    if was_there:
        Path("runs").mkdir()
    command = call(name, str(make_world(tmp_path)), "--resume", "nowhere.json")
    assert command.wait() == 2
    assert [path.name for path in Path.cwd().iterdir()] == (["runs"] if was_there else [])
    assert not was_there or not list(Path("runs").iterdir())


def test_read_only_parent_of_the_run_directory_is_an_error_with_a_hint(
    call: Start, tmp_path: Path
) -> None:
    Path("runs").write_text("a file where a directory should be")
    command = call("up", str(make_world(tmp_path)))
    assert command.wait() == 2
    assert "runs: the run directory cannot be made: Not a directory\n" in command.err
    assert "hint: give --run-dir" in command.err


@pytest.mark.thorough
def test_a_run_inside_of_a_world_makes_no_second_run_directory(
    start: Start, tmp_path: Path
) -> None:
    inner, outer = make_world(tmp_path, name="inner"), tmp_path / "outer"
    outer.mkdir()
    run_inner = [sys.executable, "-m", "clawblox", "run", str(inner), "--port", "0"]
    script = f"{shlex.join(run_inner)} & exec {shlex.join(world_command())}"
    command = json.dumps(["/bin/sh", "-c", script])
    (outer / "world.toml").write_text(f'name = "outer"\n[run]\ncommand = {command}\n')
    running = start("run", str(outer), "--port", "0")
    running.wait_for("World 'inner' is ready at ")
    run_dir = only_run(Path.cwd())
    assert {name: one["world"] for name, one in read_instances(run_dir).items()} == {
        "w000": "outer",
        "w001": "inner",
    }
    assert f"\nRun directory: {run_dir}\n" in running.out
    for world in (inner, outer):
        assert [path.name for path in world.iterdir()] == ["world.toml"]
    assert running.interrupt() == 130
    assert_nothing_runs()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("words", "env", "expected"),
    [
        ((), {}, "run"),
        ((), {"WORLD_RECORD_DIR": "/elsewhere/rec"}, "run"),
        (("--record-dir", "mine/rec"), {}, "mine"),
        (("--run-dir", "other"), {"WORLD_RECORD_DIR": "/elsewhere/rec"}, "other"),
    ],
)
def test_requested_run_directory_overrides_the_enclosing_run(
    start: Start, tmp_path: Path, words: tuple[str, ...], env: dict[str, str], expected: str
) -> None:
    manifest = Path.cwd() / "run" / ".clawblox" / "manifest.json"
    env = {"CLAWBLOX_MANIFEST_PATH": str(manifest), **env}
    command = start("run", str(make_world(tmp_path)), "--port", "0", *words, env=env)
    command.wait_for("Spectator frontend")
    assert command.out.startswith(f"Run directory: {expected}\n")
    assert command.interrupt() == 130


def test_the_recording_directory_of_the_environment_names_the_run(
    start: Start, tmp_path: Path
) -> None:
    env = {"WORLD_RECORD_DIR": str(Path.cwd() / "r1" / "recordings")}
    command = start("run", str(make_world(tmp_path)), "--port", "0", env=env)
    command.wait_for("Spectator frontend")
    assert command.out.startswith("Run directory: r1\n")
    assert command.interrupt() == 130


@pytest.mark.parametrize(
    ("variable", "found"),
    [("/r/.clawblox/manifest.json", "/r"), ("", None), ("  ", None), ("a/b/c.json", None)],
)
def test_enclosing_run_is_found_by_its_manifest(variable: str, found: str | None) -> None:
    assert outer_run_dir({"CLAWBLOX_MANIFEST_PATH": variable}) == (found and Path(found))
    assert outer_run_dir({}) is None


def test_run_on_the_port_of_the_enclosing_run_gets_a_separate_directory() -> None:
    outer = {"CLAWBLOX_MANIFEST_PATH": "/r/.clawblox/manifest.json", "WORLD_PORT": "8080"}
    inner = {**outer, "CLAWBLOX_LEASE": "0.token"}
    assert inner_runs_dir(inner, 8080) == Path("/r/.clawblox/inner")
    for environment, port in ((inner, 8081), (inner, None), (outer, 8080), ({}, 8080)):
        assert inner_runs_dir(environment, port) is None


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("panda", "panda"),
        ("a world/../x", "a-world-..-x"),
        ("../..", "world"),
        ("世界", "world"),
        ("x" * 300, "x" * 64),
        ("-rf", "rf"),
        ("", "world"),
    ],
)
def test_run_directory_name_is_valid_for_any_world_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, stem: str
) -> None:
    at = run_dirs.utc_now()
    monkeypatch.setattr(run_dirs, "utc_now", lambda: at)
    world: Any = SimpleNamespace(name=name, dir=tmp_path)
    stamp = at.strftime("%Y%m%dT%H%M%SZ")
    with opened_run_dir(world, None) as first, opened_run_dir(world, None) as second:
        for run_dir, end in ((first, ""), (second, "-2")):
            assert run_dir.parent.name == "runs"
            assert run_dir.name == f"{stem}-{stamp}{end}"
            assert run_dir.stat().st_mode & 0o777 == 0o700
    assert not first.exists()
