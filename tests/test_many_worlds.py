"""Dozens of worlds at a time: started, saved, forked, killed, brought back, stopped."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest
from anyio.to_thread import run_sync

from clawblox import (
    AsyncWorld,
    ConfigError,
    ControlError,
    RunLockedError,
    SavedSnapshot,
    SnapshotError,
    SnapshotRefusedError,
    StartedWorld,
    UsageError,
    World,
    WorldExitedBeforeReady,
    WorldExitedError,
    WorldReadyTimeout,
    WorldStartError,
    read_manifest,
    read_runs,
)
from clawblox.errors import BatchError
from clawblox.fleet import Fleet
from clawblox.model import Batch, InstanceSpec, Outcome
from clawblox.records import RunClaim, claim_run
from clawblox.runs import fork_instances, save_instances, stop_instances
from clawblox.status import read_instances
from tests.crowd import (
    HANG_S,
    act,
    exposed,
    join,
    join_all,
    kinds,
    leftovers,
    look,
    make_motley_world,
    on_disk,
    past,
    ports_of,
    registered,
    seeded,
    statuses,
    until,
    variables_of,
)
from tests.support import (
    GUARD_NAME,
    PORTAL_THREAD,
    ask,
    command_line,
    descendants,
    is_listening,
    make_world,
    marked_processes,
    wait_until,
    wait_until_async,
)
from tests.test_cancellation import Interrupted, run_and_cancel
from tests.test_guard import orchestrator
from tests.test_running import manifest_of, switch

pytestmark = pytest.mark.anyio

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture(autouse=True)
def _open_umask() -> Iterator[None]:
    """Let files be as open as their makers say."""
    before = os.umask(0)
    yield
    os.umask(before)


def pids(batch: Batch[StartedWorld]) -> set[int]:
    return {started.pid for started in batch}


# ------------------------------------------------------------------------------- the crowd

CROWD, KILLED, FORKS = 64, 21, 4


async def kill_at_a_random_moment(started: StartedWorld, chance: Random) -> None:
    await anyio.sleep(chance.uniform(0.0, 0.5))
    os.kill(started.pid, signal.SIGKILL)


async def test_a_crowd_is_saved_forked_killed_brought_back_and_stopped(
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
    """Check that who was killed is back as it was saved, and that nobody else noticed."""
    now = {one.name: one for one in await run_sync(read_instances, run)}
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
    """Check that each instance has a manifest that tells all of it, and the run lists them."""
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


# -------------------------------------------------------------------- what each has of its own


async def test_an_instance_has_a_name_a_snapshot_variables_and_recordings_of_its_own(
    tmp_path: Path, run: Path
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        (origin,) = await world.start_many(1, run_dir=tmp_path / "origin")
        act(origin.port, await join(world, origin), 7)
        saved = await world.save()
        shutil.copy(saved.path, world.dir / "seven.json")
        await world.stop()
        batch = await world.start_many(
            [
                InstanceSpec(name="alpha", env={"TASTE": "sweet"}),
                {"record": True},
                {"resume": "seven.json", "env": {"MORE": "1"}},
                InstanceSpec(),
            ],
            run_dir=run,
            env={"TASTE": "plain", "ALL": "yes"},
        )
        alpha, recording, resumed, plain = batch
        assert list(batch.done) == ["alpha", "w000", "w001", "w002"]
        variables = {one.name: variables_of(one.pid) for one in batch}
        assert [variables[one.name]["TASTE"] for one in batch] == ["sweet", *["plain"] * 3]
        assert {variables[one.name]["ALL"] for one in batch} == {"yes"}
        assert [one.name for one in batch if "MORE" in variables[one.name]] == [resumed.name]
        assert [one.record_dir for one in batch] == [
            None,
            run / "worlds/w000/recordings",
            None,
            None,
        ]
        act(recording.port, await join(world, recording), 3)
        assert (run / "worlds/w000/recordings/counter.jsonl").read_text() != ""
        assert resumed.resume_path == world.dir / "seven.json"
        session = await join(world, resumed)
        assert look(resumed.port, session)["counter"] == 7
        assert look(plain.port, await join(world, plain))["counter"] == 0
        tokens = {variables[one.name]["WORLD_OPERATOR_TOKEN"] for one in batch}
        assert len(tokens) == len({one.port for one in batch}) == len(batch) == 4
    assert alpha.instance_dir == run / "worlds" / "alpha"


async def test_every_instance_has_its_own_directory_that_only_its_owner_can_read(
    tmp_path: Path, run: Path
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        batch = await world.start_many(3, run_dir=run, record=True)
        saves = await world.save_all()
        assert exposed(run) == []
        for started in batch:
            home = run / "worlds" / started.name
            assert started.instance_dir == home
            assert started.run_dir == run
            assert started.log_file == home / "logs" / f"{started.name}.log"
            assert started.command_file == home / "runtime" / f"{started.name}.sh"
            assert started.record_dir == home / "recordings"
            assert saves[started.name].path.parent == home / "checkpoints"
            told = variables_of(started.pid)["CLAWBLOX_MANIFEST_PATH"]
            assert told == str(home / ".clawblox" / "manifest.json")
            assert {path.name for path in home.iterdir()} == {
                ".clawblox",
                "checkpoints",
                "logs",
                "recordings",
                "runtime",
            }
    assert {path.name for path in run.iterdir()} == {".clawblox", "worlds"}
    assert not list((tmp_path / "counter").glob(".clawblox"))


async def test_without_a_run_directory_they_are_below_one_hidden_name(tmp_path: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        (started,) = await world.start_many(1)
        await world.save_all()
        assert started.instance_dir == world.dir / ".clawblox" / "worlds" / "w000"
        assert started.run_dir == world.dir
    assert {path.name for path in world.dir.iterdir()} == {".clawblox", "world.toml"}


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no instance": ({"instances": 0}, "instances"),
    "no number": ({"instances": True}, "instances"),
    "one name twice": ({"instances": [{"name": "a"}, {"name": "a"}]}, "name"),
    "no name": ({"instances": [{"name": "../a"}]}, "name"),
    "an unknown field": ({"instances": [{"port": 1}]}, "instances.port"),
    "a snapshot that is not there": ({"instances": [{"resume": "none.json"}]}, "resume"),
    "a variable of the contract": ({"instances": [{"env": {"WORLD_PORT": "1"}}]}, "env.WORLD_PORT"),
    "a policy that is none": ({"instances": 1, "restart": "always"}, "restart"),
    "no restart at all": ({"instances": 1, "restart": "fresh", "max_restarts": 0}, "max_restarts"),
    "an end that is none": ({"instances": 1, "on_failure": "panic"}, "on_failure"),
}


@pytest.mark.parametrize(("arguments", "key"), WRONG.values(), ids=WRONG)
async def test_a_wrong_argument_is_named_before_anything_starts(
    tmp_path: Path, run: Path, arguments: dict[str, Any], key: str
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        with pytest.raises(ConfigError) as caught:
            await world.start_many(arguments.pop("instances"), run_dir=run, **arguments)
        assert caught.value.key == key
        assert await past(events) == []
        assert not (run / "worlds").exists()
    assert leftovers(run) == []


# ------------------------------------------------------------------------- one of them fails


async def test_an_instance_that_fails_costs_no_other(tmp_path: Path, run: Path) -> None:
    foreign = tmp_path / "foreign.json"
    foreign.write_text("{}")
    specs: list[InstanceSpec | dict[str, Any]] = [
        {"name": "hangs", "env": {"FLAGS": "--never-listen"}},
        InstanceSpec(),
        {"name": "exits", "env": {"FLAGS": "--exit-at-once 5"}},
        InstanceSpec(),
        {"name": "refuses", "resume": foreign},
        InstanceSpec(),
    ]
    async with AsyncWorld(dir=make_motley_world(tmp_path)) as world:
        batch = await world.start_many(specs, run_dir=run, health_timeout=3)
        assert list(batch.done) == ["w000", "w001", "w002"]
        assert {name: type(error) for name, error in batch.failed.items()} == {
            "exits": WorldExitedBeforeReady,
            "refuses": SnapshotRefusedError,
            "hangs": WorldReadyTimeout,
        }
        assert list(batch.failed)[-1] == "hangs"  # the first cause first
        assert world.instances == ("w000", "w001", "w002")
        assert marked_processes() == pids(batch)
        assert len(await world.save_all()) == 3
        assert_says_what_failed(batch)
        told = statuses(run, ["w000", "exits", "refuses", "hangs"])
        assert [one["status"] for one in told.values()] == ["running", *["failed"] * 3]
        again = await world.start_many([{"name": "exits"}], run_dir=run)
        assert again["exits"].name == "exits"
    assert leftovers(run) == []


def assert_says_what_failed(batch: Batch[StartedWorld]) -> None:
    with pytest.raises(BatchError) as caught:
        batch.raise_if_failed()
    text = str(caught.value)
    assert "3 of 6 instances failed" in text
    for name, error in batch.failed.items():
        assert f"{name}: {type(error).__name__}: " in text
    assert caught.value.__cause__ is next(iter(batch.failed.values()))
    with pytest.raises(WorldExitedBeforeReady) as failure:
        batch["exits"]
    assert failure.value.exit is not None
    assert failure.value.exit.status == 5
    assert failure.value.log_lines[-1] == "cannot go on, exiting with 5"
    assert batch["w001"] in list(batch)
    with pytest.raises(KeyError):
        batch["w009"]


async def test_all_of_them_end_with_the_first_failure_when_that_is_asked_for(
    tmp_path: Path, run: Path
) -> None:
    late = "--never-listen --exit-after 0.5"
    specs = [{}, {}, {"env": {"FLAGS": late}}, {"env": {"FLAGS": "--never-listen"}}]
    async with AsyncWorld(dir=make_motley_world(tmp_path)) as world:
        other = await world.start(run_dir=run, name="other")
        batch = await world.start_many(specs, run_dir=run, on_failure="stop_all")
        assert batch.done == {}
        assert next(iter(batch.failed)) == "w002"
        assert type(batch.failed["w002"]) is WorldExitedBeforeReady
        for name in ("w000", "w001", "w003"):
            assert type(batch.failed[name]) is WorldStartError
            assert "'w002' failed" in str(batch.failed[name])
        assert world.instances == ("other",)
        assert marked_processes() == {other.pid}
        assert list((await world.start_many(2, run_dir=run)).done) == ["w000", "w001"]


# ------------------------------------------------------------------ several worlds, one process


def test_worlds_of_one_process_share_a_guard_a_portal_and_a_run_directory(
    tmp_path: Path, run: Path
) -> None:
    counters, others = make_world(tmp_path), make_world(tmp_path, name="others")
    batches: list[Batch[StartedWorld]] = []

    def start(world: World) -> None:
        batches.append(world.start_many(4, run_dir=run))

    with World(dir=counters) as first, World(dir=others) as second:
        starts = [threading.Thread(target=start, args=(one,)) for one in (first, second)]
        for thread in starts:
            thread.start()
        for thread in starts:
            thread.join()
        assert [batch.failed for batch in batches] == [{}, {}]
        names = {name for batch in batches for name in batch.done}
        assert names == {f"w{number:03}" for number in range(8)}
        assert len({started.port for batch in batches for started in batch}) == 8
        guards = [pid for pid in descendants(os.getpid()) if GUARD_NAME in command_line(pid)]
        assert len(guards) == 1
        portals = [one for one in threading.enumerate() if one.name == PORTAL_THREAD]
        assert len(portals) == 1
        assert {one.world for one in read_instances(run)} == {"counter", "others"}
        first.close()
        assert len(second.save_all()) == len(second.instances) == 4
    listed = {entry["name"] for entry in read_manifest(run).instances}
    assert listed == names
    assert leftovers(run) == []


CROWD_OF = """
async def main():
    async with AsyncWorld(dir=world_dir) as world:
        batch = await world.start_many(int(arguments[0]), run_dir=run_dir, restart="checkpoint")
        batch.raise_if_failed()
        tell(*(started.port for started in batch))
        await hear_async()
