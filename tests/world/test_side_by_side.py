"""Concurrent worlds of one or two orchestrators."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from clawblox import AsyncWorld, RunLockedError, StartedWorld, UsageError
from tests.support.processes import is_alive
from tests.support.sockets import free_port, is_listening
from tests.support.starting import add, api_doc
from tests.support.worlds import ask, make_world

pytestmark = pytest.mark.anyio


# ------------------------------------------------------------------------------- several


async def test_instances_of_one_world_run_concurrently(tmp_path: Path) -> None:
    started: dict[str, StartedWorld] = {}

    async def start(name: str) -> None:
        started[name] = await world.start(name=name, run_dir=tmp_path / "run")

    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        async with anyio.create_task_group() as tasks:
            for name in ("a", "b", "c"):
                tasks.start_soon(start, name)
        assert set(world.instances) == set(started) == {"a", "b", "c"}
        for number, (name, one) in enumerate(started.items()):
            access = await world.connect("Rocky", instance=name)
            assert add(one, access["headers"], number)["counter"] == number
        await world.stop(instance="b")
        assert set(world.instances) == {"a", "c"}
        assert not is_listening(started["b"].port)
        assert all(api_doc(started[name]).status == 200 for name in ("a", "c"))
        with pytest.raises(UsageError, match="no instance was named"):
            await world.stop()


async def test_concurrent_unnamed_starts_get_different_names(tmp_path: Path) -> None:
    started: list[StartedWorld] = []

    async def start(run_dir: str) -> None:
        started.append(await world.start(run_dir=tmp_path / run_dir))

    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        async with anyio.create_task_group() as tasks:
            for run_dir in ("r1", "r1", "r2", "r2"):
                tasks.start_soon(start, run_dir)
        assert set(world.instances) == {one.name for one in started}
        assert len(world.instances) == 4
        for one in started:
            await world.stop(instance=one.name)
            assert not is_alive(one.pid)


async def test_several_worlds_of_one_directory_run_concurrently(tmp_path: Path) -> None:
    directory = make_world(tmp_path)
    async with AsyncWorld(dir=directory) as left, AsyncWorld(dir=directory) as right:
        first, second = await left.start(), await right.start()
        assert {first.name, second.name} == {"w000", "w001"}
        assert first.port != second.port
        await left.stop()
        assert api_doc(second).status == 200
        assert (await right.save())["instance"] == second.name


async def test_a_port_can_be_reused_right_after_a_stop(tmp_path: Path) -> None:
    port = free_port()
    pids = []
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        for _ in range(3):
            started = await world.start(port=port, run_dir=tmp_path / "run")
            await world.connect("Rocky")
            pids.append(started.pid)
            await world.stop(grace_seconds=1)
    assert len(set(pids)) == 3


# ------------------------------------------------------------------------ two orchestrators

HOLD = """
async with AsyncWorld(dir=sys.argv[1]) as world:
    started = await world.start(run_dir=sys.argv[2], name="one")
    print(started.port, flush=True)
    await anyio.to_thread.run_sync(sys.stdin.read)
"""


@contextlib.contextmanager
def other_orchestrator(directory: Path, run: Path) -> Iterator[tuple[int, int]]:
    """Hold the name ``one`` of a run from another process; yield its pid and the port."""
    body = "".join(f"    {line}\n" for line in HOLD.strip().splitlines())
    text = (
        "import sys, anyio, anyio.to_thread\nfrom clawblox import AsyncWorld\n"
        f"async def main():\n{body}anyio.run(main)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", text, str(directory), str(run)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        yield process.pid, int(process.stdout.readline())
        process.communicate()
    assert process.returncode == 0


@pytest.mark.thorough
async def test_the_error_for_a_name_held_elsewhere_names_the_orchestrator(
    tmp_path: Path,
) -> None:
    directory, run = make_world(tmp_path), tmp_path / "run"
    with other_orchestrator(directory, run) as (pid, port):
        async with AsyncWorld(dir=directory) as world:
            with pytest.raises(RunLockedError) as caught:
                await world.start(name="one", run_dir=run)
            assert (await world.start(run_dir=run)).name == "w000"
            assert (await world.start(name="one", run_dir=tmp_path / "other")).name == "one"
        assert caught.value.pid == pid
        assert f"pid {pid} ({sys.executable}" in str(caught.value)
        assert ask(port, "GET", "/api.md").status == 200
    async with AsyncWorld(dir=directory) as world:
        assert (await world.start(name="one", run_dir=run)).name == "one"


async def test_a_name_in_use_is_refused_without_affecting_its_instance(
    tmp_path: Path,
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        started = await world.start(name="one", run_dir=tmp_path / "run")
        for run_dir in ("run", "other"):
            with pytest.raises(UsageError, match="already has an instance 'one'"):
                await world.start(name="one", run_dir=tmp_path / run_dir)
        assert world.instances == ("one",)
        assert api_doc(started).status == 200
        assert (await world.stop()).rung == "terminated"
        assert not is_alive(started.pid)
