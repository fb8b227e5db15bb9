"""Worlds that share a process or a run directory, and their names."""

from __future__ import annotations

import os
import signal
import sys
import threading
from functools import partial
from pathlib import Path

import anyio
import pytest
from anyio.to_thread import run_sync

from clawblox import AsyncWorld, RunLockedError, StartedWorld, UsageError, World, read_manifest
from clawblox.concurrency.batch import Batch
from clawblox.rundir.operations import stop_instances
from clawblox.rundir.status import read_run
from tests.support.crowd import leftovers, registered, until
from tests.support.orchestrators import orchestrator
from tests.support.processes import find_guards
from tests.support.resources import PORTAL_THREAD
from tests.support.running import manifest_of, switch
from tests.support.waiting import HANG_S
from tests.support.worlds import ask, make_world
from tests.world.many.conftest import CROWD_OF

pytestmark = pytest.mark.anyio


# ------------------------------------------------------------------ several worlds, one process


@pytest.mark.thorough
def test_worlds_of_one_process_share_a_guard_a_portal_and_a_run_directory(
    tmp_path: Path, run: Path
) -> None:
    counters, others = make_world(tmp_path), make_world(tmp_path, name="others")
    batches: list[Batch[StartedWorld]] = []

    def start(world: World) -> None:
        batches.append(world.start_many(4, run_dir=run))

    with World(dir=counters) as first, World(dir=others) as second:
        starts = [threading.Thread(target=start, args=(one,)) for one in (first, second)]
        for thread in starts:
            thread.start()
        for thread in starts:
            thread.join()
        assert [batch.failed for batch in batches] == [{}, {}]
        names = {name for batch in batches for name in batch.done}
        assert names == {f"w{number:03}" for number in range(8)}
        assert len({started.port for batch in batches for started in batch}) == 8
        assert len(find_guards(os.getpid())) == 1
        portals = [one for one in threading.enumerate() if one.name == PORTAL_THREAD]
        assert len(portals) == 1
        assert {one.world for one in read_run(run).instances} == {"counter", "others"}
        first.close()
        assert len(second.save_all()) == len(second.instances) == 4
    listed = {entry["name"] for entry in read_manifest(run).instances}
    assert listed == names
    assert leftovers(run) == []


@pytest.mark.thorough
async def test_a_run_directory_is_shared_however_it_is_spelled(tmp_path: Path, run: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(run)
    directory = make_world(tmp_path)
    async with AsyncWorld(dir=directory) as world, AsyncWorld(dir=directory) as other:
        assert list((await world.start_many(1, run_dir=run)).done) == ["w000"]
        assert list((await other.start_many(1, run_dir=link, restart="fresh")).done) == ["w001"]
        await world.start(run_dir=run / ".." / "link")
        assert world.instances == ("w000", "w002")
        # The orchestrator knows all instances, so it is asked and restarts none.
        results = await stop_instances(link, grace_seconds=10)
        assert {one.instance: one.rung for one in results} == dict.fromkeys(
            ("w000", "w001", "w002"), "terminated"
        )
        assert world.instances == other.instances == ()
    assert leftovers(run) == []


@pytest.mark.thorough
async def test_a_run_directory_has_one_orchestrator_at_a_time(tmp_path: Path, run: Path) -> None:
    directory = make_world(tmp_path)
    async with AsyncWorld(dir=directory) as world:
        with orchestrator(CROWD_OF, directory, run, "2") as other:
            other.hear()
            for start in (
                partial(world.start_many, 2),
                partial(world.fork, directory / "world.toml"),
            ):
                with pytest.raises(RunLockedError) as caught:
                    await start(run_dir=run)
                assert caught.value.pid == other.pid
                assert f"pid {other.pid} ({sys.executable}" in str(caught.value)
            assert len((await run_sync(read_run, run)).instances) == 2
            elsewhere = await world.start_many(2, run_dir=tmp_path / "elsewhere")
            assert elsewhere.failed == {}
            await world.stop_all()
            other.tell("end")
            assert other.process.wait(timeout=HANG_S) == 0
            assert list((await world.start_many(2, run_dir=run)).done) == ["w000", "w001"]


# ----------------------------------------------------------------------------------- names


async def test_concurrent_starts_never_share_a_name(tmp_path: Path, run: Path) -> None:
    names: list[str] = []

    async def start(count: int) -> None:
        names.extend((await world.start_many(count, run_dir=run)).done)

    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        async with anyio.create_task_group() as tasks:
            for count in (1, 2, 3):
                tasks.start_soon(start, count)
        assert sorted(names) == [f"w{number:03}" for number in range(6)]
        assert set(world.instances) == set(names)
        listed = {entry["name"] for entry in manifest_of(run)["instances"]}
        assert listed == set(names)


@pytest.mark.thorough
async def test_a_second_run_reuses_names_but_a_fork_does_not(tmp_path: Path, run: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        first = await world.start_many(3, run_dir=run)
        saved = (await world.save_all())["w000"]
        await world.stop(instance="w001")
        assert list((await world.start_many(2, run_dir=run)).done) == ["w001", "w003"]
        await world.stop_all()
        assert list((await world.fork(saved, 2, run_dir=run)).done) == ["w004", "w005"]
        await world.stop_all()
    async with AsyncWorld(dir=world.dir) as world:
        second = await world.start_many(2, run_dir=run)
        assert list(second.done) == ["w000", "w001"]
        assert manifest_of(run / "worlds" / "w000")["run"]["status"] == "running"
        assert registered(first["w000"].instance_dir).keys() == {saved.path}
        assert list((await world.fork(saved, run_dir=run)).done) == ["w006"]


@pytest.mark.thorough
async def test_the_unreleased_name_of_a_dead_instance_is_not_reused(
    tmp_path: Path, run: Path
) -> None:
    async with (
        AsyncWorld(dir=make_world(tmp_path)) as world,
        AsyncWorld(dir=make_world(tmp_path, "--slow-stop", "0.5", name="other")) as other,
        other.events() as events,
    ):
        dead, _ = await other.start_many(2, run_dir=run, restart="fresh", max_restarts=1)
        switch(dead, slow_boot="30")
        os.kill(dead.pid, signal.SIGKILL)
        await until(events, "exited", [dead.name])
        batch = await world.start_many(2, run_dir=run)
        assert batch.failed == {}
        assert list(batch.done) == ["w002", "w003"]


async def test_a_held_name_is_refused_and_its_holder_keeps_running(
    tmp_path: Path, run: Path
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        (holder,) = await world.start_many(1, run_dir=run)
        before = manifest_of(holder.instance_dir)
        async with AsyncWorld(dir=world.dir) as other:
            batch = await other.start_many([{"name": "w000"}, {}], run_dir=run)
            assert list(batch.done) == ["w001"]
            assert type(batch.failed["w000"]) is RunLockedError
        batch = await world.start_many([{"name": "w000"}, {}], run_dir=run)
        assert list(batch.done) == ["w001"]
        assert type(batch.failed["w000"]) is UsageError
        assert manifest_of(holder.instance_dir) == before
        assert ask(holder.port, "GET", "/api.md").status == 200
