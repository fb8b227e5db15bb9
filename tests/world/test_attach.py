"""Instances that are detached from their orchestrator, and attached to by another one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from clawblox import AsyncWorld, ProcessExit, RunLockedError, UsageError
from clawblox.concurrency.batch import Outcome
from clawblox.config.options import RestartOptions
from clawblox.rundir.operations import restart_instances, stop_instances
from clawblox.rundir.requests import Restarted
from tests.support.processes import all_processes, is_alive, marked_processes
from tests.support.running import next_event
from tests.support.sockets import is_listening
from tests.support.waiting import HANG_S
from tests.support.worlds import ask, make_world

pytestmark = pytest.mark.anyio


def run_orchestrator(program: str, *arguments: str) -> str:
    """Run an async program as a separate orchestrator; return its output."""
    text = (
        "import sys, anyio\n"
        "from clawblox import AsyncWorld\n"
        "async def main():\n"
        + "".join(f"    {line}\n" for line in program.strip().splitlines())
        + "anyio.run(main)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", text, *arguments], stdout=subprocess.PIPE, text=True, timeout=60
    )
    assert done.returncode == 0
    return done.stdout


DETACH = """
async with AsyncWorld(dir=sys.argv[1]) as world:
    started = await world.start(run_dir=sys.argv[2], detach=True)
    print(started.pid)
"""


async def test_a_detached_instance_outlives_its_orchestrator_and_can_be_attached(
    tmp_path: Path,
) -> None:
    directory, run = make_world(tmp_path), tmp_path / "run"
    pid = int(run_orchestrator(DETACH, str(directory), str(run)))
    assert is_alive(pid)
    async with AsyncWorld.attach(run) as world:
        assert world.instances == ("w000",)
        assert world.dir == directory
        assert world.url == f"http://127.0.0.1:{world.port}"
        assert (await world.connect("Rocky"))["agent_id"] == "agent-1"
        assert (await world.save())["path"].is_file()
        async with world.logs() as lines:
            assert (await anext(lines)).text == f"counter world, process {pid}"
    assert is_alive(pid)
    async with AsyncWorld.attach(run) as world:
        port = world.port
        assert (await world.stop()).rung == "terminated"
        assert not is_alive(pid)
        assert port is not None
        assert not is_listening(port)
    with pytest.raises(UsageError, match="instances of 0"):
        AsyncWorld.attach(run)


async def test_a_process_can_attach_to_its_own_detached_instance(
    tmp_path: Path,
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        started = await world.start(run_dir=tmp_path / "run", detach=True)
    assert is_alive(started.pid)
    async with AsyncWorld.attach(tmp_path / "run") as world:
        await world.stop()
    assert started.pid not in all_processes()  # not even a zombie


@pytest.mark.thorough
async def test_the_death_of_an_attached_world_emits_an_event(tmp_path: Path) -> None:
    run = tmp_path / "run"
    pid = int(run_orchestrator(DETACH, str(make_world(tmp_path)), str(run)))
    async with AsyncWorld.attach(run) as world, world.events() as events:
        assert world.port is not None
        ask(world.port, "POST", "/__die?status=3")
        with anyio.fail_after(HANG_S):
            await next_event(events, "exited")
        assert not is_alive(pid)


@pytest.mark.thorough
async def test_a_detached_instance_keeps_its_name(tmp_path: Path) -> None:
    directory, run = make_world(tmp_path), tmp_path / "run"
    pid = int(run_orchestrator(DETACH, str(directory), str(run)))
    async with AsyncWorld(dir=directory) as world:
        with pytest.raises(RunLockedError, match=f"pid {pid} "):
            await world.start(name="w000", run_dir=run)
        assert (await world.start(run_dir=run)).name == "w001"
    async with AsyncWorld.attach(run) as world:
        await world.stop()


async def test_other_processes_reach_an_attached_instance_through_its_new_orchestrator(
    tmp_path: Path,
) -> None:
    run = tmp_path / "run"
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        await world.start(run_dir=run, detach=True, restart="fresh")
    async with AsyncWorld.attach(run) as world:
        outcomes: list[Outcome[Restarted]] = []
        await restart_instances(
            run, ["w000"], RestartOptions(fresh=True), on_restarted=outcomes.append
        )
        assert [outcome.error for outcome in outcomes] == [None]
        await stop_instances(run, grace_seconds=10)
        assert world.instances == ()
        assert await world.wait("w000") == ProcessExit(status=0)
    assert not marked_processes()
