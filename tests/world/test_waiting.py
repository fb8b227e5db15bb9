"""``wait`` returns when an instance has ended for good, however it ended."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import anyio
import pytest

from clawblox import AsyncWorld, ProcessExit, UsageError, World
from tests.support.running import next_event, running
from tests.support.waiting import HANG_S
from tests.support.worlds import ask, make_world

pytestmark = pytest.mark.anyio


async def test_wait_returns_the_exit_of_a_world(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, started):
        os.kill(started.pid, signal.SIGKILL)
        assert await world.wait() == ProcessExit(signal="SIGKILL")
        assert await world.wait("w000") == ProcessExit(signal="SIGKILL")


async def test_wait_continues_through_restarts_of_the_policy(tmp_path: Path) -> None:
    exits: list[ProcessExit] = []

    async def wait() -> None:
        exits.append(await world.wait("w000"))

    with anyio.fail_after(HANG_S):
        async with AsyncWorld(make_world(tmp_path)) as world, world.events() as events:
            started = await world.start(run_dir=tmp_path / "run", restart="fresh", max_restarts=1)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait)
                await next_event(events, "ready")
                os.kill(started.pid, signal.SIGKILL)
                again = await next_event(events, "ready")
                assert not exits
                assert again.data["url"] == started.url
                ask(started.port, "POST", "/__die?status=4")
    assert exits == [ProcessExit(status=4)]


async def test_wait_returns_after_a_stop_before_or_during_the_wait(tmp_path: Path) -> None:
    exits: list[ProcessExit] = []

    async def wait() -> None:
        exits.append(await world.wait())

    async with running(tmp_path) as (world, _):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            stopped = await world.stop()
        assert exits == [stopped.exit] == [await world.wait("w000")]


async def test_cancelling_a_wait_does_not_affect_the_instance(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, started):
        with anyio.move_on_after(0.05) as scope:
            await world.wait()
        assert scope.cancelled_caught
        assert world.instances == (started.name,)
        with pytest.raises(UsageError, match="no instance 'w009'"):
            await world.wait("w009")


def test_a_script_waits_for_a_world(tmp_path: Path) -> None:
    with World(make_world(tmp_path, "--exit-after=0.2"), run_dir=tmp_path / "run") as world:
        world.start()
        assert world.wait() == ProcessExit(status=9)
