"""``world.restart``: restarts of an instance on request."""

from __future__ import annotations

import hashlib
import os
import re
import signal
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest

from clawblox import AsyncWorld, World
from clawblox.concurrency.batch import Outcome
from clawblox.config.options import RestartOptions
from clawblox.errors import (
    ConfigError,
    SnapshotError,
    UsageError,
    WorldExitedError,
    WorldStartError,
)
from clawblox.instance import lifecycle
from clawblox.instance.lifecycle import LifecycleState
from clawblox.rundir.operations import restart_instances
from clawblox.rundir.requests import Restarted
from tests.instance.supervision.support import LIFE, kill, now
from tests.support.crowd import (
    act,
    join,
    kinds,
    look,
    on_disk,
    past,
    registered,
    until,
    variables_of,
)
from tests.support.processes import is_alive, marked_processes
from tests.support.running import manifest_of, running, switch
from tests.support.waiting import HANG_S, wait_until_async
from tests.support.worlds import ask, make_world

pytestmark = pytest.mark.anyio


def restarts_of(directory: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = manifest_of(directory)["restarts"]
    return found


async def test_a_restart_keeps_state_name_port_and_run_and_is_counted(tmp_path: Path) -> None:
    run = tmp_path / "run"
    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        (started,) = await world.start_many(1, run_dir=run)
        session = await join(world, started)
        act(started.port, session, 5)
        await past(events)
        before = await now(run)
        again = await world.restart()
        assert kinds(await past(events), "w000") == ["saved", *LIFE]
        assert (again.name, again.url, again.port) == (started.name, started.url, started.port)
        assert (again.instance_dir, again.pid != started.pid) == (started.instance_dir, True)
        assert not is_alive(started.pid)
        assert await join(world, again) == session
        assert look(again.port, session)["counter"] == 5
        status = await now(run)
        assert (status.state, status.restarts, status.pid) == ("ready", 1, again.pid)
        assert (status.run_id, status.started_at) == (before.run_id, before.started_at)
        assert world.metrics.restarts == 1
        ((path, digest),) = on_disk(started.instance_dir).items()
        assert again.resume_path == path
        (entry,) = restarts_of(started.instance_dir)
        assert {key: entry[key] for key in ("number", "by", "parent_sha256", "run_id")} == {
            "number": 1,
            "by": "request",
            "parent_sha256": digest,
            "run_id": before.run_id,
        }
        assert entry["resume_from"] == f"checkpoints/{path.name}"
        assert registered(started.instance_dir) == on_disk(started.instance_dir)
        assert world.url == again.url
    assert manifest_of(started.instance_dir)["run"]["status"] == "complete"


async def test_a_fresh_restart_repeats_the_first_start_without_a_save(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, started):
        session = (await world.connect("Rocky"))["session"]
        act(started.port, session, 5)
        await world.save()
        again = await world.restart(fresh=True)
        assert again.resume_path is None
        assert ask(again.port, "GET", "/observe", headers={"X-Session": session}).status == 401
        assert len(manifest_of(started.run_dir)["checkpoints"]) == 1
        (entry,) = restarts_of(started.run_dir)
        assert entry.keys() == {"at", "by", "exit", "number", "run_id"}


async def test_a_restart_without_a_save_continues_from_the_last_good_save(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, started), world.events() as events:
        session = (await world.connect("Rocky"))["session"]
        assert (await world.restart(save=False)).resume_path is None
        (event,) = [one for one in await past(events) if one.kind == "restarting"]
        assert (event.data["by"], event.data["reason"]) == ("request", "there is no good save")
        session = (await world.connect("Rocky"))["session"]
        act(started.port, session, 5)
        good = await world.save()
        act(started.port, session, 5)
        bad = await world.save()
        bad.path.write_bytes(b"{}")
        again = await world.restart(save=False)
        assert again.resume_path == good.path
        assert look(again.port, session)["counter"] == 5


@pytest.mark.thorough
async def test_a_restart_takes_a_named_snapshot_and_another_seed(tmp_path: Path) -> None:
    directory, run = make_world(tmp_path, toml_extra="reseed = true"), tmp_path / "run"
    async with AsyncWorld(dir=directory) as world, world.events() as events:
        (started,) = await world.start_many(1, run_dir=run, reseed=5)
        session = await join(world, started)
        act(started.port, session, 3)
        saved = await world.save()
        act(started.port, session, 4)
        await past(events)
        again = await world.restart(resume=saved, reseed=9)
        assert kinds(await past(events), "w000") == LIFE  # no save was made
        seen = look(again.port, session)
        assert (again.resume_path, again.seed) == (saved.path, 9)
        assert (seen["counter"], seen["reseed"]) == (3, 9)
        assert manifest_of(started.instance_dir)["run"]["seed"] == 9
        kept = await world.restart()
        assert look(kept.port, session)["reseed"] == 9  # it is in the save
        assert "WORLD_RESEED" not in kept.env
        fresh = await world.restart(fresh=True, reseed=11)
        assert (fresh.resume_path, fresh.seed, fresh.env["WORLD_RESEED"]) == (None, 11, "11")
        assert manifest_of(started.instance_dir)["run"]["seed"] == 11
        assert (await world.restart(fresh=True)).env["WORLD_RESEED"] == "11"
        with pytest.raises(ConfigError, match="resume: must be left out with fresh"):
            await world.restart(resume=saved, fresh=True)


@pytest.mark.thorough
async def test_a_restart_from_another_process_takes_a_named_snapshot_and_a_seed(
    tmp_path: Path,
) -> None:
    directory, run = make_world(tmp_path, toml_extra="reseed = true"), tmp_path / "run"
    outcomes: list[Outcome[Restarted]] = []
    async with AsyncWorld(dir=directory) as world:
        (started,) = await world.start_many(1, run_dir=run, reseed=5)
        session = await join(world, started)
        act(started.port, session, 3)
        saved = await world.save()
        act(started.port, session, 4)
        for options in (
            RestartOptions(resume=saved.path, reseed=9),
            RestartOptions(resume=tmp_path / "gone.json"),
            RestartOptions(fresh=True),
        ):
            await restart_instances(run, ["w000"], options, on_restarted=outcomes.append)
            if options.reseed == 9:
                seen = look(started.port, session)
                assert (seen["counter"], seen["reseed"]) == (3, 9)
        restored, refused, fresh = outcomes
        assert restored.value is not None
        assert restored.value.resume_path == saved.path
        assert "gone.json" in str(refused.error)
        assert fresh.value is not None
        assert fresh.value.resume_path is None
        assert variables_of(fresh.value.pid)["WORLD_RESEED"] == "9"
        assert (await now(run)).seed == 9
    async with AsyncWorld(dir=directory) as world:
        (again,) = await world.resume_all(run, instances=["w000"])
        assert again.seed == 9


async def test_an_instance_that_cannot_be_saved_is_not_restarted(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, started):
        good = await world.save()
        switch(started, snapshot="empty")
        with pytest.raises(SnapshotError, match=r"hint: .*without a save"):
            await world.restart()
        assert is_alive(started.pid)
        assert world.instances == ("w000",)
        again = await world.restart(save=False)
        assert again.resume_path == good.path


async def test_calls_in_progress_fail_during_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, started):
        switch(started, snapshot="hang-before-headers")
        failures: list[Exception] = []

        async def save() -> None:
            with pytest.raises(WorldExitedError) as caught:
                await world.save()
            failures.append(caught.value)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(save)
            (instance,) = world._open_fleet().instances
            await wait_until_async(lambda: bool(instance.calls._scopes))
            await world.restart(save=False)
            with anyio.fail_after(HANG_S):
                await wait_until_async(lambda: bool(failures))
        assert await world.save()


