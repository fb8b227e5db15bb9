"""Calls, stops and leaving during a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from clawblox import AsyncWorld, ProcessExit, WorldExitedError
from clawblox.instance.local import LocalInstance
from clawblox.rundir.operations import stop_instances
from tests.instance.supervision.support import kill, now
from tests.support.crowd import kinds, leftovers, make_motley_world, past, seeded, until
from tests.support.processes import marked_processes
from tests.support.running import requests, switch
from tests.support.sockets import is_listening
from tests.support.waiting import wait_until_async

pytestmark = pytest.mark.anyio


@pytest.mark.thorough
async def test_calls_fail_during_a_restart_and_work_after_it(tmp_path: Path, run: Path) -> None:
    errors: list[Exception] = []
    directory = make_motley_world(tmp_path)

    async def call(name: str) -> None:
        try:
            await world.connect("Rocky", instance=name)
        except WorldExitedError as error:
            errors.append(error)

    async with AsyncWorld(dir=directory) as world, world.events() as events:
        batch = await world.start_many(2, run_dir=run, restart="fresh")
        hanging = batch["w000"]
        switch(hanging, join="hang")
        (directory / "flags").write_text("--slow-boot 0.3")
        await past(events)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, "w000")
            await wait_until_async(lambda: requests(hanging, "/join"), what="a call is in flight")
            await kill(run)
            await until(events, "restarting", ["w000"])
            await call("w000")
        assert [error.exit for error in errors] == [ProcessExit(signal="SIGKILL")] * 2
        saves = await world.save_all(instances=batch.done)
        assert type(saves.failed["w000"]) is WorldExitedError
        assert "is being restarted" in str(saves.failed["w000"])
        assert list(saves.done) == ["w001"]
        assert world.instances == ("w001",)
        await until(events, "ready", ["w000"])
        assert world.instances == ("w000", "w001")
        assert (await world.connect("Rocky", instance="w000"))["agent_id"] == "agent-1"
        assert len(await world.save_all()) == 2


async def test_log_can_be_read_while_a_world_has_no_process(
    tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_between, may_go_on = anyio.Event(), anyio.Event()
    start_up = LocalInstance.start_up

    async def start_late(*args: Any) -> None:
        is_between.set()
        await may_go_on.wait()
        await start_up(*args)

    async with AsyncWorld(dir=make_motley_world(tmp_path)) as world, world.events() as events:
        await world.start_many(1, run_dir=run, restart="fresh")
        await past(events)
        monkeypatch.setattr(LocalInstance, "start_up", start_late)
        await kill(run)
        await is_between.wait()
        async with world.logs(instance="w000") as lines:
            texts = [line.text async for line in lines]
        with pytest.raises(
            WorldExitedError, match=r"has ended: killed by SIGKILL.*; it is being restarted"
        ):
            await world.save()
        may_go_on.set()
        await until(events, "ready", ["w000"])
    assert any("counter world" in text for text in texts)


async def dying(world: AsyncWorld, run: Path, moment: float) -> None:
    """Kill an instance, and continue a moment later."""
    await kill(run)
    await anyio.sleep(moment)


@pytest.mark.thorough
async def test_stop_ends_a_restarting_world(tmp_path: Path, run: Path) -> None:
    chance = seeded()
    directory = make_motley_world(tmp_path, "--slow-boot", "0.05")
    async with AsyncWorld(dir=directory) as world:
        for _ in range(2):
            (started,) = await world.start_many(1, run_dir=run, restart="fresh")
            await dying(world, run, chance.uniform(0.0, 0.2))
            await world.stop(grace_seconds=5)
            assert world.instances == ()
            assert not marked_processes()
            assert not is_listening(started.port)
            assert not list((run / ".clawblox").glob("instances/*.lock"))
            assert (await now(run)).state == "exited"


@pytest.mark.thorough
@pytest.mark.parametrize("how", ["stop", "outside", "leave"])
async def test_world_that_is_not_ready_after_a_restart_is_stopped(
    tmp_path: Path, run: Path, how: str
) -> None:
    directory = make_motley_world(tmp_path)
    async with AsyncWorld(dir=directory) as world, world.events() as events:
        (started,) = await world.start_many(1, run_dir=run, restart="fresh")
        (directory / "flags").write_text("--slow-boot 60")
        await past(events)
        await kill(run)
        await until(events, "started", ["w000"])
        await wait_until_async(lambda: len(marked_processes()) == 1, what="the shell is the world")
        if how == "stop":
            assert (await world.stop()).rung == "terminated"
        elif how == "outside":
            (result,) = await stop_instances(run, grace_seconds=10)
            assert result.rung == "terminated"
        if how != "leave":
            assert not marked_processes()
            assert (await now(run)).state == "exited"
            assert "ready" not in kinds(await past(events), "w000")
    assert leftovers(run, [started.port]) == []


async def test_a_detached_world_is_ended_completely_during_a_restart(
    tmp_path: Path, run: Path
) -> None:
    directory = make_motley_world(tmp_path)
    async with AsyncWorld(dir=directory) as world, world.events() as events:
        await world.start_many(1, run_dir=run, restart="fresh", detach=True)
        (directory / "flags").write_text("--slow-boot 60")
        await past(events)
        await kill(run)
        await until(events, "started", ["w000"])
    assert leftovers(run) == []
    assert (await now(run)).state == "exited"
