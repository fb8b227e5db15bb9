"""Autosaves and their retention: which files are removed, and which are kept."""

from __future__ import annotations

import errno
import os
import threading
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.to_thread import run_sync

from clawblox import AsyncWorld
from clawblox.instance.launcher import Ending, Launcher
from clawblox.rundir.manifest import Update, manifest_path
from clawblox.rundir.manifest_file import ManifestFile
from clawblox.rundir.manifest_writer import ManifestWriter
from clawblox.telemetry.events import EventStream
from clawblox.world import save as saving
from clawblox.world.starts import Leftovers
from tests.support.crowd import on_disk, registered, until
from tests.support.running import manifest_of
from tests.support.waiting import HANG_S, wait_until_async
from tests.support.worlds import make_world

pytestmark = pytest.mark.anyio

EVERY_S = 0.01


async def rounds(events: EventStream, count: int, *names: str) -> None:
    """Wait until each instance was saved the given number of further times."""
    for _ in range(count):
        await until(events, "saved", names)


@pytest.mark.thorough
async def test_reusing_a_name_keeps_the_saves_of_the_old_instance(tmp_path: Path) -> None:
    runs = [tmp_path / name for name in ("one", "two", "two")]
    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        kept: set[Path] = set()
        await world.autosave(every=EVERY_S, keep=1)
        for run in runs:
            await world.start(run_dir=run, name="w000")
            await rounds(events, 3, "w000")
            await world.stop(grace_seconds=1)
            kept.add(max(registered(run), key=lambda path: path.stat().st_mtime_ns))
        assert len(kept) == 3
    for run in runs:
        assert kept & {*run.rglob("*")} <= registered(run).keys()
        assert all("sha256" in entry for entry in manifest_of(run)["checkpoints"])
    assert kept <= on_disk(runs[0]).keys() | on_disk(runs[1]).keys()


async def test_autosave_keeps_the_snapshot_of_another_instances_restore(tmp_path: Path) -> None:
    run = tmp_path / "run"
    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        await world.start(run_dir=run, name="w000")
        await world.autosave(every=EVERY_S, keep=2)
        saved = (await until(events, "saved", ["w000"]))[-1].data["path"]
        fork = await world.start(run_dir=tmp_path / "other", name="fork", resume=saved)
        assert fork.resume_path == saved
        await rounds(events, 6, "w000", "fork")
    assert saved in on_disk(run)
    assert registered(run) == on_disk(run)


async def test_autosave_keeps_the_snapshot_of_a_prepared_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_planned, may_go_on = threading.Event(), threading.Event()
    clear = Leftovers.clear

    def clear_late(self: Leftovers, run_dir: Path) -> None:
        is_planned.set()
        may_go_on.wait(HANG_S)
        clear(self, run_dir)

    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        await world.start(run_dir=tmp_path / "run", name="w000")
        await world.autosave(every=1000.0, keep=1)
        saved = (await until(events, "saved", ["w000"]))[-1].data["path"]
        monkeypatch.setattr(Leftovers, "clear", clear_late)
        async with anyio.create_task_group() as tasks:
            start = partial(world.start, run_dir=tmp_path / "other", name="fork", resume=saved)
            tasks.start_soon(start)
            await run_sync(is_planned.wait, HANG_S)
            await world.autosave(every=EVERY_S, keep=1)
            await rounds(events, 3, "w000")
            assert saved in on_disk(tmp_path / "run")
            may_go_on.set()
        assert world.instances == ("w000", "fork")


async def test_autosave_keeps_the_snapshots_of_queued_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_begin, forked = anyio.Event(), []
    launch = Launcher.run

    async def launch_late(*args: Any, **options: Any) -> Ending:
        await may_begin.wait()
        return await launch(*args, **options)

    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        await world.start(run_dir=tmp_path / "run")
        await world.autosave(every=1000.0, keep=1)
        saved = (await until(events, "saved", ["w000"]))[-1].data["path"]
        monkeypatch.setattr(Launcher, "run", launch_late)

        async def fork() -> None:
            forked.append(await world.fork(saved, 2, run_dir=tmp_path / "forks"))

        async with anyio.create_task_group() as group:
            group.start_soon(fork)
            assert world._fleet is not None
            assert world._autosave is not None
            await wait_until_async(lambda: saved in world._fleet.snapshots_in_use, HANG_S)
            for _ in range(3):
                await world._autosave._save_once()
            assert saved in on_disk(tmp_path / "run")
            may_begin.set()
        assert forked[0].failed == {}