@pytest.mark.thorough
async def test_a_dead_instance_is_restarted_with_its_name_and_port(
    tmp_path: Path,
) -> None:
    run = tmp_path / "run"
    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        batch = await world.start_many(2, run_dir=run)
        started = batch["w000"]
        session = await join(world, started)
        act(started.port, session, 5)
        saved = await world.save(instance="w000")
        for number in (1, 2):
            before = await now(run)
            await kill(run)
            await wait_until_async(lambda: world.instances == ("w001",))
            assert world._open_fleet().find("w000").state in (
                LifecycleState.STOPPING,
                LifecycleState.EXITED,
            )
            await wait_until_async(lambda: world._open_fleet().find("w000").is_over)
            assert manifest_of(started.instance_dir)["run"]["status"] == "failed"
            again = await world.restart("w000")
            assert (again.port, again.resume_path) == (started.port, saved.path)
            assert look(again.port, session)["counter"] == 5
            status = await now(run)
            assert (status.state, status.restarts) == ("ready", number)
            assert (status.run_id, status.started_at) == (before.run_id, before.started_at)
            labels = manifest_of(started.instance_dir)["run"]
            assert labels["status"] == "running"
            assert "ended_at" not in labels
        assert [entry["by"] for entry in restarts_of(started.instance_dir)] == ["request"] * 2
        seen = [event for event in await past(events) if event.kind == "restarting"]
        assert [event.data["by"] for event in seen] == ["request"] * 2
        texts = [line.text async for line in world.logs(instance="w000")]
        assert len([text for text in texts if "restored" in text]) == 2
    assert manifest_of(started.instance_dir)["run"]["status"] == "complete"
    assert not marked_processes()


