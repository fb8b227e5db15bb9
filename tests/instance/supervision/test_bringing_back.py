"""A death is detected, and the world is restarted according to its policy, or abandoned."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from clawblox import AsyncWorld, ProcessExit, WorldEvent, WorldExitedError
from tests.instance.supervision.support import LIFE, kill, now
from tests.support.crowd import (
    act,
    join,
    kinds,
    leftovers,
    look,
    make_motley_world,
    on_disk,
    past,
    registered,
    until,
    variables_of,
)
from tests.support.processes import is_alive, marked_processes
from tests.support.running import manifest_of, requests
from tests.support.sockets import is_listening
from tests.support.waiting import wait_until_async
from tests.support.worlds import ask, make_world

pytestmark = pytest.mark.anyio


# ------------------------------------------------------------------------------- a death is seen


@pytest.mark.thorough
async def test_death_is_detected_without_a_call(tmp_path: Path, run: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        batch = await world.start_many(8, run_dir=run)
        await past(events)
        before = {one.name: len(requests(one)) for one in batch}
        for number, started in enumerate(list(batch)[:4]):
            killed_at = time.monotonic()
            os.kill(started.pid, signal.SIGKILL)
            seen = await until(events, "exited", [started.name])
            print(f"death {number} was seen after {1000 * (time.monotonic() - killed_at):.1f} ms")
            assert [one.kind for one in seen] == ["exited"]
            assert seen[0].data["exit"] == ProcessExit(signal="SIGKILL")
        assert world.instances == tuple(batch.done)[4:]
        survivors = [one for one in batch if is_alive(one.pid)]
        assert {one.name: len(requests(one)) for one in survivors} == {
            one.name: before[one.name] for one in survivors
        }


# ----------------------------------------------------------------------------------- policies


async def test_a_world_that_is_not_restarted_stays_dead(tmp_path: Path, run: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        batch = await world.start_many(2, run_dir=run)
        await world.save_all()
        await kill(run)
        await until(events, "exited", ["w000"])
        await wait_until_async(
            lambda: manifest_of(run / "worlds/w000")["run"]["status"] == "failed"
        )
        assert (await now(run)).state == "exited"
        result = await world.stop(instance="w000")
        assert (result.rung, result.exit) == ("already_exited", ProcessExit(signal="SIGKILL"))
        assert "restarts" not in manifest_of(run / "worlds" / "w000")
        assert world.instances == ("w001",)
        assert "restarting" not in kinds(await past(events), "w000")
        assert batch["w000"].port not in {(await now(run, "w001")).port}


async def test_a_fresh_restart_keeps_only_the_address(tmp_path: Path, run: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        (first,) = await world.start_many(1, run_dir=run, restart="fresh")
        session = await join(world, first)
        act(first.port, session, 5)
        await world.save()
        token = variables_of(first.pid)["WORLD_OPERATOR_TOKEN"]
        await past(events)
        await kill(run)
        seen = await until(events, "ready", ["w000"])
        assert kinds(seen, "w000") == ["exited", *LIFE]
        assert dict(seen[1].data) == {
            "exit": ProcessExit(signal="SIGKILL"),
            "resume_path": None,
            "reason": None,
            "by": "policy",
        }
        status = await now(run)
        assert (status.state, status.restarts, status.port) == ("ready", 1, first.port)
        assert status.pid not in (first.pid, None)
        assert variables_of(status.pid)["WORLD_OPERATOR_TOKEN"] != token
        assert ask(first.port, "GET", "/observe", headers={"X-Session": session}).status == 401
        (entry,) = manifest_of(first.instance_dir)["restarts"]
        assert entry.keys() == {"at", "by", "exit", "number", "run_id"}
        assert entry["by"] == "policy"
        assert (await world.save())["time"] == 0.0
        metrics = world.metrics
        assert (metrics.starts, metrics.exits, metrics.restarts, metrics.ready_s.count) == (
            2,
            1,
            1,
            2,
        )


@pytest.mark.thorough
async def test_a_fresh_restart_of_a_resumed_world_resumes_it_again(
    tmp_path: Path, run: Path
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        origin = await world.start(run_dir=tmp_path / "origin", name="origin")
        session = await join(world, origin)
        act(origin.port, session, 5)
        saved = await world.save()
        (started,) = await world.start_many([{"resume": saved.path}], run_dir=run, restart="fresh")
        act(started.port, session, 100)
        await world.save(instance="w000")
        await past(events)
        await kill(run)
        await until(events, "ready", ["w000"])
        assert look(started.port, session)["counter"] == 5
        (entry,) = manifest_of(started.instance_dir)["restarts"]
        assert entry["resume_from"] == str(saved.path)


@pytest.mark.thorough
async def test_a_restart_restores_the_last_save_with_its_sessions(
    tmp_path: Path, run: Path
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        (started,) = await world.start_many(1, run_dir=run, restart="checkpoint")
        session = await join(world, started)
        for number in (1, 2):
            act(started.port, session, 10)
            saved = await world.save()
            act(started.port, session, 1000)
            await past(events)
            await kill(run)
            seen = await until(events, "ready", ["w000"])
            assert kinds(seen, "w000") == ["exited", *LIFE]
            assert seen[1].data["resume_path"] == saved.path
            assert await join(world, started) == session
            assert (
                look(started.port, session)["counter"]
                == json.loads(saved.path.read_bytes())["counter"]
            )
            status = await now(run)
            assert (status.restarts, status.resume_path) == (number, saved.path)
        restarts = manifest_of(started.instance_dir)["restarts"]
        assert [one["number"] for one in restarts] == [1, 2]
        assert restarts[1]["resume_from"] == f"checkpoints/{saved.path.name}"
        assert restarts[1]["parent_sha256"] == saved.sha256
        assert registered(started.instance_dir) == on_disk(started.instance_dir)
        assert manifest_of(started.instance_dir)["run"]["status"] == "running"
    assert manifest_of(started.instance_dir)["run"]["status"] == "complete"


async def test_single_instance_is_restarted_too(tmp_path: Path, run: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        started = await world.start(run_dir=run, restart="checkpoint")
        session = (await world.connect("Rocky"))["session"]
        act(started.port, session, 3)
        await world.save()
        await past(events)
        await kill(run)
        await until(events, "ready", [started.name])
        assert look(started.port, session)["counter"] == 3
        assert (await world.connect("Natasha"))["session"] != session
        assert len(manifest_of(run)["restarts"]) == 1


@pytest.mark.thorough
async def test_a_restart_from_a_save_does_not_reseed(tmp_path: Path, run: Path) -> None:
    directory = make_world(tmp_path, toml_extra="reseed = true")
    async with AsyncWorld(dir=directory) as world, world.events() as events:
        parent = await world.start(run_dir=run, name="parent")
        session = await join(world, parent)
        saved = await world.save()
        (fork,) = await world.fork(saved, run_dir=run, reseed=5, restart="checkpoint")
        for from_own_save in (False, True):
            await past(events)
            await kill(run)
            seen = await until(events, "ready", ["w000"])
            resumed = seen[1].data["resume_path"]
            assert (resumed != saved.path) is from_own_save
            pid = (await now(run)).pid
            assert pid is not None
            assert ("WORLD_RESEED" in variables_of(pid)) is not from_own_save
            assert look(fork.port, session)["reseed"] == 5
            await world.save(instance="w000")


async def test_failed_start_does_not_count_as_a_death(tmp_path: Path, run: Path) -> None:
    directory = make_motley_world(tmp_path)
    specs = [{"env": {"FLAGS": "--exit-at-once 4"}}, {}]
    async with AsyncWorld(dir=directory) as world, world.events() as events:
        batch = await world.start_many(specs, run_dir=run, restart="fresh")
        assert list(batch.failed) == ["w000"]
        assert kinds(await past(events), "w000") == ["started", "start_failed"]
        assert (await now(run)).state == "failed"


@pytest.mark.thorough
async def test_leftovers_of_a_dead_world_are_ended_before_its_restart(
    tmp_path: Path, run: Path
) -> None:
    directory = make_world(tmp_path, "--daemon", sidecars={"feed": []})
    async with AsyncWorld(dir=directory) as world, world.events() as events:
        (started,) = await world.start_many(1, run_dir=run, restart="fresh")
        daemon = directory / "daemon.pid"
        await wait_until_async(daemon.exists, what="the daemon holds the port")
        before = marked_processes()
        assert len(before) == 3
        daemon.unlink()
        await past(events)
        await kill(run)
        await until(events, "ready", ["w000"])
        await wait_until_async(daemon.exists, what="there is a daemon again")
        assert len(marked_processes()) == 3
        assert not marked_processes() & before
        assert ask(started.port, "GET", "/api.md").status == 200
        await world.stop_all(grace_seconds=0.1)
    assert leftovers(run, [started.port]) == []


# ------------------------------------------------------------------------------- giving it up


@pytest.mark.thorough
async def test_world_that_dies_repeatedly_is_abandoned(tmp_path: Path, run: Path) -> None:
    killed = ProcessExit(signal="SIGKILL")
    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        batch = await world.start_many(2, run_dir=run, restart="fresh", max_restarts=2)
        await past(events)
        seen: list[WorldEvent] = []
        for last in ("ready", "ready", "gave_up"):
            await kill(run)
            seen += await until(events, last, ["w000"])
        assert kinds(seen, "w000") == [*["exited", *LIFE] * 2, "exited", "gave_up"]
        assert dict(seen[-1].data) == {"reason": "it died too often", "restarts": 2}
        with pytest.raises(WorldExitedError) as caught:
            await world.connect("Rocky", instance="w000")
        assert caught.value.exit == killed
        home = run / "worlds" / "w000"
        assert await world.wait("w000") == killed  # its name is free by then
        assert manifest_of(home)["run"]["status"] == "failed"
        status = await now(run)
        assert (status.state, status.restarts, status.exit) == ("exited", 2, killed)
        assert [one["number"] for one in manifest_of(home)["restarts"]] == [1, 2]
        assert world.instances == ("w001",)
        assert not is_listening(batch["w000"].port)
        assert list((await world.start_many(1, run_dir=run)).done) == ["w000"]


@pytest.mark.thorough
async def test_world_that_cannot_be_restarted_is_abandoned(tmp_path: Path, run: Path) -> None:
    directory = make_motley_world(tmp_path)
    async with AsyncWorld(dir=directory) as world, world.events() as events:
        (started,) = await world.start_many(1, run_dir=run, restart="fresh", max_restarts=2)
        await past(events)
        (directory / "flags").write_text("--exit-at-once 4")
        await kill(run)
        seen = await until(events, "gave_up", ["w000"])
        attempt = ["restarting", "started", "start_failed"]
        assert kinds(seen, "w000") == ["exited", *attempt * 2, "gave_up"]
        errors = [one.data["error"] for one in seen if one.kind == "start_failed"]
        assert [error.exit for error in errors] == [ProcessExit(status=4)] * 2
        assert "restarts" not in manifest_of(started.instance_dir)
        assert world.metrics.start_failures == 2
    assert leftovers(run, [started.port]) == []