async def test_instances_that_share_a_directory_keep_their_own_saves(tmp_path: Path) -> None:
    run, shared = tmp_path / "run", tmp_path / "shared"
    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        for name in ("one", "two"):
            await world.start(run_dir=run, name=name)
        await world.autosave(every=EVERY_S, keep=2, dir=shared)
        await rounds(events, 5, "one", "two")
        await world.stop_all(grace_seconds=1)
    left = Counter(path.name.split("-")[0] for path in shared.iterdir())
    # The last round may have saved without removing old saves.
    assert left.keys() == {"one", "two"}
    assert set(left.values()) <= {2, 3}
    assert {Path(path) for path in registered(run)} == set(shared.iterdir())


async def test_a_restart_does_not_use_a_removed_save(tmp_path: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        await world.start(run_dir=tmp_path / "run", restart="checkpoint")
        by_hand = await world.save()
        await world.autosave(every=EVERY_S, keep=2)
        await rounds(events, 8, "w000")
        assert world._fleet is not None
        supervisor = world._fleet.find("w000")
        await wait_until_async(lambda: len(supervisor.source.saves) <= 4, HANG_S)
        assert supervisor.source.saves[0] == by_hand


async def test_autosave_continues_when_a_file_cannot_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(paths: list[Path]) -> None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(paths[0]))

    monkeypatch.setattr(saving, "unlink_saves", fail)
    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        await world.start(run_dir=tmp_path / "run")
        await world.autosave(every=EVERY_S, keep=1)
        with anyio.fail_after(HANG_S):
            await rounds(events, 4, "w000")
    assert len(on_disk(tmp_path / "run")) >= 4
    assert "saves not removed" in capsys.readouterr().err


async def save_once(world: AsyncWorld) -> Path:
    """Make one round of autosaves; return the file of the only instance, or of w000."""
    assert world._autosave is not None
    async with world.events() as events:
        await world._autosave._save_once()
        path: Path = (await until(events, "saved", ["w000"]))[-1].data["path"]
        return path


async def test_an_autosave_updates_the_manifest_once_without_growing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, updates = tmp_path / "run", 0
    apply = ManifestWriter.apply

    async def count(writer: ManifestWriter, update: Update) -> None:
        nonlocal updates
        updates += 1
        await apply(writer, update)

    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        await world.start(run_dir=run)
        await world.autosave(every=1000.0, keep=2)
        await rounds(events, 1, "w000")
        monkeypatch.setattr(ManifestWriter, "apply", count)
        files = [await save_once(world) for _ in range(8)]
    assert updates == len(files)
    assert registered(run) == on_disk(run)
    assert [*registered(run)] == files[-2:]
    assert len(manifest_of(run)["checkpoints"]) == 2


async def test_autosave_keeps_listed_saves_in_other_directories(tmp_path: Path) -> None:
    run, other = tmp_path / "run", tmp_path / "other" / "w000-20260622T185925Z-abcdef.json"
    other.parent.mkdir()
    other.write_text("{}")
    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        await world.start(run_dir=run)
        await world.autosave(every=1000.0, keep=1)
        await rounds(events, 1, "w000")
        (entry,) = manifest_of(run)["checkpoints"]
        foreign = Update(checkpoints=({**entry, "path": str(other)},))
        await run_sync(ManifestFile(manifest_path(run), lock_wait=HANG_S).apply, [foreign])
        assert world._autosave is not None
        world._autosave._retention._kept.clear()  # as after a resume
        for _ in range(2):
            await save_once(world)
    assert other.exists()


@pytest.mark.thorough
async def test_the_lineage_shows_a_removed_autosave_that_a_fork_started_from(
    tmp_path: Path,
) -> None:
    run = tmp_path / "run"
    directory = make_world(tmp_path)
    async with AsyncWorld(dir=directory) as world, world.events() as events:
        await world.start_many(1, run_dir=run)
        await world.autosave(every=1000.0, keep=1)
        first = (await until(events, "saved", ["w000"]))[-1].data["path"]
        (fork,) = await world.fork(first, 1, run_dir=run)
        await world.stop(instance=fork.name, grace_seconds=1)
        second = await save_once(world)
        async with AsyncWorld(dir=directory) as other:  # the fork of another orchestrator
            await other.start(run_dir=tmp_path / "other", resume=second)
        third = await save_once(world)
        await world.record_run(resume_from=third, run_dir=tmp_path / "labelled")
        fourth = await save_once(world)
        lineage = {found.name: found for found in (await world.lineage(run)).instances}
    assert [*on_disk(run / "worlds/w000")] == [fourth]
    entries = manifest_of(run / "worlds/w000")["checkpoints"]
    assert [(Path(entry["path"]).name, "removed_at" in entry) for entry in entries] == [
        *((path.name, True) for path in (first, second, third)),
        (fourth.name, False),
    ]
    origin = lineage[fork.name].parent
    assert origin is not None
    assert (origin.instance, origin.path) == ("w000", first)
