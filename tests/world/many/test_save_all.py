"""Saves of many worlds: outcomes as they arrive, failures, and cancellation."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from clawblox import AsyncWorld, SavedSnapshot, SnapshotError, UsageError, WorldExitedError
from clawblox.concurrency.batch import Outcome
from tests.support.crowd import leftovers, on_disk, past, registered, seeded, until
from tests.support.running import switch
from tests.support.waiting import HANG_S
from tests.support.worlds import make_world
from tests.world.many.conftest import cancel_after

pytestmark = pytest.mark.anyio


@pytest.mark.thorough
async def test_saves_are_yielded_as_they_finish(tmp_path: Path, run: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        batch = await world.start_many(6, run_dir=run)
        slow = batch["w002"]
        switch(slow, snapshot="slow-loris", drip_interval="0.05")
        landed: list[Outcome[SavedSnapshot]] = []
        with anyio.fail_after(HANG_S):
            async for outcome in world.save_all():
                landed.append(outcome)
                if len(landed) == 5:
                    switch(slow, drip_interval="0")
        assert [one.instance for one in landed if one.value is not None] == [
            one.instance for one in landed
        ]
        assert {one.instance for one in landed} == batch.done.keys()
        assert landed[-1].instance == slow.name
        assert landed[-1].value is not None
        for started in batch:
            assert registered(started.instance_dir) == on_disk(started.instance_dir)


BAD_SAVES = ("status-401", "status-500", "html", "truncated", "die-in-body")


@pytest.mark.thorough
async def test_a_failed_save_does_not_affect_the_others(tmp_path: Path, run: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        batch = await world.start_many(len(BAD_SAVES) + 2, run_dir=run)
        for started, fault in zip(batch, BAD_SAVES, strict=False):
            switch(started, snapshot=fault)
        saves = await world.save_all()
        assert list(saves.done) == ["w005", "w006"]
        errors = [saves.failed[started.name] for started in batch if started.name in saves.failed]
        assert [getattr(error, "status", None) for error in errors[:2]] == [401, 500]
        assert [type(error) for error in errors] == [*[SnapshotError] * 4, WorldExitedError]
        for started in batch:
            count = int(started.name in saves.done)
            files = on_disk(started.instance_dir) if count else {}
            assert registered(started.instance_dir) == files
            assert len(files) == count
        told = [event for event in await past(events) if event.kind.startswith("save")]
        assert {one.subject for one in told if one.kind == "saved"} == saves.done.keys()
        assert {one.subject for one in told if one.kind == "save_failed"} == saves.failed.keys()
        assert world.instances == tuple(name for name in batch.done if name != "w004")
        assert (world.metrics.saves, world.metrics.save_failures) == (7, 5)


@pytest.mark.thorough
async def test_only_the_named_instances_are_saved_to_the_given_directory(
    tmp_path: Path, run: Path
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        batch = await world.start_many(3, run_dir=run)
        place = tmp_path / "place"
        saves = await world.save_all(dir=place, instances=["w002", "w000"])
        assert list(saves.done) == ["w002", "w000"]
        assert {saved.path for saved in saves} == set(place.iterdir())
        for name, saved in saves.done.items():
            assert registered(batch[name].instance_dir) == {saved.path: saved.sha256}
        with pytest.raises(UsageError, match="no instance 'w007'; there are: w000, w001, w002"):
            await world.save_all(instances=["w000", "w007"])
        assert len(list(place.iterdir())) == 2


@pytest.mark.thorough
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_saves_finish_without_a_waiting_caller(tmp_path: Path, run: Path, backend: str) -> None:
    async def leave_early() -> None:
        async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
            batch = await world.start_many(4, run_dir=run)
            switch(batch["w003"], snapshot="slow-loris", drip_interval="0.05")
            async for outcome in world.save_all():
                assert outcome.instance != "w003"
                break
            switch(batch["w003"], drip_interval="0")
            await until(events, "saved", batch.done)
            for started in batch:
                assert len(on_disk(started.instance_dir)) == 1
                assert registered(started.instance_dir) == on_disk(started.instance_dir)
            forks = await world.fork(next(iter(on_disk(started.instance_dir))), 2, run_dir=run)
            assert (await world.stop_all()).failed == {}
            forks.raise_if_failed()

    anyio.run(leave_early, backend=backend)
    assert leftovers(run) == []


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["anyio", "asyncio"])
async def test_cancelled_saves_leave_both_file_and_entry_or_neither(
    tmp_path: Path, run: Path, kind: str
) -> None:
    chance = seeded()
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        batch = await world.start_many(6, run_dir=run)
        for started in batch:
            switch(started, snapshot="slow-loris", drip_bytes="50", drip_interval="0.005")
        await world.save_all()
        for _ in range(8):
            delay = chance.uniform(0.0, 0.2)
            await cancel_after(delay, kind, world.save_all)
            for started in batch:
                assert registered(started.instance_dir) == on_disk(started.instance_dir)
        assert len(await world.save_all()) == len(batch)
