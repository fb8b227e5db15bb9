"""Files that a killed orchestrator leaves in its run directory, and their cleanup."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from anyio.to_thread import run_sync

from clawblox import AsyncWorld
from clawblox.rundir.operations import stop_instances
from clawblox.rundir.status import read_run
from clawblox.system.process_tree import read_start_time
from tests.support.crowd import leftovers
from tests.support.orchestrators import orchestrator
from tests.support.processes import marked_processes
from tests.support.running import manifest_of
from tests.support.waiting import HANG_S, wait_until_async
from tests.support.worlds import make_world

pytestmark = pytest.mark.anyio

SINGLE = """
world = World(dir=world_dir)
world.start(run_dir=run_dir)
world.record_run(id="r001", status="running")
tell("ready")
time.sleep(600)
"""
MANY = """
world = World(dir=world_dir)
world.start_many(2, run_dir=run_dir).raise_if_failed()
tell("ready")
time.sleep(600)
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


async def kill_one(body: str, world: Path, run: Path) -> None:
    """Run an orchestrator and kill it; return when its guard has ended its worlds."""
    with orchestrator(body, world, run) as killed:
        assert await run_sync(killed.hear) == "ready"
        killed.kill()
    await wait_until_async(lambda: not marked_processes(), HANG_S, "the guard has ended them")
    # A process that exits loses its environment, and with it its mark, a moment before it is dead.
    with anyio.fail_after(HANG_S):
        while "ready" in (await states(run)).values():
            await anyio.lowlevel.checkpoint()


async def states(run: Path) -> dict[str, str]:
    return {one.name: one.state for one in (await run_sync(read_run, run)).instances}


# ------------------------------------------------------------------------------ interrupted


@pytest.mark.thorough
@pytest.mark.parametrize(("body", "names"), [(SINGLE, ["w000"]), (MANY, ["w000", "w001"])])
async def test_an_interrupted_run_stays_interrupted_after_a_stop(
    tmp_path: Path, run: Path, body: str, names: list[str]
) -> None:
    await kill_one(body, make_world(tmp_path), run)
    assert await states(run) == dict.fromkeys(names, "interrupted")
    for _ in range(2):
        results = await stop_instances(run, grace_seconds=1)
        assert {one.instance: one.rung for one in results} == dict.fromkeys(names, "not_running")
        assert await states(run) == dict.fromkeys(names, "interrupted")
    for name in names:
        home = run if body is SINGLE else run / "worlds" / name
        assert manifest_of(home)["run"]["status"] == "interrupted"
    assert leftovers(run) == []


@pytest.mark.thorough
async def test_an_interrupted_run_stays_interrupted_during_a_later_start(
    tmp_path: Path, run: Path
) -> None:
    directory = make_world(tmp_path)
    await kill_one(SINGLE, directory, run)
    async with AsyncWorld(dir=directory) as world:
        await world.start(run_dir=run, name="later")
        assert await states(run) == {"later": "ready", "w000": "interrupted"}
    assert await states(run) == {"later": "exited", "w000": "interrupted"}


@pytest.mark.thorough
async def test_an_instance_ended_by_a_stop_is_not_marked_interrupted(
    tmp_path: Path, run: Path
) -> None:
    detached = MANY.replace("run_dir=run_dir", "run_dir=run_dir, detach=True")
    with orchestrator(detached, make_world(tmp_path), run) as killed:
        assert await run_sync(killed.hear) == "ready"
        killed.kill()
    results = await stop_instances(run, grace_seconds=10)
    assert [one.rung for one in results] == ["terminated"] * 2
    assert await states(run) == {"w000": "exited", "w001": "exited"}


# ------------------------------------------------------------------------- half-written files


def dead_process() -> tuple[int, int]:
    """Return pid and start time of a dead process."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        return process.pid, read_start_time(process.pid)


def leave(run: Path, homes: list[Path], pid: int, start: int) -> list[Path]:
    """Leave files that a process with that id could have been writing in a run directory."""
    owner = f"{pid}-{start}.0a1b2c3d.partial"
    files = [
        run / ".clawblox" / "instances" / f".records.jsonl.{owner}",
        *(home / "runtime" / f".w000.sh.{owner}" for home in homes),
        *(home / "checkpoints" / f".w000-1.json.{owner}" for home in homes),
        *(home / f".load.{owner}" / "agents" / "SOUL.md" for home in homes),
    ]
    for path in files:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return files


def leave_manifest(home: Path, text: str, name: str = "00112233445566aa") -> Path:
    path = home / ".clawblox" / f".manifest.json.{name}.partial"
    path.write_text(text)
    return path


def swapped_out(home: Path) -> str:
    """Return a manifest that a world wrote, which a killed writer had swapped out."""
    theirs: dict[str, Any] = {"schema_version": 1, "recordings": [{"path": "recordings/0001"}]}
    return json.dumps(manifest_of(home) | theirs)


@pytest.mark.thorough
@pytest.mark.parametrize("by", ["a start of many", "a start", "a stop"])
async def test_remnants_of_killed_writers_are_removed_without_losing_entries(
    tmp_path: Path, run: Path, by: str
) -> None:
    directory = make_world(tmp_path)
    await kill_one(MANY, directory, run)
    homes = [run / "worlds" / name for name in ("w000", "w001")]
    left = leave(run, homes, *await run_sync(dead_process))
    left += [leave_manifest(home, swapped_out(home)) for home in homes]
    left.append(leave_manifest(run, '{"torn'))
    if by == "a stop":
        await stop_instances(run, grace_seconds=1)
    else:
        async with AsyncWorld(dir=directory) as world:
            many = by == "a start of many"
            await (world.start_many(1, run_dir=run) if many else world.start(run_dir=run))
    assert [path for path in left if path.exists()] == []
    assert not list(run.rglob("*.partial"))
    for home in homes:
        assert manifest_of(home)["recordings"] == [{"path": "recordings/0001"}]
    assert {one["name"] for one in manifest_of(run)["instances"]} == {"w000", "w001"}


@pytest.mark.thorough
async def test_files_of_a_running_writer_are_left_alone(tmp_path: Path, run: Path) -> None:
    directory = make_world(tmp_path)
    await kill_one(MANY, directory, run)
    await stop_instances(run, grace_seconds=1)
    homes = [run / "worlds" / "w000"]
    kept = leave(run, homes, os.getpid(), await run_sync(read_start_time, os.getpid()))
    being_written = leave_manifest(homes[0], swapped_out(homes[0]))
    lock = homes[0] / ".clawblox" / "manifest.json.lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(lock)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert await run_sync(holder.stdout.readline) == b"locked\n"
        async with AsyncWorld(dir=directory) as world:
            await world.start(run_dir=run, name="later")
        assert [path for path in (*kept, being_written) if not path.exists()] == []
        holder.send_signal(signal.SIGKILL)
    await stop_instances(run, grace_seconds=1)
    assert not being_written.exists()
    assert [path for path in kept if not path.exists()] == []


HOLD = """
import fcntl, os, sys
fcntl.flock(os.open(sys.argv[1], os.O_RDWR | os.O_CREAT), fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""
