"""The instances of a run that a resume continues, and those that it leaves alone."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path

import anyio
import pytest
from anyio.to_thread import run_sync

from clawblox import AsyncWorld, ConfigError, RunLockedError, StartedWorld, UsageError, World
from clawblox.concurrency.batch import Batch
from tests.support.crowd import leftovers, make_motley_world, until, variables_of
from tests.support.orchestrators import orchestrator
from tests.support.processes import is_alive, kill_processes, marked_processes
from tests.support.waiting import HANG_S, wait_until_async
from tests.support.worlds import ask, make_world
from tests.world.many.conftest import CROWD_OF
from tests.world.resume.support import (
    BlockError,
    edges,
    find_record,
    home,
    interrupt,
    resume,
    rewrite_records,
    run_of,
    until_over,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.mark.thorough
async def test_instances_that_were_not_stopped_on_purpose_continue(
    tmp_path: Path, run: Path
) -> None:
    directory = make_motley_world(tmp_path)
    names = ("stopped", "finished", "crashed", "killed", "cut", "broken")
    specs = [{"name": name} for name in names]
    specs[-1]["env"] = {"FLAGS": "--exit-at-once 4"}  # type: ignore[assignment]

    async def end_each(world: AsyncWorld, batch: Batch[StartedWorld]) -> None:
        assert list(batch.failed) == ["broken"]
        await world.stop(instance="stopped")
        ask(batch["finished"].port, "POST", "/__die?status=0")
        ask(batch["crashed"].port, "POST", "/__die?status=3")
        os.kill(batch["killed"].pid, signal.SIGKILL)
        for name in ("finished", "crashed", "killed"):
            await until_over(run, name)

    await interrupt(directory, run, specs, end_each)
    told = {name: await find_record(run, name) for name in names}
    assert [name for name in names if told[name].stopped_on_purpose] == ["stopped"]
    assert [name for name in names if told[name].has_finished] == ["finished"]
    labels = {name: run_of(run, name)["status"] for name in names}
    assert labels == {
        "stopped": "complete",
        "finished": "complete",
        "crashed": "failed",
        "killed": "failed",
        "cut": "interrupted",
        "broken": "failed",
    }
    batch, events = await resume(directory, run, env={"FLAGS": ""})
    assert batch.failed == {}
    assert sorted(batch.done) == ["broken", "crashed", "cut", "killed"]
    assert {name: event.data["exit"] for name, event in events.items()} == {
        "broken": "exit status 4",
        "crashed": "exit status 3",
        "cut": "exit status 0",
        "killed": "killed by SIGKILL (by a person, a program, or for lack of memory)",
    }
    assert leftovers(run) == []


@pytest.mark.thorough
@pytest.mark.parametrize("way", ["stop", "stop_all", "drain", "leave"])
async def test_a_run_that_was_ended_on_purpose_stays_ended(
    tmp_path: Path, run: Path, way: str
) -> None:
    directory = make_world(tmp_path)
    async with AsyncWorld(dir=directory) as world:
        await world.start_many(2, run_dir=run)
        if way == "stop":
            await world.stop(instance="w000")
            await world.stop(instance="w001")
        elif way != "leave":
            await getattr(world, way)()
    batch, events = await resume(directory, run)
    assert (batch.done, batch.failed, events) == ({}, {}, {})
    # A named instance is resumed in any case.
    batch, _ = await resume(directory, run, instances=["w001"])
    assert list(batch.done) == ["w001"]
    assert edges(run, "w001")[-1]["by"] == "resume"


@pytest.mark.thorough
async def test_a_cancelled_block_can_continue(tmp_path: Path, run: Path) -> None:
    directory = make_world(tmp_path)
    with anyio.CancelScope() as scope:
        async with AsyncWorld(dir=directory) as world:
            await world.start_many(2, run_dir=run)
            scope.cancel()
            await anyio.sleep(0)
    batch, _ = await resume(directory, run)
    assert list(batch.done) == ["w000", "w001"]


@pytest.mark.thorough
def test_a_failed_script_can_be_resumed_but_a_completed_one_cannot(
    tmp_path: Path, run: Path
) -> None:
    directory = make_world(tmp_path)
    with contextlib.suppress(BlockError), World(dir=directory) as world:
        world.start_many(2, run_dir=run)
        raise BlockError
    script = """
    world = World(dir=world_dir)
    tell(*world.resume_all(run_dir).done)
    if arguments:
        raise SystemExit("an error") if arguments == ["exit"] else ZeroDivisionError
    """
    for ending in (["error"], []):
        with orchestrator(script, directory, run, *ending, stderr=subprocess.DEVNULL) as program:
            assert program.hear() == "w000 w001"
            assert program.process.wait(HANG_S) == len(ending)
    with World(dir=directory) as world:
        assert world.resume_all(run).done == {}


@pytest.mark.thorough
async def test_an_interrupted_start_is_repeated_on_resume(tmp_path: Path, run: Path) -> None:
    directory = make_world(tmp_path)
    waiting = """
    from clawblox.instance.ramp import Ramp
    begun = []
    original = Ramp.begin
    def begin(self, start):
        if len(begun) == 2 or not original(self, start):
            return False
        begun.append(start)
        return True
    Ramp.begin = begin

    async def main():
        async with AsyncWorld(dir=world_dir) as world, world.events() as events:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(world.start_many, 5, run_dir=run_dir))
                ready = 0
                async for event in events:
                    ready += event.kind == "ready"
                    if ready == 2:
                        tell("two")
                        await hear_async()
    anyio.run(main)
    """
    with orchestrator(waiting, directory, run) as killed:
        assert killed.hear() == "two"
        killed.kill()
    assert {(await find_record(run, f"w{at:03}")).state for at in range(2, 5)} == {"planned"}
    run_ids = {f"w{at:03}": (await find_record(run, f"w{at:03}")).run_id for at in range(5)}
    batch, events = await resume(directory, run)
    assert list(batch.done) == [f"w{at:03}" for at in range(5)]
    assert sorted(events) == ["w000", "w001"]  # the others had not started before
    for name in batch.done:
        assert run_of(run, name)["id"] == run_ids[name]
        assert len(edges(run, name)) == (name in events)
    assert leftovers(run) == []


@pytest.mark.thorough
async def test_cancelled_starts_are_repeated_on_resume(tmp_path: Path, run: Path) -> None:
    directory = make_world(tmp_path, "--slow-boot", "60")
    with anyio.CancelScope() as scope:
        async with AsyncWorld(dir=directory) as world, anyio.create_task_group() as tasks:

            async def start() -> None:
                await world.start_many(3, run_dir=run)

            tasks.start_soon(start)
            await wait_until_async(lambda: len(marked_processes()) > 0)
            scope.cancel()
    for at in range(3):
        record = await find_record(run, f"w{at:03}")
        assert (record.state in ("failed", "interrupted"), record.stopped_on_purpose) == (
            True,
            False,
        )
    toml = directory / "world.toml"
    toml.write_text(toml.read_text().replace('"60"', '"0"'))
    batch, _ = await resume(directory, run)
    assert list(batch.done) == ["w000", "w001", "w002"]


# ------------------------------------------------------------------------------------- owners


@pytest.mark.thorough
async def test_the_error_names_a_running_orchestrator(tmp_path: Path, run: Path) -> None:
    directory = make_world(tmp_path)
    with orchestrator(CROWD_OF, directory, run, "2") as living:
        living.hear()
        async with AsyncWorld(dir=directory) as world:
            with pytest.raises(RunLockedError, match=f"pid {living.pid} ") as caught:
                await world.resume_all(run)
            assert caught.value.pid == living.pid
        living.tell("end")
        assert living.process.wait(HANG_S) == 0


@pytest.mark.thorough
async def test_the_error_names_the_orchestrator_of_a_single_instance(
    tmp_path: Path, run: Path
) -> None:
    directory = make_world(tmp_path)
    program = """
    world = World(dir=world_dir)
    tell(world.start(run_dir=run_dir, name="lone").pid)
    hear()
    """
    with orchestrator(program, directory, run) as living:
        pid = int(living.hear())
        async with AsyncWorld(dir=directory) as world:
            with pytest.raises(RunLockedError, match=f"'lone' .* is held by pid {living.pid} "):
                await world.resume_all(run)
        assert is_alive(pid)
        living.kill()
    batch, events = await resume(directory, run)
    assert list(batch.done) == ["lone"]
    assert events["lone"].data["exit"] == "its orchestrator was killed"


async def test_own_running_instances_continue_and_dead_ones_are_resumed(
    tmp_path: Path, run: Path
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        batch = await world.start_many(2, run_dir=run)
        os.kill(batch["w000"].pid, signal.SIGKILL)
        await until(events, "exited", ["w000"])
        await until_over(run, "w000")
        again = await world.resume_all()
        assert list(again.done) == ["w000"]
        assert is_alive(batch["w001"].pid)
        with pytest.raises(UsageError, match="'w001' cannot be resumed: it runs"):
            await world.resume_all(run, instances=["w001"])
        assert (await world.resume_all()).done == {}


async def test_processes_of_a_killed_orchestrator_are_ended_before_a_resume(
    tmp_path: Path, run: Path
) -> None:
    directory = make_world(tmp_path, "--ignore-sigterm")
    with orchestrator(CROWD_OF, directory, run, "2") as killed:
        killed.hear()
        (guard,) = killed.guards()
        os.kill(guard, signal.SIGSTOP)  # it would end them; the worst case is that it cannot
        killed.kill()
        left = marked_processes()
        assert len(left) == 2
        try:
            seen: list[set[int]] = []

            async def look(world: AsyncWorld, _batch: Batch[StartedWorld]) -> None:
                seen.append(marked_processes())
                await world.stop_all(grace_seconds=0)

            batch, _ = await resume(directory, run, look)
        finally:
            os.kill(guard, signal.SIGKILL)
            kill_processes(lambda: left & marked_processes())
    assert list(batch.done) == ["w000", "w001"]
    assert seen == [{started.pid for started in batch}]


async def test_running_detached_instances_are_left_alone(tmp_path: Path, run: Path) -> None:
    directory = make_world(tmp_path)
    detached = await interrupt(directory, run, 2, detach=True)
    os.kill(detached["w001"].pid, signal.SIGKILL)
    await wait_until_async(lambda: not is_alive(detached["w001"].pid))

    async def look(_world: AsyncWorld, _batch: Batch[StartedWorld]) -> None:
        assert is_alive(detached["w000"].pid)
        with pytest.raises(UsageError, match=r"runs detached; World\.attach"):
            await _world.resume_all(run, instances=["w000"])

    batch, _ = await resume(directory, run, look)
    assert list(batch.done) == ["w001"]  # detached, as it was
    async with AsyncWorld.attach(run) as world:
        assert sorted(world.instances) == ["w000", "w001"]
        await world.stop_all()
    record = await find_record(run, "w001")
    assert (record.options["detach"], record.stopped_on_purpose) == (True, True)


@pytest.mark.thorough
async def test_after_a_reboot_recorded_processes_are_considered_ended(
    tmp_path: Path, run: Path
) -> None:
    directory = make_world(tmp_path)
    with orchestrator(CROWD_OF, directory, run, "2") as killed:
        killed.hear()
        killed.kill()
    # In the new boot, other programs have these pids.
    rewrite_records(run, boot_id="another", pid=os.getpid(), orchestrator_pid=os.getppid())
    partial = home(run, "w000") / ".save.1-1.0.partial"
    partial.touch()
    batch, events = await resume(directory, run)
    assert list(batch.done) == ["w000", "w001"]
    assert {event.data["exit"] for event in events.values()} == {"the machine was restarted"}
    assert not partial.exists()


# ------------------------------------------------------------------------------- names, worlds


@pytest.mark.thorough
async def test_each_world_resumes_its_own_instances(tmp_path: Path, run: Path) -> None:
    counters, others = make_world(tmp_path), make_world(tmp_path, name="others")
    await interrupt(counters, run, [{"name": "a"}])
    await interrupt(others, run, [{"name": "b"}])
    link = tmp_path / "link"
    link.symlink_to(counters)
    assert list((await resume(link, run))[0].done) == ["a"]
    assert list((await resume(others, run))[0].done) == ["b"]
    with pytest.raises(UsageError, match=r"no instance 'b' in .*; there are: a$"):
        await resume(counters, run, instances=["b"])


async def test_a_finished_instance_cannot_be_named(tmp_path: Path, run: Path) -> None:
    async def finish(_world: AsyncWorld, batch: Batch[StartedWorld]) -> None:
        ask(batch["w000"].port, "POST", "/__die?status=0")
        await until_over(run, "w000")

    directory = make_world(tmp_path)
    await interrupt(directory, run, 1, finish)
    with pytest.raises(UsageError, match="'w000' cannot be resumed: it has finished"):
        await resume(directory, run, instances=["w000"])


@pytest.mark.thorough
@pytest.mark.parametrize("is_copy", [False, True])
async def test_a_moved_or_copied_run_directory_is_resumed_in_place(
    is_copy: bool, tmp_path: Path, run: Path
) -> None:
    async def save(world: AsyncWorld, batch: Batch[StartedWorld]) -> None:
        for name in ("w000", "w001"):
            joined = await world.join("Red", instance=name)
            await joined.act("add", int(name[-1]) + 5)
        await world.save(instance="w000")

    directory = make_world(tmp_path)
    await interrupt(directory, run, 2, save, record=True)
    moved = tmp_path / "elsewhere" / "moved"
    moved.parent.mkdir()
    await run_sync(shutil.copytree if is_copy else shutil.move, run, moved)

    async def look(world: AsyncWorld, batch: Batch[StartedWorld]) -> None:
        saved = await world.save(instance="w000")
        for started in batch:
            paths = (started.run_dir, started.instance_dir, started.log_file, started.command_file)
            assert all(path.is_relative_to(moved) for path in (*paths, started.record_dir))
        assert saved.path.is_relative_to(moved)

    if is_copy:
        before = await run_sync(contents, run)
    batch, origins = await resume(directory, moved, look)
    assert sorted(batch.done) == ["w000", "w001"]
    assert (await find_record(moved, "w000")).instance_dir == str(moved / "worlds" / "w000")
    resumed = origins["w000"].data["resume_path"]
    assert resumed is not None
    assert resumed.is_relative_to(moved)
    assert origins["w001"].data["resume_path"] is None  # it had no save
    assert (await run_sync(contents, run) == before) if is_copy else not run.exists()


async def test_a_single_world_that_was_moved_continues_with_its_snapshot(
    tmp_path: Path, run: Path
) -> None:
    directory = make_world(tmp_path)
    with contextlib.suppress(BlockError):
        async with AsyncWorld(dir=directory) as world:
            await world.start(run_dir=run)
            first = await world.save()
            await world.stop()
            await world.start(run_dir=run, resume=first)
            raise BlockError
    moved = run.rename(tmp_path / "moved")
    batch, origins = await resume(directory, moved)
    assert list(batch.done) == ["w000"]
    assert origins["w000"].data["resume_path"] == moved / first.path.relative_to(run)


async def test_a_run_directory_without_the_directory_of_an_instance_is_refused(
    tmp_path: Path, run: Path
) -> None:
    directory = make_world(tmp_path)
    await interrupt(directory, run, 1)
    moved = run.rename(tmp_path / "moved")
    (moved / "worlds" / "w000").rename(tmp_path / "w000")
    with pytest.raises(UsageError, match=r"was moved: instance 'w000' ran in"):
        await resume(directory, moved)


def contents(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


async def test_an_empty_directory_has_no_instances_to_resume(tmp_path: Path, run: Path) -> None:
    assert (await resume(make_world(tmp_path), run))[0].done == {}


# -------------------------------------------------------------------------------- environment


@pytest.mark.thorough
async def test_a_resume_requires_the_environment_variables_again(
    tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = make_world(tmp_path)
    specs = [{"name": "a", "env": {"TEAM": "red", "KEY": "hush"}}, {"name": "b"}]
    await interrupt(directory, run, specs)
    assert "hush" not in (run / ".clawblox/instances/records.jsonl").read_text()
    with pytest.raises(ConfigError, match="no value for KEY, TEAM, which a had"):
        await resume(directory, run)
    assert not home(run, "a").joinpath("nothing").exists()
    monkeypatch.setenv("KEY", "ours")
    seen: dict[str, str] = {}

    async def look(_world: AsyncWorld, batch: Batch[StartedWorld]) -> None:
        seen.update(variables_of(batch["a"].pid))

    batch, _ = await resume(directory, run, look, env={"TEAM": "blue"})
    assert list(batch.done) == ["a", "b"]
    assert (seen["TEAM"], seen["KEY"]) == ("blue", "ours")
    assert sorted((await find_record(run, "a")).options["env"]) == ["KEY", "TEAM"]
    with pytest.raises(ConfigError, match="start sets this variable"):
        await resume(directory, run, env={"WORLD_PORT": "1"})


@pytest.mark.thorough
async def test_given_tokens_are_replaced_by_new_tokens(tmp_path: Path, run: Path) -> None:
    directory = make_world(tmp_path)
    await interrupt(directory, run, 1, env={"WORLD_OPERATOR_TOKEN": "t" * 32})
    assert list((await resume(directory, run))[0].done) == ["w000"]
