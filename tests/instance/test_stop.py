"""The stop ladder, rung by rung, over real process trees."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from clawblox import AsyncWorld, StopResult
from tests.rundir.support import records_on_disk
from tests.support.processes import descendants, is_alive, marked_processes
from tests.support.sockets import is_listening
from tests.support.waiting import HANG_S, wait_until_async
from tests.support.worlds import make_world

pytestmark = pytest.mark.anyio


@pytest.fixture(
    scope="module", params=["asyncio", pytest.param("trio", marks=pytest.mark.thorough)]
)
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Run all tests on both event loops, since the code requires anyio instead of asyncio."""
    return request.param


TREES = {
    "a leader that obeys": ([], None, "terminated"),
    "a wrapper shell": ([], "child", "terminated"),
    "a leader that ignores TERM": (["--ignore-sigterm"], None, "killed"),
    "a child that ignores TERM": (["--stubborn-child"], None, "killed"),
    "a daemon with a session of its own": (["--daemon"], None, "killed"),
    "a world behind nohup and setsid": ([], "nohup", "terminated"),
}


@pytest.mark.parametrize(("flags", "wrapper", "rung"), TREES.values(), ids=TREES)
async def test_no_process_of_the_tree_outlives_a_stop(
    tmp_path: Path, flags: list[str], wrapper: str | None, rung: str
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path, *flags, wrapper=wrapper)) as world:
        started = await world.start(run_dir=tmp_path / "run")
        tree = {started.pid, *descendants(started.pid), *marked_processes()}
        result = await world.stop(grace_seconds=0.5 if rung == "killed" else HANG_S)
        assert result.rung == rung
        assert not {pid for pid in tree if is_alive(pid)}
        assert not is_listening(started.port)
        assert not marked_processes()


async def test_stop_result_names_the_killed_processes(tmp_path: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path, "--ignore-sigterm")) as world:
        started = await world.start(run_dir=tmp_path / "run")
        result = await world.stop(grace_seconds=0.1)
        assert [text.split()[0] for text in result.killed] == [str(started.pid)]
        assert "misbehaving.py" in result.killed[0]
        assert result.exit is not None
        assert result.exit.signal == "SIGKILL"


async def test_child_that_cleans_up_gets_the_rest_of_the_grace_period(tmp_path: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path, "--graceful-child", "0.3")) as world:
        await world.start(run_dir=tmp_path / "run")
        result = await world.stop(grace_seconds=10)
        assert result.rung == "terminated"
        assert (world.dir / "graceful-child.tidied").exists()


async def test_second_stop_and_stop_without_a_start_have_no_effect(tmp_path: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        assert await world.stop(grace_seconds=1) == StopResult("", "not_running")
        await world.start(run_dir=tmp_path / "run")
        assert (await world.stop(grace_seconds=1)).rung == "terminated"
        assert await world.stop(grace_seconds=1) == StopResult("", "not_running")


async def test_stop_after_a_failed_start_has_no_effect(tmp_path: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path, "--exit-at-once", "3")) as world:
        with pytest.raises(Exception, match="exit status 3"):
            await world.start(run_dir=tmp_path / "run")
        assert (await world.stop(grace_seconds=1)).rung == "not_running"


async def test_stopping_a_dead_instance_reports_its_exit(tmp_path: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path, "--exit-after", "0.1")) as world:
        async with world.events() as events:
            await world.start(run_dir=tmp_path / "run")
            async for event in events:
                if event.kind == "exited":
                    break
        result = await world.stop()
        assert result.rung == "already_exited"
        assert result.exit is not None
        assert result.exit.status == 9


async def test_concurrent_stops_share_one_result(tmp_path: Path) -> None:
    results: list[StopResult] = []

    async def stop(world: AsyncWorld, grace_seconds: float) -> None:
        results.append(await world.stop(grace_seconds=grace_seconds))

    async with AsyncWorld(dir=make_world(tmp_path, "--slow-stop", "0.2")) as world:
        await world.start(run_dir=tmp_path / "run")
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(stop, world, 10.0)
    assert len(results) == 3
    assert len(set(results)) == 1


async def test_a_second_stop_shortens_the_grace(tmp_path: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path, "--ignore-sigterm")) as world:
        await world.start(run_dir=tmp_path / "run")
        with anyio.fail_after(HANG_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: world.stop(grace_seconds=600))
                await anyio.sleep(0)
                result = await world.stop(grace_seconds=0)
        assert result.rung == "killed"


@pytest.mark.thorough
async def test_a_cancelled_stop_continues_without_its_caller(tmp_path: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path, "--slow-stop", "0.2")) as world:
        started = await world.start(run_dir=tmp_path / "run")
        with anyio.move_on_after(0.05) as scope:
            await world.stop(grace_seconds=10)
        assert scope.cancelled_caught
        await wait_until_async(lambda: not is_alive(started.pid))


async def test_leaving_the_block_stops_every_instance(tmp_path: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        pids = [(await world.start(run_dir=tmp_path / "run")).pid for _ in range(3)]
        assert world.instances == ("w000", "w001", "w002")
    assert not [pid for pid in pids if is_alive(pid)]


async def test_an_exception_in_the_block_propagates_unchanged(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the block is under test
        async with AsyncWorld(dir=make_world(tmp_path)) as world:
            await world.start(run_dir=tmp_path / "run")
            raise ZeroDivisionError
    assert not marked_processes()


async def test_record_on_disk_contains_the_end(tmp_path: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        await world.start(run_dir=tmp_path / "run")
        assert records_on_disk(tmp_path / "run")["w000"]["state"] == "ready"
        await world.stop()
    record = records_on_disk(tmp_path / "run")["w000"]
    assert record["state"] == "exited"
    assert record["exit"]["status"] == 0
    assert record["ended_at"].endswith("Z")


@pytest.mark.parametrize("backend", ["asyncio", pytest.param("trio", marks=pytest.mark.thorough)])
def test_ctrl_c_in_an_async_program_stops_its_world(tmp_path: Path, backend: str) -> None:
    program = "\n".join(
        [
            "import anyio",
            "from clawblox import AsyncWorld",
            "async def main():",
            f"    async with AsyncWorld(dir={str(make_world(tmp_path))!r}) as world:",
            f"        started = await world.start(run_dir={str(tmp_path / 'run')!r})",
            "        print(started.pid, flush=True)",
            "        await anyio.sleep_forever()",
            f"anyio.run(main, backend={backend!r})",
        ]
    )
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", program], text=True, **pipes) as process:
        assert process.stdout is not None
        world_pid = int(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=HANG_S)
    assert process.returncode == -signal.SIGINT
    assert errors.splitlines()[-1] == "KeyboardInterrupt"
    assert not is_alive(world_pid)
