"""Queued starts have a record, which does not hide records of other processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from anyio.to_thread import run_sync

from clawblox import AsyncWorld
from clawblox.instance.running import WorldProcesses
from clawblox.rundir import journal
from clawblox.rundir.interrupted import set_aside
from clawblox.rundir.operations import stop_instances
from clawblox.rundir.records import read_record, read_records, write_records
from clawblox.rundir.status import read_run
from tests.support.crowd import leftovers
from tests.support.orchestrators import orchestrator
from tests.support.processes import marked_processes
from tests.support.waiting import HANG_S, wait_until_async
from tests.support.worlds import make_world
from tests.world.resume.support import find_record, interrupt, resume

pytestmark = pytest.mark.anyio


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.mark.thorough
async def test_all_plans_of_a_batch_are_written_together(
    tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    appended: list[int] = []
    original = journal.append_line

    def append(path: Path, line: bytes) -> None:
        appended.append(line.count(b'"state":"planned"'))
        original(path, line)

    monkeypatch.setattr("clawblox.rundir.records.append_line", append)
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        await world.start_many(4, run_dir=run)
    assert [count for count in appended if count] == [4]


async def test_a_world_has_a_record_before_it_has_a_process(
    tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    spawn = WorldProcesses.start

    def start(processes: WorldProcesses, *args: Any, **options: Any) -> None:
        seen.extend(record.cookie for record in read_records(run))
        spawn(processes, *args, **options)
        assert seen == [processes.tree.cookie]

    monkeypatch.setattr(WorldProcesses, "start", start)
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        await world.start(run_dir=run)
    assert seen


@pytest.mark.thorough
async def test_the_record_of_another_process_is_not_hidden(tmp_path: Path, run: Path) -> None:
    directory = make_world(tmp_path)
    program = """
    world = World(dir=world_dir)
    tell(world.start(run_dir=run_dir, name="red").pid)
    hear()
    """
    with orchestrator(program, directory, run) as living:
        pid = int(living.hear())
        async with AsyncWorld(dir=directory) as world:
            batch = await world.start_many([{"name": "red"}, {"name": "blue"}], run_dir=run)
            assert list(batch.failed) == ["red"]
            assert (await find_record(run, "red")).pid == pid
        living.tell("end")
        living.process.wait(HANG_S)


async def test_a_queued_instance_that_was_stopped_is_not_resumed(tmp_path: Path, run: Path) -> None:
    directory = make_world(tmp_path, "--slow-boot", "60")
    async with AsyncWorld(dir=directory) as world, anyio.create_task_group() as tasks:

        async def start() -> None:
            batch = await world.start_many(40, run_dir=run)
            assert len(batch.failed) == 40

        tasks.start_soon(start)
        with anyio.fail_after(HANG_S):
            await wait_until_async(lambda: len(marked_processes()) > 0)
            waiting = (await run_sync(read_run, run)).waiting
            await stop_instances(run, grace_seconds=0)
    assert waiting > 0
    assert {one.stopped_on_purpose for one in await run_sync(read_records, run)} == {True}
    assert (await run_sync(read_run, run)).interrupted == ()
    assert leftovers(run) == []


@pytest.mark.thorough
async def test_an_instance_that_was_set_aside_is_resumed_only_by_name(
    tmp_path: Path, run: Path
) -> None:
    directory = make_world(tmp_path)
    await interrupt(directory, run, 3)
    assert (await run_sync(read_run, run)).interrupted == ("w000", "w001", "w002")
    await run_sync(set_aside, run, ["w001"])
    assert list((await resume(directory, run))[0].done) == ["w000", "w002"]
    assert list((await resume(directory, run, instances=["w001"]))[0].done) == ["w001"]


@pytest.mark.thorough
async def test_a_fork_does_not_take_the_name_of_a_planned_instance(
    tmp_path: Path, run: Path
) -> None:
    directory = make_world(tmp_path)
    await interrupt(directory, run, 1)
    known = await run_sync(read_record, run, "w000")
    assert known is not None
    planned = msgspec.structs.replace(
        known, name="w001", state="planned", pid=0, orchestrator_pid=1 << 22
    )
    await run_sync(write_records, run, planned)
    async with AsyncWorld(dir=directory) as world:
        started = await world.start(run_dir=run, name="w000")
        saved = await world.save(instance=started.name)
        (fork,) = await world.fork(saved, run_dir=run)
        assert fork.name == "w002"
