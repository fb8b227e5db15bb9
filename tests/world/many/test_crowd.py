"""Dozens of concurrent worlds are started, saved, forked, killed, resumed and stopped."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from random import Random

import anyio
import pytest
from anyio.to_thread import run_sync

from clawblox import (
    AsyncWorld,
    SavedSnapshot,
    StartedWorld,
    WorldExitedError,
    read_manifest,
    read_runs,
)
from clawblox.concurrency.batch import Batch
from clawblox.rundir.status import read_run
from tests.support.crowd import (
    act,
    exposed,
    join,
    join_all,
    leftovers,
    look,
    on_disk,
    ports_of,
    registered,
    seeded,
    until,
)
from tests.support.processes import marked_processes
from tests.support.running import manifest_of
from tests.support.waiting import HANG_S, wait_until_async
from tests.support.worlds import make_world

pytestmark = pytest.mark.anyio


CROWD, KILLED, FORKS = 64, 21, 4


async def kill_at_a_random_moment(started: StartedWorld, chance: Random) -> None:
    await anyio.sleep(chance.uniform(0.0, 0.5))
    os.kill(started.pid, signal.SIGKILL)


@pytest.mark.thorough
async def test_a_crowd_is_saved_forked_killed_resumed_and_stopped(
    tmp_path: Path, run: Path
) -> None:
    chance = seeded()
    with anyio.fail_after(HANG_S):
        async with AsyncWorld(dir=make_world(tmp_path)) as world:
            crowd = await world.start_many(CROWD, run_dir=run, restart="checkpoint")
            crowd.raise_if_failed()
            sessions = await join_all(world, crowd)
            for value, one in enumerate(crowd):
                act(one.port, sessions[one.name], value)
            first = await world.save_all()
            first.raise_if_failed()
            for one in crowd:
                act(one.port, sessions[one.name], 100)
            victims = chance.sample(list(crowd), KILLED)
            async with world.events() as events, anyio.create_task_group() as tasks:
                for one in victims:
                    tasks.start_soon(kill_at_a_random_moment, one, chance)
                second = await world.save_all()
                parent = first[chance.choice(list(crowd)).name]
                forks = await world.fork(parent, FORKS, run_dir=run)
                await until(events, "restarting", {one.name for one in victims})
            await wait_until_async(lambda: len(world.instances) == CROWD + FORKS)
            assert second.failed.keys() <= {one.name for one in victims}
            assert {type(error) for error in second.failed.values()} <= {WorldExitedError}
            await check_crowd(world, run, crowd, victims, sessions, (first, second))
            check_forks(forks, parent, sessions[parent.instance])
            stops = await world.stop_all(grace_seconds=10)
            assert {one.rung for one in stops} == {"terminated"}
            assert stops.done.keys() == crowd.done.keys() | forks.done.keys()
            assert len(marked_processes()) == 0
    assert leftovers(run, ports_of(crowd)) == []
    assert exposed(run) == []
    await run_sync(check_manifests, run, CROWD + FORKS)


async def check_crowd(
    world: AsyncWorld,
    run: Path,
    crowd: Batch[StartedWorld],
    victims: list[StartedWorld],
    sessions: Mapping[str, str],
    saves: tuple[Batch[SavedSnapshot], Batch[SavedSnapshot]],
) -> None:
    """Check that the victims are restored from their saves, and other instances are unaffected."""
    now = {one.name: one for one in (await run_sync(read_run, run)).instances}
    for value, one in enumerate(crowd):
        session, status = sessions[one.name], now[one.name]
        assert await join(world, one) == session
        assert (status.state, status.port) == ("ready", one.port)
        seen = look(one.port, session)["counter"]
        if one not in victims:
            assert (status.pid, status.restarts, seen) == (one.pid, 0, value + 100)
            continue
        (restart,) = manifest_of(one.instance_dir)["restarts"]
        source = one.instance_dir / restart["resume_from"]
        assert source in {batch[one.name].path for batch in saves if one.name in batch.done}
        assert seen == json.loads(source.read_bytes())["counter"]
        assert (status.pid != one.pid, status.restarts) == (True, 1)
        assert restart["exit"].startswith("killed by SIGKILL")


def check_forks(forks: Batch[StartedWorld], parent: SavedSnapshot, session: str) -> None:
    forks.raise_if_failed()
    assert list(forks.done) == [f"w{number:03}" for number in range(CROWD, CROWD + FORKS)]
    for fork in forks:
        run = manifest_of(fork.instance_dir)["run"]
        assert (run["resume_from"], run["parent_sha256"]) == (str(parent.path), parent.sha256)
        saved = json.loads(parent.path.read_bytes())["counter"]
        assert look(fork.port, session)["counter"] == saved


def check_manifests(run: Path, count: int) -> None:
    """Check that each instance has a complete manifest, and the run lists all instances."""
    names = [f"w{number:03}" for number in range(count)]
    listed = [(entry["name"], entry["dir"]) for entry in read_manifest(run).instances]
    assert listed == [(name, f"worlds/{name}") for name in names]
    runs = read_runs(run / "worlds")
    assert [manifest.state_root.name for manifest in runs] == names
    assert len({manifest.run["id"] for manifest in runs}) == count
    for index, manifest in enumerate(runs):
        told = manifest.run
        assert (told["index"], told["status"]) == (index, "complete")
        assert told["started_at"] <= told["ended_at"]
        assert registered(manifest.state_root) == on_disk(manifest.state_root)
        assert all(not Path(entry["path"]).is_absolute() for entry in manifest.checkpoints)
