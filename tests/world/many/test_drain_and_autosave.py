"""Drains, which stop the saved instances, and autosaves, which keep the latest saves."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from clawblox import AsyncWorld, ConfigError, SnapshotError, StartedWorld
from clawblox.concurrency.batch import Batch
from clawblox.rundir.manifest import manifest_path
from clawblox.world.save import Autosave
from tests.support.crowd import join, kinds, leftovers, on_disk, past, registered, until
from tests.support.processes import marked_processes
from tests.support.running import manifest_of, switch
from tests.support.waiting import HANG_S, wait_until_async
from tests.support.worlds import make_world
from tests.world.resume.support import interrupt

pytestmark = pytest.mark.anyio


@pytest.mark.thorough
async def test_a_drain_stops_the_instances_that_it_saved(tmp_path: Path, run: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        batch = await world.start_many(4, run_dir=run)
        stuck = batch["w001"]
        switch(stuck, snapshot="status-500")
        await world.autosave(every=3600.0)
        drained = await world.drain(grace_seconds=10)
        assert list(drained.done) == ["w000", "w002", "w003"]
        assert list(drained.failed) == ["w001"]
        assert type(drained.failed["w001"]) is SnapshotError
        assert world.instances == ("w001",)
        assert marked_processes() == {stuck.pid}
        for name, saved in drained.done.items():
            home = batch[name].instance_dir
            assert saved.path in registered(home)
            assert registered(home) == on_disk(home)
            assert manifest_of(home)["run"]["status"] == "complete"
        switch(stuck, snapshot="sized")
        assert list((await world.drain()).done) == ["w001"]
        assert world.instances == ()
        assert list((await world.start_many([{"resume": drained["w000"].path}], run_dir=run)).done)


async def test_autosaves_continue_after_a_round_fails_with_a_bug(
    tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: Autosave) -> None:
        monkeypatch.undo()
        raise ZeroDivisionError

    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        batch = await world.start_many(1, run_dir=run)
        monkeypatch.setattr(Autosave, "_save_once", fail)
        await world.autosave(every=0.01)
        await until(events, "saved", batch.done)


async def test_an_autosave_removes_only_its_own_older_saves(tmp_path: Path, run: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        batch = await world.start_many(2, run_dir=run)
        by_hand = await world.save_all()
        await past(events)
        await world.autosave(every=0.01, keep=2)
        for _ in range(6):
            await until(events, "saved", batch.done)
        await world.autosave(every=None)
        for started in batch:
            files = on_disk(started.instance_dir)
            # The round that was ended may have saved already and removed nothing yet.
            assert len(files.keys() - {by_hand[started.name].path}) in (2, 3)
            assert by_hand[started.name].path in files
            assert registered(started.instance_dir) == files
            entries = manifest_of(started.instance_dir)["checkpoints"]
            assert len(entries) == len(files)
            newest = max(files, key=lambda path: path.stat().st_mtime_ns)
            assert entries[-1]["path"] == f"checkpoints/{newest.name}"
        await past(events)
        assert len(await world.save_all()) == 2
        assert kinds(await past(events), "w000") == ["saved"]


@pytest.mark.thorough
async def test_an_autosave_counts_saves_of_earlier_orchestrators_and_restarts(
    tmp_path: Path, run: Path
) -> None:
    directory = make_world(tmp_path)

    async def autosave(world: AsyncWorld, keep: int) -> None:
        async with world.events() as events:
            await world.autosave(every=0.01, keep=keep)
            for _ in range(keep + 2):
                await until(events, "saved", ["w000"])
            await world.autosave(every=None)

    async def save(world: AsyncWorld, batch: Batch[StartedWorld]) -> None:
        by_hand.append((await world.save()).path)
        await autosave(world, keep=6)

    by_hand: list[Path] = []
    await interrupt(directory, run, 1, save)
    files = on_disk(run / "worlds" / "w000")
    assert len(files) >= 7
    async with AsyncWorld(dir=directory) as world:
        (started,) = await world.resume_all(run)
        await autosave(world, keep=2)
        files = on_disk(started.instance_dir)
        # The round that was ended may have saved already and removed nothing yet.
        assert len(files.keys() - {*by_hand, started.resume_path}) in (2, 3)
        assert files.keys() > {*by_hand, started.resume_path}
        os.kill(started.pid, signal.SIGKILL)
        await world.wait()
        again = await world.restart()
        await autosave(world, keep=1)
        files = on_disk(started.instance_dir)
        assert len(files.keys() - {*by_hand, again.resume_path}) in (1, 2)
        assert registered(started.instance_dir) == files


@pytest.mark.thorough
async def test_a_failed_autosave_keeps_older_saves(tmp_path: Path, run: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        batch = await world.start_many(2, run_dir=run)
        await world.autosave(every=0.01, keep=1)
        await until(events, "saved", batch.done)
        switch(batch["w000"], snapshot="status-500")
        await until(events, "save_failed", ["w000"])
        before = on_disk(batch["w000"].instance_dir)
        for _ in range(3):
            await until(events, "saved", ["w001"])
        assert on_disk(batch["w000"].instance_dir) == before != {}
        switch(batch["w000"], snapshot="sized")
        await until(events, "saved", ["w000"])


async def test_an_autosave_ends_with_its_block_and_leaves_no_partial_file(
    tmp_path: Path, run: Path
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        batch = await world.start_many(2, run_dir=run)
        switch(batch["w001"], snapshot="slow-loris", drip_interval="0.05")
        await world.autosave(every=0.01)
        partials = (run / "worlds" / "w001" / "checkpoints").glob
        await wait_until_async(lambda: list(partials(".*.partial")), HANG_S, "a save has begun")
    assert leftovers(run) == []
    assert on_disk(batch["w001"].instance_dir) == {}
    for started in batch:
        assert registered(started.instance_dir) == on_disk(started.instance_dir)


@pytest.mark.parametrize(
    "arguments", [{"every": 0}, {"every": -1.0}, {"every": float("nan")}, {"every": 1, "keep": 0}]
)
async def test_invalid_autosave_arguments_are_refused(
    tmp_path: Path, arguments: dict[str, Any]
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        with pytest.raises(ConfigError):
            await world.autosave(**arguments)


async def test_autosaves_pause_while_the_disk_is_low_and_then_resume(
    tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = 10**9
    monkeypatch.setattr("clawblox.world.save.available_bytes", lambda _: free)
    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        batch = await world.start_many(2, run_dir=run)
        await world.autosave(every=0.01, min_free="0.5 GB")
        await until(events, "saved", batch.done)
        free = 499_999_999
        paused = (await until(events, "autosave_paused", [""]))[-1]
        assert dict(paused.data) == {
            "path": batch["w000"].instance_dir,
            "free_bytes": free,
            "min_free_bytes": 500_000_000,
        }
        await past(events)
        saves = on_disk(batch["w000"].instance_dir)
        await join(world, batch["w000"])  # with autosave on, a join is saved too
        assert await past(events) == []
        assert on_disk(batch["w000"].instance_dir) == saves
        assert (await world.save(instance="w000")).path.exists()  # saved on request
        free = 500_000_000
        await until(events, "autosave_resumed", [""])
        await until(events, "saved", batch.done)


@pytest.mark.parametrize("size", ["5", "1 GiB free", 0, 1.5])
async def test_an_invalid_limit_of_free_space_is_refused(tmp_path: Path, size: Any) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        with pytest.raises(ConfigError, match="min_free: must be bytes above 0, or a size such as"):
            await world.autosave(every=1, min_free=size)


async def test_autosave_keeps_a_file_that_only_the_world_lists_as_autosave(
    tmp_path: Path, run: Path
) -> None:
    mine = tmp_path / "thesis.json"
    mine.write_text("{}")
    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        batch = await world.start_many(1, run_dir=run)
        home = batch["w000"].instance_dir
        run_id = manifest_of(home)["run"]["id"]
        entry = {"path": str(mine), "autosave": True, "instance": "w000", "run_id": run_id}
        manifest = manifest_path(home)
        document = {**manifest_of(home), "checkpoints": [entry]}
        await anyio.to_thread.run_sync(manifest.write_text, json.dumps(document))
        await world.autosave(every=0.01, keep=1)
        for _ in range(3):
            await until(events, "saved", batch.done)
    assert mine.exists()