anyio.run(main)
"""


async def test_a_run_directory_has_one_orchestrator_at_a_time(tmp_path: Path, run: Path) -> None:
    directory = make_world(tmp_path)
    async with AsyncWorld(dir=directory) as world:
        with orchestrator(CROWD_OF, directory, run, "2") as other:
            other.hear()
            for start in (
                partial(world.start_many, 2),
                partial(world.fork, directory / "world.toml"),
            ):
                with pytest.raises(RunLockedError) as caught:
                    await start(run_dir=run)
                assert caught.value.pid == other.pid
                assert f"pid {other.pid} ({sys.executable}" in str(caught.value)
            assert len(await run_sync(read_instances, run)) == 2
            elsewhere = await world.start_many(2, run_dir=tmp_path / "elsewhere")
            assert elsewhere.failed == {}
            await world.stop_all()
            other.tell("end")
            assert other.process.wait(timeout=HANG_S) == 0
            assert list((await world.start_many(2, run_dir=run)).done) == ["w000", "w001"]


# ----------------------------------------------------------------------------------- names


async def test_starts_at_the_same_time_never_share_a_name(tmp_path: Path, run: Path) -> None:
    names: list[str] = []

    async def start(count: int) -> None:
        names.extend((await world.start_many(count, run_dir=run)).done)

    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        async with anyio.create_task_group() as tasks:
            for count in (1, 2, 3):
                tasks.start_soon(start, count)
        assert sorted(names) == [f"w{number:03}" for number in range(6)]
        assert set(world.instances) == set(names)
        listed = {entry["name"] for entry in manifest_of(run)["instances"]}
        assert listed == set(names)


async def test_a_second_run_takes_the_names_of_the_first_and_a_fork_never_does(
    tmp_path: Path, run: Path
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        first = await world.start_many(3, run_dir=run)
        saved = (await world.save_all())["w000"]
        await world.stop(instance="w001")
        assert list((await world.start_many(2, run_dir=run)).done) == ["w001", "w003"]
        await world.stop_all()
        assert list((await world.fork(saved, 2, run_dir=run)).done) == ["w004", "w005"]
        await world.stop_all()
    async with AsyncWorld(dir=world.dir) as world:
        second = await world.start_many(2, run_dir=run)
        assert list(second.done) == ["w000", "w001"]
        assert manifest_of(run / "worlds" / "w000")["run"]["status"] == "running"
        assert registered(first["w000"].instance_dir).keys() == {saved.path}
        assert list((await world.fork(saved, run_dir=run)).done) == ["w006"]


async def test_the_name_of_an_instance_that_died_but_was_not_given_back_is_not_taken(
    tmp_path: Path, run: Path
) -> None:
    async with (
        AsyncWorld(dir=make_world(tmp_path)) as world,
        AsyncWorld(dir=make_world(tmp_path, "--slow-stop", "0.5", name="other")) as other,
        other.events() as events,
    ):
        dead, _ = await other.start_many(2, run_dir=run, restart="fresh", max_restarts=1)
        switch(dead, slow_boot="30")
        os.kill(dead.pid, signal.SIGKILL)
        await until(events, "exited", [dead.name])
        batch = await world.start_many(2, run_dir=run)
        assert batch.failed == {}
        assert list(batch.done) == ["w002", "w003"]


async def test_a_name_that_is_held_is_refused_and_its_holder_is_not_touched(
    tmp_path: Path, run: Path
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        (holder,) = await world.start_many(1, run_dir=run)
        before = manifest_of(holder.instance_dir)
        async with AsyncWorld(dir=world.dir) as other:
            batch = await other.start_many([{"name": "w000"}, {}], run_dir=run)
            assert list(batch.done) == ["w001"]
            assert type(batch.failed["w000"]) is RunLockedError
        batch = await world.start_many([{"name": "w000"}, {}], run_dir=run)
        assert list(batch.done) == ["w001"]
        assert type(batch.failed["w000"]) is UsageError
        assert manifest_of(holder.instance_dir) == before
        assert ask(holder.port, "GET", "/api.md").status == 200


# ------------------------------------------------------------------------------------ saves


async def test_saves_come_as_they_land(tmp_path: Path, run: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        batch = await world.start_many(6, run_dir=run)
        slow = batch["w002"]
        switch(slow, snapshot="slow-loris", drip_interval="0.05")
        landed: list[Outcome[SavedSnapshot]] = []
        with anyio.fail_after(HANG_S):
            async for outcome in world.save_all():
                landed.append(outcome)
                if len(landed) == 5:
                    switch(slow, drip_interval="0")
        assert [one.instance for one in landed if one.value is not None] == [
            one.instance for one in landed
        ]
        assert {one.instance for one in landed} == batch.done.keys()
        assert landed[-1].instance == slow.name
        assert landed[-1].value is not None
        for started in batch:
            assert registered(started.instance_dir) == on_disk(started.instance_dir)


BAD_SAVES = ("status-401", "status-500", "html", "truncated", "die-in-body")


async def test_a_save_that_fails_costs_no_other(tmp_path: Path, run: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        batch = await world.start_many(len(BAD_SAVES) + 2, run_dir=run)
        for started, fault in zip(batch, BAD_SAVES, strict=False):
            switch(started, snapshot=fault)
        saves = await world.save_all()
        assert list(saves.done) == ["w005", "w006"]
        errors = [saves.failed[started.name] for started in batch if started.name in saves.failed]
        assert [getattr(error, "status", None) for error in errors[:2]] == [401, 500]
        assert [type(error) for error in errors] == [*[SnapshotError] * 4, WorldExitedError]
        for started in batch:
            count = int(started.name in saves.done)
            files = on_disk(started.instance_dir) if count else {}
            assert registered(started.instance_dir) == files
            assert len(files) == count
        told = [event for event in await past(events) if event.kind.startswith("save")]
        assert {one.instance for one in told if one.kind == "saved"} == saves.done.keys()
        assert {one.instance for one in told if one.kind == "save_failed"} == saves.failed.keys()
        assert world.instances == tuple(name for name in batch.done if name != "w004")
        assert (world.metrics.saves, world.metrics.save_failures) == (7, 5)


async def test_saves_go_where_the_caller_says_and_only_of_whom_is_named(
    tmp_path: Path, run: Path
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        batch = await world.start_many(3, run_dir=run)
        place = tmp_path / "place"
        saves = await world.save_all(dir=place, instances=["w002", "w000"])
        assert list(saves.done) == ["w002", "w000"]
        assert {saved.path for saved in saves} == set(place.iterdir())
        for name, saved in saves.done.items():
            assert registered(batch[name].instance_dir) == {saved.path: saved.sha256}
        with pytest.raises(UsageError, match="no instance 'w007'; there are: w000, w001, w002"):
            await world.save_all(instances=["w000", "w007"])
        assert len(list(place.iterdir())) == 2


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_saves_that_nobody_waits_for_any_more_go_on(
    tmp_path: Path, run: Path, backend: str
) -> None:
    async def leave_early() -> None:
        async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
            batch = await world.start_many(4, run_dir=run)
            switch(batch["w003"], snapshot="slow-loris", drip_interval="0.05")
            async for outcome in world.save_all():
                assert outcome.instance != "w003"
                break
            switch(batch["w003"], drip_interval="0")
            await until(events, "saved", batch.done)
            for started in batch:
                assert len(on_disk(started.instance_dir)) == 1
                assert registered(started.instance_dir) == on_disk(started.instance_dir)
            forks = await world.fork(next(iter(on_disk(started.instance_dir))), 2, run_dir=run)
            assert (await world.stop_all()).failed == {}
            forks.raise_if_failed()

    anyio.run(leave_early, backend=backend)
    assert leftovers(run) == []


@pytest.mark.parametrize("kind", ["anyio", "asyncio"])
async def test_saves_that_are_cancelled_leave_file_and_entry_or_neither(
    tmp_path: Path, run: Path, kind: str
) -> None:
    chance = seeded()
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        batch = await world.start_many(6, run_dir=run)
        for started in batch:
            switch(started, snapshot="slow-loris", drip_bytes="50", drip_interval="0.005")
        await world.save_all()
        for _ in range(8):
            delay = chance.uniform(0.0, 0.2)
            await cancel_after(delay, kind, world.save_all)
            for started in batch:
                assert registered(started.instance_dir) == on_disk(started.instance_dir)
        assert len(await world.save_all()) == len(batch)


async def cancel_after(seconds: float, kind: str, operation: Callable[[], Awaitable[Any]]) -> bool:
    """Cancel an operation after some seconds; return whether it was cancelled before its end."""
    interrupted = Interrupted(0)

    async def strike() -> None:
        await anyio.sleep(seconds)
        interrupted.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(strike)
        was_cancelled = await run_and_cancel(interrupted, kind, operation)
        tasks.cancel_scope.cancel()
    return was_cancelled


# ------------------------------------------------------------------------------------ forks


def play(port: int, session: str) -> list[bytes]:
    """Do the same each time; return every byte of the answers."""
    return [act(port, session, number) for number in (3, -1, 40)]


async def test_forks_and_their_parent_answer_the_same_bytes(tmp_path: Path, run: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        parent = await world.start(run_dir=run, name="parent")
        session = await join(world, parent)
        act(parent.port, session, 7)
        saved = await world.save()
        forks = await world.fork(saved, 2, run_dir=run)
        traces = [play(one.port, session) for one in (parent, *forks)]
        assert traces == [traces[0]] * 3
        assert len(set(traces[0])) == 3
        saves = await world.save_all()
        assert len({one.sha256 for one in saves}) == 1
        for fork in forks:
            told = manifest_of(fork.instance_dir)["run"]
            assert (told["resume_from"], told["parent_sha256"]) == (str(saved.path), saved.sha256)
            assert fork.resume_path == saved.path
        again = await world.fork(saved.path, run_dir=run)
        assert play(again["w002"].port, session) == traces[0]


async def test_a_fork_is_of_the_snapshot_that_was_saved_or_of_none(
    tmp_path: Path, run: Path
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        await world.start(run_dir=run, name="parent")
        saved = await world.save()
        await past(events)
        saved.path.write_bytes(saved.path.read_bytes() + b" ")
        for checkpoint, count, options in (
            (saved, 1, {}),
            (run / "none.json", 1, {}),
            (saved.path, 0, {}),
            (saved.path, 1, {"reseed": 3}),
        ):
            with pytest.raises(ConfigError):
                await world.fork(checkpoint, count, run_dir=run, **options)
        assert await past(events) == []
        assert world.instances == ("parent",)


async def test_each_fork_gets_a_seed_of_its_own_where_the_world_takes_one(
    tmp_path: Path, run: Path
) -> None:
    directory = make_world(tmp_path, toml_extra="reseed = true")
    async with AsyncWorld(dir=directory) as world:
        parent = await world.start(run_dir=run, name="parent")
        session = await join(world, parent)
        saved = await world.save()
        forks = await world.fork(saved, 3, run_dir=run, reseed=2**64 - 3)
        seeds = [look(one.port, session)["reseed"] for one in forks]
        assert seeds == [2**64 - 3, 2**64 - 2, 2**64 - 1]
        with pytest.raises(ConfigError) as caught:
            await world.fork(saved, 4, run_dir=run, reseed=2**64 - 3)
        assert caught.value.key == "reseed"
        assert len(world.instances) == 4


@pytest.fixture
def marbles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the example, whose ``python`` is this one."""
    directory = tmp_path / "marbles"
    shutil.copytree(EXAMPLES / "marbles", directory, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    return directory


def play_marbles(port: int, session: str) -> list[bytes]:
    """Steer, and let newcomers come, whom the world puts somewhere by its dice."""
    headers = {"X-Session": session}
    trace = []
    for number in range(3):
        newcomer = ask(port, "POST", f"/join?name=newcomer-{number}").body
        body = json.dumps({"type": "Steer", "data": {"direction": [1, number]}}).encode()
        steered = ask(port, "POST", "/input", body=body, headers={**headers, "Content-Type": JSON})
        assert steered.status == 200
        trace += [newcomer, steered.body]
    return [*trace, ask(port, "GET", "/observe", headers=headers).body]


JSON = "application/json"


async def test_forks_throw_the_same_dice_until_they_are_reseeded(marbles: Path, run: Path) -> None:
    async with AsyncWorld(dir=marbles) as world:
        parent = await world.start(run_dir=run, name="parent")
        session = await join(world, parent)
        play_marbles(parent.port, session)
        saved = await world.save()
        exact = await world.fork(saved, 2, run_dir=run)
        reseeded = await world.fork(saved, 2, run_dir=run, reseed=7)
        for batch in (exact, reseeded):
            batch.raise_if_failed()
        continued = play_marbles(parent.port, session)
        assert [play_marbles(one.port, session) for one in exact] == [continued] * 2
        others = [play_marbles(one.port, session) for one in reseeded]
        assert len({tuple(trace) for trace in (continued, *others)}) == 3


# ---------------------------------------------------------------------------- inherited sockets


def listeners_of(pid: int, port: int) -> set[int]:
    """Return the descriptors of a process that are listening sockets of a port."""
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    inodes = {row[9] for row in rows if row[1].endswith(f":{port:04X}") and row[3] == "0A"}
    found = set()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # another thread may open and close
            if os.readlink(path).removeprefix("socket:[")[:-1] in inodes:
                found.add(int(path.name))
    return found


async def test_worlds_that_inherit_their_sockets_are_asked_once_and_hold_them_alone(
    tmp_path: Path, run: Path
) -> None:
    directory = make_world(
        tmp_path, "--listen", "inherit", "--slow-boot", "0.2", toml_extra='listen = "inherit"'
    )
    async with AsyncWorld(dir=directory) as world, world.events() as events:
        batch = await world.start_many(4, run_dir=run, restart="fresh")
        batch.raise_if_failed()
        for started in batch:
            asked = ask(started.port, "GET", "/__requests").json()
            assert [one["path"] for one in asked] == ["/api.md"]
            assert listeners_of(started.pid, started.port) == {3}
            assert listeners_of(os.getpid(), started.port) == set()
            told = variables_of(started.pid)
            assert (told["LISTEN_PID"], told["LISTEN_FDS"]) == (str(started.pid), "1")
        victim = batch["w001"]
        os.kill(victim.pid, signal.SIGKILL)
        await until(events, "restarting", [victim.name])
        await until(events, "ready", [victim.name])
        (entry,) = await run_sync(read_instances, run, ["w001"])
        assert entry.port == victim.port
        assert entry.pid is not None
        assert listeners_of(entry.pid, victim.port) == {3}


async def test_nobody_holds_the_socket_of_a_dead_world(tmp_path: Path, run: Path) -> None:
    directory = make_world(tmp_path, "--listen", "inherit", toml_extra='listen = "inherit"')
    async with AsyncWorld(dir=directory) as world, world.events() as events:
        batch = await world.start_many(3, run_dir=run)
        os.kill(batch["w000"].pid, signal.SIGKILL)
        await until(events, "exited", ["w000"])
        with pytest.raises(ConnectionRefusedError):
            ask(batch["w000"].port, "GET", "/api.md")
        assert not is_listening(batch["w000"].port)
        assert ask(batch["w002"].port, "GET", "/api.md").status == 200


# --------------------------------------------------------------------------- drain and autosave


async def test_a_drain_stops_whom_it_could_save(tmp_path: Path, run: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        batch = await world.start_many(4, run_dir=run)
        stuck = batch["w001"]
        switch(stuck, snapshot="status-500")
        await world.autosave(every=3600.0)
        drained = await world.drain(grace_seconds=10)
        assert list(drained.done) == ["w000", "w002", "w003"]
        assert list(drained.failed) == ["w001"]
        assert type(drained.failed["w001"]) is SnapshotError
        assert world.instances == ("w001",)
        assert marked_processes() == {stuck.pid}
        for name, saved in drained.done.items():
            home = batch[name].instance_dir
            assert saved.path in registered(home)
            assert registered(home) == on_disk(home)
            assert manifest_of(home)["run"]["status"] == "complete"
        switch(stuck, snapshot="sized")
        assert list((await world.drain()).done) == ["w001"]
        assert world.instances == ()
        assert list((await world.start_many([{"resume": drained["w000"].path}], run_dir=run)).done)


async def test_an_autosave_keeps_its_last_saves_and_nobody_elses_are_removed(
    tmp_path: Path, run: Path
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        batch = await world.start_many(2, run_dir=run)
        by_hand = await world.save_all()
        await past(events)
        await world.autosave(every=0.01, keep=2)
        for _ in range(6):
            await until(events, "saved", batch.done)
        await world.autosave(every=None)
        for started in batch:
            files = on_disk(started.instance_dir)
            # The round that was ended may have saved already and removed nothing yet.
            assert len(files.keys() - {by_hand[started.name].path}) in (2, 3)
            assert by_hand[started.name].path in files
            assert registered(started.instance_dir) == files
            entries = manifest_of(started.instance_dir)["checkpoints"]
            removed = [one for one in entries if one.get("removed_at")]
            assert len(removed) >= 3
            newest = max(files, key=lambda path: path.stat().st_mtime_ns)
            assert entries[-1]["path"] == f"checkpoints/{newest.name}"
        await past(events)
        assert len(await world.save_all()) == 2
        assert kinds(await past(events), "w000") == ["saved"]


async def test_an_autosave_that_fails_costs_no_older_save(tmp_path: Path, run: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        batch = await world.start_many(2, run_dir=run)
        await world.autosave(every=0.01, keep=1)
        await until(events, "saved", batch.done)
        switch(batch["w000"], snapshot="status-500")
        await until(events, "save_failed", ["w000"])
        before = on_disk(batch["w000"].instance_dir)
        for _ in range(3):
            await until(events, "saved", ["w001"])
        assert on_disk(batch["w000"].instance_dir) == before != {}
        switch(batch["w000"], snapshot="sized")
        await until(events, "saved", ["w000"])


async def test_an_autosave_ends_with_its_block_and_leaves_nothing_half(
    tmp_path: Path, run: Path
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        batch = await world.start_many(2, run_dir=run)
        switch(batch["w001"], snapshot="slow-loris", drip_interval="0.05")
        await world.autosave(every=0.01)
        partials = (run / "worlds" / "w001" / "checkpoints").glob
        await wait_until_async(lambda: list(partials(".*.partial")), HANG_S, "a save has begun")
    assert leftovers(run) == []
    assert on_disk(batch["w001"].instance_dir) == {}
    for started in batch:
        assert registered(started.instance_dir) == on_disk(started.instance_dir)


@pytest.mark.parametrize(
    "arguments", [{"every": 0}, {"every": -1.0}, {"every": float("nan")}, {"every": 1, "keep": 0}]
)
async def test_an_autosave_that_cannot_be_is_refused(
    tmp_path: Path, arguments: dict[str, Any]
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        with pytest.raises(ConfigError):
            await world.autosave(**arguments)


# ------------------------------------------------------------------------------- interrupted


@pytest.mark.parametrize("kind", ["anyio", "asyncio"])
async def test_starts_cancelled_at_any_step_leave_nothing(
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


@pytest.mark.parametrize("kind", ["anyio", "asyncio"])
async def test_starts_cancelled_at_any_moment_leave_nothing(
    tmp_path: Path, run: Path, kind: str
) -> None:
    chance = seeded()
    async with AsyncWorld(dir=make_world(tmp_path, "--slow-boot", "0.1")) as world:
        for _ in range(6):
            delay = chance.uniform(0.0, 0.4)
            await cancel_after(delay, kind, partial(world.start_many, 8, run_dir=run))
            await world.stop_all(grace_seconds=1)  # of one that was done before
            assert not marked_processes()
            assert not list((run / ".clawblox").glob("instances/*.lock"))
        batch = await world.start_many(2, run_dir=run)
        assert list(batch.done) == ["w000", "w001"]


@pytest.mark.parametrize("kind", ["anyio", "asyncio"])
async def test_a_run_directory_that_was_claimed_in_vain_is_given_back(
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

    monkeypatch.setattr("clawblox.fleet.claim_run", claim)
    async with (
        AsyncWorld(dir=make_world(tmp_path)) as world,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(strike)
        assert await run_and_cancel(interrupted, kind, partial(world.start_many, 2, run_dir=run))
    assert leftovers(run) == []


async def test_starts_that_are_under_way_end_with_their_world(tmp_path: Path, run: Path) -> None:
    errors: list[UsageError] = []

    async def start() -> None:
        with pytest.raises(UsageError, match="closed meanwhile") as caught:
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


async def test_an_exception_in_the_block_stops_all_of_them(tmp_path: Path, run: Path) -> None:
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the block is what is tested
        async with AsyncWorld(dir=make_world(tmp_path)) as world:
            batch = await world.start_many(8, run_dir=run)
            raise ZeroDivisionError
    assert leftovers(run, ports_of(batch)) == []
    assert {one["status"] for one in statuses(run, batch.done).values()} == {"complete"}


SCRIPT = """
world = World(dir=world_dir)
batch = world.start_many(8, run_dir=run_dir)
tell(*(started.port for started in batch))
time.sleep(600)
"""


def test_ctrl_c_in_a_script_stops_all_of_its_worlds(tmp_path: Path, run: Path) -> None:
    with orchestrator(SCRIPT, make_world(tmp_path), run, stderr=subprocess.PIPE) as script:
        ports = [int(word) for word in script.hear().split()]
        script.process.send_signal(signal.SIGINT)
        _, errors = script.process.communicate(timeout=HANG_S)
    assert script.process.returncode == -signal.SIGINT
    assert errors.splitlines()[-1] == "KeyboardInterrupt"
    assert leftovers(run, ports) == []
    assert {one.state for one in read_instances(run)} == {"exited"}


def test_the_end_of_a_script_stops_all_of_its_worlds(tmp_path: Path, run: Path) -> None:
    ending = SCRIPT.replace("time.sleep(600)", "world.save_all(instances=['w003'])")
    with orchestrator(ending, make_world(tmp_path), run) as script:
        ports = [int(word) for word in script.hear().split()]
        assert script.process.wait(HANG_S) == 0
    assert leftovers(run, ports) == []
    assert len(on_disk(run / "worlds" / "w003")) == 1


async def test_what_an_orchestrator_left_that_was_killed_is_ended_and_called_interrupted(
    tmp_path: Path, run: Path
) -> None:
    directory = make_world(tmp_path)
    with orchestrator(CROWD_OF, directory, run, "16") as killed:
        ports = [int(word) for word in killed.hear().split()]
        assert len(ports) == 16
        killed.kill()
    wait_until(lambda: not marked_processes(), HANG_S, "the guard has ended them")
    assert not [port for port in ports if is_listening(port)]
    assert {one.state for one in await run_sync(read_instances, run)} == {"interrupted"}
    async with AsyncWorld(dir=directory) as world:
        batch = await world.start_many(2, run_dir=run)
        assert list(batch.done) == ["w000", "w001"]
        names = [f"w{number:03}" for number in range(16)]
        told = [one["status"] for one in statuses(run, names).values()]
        assert told == [*["running"] * 2, *["interrupted"] * 14]
        now = await run_sync(read_instances, run)
        assert [one.state for one in now] == [*["ready"] * 2, *["exited"] * 14]
    assert leftovers(run) == []


# ----------------------------------------------------------------------- from another process


async def saves_from_outside(run: Path, *names: str) -> dict[str, Outcome[SavedSnapshot]]:
    outcomes: list[Outcome[SavedSnapshot]] = []
    with anyio.fail_after(HANG_S):
        await save_instances(run, names, directory=None, timeout=60.0, on_saved=outcomes.append)
    assert len({one.instance for one in outcomes}) == len(outcomes)
    return {one.instance: one for one in outcomes}


async def forks_from_outside(
    run: Path, checkpoint: Path, count: int, reseed: int | None = None
) -> list[Mapping[str, Any]] | None:
    """Return the events that tell of the instances; None when there is no orchestrator."""
    events: list[Mapping[str, Any]] = []
    with anyio.fail_after(HANG_S):
        is_owned = await fork_instances(
            run, checkpoint, count, reseed=reseed, on_event=events.append
        )
    return [one for one in events if one["event"] in ("started", "failed")] if is_owned else None


async def test_worlds_are_saved_forked_and_stopped_from_another_process(
    tmp_path: Path, run: Path
) -> None:
    directory = make_world(tmp_path)
    with orchestrator(CROWD_OF, directory, run, "3") as owner:
        ports = dict(zip(("w000", "w001", "w002"), map(int, owner.hear().split()), strict=True))
        (control,) = (run / ".clawblox" / "control").glob("*.sock")
        assert exposed(run) == []
        assert control.is_socket()
        ask(ports["w002"], "POST", "/__set?snapshot=status-500")
        saves = await saves_from_outside(run)
        assert {name for name, one in saves.items() if one.error is None} == {"w000", "w001"}
        assert "500" in str(saves["w002"].error)
        for name in ("w000", "w001"):
            home = run / "worlds" / name
            assert registered(home) == on_disk(home) != {}
        await check_forks_from_outside(run, saves["w000"])
        (result,) = await stop_instances(run, ["w001"], grace_seconds=10)
        assert (result.instance, result.rung) == ("w001", "terminated")
        states = {one.name: one for one in await run_sync(read_instances, run)}
        assert (states["w001"].state, states["w001"].restarts) == ("exited", 0)
        assert [name for name, one in states.items() if one.state == "ready"] == [
            "w000",
            "w002",
            "w003",
            "w004",
        ]
        results = await stop_instances(run, grace_seconds=10)
        assert len(results) == 5
        assert not marked_processes()
        with pytest.raises(UsageError):
            await stop_instances(run, ["w009"], grace_seconds=10)
        owner.tell("end")
        assert owner.process.wait(HANG_S) == 0
    assert leftovers(run, ports.values()) == []
    assert {one.restarts for one in await run_sync(read_instances, run)} == {0}


async def check_forks_from_outside(run: Path, outcome: Outcome[SavedSnapshot]) -> None:
    saved = outcome.value
    assert saved is not None
    events = await forks_from_outside(run, saved.path, 2)
    assert events is not None
    assert [(one["event"], one["instance"]) for one in events] == [
        ("started", "w003"),
        ("started", "w004"),
    ]
    told = manifest_of(run / "worlds" / "w004")["run"]
    assert (told["resume_from"], told["parent_sha256"]) == (str(saved.path), saved.sha256)
    with pytest.raises(ControlError) as caught:
        await forks_from_outside(run, saved.path, 2, reseed=1)
    assert caught.value.error_type == "ConfigError"


DETACHED = CROWD_OF.replace('restart="checkpoint"', "detach=True")


async def test_detached_worlds_need_no_orchestrator_to_be_saved_and_stopped(
    tmp_path: Path, run: Path
) -> None:
    directory = make_world(tmp_path)
    with orchestrator(DETACHED, directory, run, "3") as owner:
        ports = [int(word) for word in owner.hear().split()]
        (result,) = await stop_instances(run, ["w001"], grace_seconds=10)  # by its orchestrator
        assert result.rung == "terminated"
        owner.tell("leave them")
        assert owner.process.wait(HANG_S) == 0
    try:
        assert len(marked_processes()) == 2
        saves = await saves_from_outside(run)
        assert {name: one.error for name, one in saves.items()} == {"w000": None, "w002": None}
        for name in saves:
            home = run / "worlds" / name
            assert registered(home) == on_disk(home) != {}
        saved = saves["w000"].value
        assert saved is not None
        assert await forks_from_outside(run, saved.path, 1) is None
        async with AsyncWorld(dir=directory) as again:  # they keep their names
            assert list((await again.fork(saved, run_dir=run)).done) == ["w003"]
    finally:
        results = await stop_instances(run, grace_seconds=10)
    assert {one.instance: one.rung for one in results} == {
        "w000": "terminated",
        "w001": "not_running",
        "w002": "terminated",
        "w003": "not_running",
    }
    assert leftovers(run, ports) == []
    assert {one.state for one in await run_sync(read_instances, run)} == {"exited"}


async def test_detached_worlds_are_attached_with_the_manifests_they_have(
    tmp_path: Path, run: Path
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        batch = await world.start_many(2, run_dir=run, detach=True)
    attached = await run_sync(AsyncWorld.attach, run)
    async with attached as world:
        assert world.instances == ("w000", "w001")
        saves = await world.save_all()
        for started in batch:
            home = started.instance_dir
            assert (
                registered(home)
                == on_disk(home)
                == {saves[started.name].path: saves[started.name].sha256}
            )
        assert len((await world.stop_all()).done) == 2
    assert leftovers(run, ports_of(batch)) == []
