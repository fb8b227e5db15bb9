"""Resumes together with restarts on request, detached instances, archives, labels and agents."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

import anyio
import pytest
from anyio.to_thread import run_sync

from clawblox import AsyncWorld, ProcessExit, StartedWorld, WorldExitedError, WorldStartError
from clawblox.concurrency.batch import Batch
from clawblox.rundir.lineage import read_lineage
from clawblox.rundir.operations import stop_instances
from tests.support.crowd import act, join, kinds, look, make_motley_world, until, variables_of
from tests.support.orchestrators import orchestrator
from tests.support.processes import marked_processes
from tests.support.running import manifest_of
from tests.support.waiting import HANG_S, wait_until_async
from tests.support.worlds import make_world
from tests.world.resume.support import edges, find_record, interrupt, resume, run_of, until_over

pytestmark = pytest.mark.anyio

LONE = """
world = World(dir=world_dir, run_dir=run_dir)
tell(world.start(resume=arguments[0]).pid)
hear()
"""

RESTARTED = """
async def main():
    async with AsyncWorld(dir=world_dir) as world:
        batch = await world.start_many(1, run_dir=run_dir)
        await world.restart()
        tell("restarted")
        await hear_async()
anyio.run(main)
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.mark.thorough
async def test_restarts_are_counted_across_orchestrators(tmp_path: Path, run: Path) -> None:
    directory = make_world(tmp_path)
    with orchestrator(RESTARTED, directory, run) as killed:
        assert killed.hear() == "restarted"
        killed.kill()

    async def restart_again(world: AsyncWorld, _batch: Batch[StartedWorld]) -> None:
        assert (await world.restart(save=False)).resume_path is not None

    batch, _ = await resume(directory, run, restart_again)
    assert [(entry["number"], entry["by"]) for entry in edges(run, "w000")] == [
        (1, "request"),
        (2, "resume"),
        (3, "request"),
    ]
    assert (await find_record(run, "w000")).restarts == 3
    (line,) = (await run_sync(read_lineage, run)).instances
    assert line.restarts == 3
    assert [life.begun_by for life in line.lives] == ["start", "request", "resume", "request"]
    assert [life.ended_by for life in line.lives] == ["restart", "resume", "restart", "exit"]
    assert len(batch.done) == 1


@pytest.mark.thorough
async def test_a_dead_instance_that_clawblox_stop_found_is_not_resumed(
    tmp_path: Path, run: Path
) -> None:
    directory = make_world(tmp_path)

    async def die(_world: AsyncWorld, batch: Batch[StartedWorld]) -> None:
        os.kill(batch["w000"].pid, signal.SIGKILL)
        await until_over(run, "w000")
        results = await stop_instances(run, ["w000"], grace_seconds=1)
        assert [(one.instance, one.rung) for one in results] == [("w000", "not_running")]

    await interrupt(directory, run, 3, die)
    await stop_instances(run, ["w001"], grace_seconds=1)
    record = await find_record(run, "w001")
    assert (record.state, record.stopped_on_purpose) == ("exited", True)
    assert list((await resume(directory, run))[0].done) == ["w002"]
    with orchestrator(RESTARTED, directory, tmp_path / "other") as killed:
        killed.hear()
        killed.kill()
    await stop_instances(tmp_path / "other", grace_seconds=1)
    assert (await resume(directory, tmp_path / "other"))[0].done == {}


@pytest.mark.thorough
async def test_a_failed_restart_after_a_good_exit_does_not_finish_the_run(
    tmp_path: Path, run: Path
) -> None:
    directory = make_motley_world(tmp_path)

    async def break_restart(world: AsyncWorld, batch: Batch[StartedWorld]) -> None:
        (directory / "flags").write_text("--exit-at-once 0")
        with pytest.raises(WorldStartError, match="ended before it was ready"):
            await world.restart(fresh=True)
        await until_over(run, batch["w000"].name)
        (directory / "flags").write_text("")

    await interrupt(directory, run, 1, break_restart)
    record = await find_record(run, "w000")
    assert (record.exit, record.has_finished) == (ProcessExit(status=0), False)
    assert run_of(run, "w000")["status"] == "failed"
    assert list((await resume(directory, run))[0].done) == ["w000"]


async def test_a_resumed_single_instance_is_labelled_when_it_ends(
    tmp_path: Path, run: Path
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path), run_dir=run) as world:
        started = await world.start()
        await world.save()
        os.kill(started.pid, signal.SIGKILL)
        await world.wait()
        await world.restart()
        assert manifest_of(run)["run"]["status"] == "running"
        await world.restart(save=False)
        await world.stop()
    assert manifest_of(run)["run"]["status"] == "complete"


@pytest.mark.thorough
async def test_an_attached_instance_restarts_with_its_original_options(
    tmp_path: Path, run: Path
) -> None:
    directory = make_world(tmp_path)
    options = {"detach": True, "env": {"TEAM": "red"}, "labels": {"seed": 3}}
    async with AsyncWorld(dir=directory) as world:
        (started,) = await world.start_many(1, run_dir=run, **options)  # type: ignore[arg-type]
        session = await join(world, started)
        act(started.port, session, 5)
        await world.save()
        act(started.port, session, 5)
    async with AsyncWorld.attach(run) as world:
        again = await world.restart(save=False)
        assert look(again.port, session)["counter"] == 5
        assert variables_of(again.pid)["TEAM"] == "red"
        assert again.labels == {"seed": 3}
    async with AsyncWorld.attach(run) as world:  # it is still detached
        fresh = await world.restart(fresh=True)
        assert (fresh.port, fresh.resume_path) == (started.port, None)
        await world.stop()
    assert not marked_processes()


