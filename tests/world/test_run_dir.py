"""The run directory of a world object, and its meaning in each call."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawblox import AsyncWorld, ConfigError, World
from tests.support.running import manifest_of
from tests.support.worlds import make_world

pytestmark = pytest.mark.anyio


async def test_the_objects_run_directory_is_the_default_of_every_call(tmp_path: Path) -> None:
    run = tmp_path / "run"
    async with AsyncWorld(make_world(tmp_path), run_dir=run) as world:
        await world.record_run(id="r-1")
        alone = await world.start(name="alone", record=True, record_dir=tmp_path / "films")
        many = await world.start_many(1)
        assert {alone.run_dir, many["w000"].run_dir} == {run}
        assert alone.record_dir == tmp_path / "films"
    assert manifest_of(run)["run"]["id"] == "r-1"


async def test_lineage_reads_the_objects_run_directory(tmp_path: Path) -> None:
    directory, run = make_world(tmp_path), tmp_path / "run"
    async with AsyncWorld(directory) as world:
        await world.start(run_dir=run)
    async with AsyncWorld(directory, run_dir=run) as world:
        assert [one.name for one in (await world.lineage()).instances] == ["w000"]


async def test_a_call_can_name_another_run_directory(tmp_path: Path) -> None:
    async with AsyncWorld(make_world(tmp_path), run_dir=tmp_path / "run") as world:
        elsewhere = await world.start(run_dir=tmp_path / "elsewhere")
        assert elsewhere.run_dir == tmp_path / "elsewhere"


async def test_a_fork_joins_its_snapshots_run_regardless_of_the_objects_run_dir(
    tmp_path: Path,
) -> None:
    directory = make_world(tmp_path)
    async with AsyncWorld(directory, run_dir=tmp_path / "first") as world:
        await world.start()
        saved = await world.save()
    async with AsyncWorld(directory, run_dir=tmp_path / "second") as world:
        (fork,) = await world.fork(saved.path)
        assert fork.run_dir == tmp_path / "first"


def test_a_relative_run_directory_is_resolved_at_call_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with World(make_world(tmp_path), run_dir="run") as world:
        monkeypatch.chdir("/")
        assert world.start().run_dir == tmp_path / "run"


def test_an_empty_run_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^run_dir: "):
        World(make_world(tmp_path), run_dir="")


# ------------------------------------------------------------------------------- its text


async def test_the_representation_of_a_world_is_one_line(tmp_path: Path) -> None:
    world = AsyncWorld(make_world(tmp_path), run_dir=tmp_path / "run")
    assert repr(world) == "AsyncWorld('counter', not open)"
    async with world:
        assert repr(world) == "AsyncWorld('counter', no instances)"
        batch = await world.start_many(2)
        assert repr(world) == "AsyncWorld('counter', 2 ready)"
        assert repr(batch) == "Batch(2 done, 0 failed)"
        assert repr(batch["w000"]) == f"StartedWorld('w000', {batch['w000'].url!r})"
        saved = await world.save(instance="w001")
        assert repr(saved).startswith("SavedSnapshot('w001', ")
        assert "\n" not in repr(saved)


def test_the_representation_of_a_sync_world_is_one_line(tmp_path: Path) -> None:
    with World(make_world(tmp_path), run_dir=tmp_path / "run") as world:
        world.start(labels={"seed": 3})
        assert repr(world) == "World('counter', 1 ready)"
    assert repr(world) == "World('counter', not open)"
