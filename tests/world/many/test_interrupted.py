"""Starts and runs of many worlds that are cancelled, interrupted or killed."""

from __future__ import annotations

import signal
import subprocess
import threading
from functools import partial
from pathlib import Path

import anyio
import pytest
from anyio.to_thread import run_sync

from clawblox import AsyncWorld, UsageError
from clawblox.rundir.claims import RunClaim, claim_run
from clawblox.rundir.status import read_run
from clawblox.world.fleet import Fleet
from tests.support.crowd import leftovers, on_disk, ports_of, seeded, statuses
from tests.support.orchestrators import orchestrator
from tests.support.processes import marked_processes
from tests.support.sockets import is_listening
from tests.support.waiting import HANG_S, wait_until, wait_until_async
from tests.support.worlds import make_world
from tests.world.many.conftest import CROWD_OF, cancel_after
from tests.world.test_cancellation import Interrupted, run_and_cancel

pytestmark = pytest.mark.anyio


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["anyio", "asyncio"])
async def test_starts_cancelled_at_any_step_are_undone(
    tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    original = Fleet._start_many
    directory = make_world(tmp_path)
    for at in range(1, 100):
        interrupted = Interrupted(at)
        monkeypatch.setattr(
            Fleet, "_start_many", lambda *args, i=interrupted: i.drive(original(*args))
        )
        async with AsyncWorld(dir=directory) as world:
            start = partial(world.start_many, 3, run_dir=run)
            was_cancelled = await run_and_cancel(interrupted, kind, start)
            if was_cancelled:
                assert world.instances == ()
                assert not marked_processes(), f"cancelled at suspension {at}"
                assert not list((run / ".clawblox").glob("instances/*.lock"))
        assert leftovers(run) == [], f"cancelled at suspension {at}"
        if not was_cancelled:
            break
    assert at > 5


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["anyio", "asyncio"])
async def test_starts_cancelled_at_any_moment_are_undone(
    tmp_path: Path, run: Path, kind: str
) -> None:
    chance = seeded()
    async with AsyncWorld(dir=make_world(tmp_path, "--slow-boot", "0.1")) as world:
        for _ in range(6):
            delay = chance.uniform(0.0, 0.4)
            await cancel_after(delay, kind, partial(world.start_many, 8, run_dir=run))
            await world.stop_all(grace_seconds=1)  # of an earlier start
            assert not marked_processes()
            assert not list((run / ".clawblox").glob("instances/*.lock"))
        batch = await world.start_many(2, run_dir=run)
        assert list(batch.done) == ["w000", "w001"]


@pytest.mark.parametrize("kind", ["anyio", "asyncio"])
async def test_the_claim_of_an_interrupted_start_is_released(
    tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    is_claimed, may_return = threading.Event(), threading.Event()
    interrupted = Interrupted(0)

    def claim(run_dir: Path) -> RunClaim:
        found = claim_run(run_dir)
        is_claimed.set()
        assert may_return.wait(HANG_S)
        return found

    async def strike() -> None:
        await wait_until_async(is_claimed.is_set)
        interrupted.cancel()
        await anyio.wait_all_tasks_blocked()
        may_return.set()

    monkeypatch.setattr("clawblox.world.known_instances.claim_run", claim)
    async with (
        AsyncWorld(dir=make_world(tmp_path)) as world,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(strike)
        assert await run_and_cancel(interrupted, kind, partial(world.start_many, 2, run_dir=run))
    assert leftovers(run) == []


@pytest.mark.thorough
async def test_closing_a_world_ends_its_pending_starts(tmp_path: Path, run: Path) -> None:
    errors: list[UsageError] = []

    async def start() -> None:
        with pytest.raises(UsageError, match="closed in the meantime") as caught:
            await world.start_many(8, run_dir=run)
        errors.append(caught.value)

    async with (
        anyio.create_task_group() as tasks,
        AsyncWorld(dir=make_world(tmp_path, "--slow-boot", "60")) as world,
    ):
        tasks.start_soon(start)
        await wait_until_async(lambda: len(marked_processes()) == 8, HANG_S)
    assert len(errors) == 1
    assert leftovers(run) == []


@pytest.mark.thorough
async def test_an_exception_in_the_block_stops_all_instances(tmp_path: Path, run: Path) -> None:
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 - tests the block
        async with AsyncWorld(dir=make_world(tmp_path)) as world:
            batch = await world.start_many(8, run_dir=run)
            raise ZeroDivisionError
    assert leftovers(run, ports_of(batch)) == []
    assert {one["status"] for one in statuses(run, batch.done).values()} == {"interrupted"}


SCRIPT = """
world = World(dir=world_dir)
batch = world.start_many(8, run_dir=run_dir)
tell(*(started.port for started in batch))
time.sleep(600)
"""


@pytest.mark.thorough
def test_ctrl_c_in_a_script_stops_all_its_worlds(tmp_path: Path, run: Path) -> None:
    with orchestrator(SCRIPT, make_world(tmp_path), run, stderr=subprocess.PIPE) as script:
        ports = [int(word) for word in script.hear().split()]
        script.process.send_signal(signal.SIGINT)
        _, errors = script.process.communicate(timeout=HANG_S)
    assert script.process.returncode == -signal.SIGINT
    assert errors.splitlines()[-1] == "KeyboardInterrupt"
    assert leftovers(run, ports) == []
    assert {one.state for one in read_run(run).instances} == {"exited"}


@pytest.mark.thorough
def test_all_worlds_of_a_script_stop_at_its_end(tmp_path: Path, run: Path) -> None:
    ending = SCRIPT.replace("time.sleep(600)", "world.save_all(instances=['w003'])")
    with orchestrator(ending, make_world(tmp_path), run) as script:
        ports = [int(word) for word in script.hear().split()]
        assert script.process.wait(HANG_S) == 0
    assert leftovers(run, ports) == []
    assert len(on_disk(run / "worlds" / "w003")) == 1


@pytest.mark.thorough
async def test_leftovers_of_a_killed_orchestrator_are_ended_and_marked_interrupted(
    tmp_path: Path, run: Path
) -> None:
    directory = make_world(tmp_path)
    with orchestrator(CROWD_OF, directory, run, "16") as killed:
        ports = [int(word) for word in killed.hear().split()]
        assert len(ports) == 16
        killed.kill()
    wait_until(lambda: not marked_processes(), HANG_S, "the guard has ended them")
    assert not [port for port in ports if is_listening(port)]
    assert {one.state for one in (await run_sync(read_run, run)).instances} == {"interrupted"}
    async with AsyncWorld(dir=directory) as world:
        batch = await world.start_many(2, run_dir=run)
        assert list(batch.done) == ["w000", "w001"]
        names = [f"w{number:03}" for number in range(16)]
        told = [one["status"] for one in statuses(run, names).values()]
        assert told == [*["running"] * 2, *["interrupted"] * 14]
        now = (await run_sync(read_run, run)).instances
        assert [one.state for one in now] == [*["ready"] * 2, *["interrupted"] * 14]
    assert leftovers(run) == []
