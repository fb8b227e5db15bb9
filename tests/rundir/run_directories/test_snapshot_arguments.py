"""Snapshots as arguments, by path or as a save's result, and the default place of forks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from clawblox import (
    AsyncWorld,
    ClawbloxError,
    InstanceSpec,
    SavedSnapshot,
    StartedWorld,
    async_read_metadata,
    async_save_checkpoint,
)
from clawblox.concurrency.batch import Batch
from tests.support.crowd import act, join, look
from tests.support.running import manifest_of
from tests.support.worlds import make_world

pytestmark = pytest.mark.anyio


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


Source = SavedSnapshot | Mapping[str, Any]

FORMS: dict[str, Callable[[SavedSnapshot], Any]] = {
    "a saved snapshot": lambda saved: saved,
    "a mapping": dict,
    "an entry": lambda saved: {"path": str(saved.path), "sha256": saved.sha256},
    "a mapping with a path": lambda saved: {"path": saved.path},
    "a path": lambda saved: saved.path,
}


async def saved_by(world: AsyncWorld, run: Path) -> tuple[SavedSnapshot, str]:
    """Return a snapshot with the counter at 41, and the session of its agent."""
    parent = await world.start(run_dir=run, name="parent")
    session = await join(world, parent)
    act(parent.port, session, 41)
    return await world.save(instance="parent"), session


async def start_one(world: AsyncWorld, run: Path, source: Source) -> StartedWorld:
    return await world.start(run_dir=run, resume=source)


async def start_all(world: AsyncWorld, run: Path, source: Source) -> StartedWorld:
    return (await world.start_many(2, run_dir=run, resume=source))["w001"]


async def start_by_spec(world: AsyncWorld, run: Path, source: Source) -> StartedWorld:
    return (await world.start_many([InstanceSpec(resume=source)], run_dir=run))["w000"]


async def start_by_mapping(world: AsyncWorld, run: Path, source: Source) -> StartedWorld:
    return (await world.start_many([{"resume": source}], run_dir=run))["w000"]


async def fork(world: AsyncWorld, run: Path, source: Source) -> StartedWorld:
    return (await world.fork(source, run_dir=run))["w000"]


Start = Callable[[AsyncWorld, Path, Any], Awaitable[StartedWorld]]
STARTS: list[Any] = [
    start_one,
    fork,
    *(
        pytest.param(start, marks=pytest.mark.thorough)
        for start in (start_all, start_by_spec, start_by_mapping)
    ),
]


@pytest.mark.thorough
@pytest.mark.parametrize("start", STARTS)
async def test_a_world_is_started_from_every_form_of_a_snapshot(
    tmp_path: Path, run: Path, start: Start
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        saved, session = await saved_by(world, run)
        for number, form in enumerate(FORMS.values()):
            started = await start(world, tmp_path / f"run-{number}", form(saved))
            assert started.resume_path == saved.path
            assert look(started.port, session)["counter"] == 41
            await world.stop(instance=started.name)
            if started.instance_dir != started.run_dir and form(saved) != saved.path:
                told = manifest_of(started.instance_dir)["run"]
                known = form(saved).get("sha256", told.get("parent_sha256"))
                assert told.get("parent_sha256") == known


@pytest.mark.parametrize("start", STARTS)
async def test_a_digest_given_with_a_snapshot_must_match_the_file(
    tmp_path: Path, run: Path, start: Start
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        saved, _ = await saved_by(world, run)
        saved.path.write_bytes(saved.path.read_bytes() + b" ")
        with pytest.raises(ClawbloxError, match="the file is not the snapshot that was saved"):
            await start(world, tmp_path / "other", saved)
        assert world.instances == ("parent",)


@pytest.mark.thorough
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
async def test_an_archive_accepts_every_form_of_a_snapshot(
    tmp_path: Path, run: Path, form: Callable[[SavedSnapshot], Any]
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        saved, _ = await saved_by(world, run)
    save = partial(async_save_checkpoint, world_snapshot=form(saved))
    metadata = await async_read_metadata(await save(tmp_path / "a.ckpt"))
    assert metadata["files"]["world.snapshot"]["sha256"] == saved.sha256
    saved.path.write_bytes(saved.path.read_bytes() + b" ")
    if "sha256" in (form(saved) if form(saved) != saved.path else ()):
        with pytest.raises(ClawbloxError, match="the file is not the snapshot that was saved"):
            await save(tmp_path / "b.ckpt")
        assert [path.name for path in tmp_path.glob("*.ckpt*")] == ["a.ckpt"]
    else:
        await save(tmp_path / "b.ckpt")


@pytest.mark.parametrize("value", [{}, {"path": None}, {"path": 7}, {"path": "x", "sha256": 7}, 7])
async def test_the_error_names_an_argument_that_is_not_a_snapshot(
    tmp_path: Path, run: Path, value: Any
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        calls: list[tuple[str, Callable[[], Awaitable[Any]]]] = [
            ("resume", lambda: world.start(run_dir=run, resume=value)),
            ("resume", lambda: world.start_many(1, run_dir=run, resume=value)),
            ("checkpoint", lambda: world.fork(value, run_dir=run)),
            (
                "world_snapshot",
                lambda: async_save_checkpoint(tmp_path / "a.ckpt", world_snapshot=value),
            ),
        ]
        for key, call in calls:
            with pytest.raises(ClawbloxError) as caught:
                await call()
            assert getattr(caught.value, "key", None) == key


# ------------------------------------------------------------------------------ run directories


def run_dirs(batch: Batch[StartedWorld]) -> set[Path]:
    return {one.run_dir for one in batch}


@pytest.mark.thorough
async def test_a_fork_goes_to_the_run_of_its_source(tmp_path: Path, run: Path) -> None:
    directory, elsewhere = make_world(tmp_path), tmp_path / "elsewhere"
    async with AsyncWorld(dir=directory) as world:
        single = await world.start(run_dir=run, name="single")
        (one,) = await world.start_many(1, run_dir=tmp_path / "many")
        for source in (single, one):
            saved = await world.save(instance=source.name)
            aside = await world.save(instance=source.name, dir=elsewhere)
            await world.start(run_dir=tmp_path / "latest", name="latest")
            for checkpoint in (saved, saved.path, dict(saved), aside):
                assert run_dirs(await world.fork(checkpoint)) == {source.run_dir}
            await world.stop(instance="latest")
            assert run_dirs(await world.fork(saved, run_dir=tmp_path / "new")) == {tmp_path / "new"}
            await world.stop_all() if source is one else None
    async with AsyncWorld(dir=directory) as world:
        assert run_dirs(await world.fork(saved.path)) == {one.run_dir}
    assert sorted(path.name for path in directory.iterdir()) == ["world.toml"]


@pytest.mark.thorough
async def test_many_instances_start_in_the_run_directory_of_the_latest_start(
    tmp_path: Path, run: Path
) -> None:
    directory = make_world(tmp_path)
    async with AsyncWorld(dir=directory) as world:
        await world.start(run_dir=run)
        assert run_dirs(await world.start_many(2)) == {run}
        assert sorted(path.name for path in directory.iterdir()) == ["world.toml"]
        await world.start(run_dir=directory)
        assert run_dirs(await world.start_many(1)) == {directory}
        assert (await world.start()).run_dir == run, "one goes where the first start went"
    async with AsyncWorld(dir=make_world(tmp_path, name="another")) as world:
        assert run_dirs(await world.start_many(1)) == {world.dir}


@pytest.mark.thorough
async def test_a_fork_of_a_run_in_its_world_directory_stays_there(tmp_path: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        (one,) = await world.start_many(1)
        saved = await world.save()
        await world.start(run_dir=tmp_path / "run")
        (fork,) = await world.fork(saved)
        assert (fork.run_dir, fork.instance_dir.parent) == (world.dir, one.instance_dir.parent)