@pytest.mark.thorough
async def test_a_client_continues_after_every_kind_of_restart(tmp_path: Path, run: Path) -> None:
    with anyio.fail_after(HANG_S):
        async with AsyncWorld(dir=make_world(tmp_path), run_dir=run) as world:
            (started,) = await world.start_many(1)
            agent = await world.join("Rocky", wait_restart=HANG_S)
            assert (await agent.act("add", 3))["counter"] == 3
            await world.restart()
            assert (await agent.act("add", 1))["counter"] == 4
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(world.restart, fresh=False))
                await wait_until_async(lambda: world.instances == ())
                assert (await agent.observe())["counter"] == 4  # it waits for the restart
            for bring_back in (world.restart, world.resume_all):
                await world.save()
                os.kill((await find_record(run, "w000")).pid, signal.SIGKILL)
                await world.wait()
                with pytest.raises(WorldExitedError, match="has ended"):
                    await agent.observe()
                await bring_back()
                assert (await agent.observe())["counter"] == 4
            await world.stop()
            with pytest.raises(WorldExitedError, match="has ended"):
                await agent.observe()
            await world.start_many([{"name": "w000"}])
            with pytest.raises(WorldExitedError, match="has ended"):
                await agent.observe()  # this is another run
    assert agent.instance == started.name


@pytest.mark.thorough
async def test_labels_are_kept_and_the_seed_is_set_only_at_the_first_start(
    tmp_path: Path, run: Path
) -> None:
    directory = make_world(tmp_path, toml_extra="reseed = true\n")
    labels = {"model": "m", "seed": 3}
    seeds: dict[str, str | None] = {}

    async def look_at_seeds(_world: AsyncWorld, batch: Batch[StartedWorld]) -> None:
        for one in batch:
            assert one.labels == labels
            seeds[one.name] = variables_of(one.pid).get("WORLD_RESEED")

    async def save_one(world: AsyncWorld, batch: Batch[StartedWorld]) -> None:
        await look_at_seeds(world, batch)
        await world.save(instance="w001")

    await interrupt(directory, run, 2, save_one, reseed=40, labels=labels)
    assert seeds == {"w000": "40", "w001": "41"}
    _, events = await resume(directory, run, look_at_seeds)
    assert seeds == {"w000": "40", "w001": None}  # the save has its random state
    assert events["w001"].labels == labels
    assert (await find_record(run, "w001")).options["reseed"] == 41
    assert run_of(run, "w001")["labels"] == labels


@pytest.mark.thorough
async def test_an_instance_from_an_archive_continues_from_it_or_from_a_later_save(
    tmp_path: Path, run: Path
) -> None:
    directory = make_world(tmp_path)
    async with AsyncWorld(dir=directory, run_dir=tmp_path / "first") as world:
        await world.start()
        agent = await world.join("Rocky")
        await agent.act("add", 5)
        archive = await world.checkpoint(tmp_path / "gen1.ckpt")
    with orchestrator(LONE, directory, run, str(archive)) as killed:
        killed.hear()
        killed.kill()
    began_from = manifest_of(run)["run"]["resume_from"]
    saves: list[Path] = []

    async def look_and_save(world: AsyncWorld, batch: Batch[StartedWorld]) -> None:
        (started,) = batch
        assert look(started.port, agent.access.session)["counter"] == 5 + len(saves)
        act(started.port, agent.access.session, 1)
        saves.append((await world.save()).path)

    for _ in range(2):
        await resume(directory, run, look_and_save)
        told = manifest_of(run)["run"]
        assert (told["resume_from"], told["resume_archive"]) == (began_from, str(archive))
    entries = manifest_of(run)["restarts"]
    assert [run / entry["resume_from"] for entry in entries] == [run / began_from, saves[0]]
    (line,) = (await run_sync(read_lineage, run)).instances
    assert line.parent is not None
    assert line.parent.path == run / began_from


@pytest.mark.thorough
async def test_a_resumed_detached_instance_is_attached_with_its_restart_policy(
    tmp_path: Path, run: Path
) -> None:
    directory = make_world(tmp_path)
    batch = await interrupt(directory, run, 1, detach=True, restart="checkpoint")
    os.kill(batch["w000"].pid, signal.SIGKILL)
    await wait_until_async(lambda: not marked_processes())
    await resume(directory, run)
    async with AsyncWorld.attach(run) as world, world.events() as events:
        saved = await world.save()
        ends: list[ProcessExit] = []

        async def wait() -> None:
            ends.append(await world.wait())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            for pid in marked_processes():
                os.kill(pid, signal.SIGKILL)
            seen = await until(events, "ready", ["w000"])
            assert kinds(seen, "w000")[-4:] == ["exited", "restarting", "started", "ready"]
            assert not ends  # a wait continues through restarts, by the policy and on request
            assert (await world.restart(save=False)).resume_path == saved.path
            assert not ends
            await world.stop()
        assert ends == [await world.wait("w000")]
    assert [(entry["number"], entry["by"]) for entry in edges(run, "w000")] == [
        (1, "resume"),
        (2, "policy"),
        (3, "request"),
    ]
    assert (await resume(directory, run))[0].done == {}
