"""A world object keeps only name and exit of stopped instances."""

from __future__ import annotations

import gc
from functools import partial
from pathlib import Path

import anyio
import pytest

from clawblox import AsyncWorld, ProcessExit
from clawblox.instance.instance import Instance
from clawblox.instance.supervisor import Supervisor
from clawblox.rundir.manifest_file import ManifestFile
from clawblox.rundir.manifest_writer import ManifestWriter
from tests.support.crowd import join
from tests.support.running import manifest_of
from tests.support.waiting import HANG_S, wait_until_async
from tests.support.worlds import make_world

pytestmark = pytest.mark.anyio

OWN = (Supervisor, Instance, ManifestWriter, ManifestFile)
"""Objects that exist once for each running instance."""


def count_own() -> dict[str, int]:
    gc.collect()
    names = [type(found).__name__ for found in gc.get_objects() if type(found) in OWN]
    return {kind.__name__: names.count(kind.__name__) for kind in OWN}


@pytest.mark.thorough
async def test_stopped_forks_leave_no_objects_or_tasks(tmp_path: Path) -> None:
    run = tmp_path / "run"
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        (parent,) = await world.start_many(1, run_dir=run)
        await join(world, parent)
        saved = await world.save()

        async def fork_and_stop() -> list[str]:
            batch = await world.fork(saved, 3, run_dir=run)
            for fork in batch:
                await world.save(instance=fork.name)
                await world.join("ada", instance=fork.name)
                await world.stop(instance=fork.name, grace_seconds=1)
            return list(batch.done)

        before, tasks = count_own(), len(anyio.get_running_tasks())
        names = [*await fork_and_stop(), *await fork_and_stop()]
        await wait_until_async(lambda: count_own() == before, HANG_S, "all of them are gone")
        await wait_until_async(lambda: len(anyio.get_running_tasks()) <= tasks, HANG_S)
        assert len(names) == 6
        for name in names:
            assert await world.wait(name) != ProcessExit()
            manifest = manifest_of(run / "worlds" / name)
            assert manifest["run"]["status"] == "complete"
            assert len(manifest["checkpoints"]) == 1


@pytest.mark.thorough
async def test_an_instance_is_forgotten_even_if_its_stop_was_cancelled(tmp_path: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path, "--ignore-sigterm")) as world:
        await world.start(run_dir=tmp_path / "run")
        before = count_own()
        started = await world.start(run_dir=tmp_path / "other")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(world.stop, instance=started.name, grace_seconds=0.2))
            await wait_until_async(lambda: started.name not in world.instances, HANG_S)
            tasks.cancel_scope.cancel()
        assert await world.wait(started.name) != ProcessExit()
        await wait_until_async(lambda: count_own() == before, HANG_S, "it is gone")
        await world.stop(grace_seconds=0.2)


@pytest.mark.thorough
async def test_a_run_is_labelled_after_its_instance_was_stopped(tmp_path: Path) -> None:
    run = tmp_path / "run"
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        await world.start(run_dir=run)
        await world.save()
        await world.stop(grace_seconds=1)
        assert world._fleet is not None
        writers = world._fleet.writers
        await wait_until_async(lambda: not writers._files(), HANG_S, "its writer has ended")
        await world.record_run(id="r001", run_dir=run)
        lineage = await world.lineage(run)
    assert manifest_of(run)["checkpoints"][0]["run_id"] == "r001"
    assert [found.run_id for found in lineage.instances] == ["r001"]
