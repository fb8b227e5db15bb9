"""Worlds that are saved, forked and stopped by other processes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.to_thread import run_sync

from clawblox import AsyncWorld, ControlError, SavedSnapshot, UsageError
from clawblox.concurrency.batch import Outcome
from clawblox.config.options import SaveOptions
from clawblox.rundir.operations import fork_instances, save_instances, stop_instances
from clawblox.rundir.status import read_run
from tests.support.crowd import exposed, leftovers, on_disk, ports_of, registered, statuses
from tests.support.orchestrators import orchestrator
from tests.support.processes import marked_processes
from tests.support.running import manifest_of
from tests.support.waiting import HANG_S, wait_until_async
from tests.support.worlds import ask, make_world
from tests.world.many.conftest import CROWD_OF

pytestmark = pytest.mark.anyio


async def saves_from_outside(run: Path, *names: str) -> dict[str, Outcome[SavedSnapshot]]:
    outcomes: list[Outcome[SavedSnapshot]] = []
    with anyio.fail_after(HANG_S):
        await save_instances(run, names, SaveOptions(), on_saved=outcomes.append)
    assert len({one.instance for one in outcomes}) == len(outcomes)
    return {one.instance: one for one in outcomes}


async def forks_from_outside(
    run: Path, world_dir: Path, checkpoint: Path, count: int, reseed: int | None = None
) -> list[Mapping[str, Any]] | None:
    """Return the events about the instances; None if there is no orchestrator."""
    events: list[Mapping[str, Any]] = []
    with anyio.fail_after(HANG_S):
        is_owned = await fork_instances(
            run, world_dir, checkpoint, count, on_event=events.append, options={"reseed": reseed}
        )
    return [one for one in events if one["event"] in ("started", "failed")] if is_owned else None


@pytest.mark.thorough
async def test_worlds_are_saved_forked_and_stopped_from_another_process(
    tmp_path: Path, run: Path
) -> None:
    directory = make_world(tmp_path)
    with orchestrator(CROWD_OF, directory, run, "3") as owner:
        ports = dict(zip(("w000", "w001", "w002"), map(int, owner.hear().split()), strict=True))
        (control,) = (run / ".clawblox" / "control").glob("*.sock")
        assert exposed(run) == []
        assert control.is_socket()
        ask(ports["w002"], "POST", "/__set?snapshot=status-500")
        saves = await saves_from_outside(run)
        assert {name for name, one in saves.items() if one.error is None} == {"w000", "w001"}
        assert "500" in str(saves["w002"].error)
        for name in ("w000", "w001"):
            home = run / "worlds" / name
            assert registered(home) == on_disk(home) != {}
        await check_forks_from_outside(run, directory, saves["w000"])
        (result,) = await stop_instances(run, ["w001"], grace_seconds=10)
        assert (result.instance, result.rung) == ("w001", "terminated")
        states = {one.name: one for one in (await run_sync(read_run, run)).instances}
        assert (states["w001"].state, states["w001"].restarts) == ("exited", 0)
        assert [name for name, one in states.items() if one.state == "ready"] == [
            "w000",
            "w002",
            "w003",
            "w004",
        ]
        results = await stop_instances(run, grace_seconds=10)
        assert len(results) == 5
        assert not marked_processes()
        with pytest.raises(UsageError):
            await stop_instances(run, ["w009"], grace_seconds=10)
        owner.tell("end")
        assert owner.process.wait(HANG_S) == 0
    assert leftovers(run, ports.values()) == []
    assert {one.restarts for one in (await run_sync(read_run, run)).instances} == {0}


async def check_forks_from_outside(
    run: Path, directory: Path, outcome: Outcome[SavedSnapshot]
) -> None:
    saved = outcome.value
    assert saved is not None
    events = await forks_from_outside(run, directory, saved.path, 2)
    assert events is not None
    assert [(one["event"], one["instance"]) for one in events] == [
        ("started", "w003"),
        ("started", "w004"),
    ]
    told = manifest_of(run / "worlds" / "w004")["run"]
    assert (told["resume_from"], told["parent_sha256"]) == (str(saved.path), saved.sha256)
    with pytest.raises(ControlError) as caught:
        await forks_from_outside(run, directory, saved.path, 2, reseed=1)
    assert caught.value.error_type == "ConfigError"


@pytest.mark.thorough
async def test_a_fork_runs_the_world_of_its_snapshot_if_there_are_several(
    tmp_path: Path, run: Path
) -> None:
    counters, others = make_world(tmp_path), make_world(tmp_path, name="others")
    async with AsyncWorld(dir=counters) as first, AsyncWorld(dir=others) as second:
        (await first.start_many(1, run_dir=run)).raise_if_failed()
        (await second.start_many(1, run_dir=run)).raise_if_failed()
        saved = await second.save()
        events = await forks_from_outside(run, others, saved.path, 1)
        assert events is not None
        assert [(one["event"], one["instance"]) for one in events] == [("started", "w002")]
        assert second.instances == ("w001", "w002")
        assert await forks_from_outside(run, tmp_path, saved.path, 1) is None
    assert leftovers(run) == []


DETACHED = CROWD_OF.replace('restart="checkpoint"', "detach=True")


@pytest.mark.thorough
async def test_detached_worlds_are_saved_and_stopped_without_an_orchestrator(
    tmp_path: Path, run: Path
) -> None:
    directory = make_world(tmp_path)
    with orchestrator(DETACHED, directory, run, "3") as owner:
        ports = [int(word) for word in owner.hear().split()]
        (result,) = await stop_instances(run, ["w001"], grace_seconds=10)  # by its orchestrator
        assert result.rung == "terminated"
        owner.tell("leave them")
        assert owner.process.wait(HANG_S) == 0
    try:
        assert len(marked_processes()) == 2
        saves = await saves_from_outside(run)
        assert {name: one.error for name, one in saves.items()} == {"w000": None, "w002": None}
        for name in saves:
            home = run / "worlds" / name
            assert registered(home) == on_disk(home) != {}
        saved = saves["w000"].value
        assert saved is not None
        assert await forks_from_outside(run, directory, saved.path, 1) is None
        async with AsyncWorld(dir=directory) as again:  # they keep their names
            assert list((await again.fork(saved, run_dir=run)).done) == ["w003"]
    finally:
        results = await stop_instances(run, grace_seconds=10)
    assert {one.instance: one.rung for one in results} == {
        "w000": "terminated",
        "w001": "not_running",
        "w002": "terminated",
        "w003": "not_running",
    }
    assert leftovers(run, ports) == []
    assert {one.state for one in (await run_sync(read_run, run)).instances} == {"exited"}
    told = statuses(run, ["w000", "w001", "w002", "w003"])
    assert {one["status"] for one in told.values()} == {"complete"}
    assert all(one["ended_at"] for one in told.values())


@pytest.mark.thorough
async def test_stopping_an_interrupted_instance_marks_it_interrupted(
    tmp_path: Path, run: Path
) -> None:
    with orchestrator(CROWD_OF, make_world(tmp_path), run, "2") as killed:
        assert len(killed.hear().split()) == 2
        killed.kill()
    await wait_until_async(lambda: not marked_processes(), HANG_S, "the guard has ended them")
    results = await stop_instances(run, grace_seconds=10)
    assert {one.rung for one in results} == {"not_running"}
    told = statuses(run, ["w000", "w001"])
    assert {one["status"] for one in told.values()} == {"interrupted"}


@pytest.mark.thorough
async def test_detached_worlds_keep_their_manifests_when_attached(
    tmp_path: Path, run: Path
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        batch = await world.start_many(2, run_dir=run, detach=True)
    attached = await run_sync(AsyncWorld.attach, run)
    async with attached as world:
        assert world.instances == ("w000", "w001")
        saves = await world.save_all()
        for started in batch:
            home = started.instance_dir
            assert (
                registered(home)
                == on_disk(home)
                == {saves[started.name].path: saves[started.name].sha256}
            )
        assert len((await world.stop_all()).done) == 2
    assert leftovers(run, ports_of(batch)) == []
    assert {one["status"] for one in statuses(run, batch.done).values()} == {"complete"}