async def test_an_instance_can_be_restarted_immediately_after_its_death(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, started), world.events() as events:
        saved = await world.save()
        for _ in range(3):
            for pid in marked_processes():
                os.kill(pid, signal.SIGKILL)
            await until(events, "exited", ["w000"])
            assert (await world.restart()).resume_path == saved.path
        assert len(restarts_of(started.run_dir)) == 3


@pytest.mark.thorough
async def test_requested_restarts_do_not_count_against_the_budget(tmp_path: Path) -> None:
    run = tmp_path / "run"
    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        await world.start_many(1, run_dir=run, restart="checkpoint", max_restarts=1)
        for _ in range(2):
            await world.restart()
        await kill(run)
        await until(events, "exited", ["w000"])
        await until(events, "ready", ["w000"])
        assert [entry["by"] for entry in restarts_of(run / "worlds" / "w000")] == [
            "request",
            "request",
            "policy",
        ]


async def test_a_requested_restart_skips_the_delay_of_the_restart_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_FIRST_RESTART_DELAY_S", "_LAST_RESTART_DELAY_S"):
        monkeypatch.setattr(lifecycle, name, 600.0)
    run = tmp_path / "run"
    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        await world.start_many(1, run_dir=run, restart="fresh", max_restarts=50)
        await kill(run)
        await until(events, "exited", ["w000"])
        await until(events, "ready", ["w000"])
        await kill(run)  # the next restart comes after a pause
        await until(events, "exited", ["w000"])
        with anyio.fail_after(HANG_S):
            again = await world.restart()
        assert (await now(run)).pid == again.pid
        entries = restarts_of(run / "worlds" / "w000")
        assert entries[-1]["by"] == "request"


async def test_a_failed_restart_raises_and_ends_the_instance(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, started), world.events() as events:
        saved = await world.save()
        foreign = saved.path.read_bytes().replace(b"scene-plain", b"scene-other")
        (instance,) = world._open_fleet().instances
        assert foreign != saved.path.read_bytes()
        await anyio.Path(saved.path).write_bytes(foreign)
        instance.source.remove([saved.path])
        digest = hashlib.sha256(foreign).hexdigest()
        instance.source.add(attrs.evolve(saved, sha256=digest))
        with pytest.raises(WorldStartError, match="ended while restoring"):
            await world.restart(save=False)
        seen = await until(events, "gave_up", ["w000"])
        assert seen[-1].data["reason"] == "its restart failed"
        await wait_until_async(lambda: instance.is_over)
        assert world.instances == ()
        again = await world.restart()  # without the save that the world refuses
        assert (again.resume_path, again.port) == (None, started.port)


async def test_after_a_failed_restart_the_policy_decides(tmp_path: Path) -> None:
    run = tmp_path / "run"
    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        (started,) = await world.start_many(1, run_dir=run, restart="fresh")
        (instance,) = world._open_fleet().instances
        command_file = started.command_file
        command_file.unlink()
        command_file.mkdir()
        (command_file / "blocks").touch()
        with pytest.raises(WorldStartError):
            await world.restart(fresh=True)
        (command_file / "blocks").unlink()
        command_file.rmdir()
        await until(events, "ready", ["w000"])
        await wait_until_async(lambda: instance.state is LifecycleState.READY)
        assert restarts_of(started.instance_dir)[-1]["by"] == "policy"


