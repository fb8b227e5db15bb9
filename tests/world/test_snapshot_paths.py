"""Resolution of relative snapshot paths in the world directory or the current directory."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from clawblox import AsyncWorld, CheckpointFormatError, ConfigError
from tests.support.worlds import make_world

pytestmark = pytest.mark.anyio

SNAPSHOT = json.dumps(
    {"scene_hash": "scene-plain", "counter": 5, "ticks": 10, "sessions": [], "chat": []}
)

Begin: TypeAlias = Callable[[AsyncWorld, Any, Path], Awaitable[Path | None]]


async def by_start(world: AsyncWorld, given: Any, run: Path) -> Path | None:
    return (await world.start(resume=given, run_dir=run)).resume_path


async def by_start_many(world: AsyncWorld, given: Any, run: Path) -> Path | None:
    (one,) = await world.start_many(1, resume=given, run_dir=run)
    return one.resume_path


async def by_instance(world: AsyncWorld, given: Any, run: Path) -> Path | None:
    (one,) = await world.start_many([{"resume": given}], run_dir=run)
    return one.resume_path


async def by_fork(world: AsyncWorld, given: Any, run: Path) -> Path | None:
    (one,) = await world.fork(given, run_dir=run)
    return one.resume_path


async def by_fork_of_a_mapping(world: AsyncWorld, given: Any, run: Path) -> Path | None:
    (one,) = await world.fork({"path": given}, run_dir=run)
    return one.resume_path


WAYS = [by_start, by_start_many, by_instance, by_fork, by_fork_of_a_mapping]


@pytest.fixture
def world_dir(tmp_path: Path) -> Path:
    return make_world(tmp_path)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current directory, which is not the world directory."""
    directory = tmp_path / "here"
    directory.mkdir()
    monkeypatch.chdir(directory)
    return directory


def write(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SNAPSHOT)


async def refused(begin: Begin, world_dir: Path, given: Any, run: Path) -> ConfigError:
    """Check that an operation is refused without effects, and return the error."""
    async with AsyncWorld(dir=world_dir) as world:
        with pytest.raises(ConfigError) as caught:
            await begin(world, given, run)
    assert not list(run.rglob("*.log"))
    assert caught.value.key in ("resume", "checkpoint")
    return caught.value


@pytest.mark.parametrize("begin", WAYS)
@pytest.mark.parametrize("place", ["world", "here"])
async def test_a_relative_path_means_the_existing_file(
    tmp_path: Path, world_dir: Path, here: Path, place: str, begin: Begin
) -> None:
    path = (world_dir if place == "world" else here) / "saves" / "s1.json"
    write(path)
    async with AsyncWorld(dir=world_dir) as world:
        assert await begin(world, "saves/s1.json", tmp_path / "run") == path


@pytest.mark.parametrize("begin", WAYS)
async def test_two_different_files_are_ambiguous(
    tmp_path: Path, world_dir: Path, here: Path, begin: Begin
) -> None:
    write(world_dir / "s1.json", here / "s1.json")
    error = await refused(begin, world_dir, "s1.json", tmp_path / "run")
    assert str(world_dir / "s1.json") in error.message
    assert str(here / "s1.json") in error.message
    assert error.value == "s1.json"


@pytest.mark.parametrize("make_same", [os.link, os.symlink])
async def test_the_same_file_in_both_places_is_unambiguous(
    tmp_path: Path, world_dir: Path, here: Path, make_same: Callable[[Path, Path], None]
) -> None:
    write(here / "s1.json")
    make_same(here / "s1.json", world_dir / "s1.json")
    async with AsyncWorld(dir=world_dir) as world:
        assert await by_start(world, "s1.json", tmp_path / "run") == world_dir / "s1.json"


async def test_a_relative_path_is_unambiguous_in_the_world_directory(
    tmp_path: Path, world_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(world_dir)
    write(world_dir / "s1.json")
    async with AsyncWorld(dir=".") as world:
        assert await by_start(world, Path("s1.json"), tmp_path / "run") == world_dir / "s1.json"
    error = await refused(by_start, world_dir, "none.json", tmp_path / "none")
    assert error.message == "the snapshot does not exist"
    assert error.path == world_dir / "none.json"


async def test_a_directory_in_one_place_does_not_hide_a_file_in_the_other(
    tmp_path: Path, world_dir: Path, here: Path
) -> None:
    (world_dir / "s1").mkdir()
    write(here / "s1")
    async with AsyncWorld(dir=world_dir) as world:
        assert await by_start(world, "s1", tmp_path / "run") == here / "s1"
    (here / "s1").unlink()
    error = await refused(by_start, world_dir, "s1", tmp_path / "none")
    assert error.message == "the snapshot is not a file"
    assert error.path == world_dir / "s1"


@pytest.mark.parametrize("begin", WAYS)
@pytest.mark.parametrize("name", ["missing.ckpt", "missing.json"])
async def test_the_error_for_a_missing_snapshot_lists_the_searched_places(
    tmp_path: Path, world_dir: Path, here: Path, name: str, begin: Begin
) -> None:
    error = await refused(begin, world_dir, name, tmp_path / "run")
    assert "does not exist" in error.message
    assert str(world_dir / name) in str(error)
    assert str(here / name) in str(error)
    absolute = tmp_path / "gone" / name
    error = await refused(begin, world_dir, absolute, tmp_path / "run")
    assert "does not exist" in error.message
    assert error.path == absolute


@pytest.mark.parametrize("begin", WAYS)
async def test_a_file_named_like_an_archive_is_never_given_to_a_world(
    tmp_path: Path, world_dir: Path, here: Path, begin: Begin
) -> None:
    write(here / "gen1.ckpt")
    async with AsyncWorld(dir=world_dir) as world:
        with pytest.raises(CheckpointFormatError, match="not an archive") as caught:
            await begin(world, "gen1.ckpt", tmp_path / "run")
    assert caught.value.path == here / "gen1.ckpt"
    assert not list((tmp_path / "run").rglob("*.log"))


@pytest.mark.parametrize("given", ["", "a" * 5000, "s1.json/below", "a\0b", 7, b"s1.json"])
@pytest.mark.parametrize("begin", [by_start, by_fork])
async def test_a_value_that_cannot_be_a_snapshot_is_refused(
    tmp_path: Path, world_dir: Path, here: Path, given: Any, begin: Begin
) -> None:
    write(world_dir / "s1.json", here / "s1.json")
    await refused(begin, world_dir, given, tmp_path / "run")


async def test_a_relative_path_needs_a_current_directory(
    tmp_path: Path, world_dir: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(world_dir / "s1.json")
    shutil.rmtree(here)
    error = await refused(by_start, world_dir, "s1.json", tmp_path / "run")
    assert "the current directory no longer exists" in error.message
    monkeypatch.chdir(tmp_path)
