"""Unusable directories and files are refused with an error that names them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from clawblox import (
    AsyncWorld,
    ClawbloxError,
    ConfigError,
    World,
    load_checkpoint,
    read_manifest,
    read_metadata,
    read_runs,
    save_checkpoint,
)
from clawblox.agents.status import read_agents
from clawblox.checkpoint import (
    diff_checkpoints,
    repair_checkpoints,
    scan_checkpoint,
    verify_checkpoint,
)
from clawblox.rundir import status
from clawblox.rundir.lineage import read_lineage
from clawblox.system.files import make_private_dir
from tests.support.worlds import make_world

pytestmark = pytest.mark.anyio


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.touch()
    return path


PLACES: dict[str, Callable[[Path], str]] = {
    "a file": lambda file: str(file),
    "below a file": lambda file: f"{file}/below",
    "where no directory can be made": lambda _: "/proc/x",
    "below that": lambda _: "/proc/x/y/z",
    "a name too long": lambda _: "a" * 300,
    "a path too long": lambda _: "a/" * 3000,
}


@pytest.mark.thorough
@pytest.mark.parametrize("way", ["start", "start_many", "record_dir"])
@pytest.mark.parametrize("place", PLACES)
async def test_an_unusable_run_directory_is_named_in_the_error(
    tmp_path: Path, file: Path, place: str, way: str
) -> None:
    run_dir = PLACES[place](file)
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        begin = {
            "start": partial(world.start, run_dir=run_dir),
            "start_many": partial(world.start_many, 2, run_dir=run_dir),
            "record_dir": partial(world.start, record_dir=f"{run_dir}/recordings"),
        }[way]
        with pytest.raises(ConfigError, match="the run directory cannot be used") as caught:
            await begin()
        assert (await world.stop()).rung == "not_running"
    assert caught.value.key == "run_dir"
    assert caught.value.value == os.path.realpath(run_dir)


async def test_the_error_names_an_unwritable_run_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Root, who may run the tests, can write everywhere except in a read-only file system.
    monkeypatch.setattr(os, "access", lambda *_: False)
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        with pytest.raises(ConfigError, match="cannot be used: Permission denied") as caught:
            await world.start(run_dir=tmp_path / "run")
    assert (caught.value.key, caught.value.value) == ("run_dir", str(tmp_path / "run"))


@pytest.mark.parametrize("key", ["log_file", "command_file"])
@pytest.mark.parametrize("path", ["/proc/x", "a" * 300, "a/" * 3000 + "b"])
async def test_an_unwritable_file_of_a_start_raises_a_clawblox_error(
    tmp_path: Path, key: str, path: str
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        arguments: dict[str, Any] = {key: path}
        with pytest.raises(ClawbloxError):
            await world.start(run_dir=tmp_path / "run", **arguments)


def test_attaching_to_a_path_that_is_not_a_directory_raises_a_clawblox_error(file: Path) -> None:
    for run_dir in ("a" * 300, "/proc/x", str(file)):
        with pytest.raises(ClawbloxError):
            AsyncWorld.attach(run_dir)


EMPTY: dict[str, Callable[[], object]] = {
    "World": lambda: World(dir=""),
    "AsyncWorld": lambda: AsyncWorld(dir=""),
    "attach": lambda: World.attach(""),
    "read_manifest": lambda: read_manifest(""),
    "read_runs": lambda: read_runs(""),
    "read_metadata": lambda: read_metadata(""),
    "load_checkpoint": lambda: load_checkpoint("", "run"),
    "load_checkpoint, run_dir": lambda: load_checkpoint("a.ckpt", ""),
    "save_checkpoint": lambda: save_checkpoint("", world_snapshot=None, agents={}),
    "save_checkpoint, snapshot": lambda: save_checkpoint("a.ckpt", world_snapshot="", agents={}),
    "save_checkpoint, agent": lambda: save_checkpoint(
        "a.ckpt", world_snapshot=None, agents={"Rocky": ""}
    ),
    "verify_checkpoint": lambda: verify_checkpoint(""),
    "scan_checkpoint": lambda: scan_checkpoint(""),
    "diff_checkpoints": lambda: diff_checkpoints("", "b.ckpt"),
    "diff_checkpoints, second": lambda: diff_checkpoints("a.ckpt", ""),
    "repair_checkpoints": lambda: repair_checkpoints(""),
}


@pytest.mark.parametrize("call", EMPTY.values(), ids=EMPTY)
def test_an_empty_path_is_not_the_current_directory(call: Callable[[], object]) -> None:
    with pytest.raises(ConfigError, match="must be a path, not ''"):
        call()


ARGUMENTS = ("run_dir", "record_dir", "resume", "log_file", "command_file")


@pytest.mark.parametrize("key", ARGUMENTS)
async def test_the_error_names_an_empty_path_of_a_start(tmp_path: Path, key: str) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        with pytest.raises(ConfigError, match="must be a path, not ''") as caught:
            await world.start(**{"run_dir": tmp_path / "run", key: ""})  # type: ignore[arg-type]
        assert caught.value.key == key
        with pytest.raises(ConfigError, match="must be a path, not ''"):
            await world.start_many(1, run_dir="")
        with pytest.raises(ConfigError, match="must be a path, not ''"):
            await world.fork("", run_dir=tmp_path / "run")


async def test_the_error_names_an_empty_directory_of_saves_or_an_agent(tmp_path: Path) -> None:
    class Agent:
        name = "Rocky"
        dir = ""

    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        await world.start(run_dir=tmp_path / "run")
        for save in (world.save, world.save_all, world.drain):
            with pytest.raises(ConfigError, match="must be a path, not ''"):
                await save(dir="")  # type: ignore[operator]
        with pytest.raises(ConfigError, match="must be a path, not ''") as caught:
            await world.connect(Agent())
        assert caught.value.key == "agent.dir"


def test_all_created_directories_are_private(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "c"
    assert make_private_dir(path) == make_private_dir(path) == path
    assert [one.stat().st_mode & 0o777 for one in (path, *path.parents[:2])] == [0o700] * 3


@pytest.mark.parametrize("place", PLACES)
def test_a_path_that_cannot_be_a_directory_is_named_in_the_error(file: Path, place: str) -> None:
    with pytest.raises(OSError, match=r"directory|too long") as caught:
        make_private_dir(Path(PLACES[place](file)).absolute())
    assert caught.value.filename


def test_a_too_long_path_in_a_manifest_does_not_hide_the_run(tmp_path: Path) -> None:
    long = "/x" * 3000
    manifest = {
        "schema_version": 1,
        "run": {"id": "r", "status": "complete"},
        "instances": [{"name": "w000", "dir": long}],
        "checkpoints": [{"instance": "w001", "path": long}],
        "agents": [{"dir": long}],
    }
    make_private_dir(tmp_path / ".clawblox")
    (tmp_path / ".clawblox" / "manifest.json").write_text(json.dumps(manifest))
    [run] = status.read_runs([tmp_path])
    assert [instance.name for instance in run.instances] == ["w000", "w001"]
    assert read_agents(tmp_path) == []
    [problem] = read_lineage(tmp_path).problems
    assert "the manifest cannot be read: File name too long" in problem