async def test_a_stop_during_a_restart_takes_precedence(tmp_path: Path) -> None:
    async with running(tmp_path, "--slow-stop", "30") as (world, _):
        failures: list[Exception] = []

        async def restart() -> None:
            with pytest.raises(WorldStartError, match="stopped") as caught:
                await world.restart(save=False, grace_seconds=60)
            failures.append(caught.value)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(restart)
            (instance,) = world._open_fleet().instances
            await wait_until_async(lambda: instance.state is LifecycleState.RESTARTING)
            stopped = await world.stop(grace_seconds=0)
        assert len(failures) == 1
        assert stopped.rung in ("killed", "already_exited")
        assert not marked_processes()
        with pytest.raises(UsageError, match="no instance"):
            await world.restart("w000")


async def test_concurrent_restarts_take_turns(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, started):
        pids: list[int] = []

        async def restart(fresh: bool) -> None:
            pids.append((await world.restart(fresh=fresh, save=False)).pid)

        async with anyio.create_task_group() as tasks:
            for fresh in (True, False, True):
                tasks.start_soon(restart, fresh)
        assert len({started.pid, *pids}) == 4
        assert len(restarts_of(started.run_dir)) == 3
        assert marked_processes() == {pids[-1]}


async def test_concurrent_restarts_of_a_dead_instance_restart_it_once(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, started):
        os.kill(started.pid, signal.SIGKILL)
        await world.wait()
        pids: set[int] = set()

        async def restart() -> None:
            pids.add((await world.restart("w000")).pid)

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(restart)
        assert marked_processes() == pids
        assert len(restarts_of(started.run_dir)) == 1


@pytest.mark.thorough
async def test_a_cancelled_restart_continues(tmp_path: Path) -> None:
    async with running(tmp_path, "--slow-stop", "0.2") as (world, started):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(world.restart)
            (instance,) = world._open_fleet().instances
            await wait_until_async(lambda: instance.state is LifecycleState.RESTARTING)
            tasks.cancel_scope.cancel()
        await wait_until_async(lambda: instance.state is LifecycleState.READY)
        assert len(restarts_of(started.run_dir)) == 1
        assert world.instances == ("w000",)


async def test_a_starting_or_stopped_instance_cannot_be_restarted(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, _):
        with pytest.raises(UsageError, match="no instance 'w001'"):
            await world.restart("w001")
        await world.stop()
        with pytest.raises(UsageError, match="there were: w000"):
            await world.restart("w000")


async def test_an_attached_instance_keeps_its_variables_saves_and_recordings(
    tmp_path: Path,
) -> None:
    run = tmp_path / "run"
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        env = {"TEAM": "red", "API_KEY": "a secret"}
        started = await world.start(run_dir=run, env=env, record=True, detach=True)
        session = await join(world, started)
        act(started.port, session, 5)
        saved = await world.save()
    async with AsyncWorld.attach(run) as world:
        again = await world.restart(save=False)
        assert (again.port, again.resume_path) == (started.port, saved.path)
        assert look(again.port, session)["counter"] == 5
        variables = variables_of(again.pid)
        assert {name: variables[name] for name in env} == env
        assert variables["WORLD_RECORD_DIR"] == str(started.record_dir)
    async with AsyncWorld.attach(run) as world:  # it is still detached
        assert is_alive(again.pid)
        texts = [line.text async for line in world.logs()]
        assert sum(text.startswith("counter world") for text in texts) == 2
        await world.stop()
    assert b"a secret" not in b"".join(one.read_bytes() for one in run.rglob("*.jsonl"))


def test_a_sync_world_restarts_an_instance(tmp_path: Path) -> None:
    with World(dir=make_world(tmp_path)) as world:
        started = world.start(run_dir=tmp_path / "run")
        again = world.restart()
        assert (again.port, again.pid != started.pid) == (started.port, True)


async def test_the_log_of_a_restarted_instance_is_read_from_its_first_line(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, started):
        follower = world.logs(follow=True)
        again = await world.restart(fresh=True)
        texts = [line.text async for line in world.logs()]
        first, second = (f"counter world, process {pid}" for pid in (started.pid, again.pid))
        assert [text for text in texts if text.startswith("counter")] == [first, second]
        with anyio.fail_after(HANG_S):
            while (await anext(follower)).text != second:
                pass
        os.kill(again.pid, signal.SIGKILL)
        with anyio.fail_after(HANG_S):
            rest = [line async for line in follower]
        assert all(re.fullmatch(r"[-\dT:.]+Z", line.at or "") for line in rest)
