"""What happens to worlds that die or hang, or seem to: noticed, brought back, given up, let be."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest
from anyio.to_thread import run_sync

from clawblox import (
    AsyncWorld,
    StartedWorld,
    WorldEvent,
    WorldExit,
    WorldExitedError,
    WorldStartError,
)
from clawblox.config import LivenessRule
from clawblox.liveness import wait_until_unresponsive
from clawblox.manifest import Update
from clawblox.manifest_writer import ManifestWriter
from clawblox.readiness import Probe
from clawblox.runs import stop_instances
from clawblox.saving import Autosave
from clawblox.status import InstanceStatus, read_instances
from clawblox.supervisor import Supervisor
from tests.crowd import (
    HANG_S,
    act,
    join,
    join_all,
    kinds,
    leftovers,
    look,
    make_motley_world,
    on_disk,
    past,
    registered,
    seeded,
    until,
    variables_of,
)
from tests.support import (
    ask,
    is_alive,
    is_listening,
    make_world,
    marked_processes,
    wait_until,
    wait_until_async,
)
from tests.test_guard import Orchestrator, orchestrator
from tests.test_running import manifest_of, requests, switch

pytestmark = pytest.mark.anyio

LIFE = ["restarting", "started", "ready"]
"""What tells that an instance is back."""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


async def now(run: Path, name: str = "w000") -> InstanceStatus:
    """Return what the disk says of an instance."""
    (status,) = await run_sync(read_instances, run, [name])
    return status


async def kill(run: Path, name: str = "w000") -> int:
    """Kill the process that an instance has now; return it."""
    pid = (await now(run, name)).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    return pid


# ------------------------------------------------------------------------------- a death is seen


async def test_deaths_are_noticed_though_nobody_is_asked_anything(
    tmp_path: Path, run: Path
) -> None:
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
            assert seen[0].detail["exit"] == WorldExit(signal="SIGKILL")
        assert world.instances == tuple(batch.done)[4:]
        survivors = [one for one in batch if is_alive(one.pid)]
        assert {one.name: len(requests(one)) for one in survivors} == {
            one.name: before[one.name] for one in survivors
        }


# ----------------------------------------------------------------------------------- policies


async def test_a_world_that_nobody_brings_back_stays_dead(tmp_path: Path, run: Path) -> None:
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
        assert (result.rung, result.exit) == ("already_exited", WorldExit(signal="SIGKILL"))
        assert "restarts" not in manifest_of(run / "worlds" / "w000")
        assert world.instances == ("w001",)
        assert "restarting" not in kinds(await past(events), "w000")
        assert batch["w000"].port not in {(await now(run, "w001")).port}


async def test_a_fresh_start_has_the_old_address_and_nothing_else(
    tmp_path: Path, run: Path
) -> None:
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
        assert dict(seen[1].detail) == {"exit": WorldExit(signal="SIGKILL"), "resume_path": None}
        status = await now(run)
        assert (status.state, status.restarts, status.port) == ("ready", 1, first.port)
        assert status.pid not in (first.pid, None)
        assert variables_of(status.pid)["WORLD_OPERATOR_TOKEN"] != token
        assert ask(first.port, "GET", "/observe", headers={"X-Session": session}).status == 401
        (entry,) = manifest_of(first.instance_dir)["restarts"]
        assert entry.keys() == {"at", "exit", "number"}
        assert (await world.save())["time"] == 0.0
        metrics = world.metrics
        assert (metrics.starts, metrics.exits, metrics.restarts, metrics.ready_s.count) == (
            2,
            1,
            1,
            2,
        )


async def test_a_fresh_start_of_what_was_resumed_resumes_it_again(
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


async def test_it_comes_back_from_its_last_save_with_its_sessions(
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
            assert seen[1].detail["resume_path"] == saved.path
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
        assert registered(started.instance_dir) == on_disk(started.instance_dir)
        assert manifest_of(started.instance_dir)["run"]["status"] == "running"
    assert manifest_of(started.instance_dir)["run"]["status"] == "complete"


async def test_an_instance_that_was_started_alone_is_brought_back_too(
    tmp_path: Path, run: Path
) -> None:
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


async def test_a_seed_is_not_set_again_over_what_was_saved(tmp_path: Path, run: Path) -> None:
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
            resumed = seen[1].detail["resume_path"]
            assert (resumed != saved.path) is from_own_save
            pid = (await now(run)).pid
            assert pid is not None
            assert ("WORLD_RESEED" in variables_of(pid)) is not from_own_save
            assert look(fork.port, session)["reseed"] == 5
            await world.save(instance="w000")


async def test_a_start_that_fails_is_no_death(tmp_path: Path, run: Path) -> None:
    directory = make_motley_world(tmp_path)
    specs = [{"env": {"FLAGS": "--exit-at-once 4"}}, {}]
    async with AsyncWorld(dir=directory) as world, world.events() as events:
        batch = await world.start_many(specs, run_dir=run, restart="fresh")
        assert list(batch.failed) == ["w000"]
        assert kinds(await past(events), "w000") == ["started", "start_failed"]
        assert (await now(run)).state == "failed"


async def test_what_a_dead_world_left_is_ended_before_it_comes_back(
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


# ----------------------------------------------------------------------------- which snapshot


async def save_as(world: AsyncWorld, started: StartedWorld, session: str, number: int) -> Path:
    act(started.port, session, number)
    return (await world.save(instance=started.name)).path


async def test_a_save_that_is_damaged_or_refused_leaves_the_one_before(
    tmp_path: Path, run: Path
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        (started,) = await world.start_many(1, run_dir=run, restart="checkpoint")
        session = await join(world, started)
        good = await save_as(world, started, session, 1)
        switch(started, snapshot="garbage")
        refused = await save_as(world, started, session, 10)
        switch(started, snapshot="sized")
        damaged = await save_as(world, started, session, 100)
        removed = await save_as(world, started, session, 1000)
        damaged.write_bytes(damaged.read_bytes()[:-1])
        removed.unlink()
        await past(events)
        await kill(run)
        seen = await until(events, "ready", ["w000"])
        tries = [one.detail["resume_path"] for one in seen if one.kind == "restarting"]
        assert tries == [refused, good]
        assert kinds(seen, "w000") == [
            "exited",
            *("restarting", "started", "start_failed"),
            *LIFE,
        ]
        assert look(started.port, session)["counter"] == 1
        restarts = manifest_of(started.instance_dir)["restarts"]
        assert [one["resume_from"] for one in restarts] == [f"checkpoints/{good.name}"]


async def test_without_any_good_save_it_stays_dead(tmp_path: Path, run: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        batch = await world.start_many(2, run_dir=run, restart="checkpoint")
        sessions = await join_all(world, batch)
        switch(batch["w001"], snapshot="garbage")
        await save_as(world, batch["w001"], sessions["w001"], 1)
        await past(events)
        for name in batch.done:
            await kill(run, name)
        seen = await until(events, "gave_up", batch.done)
        assert kinds(seen, "w000") == ["exited", "gave_up"]
        assert kinds(seen, "w001")[-2:] == ["start_failed", "gave_up"]
        given_up = [one for one in seen if one.kind == "gave_up"]
        assert {one.detail["reason"] for one in given_up} == {"there is no good snapshot"}
        assert world.instances == ()
        for name in batch.done:
            with pytest.raises(WorldExitedError):
                await world.save(instance=name)
            assert (await world.stop(instance=name)).rung == "already_exited"
            assert manifest_of(run / "worlds" / name)["run"]["status"] == "failed"
    assert leftovers(run) == []


async def test_what_a_world_is_restored_from_is_not_removed_by_an_autosave(
    tmp_path: Path, run: Path
) -> None:
    options: dict[str, Any] = {"restart": "checkpoint", "max_restarts": 10}
    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        (started,) = await world.start_many(1, run_dir=run, **options)
        await world.autosave(every=0.01, keep=1)
        for _ in range(4):
            await until(events, "saved", ["w000"])
            await kill(run)
            seen = await until(events, "ready", ["w000"])
            (resumed,) = (one.detail["resume_path"] for one in seen if one.kind == "restarting")
        for _ in range(4):
            await until(events, "saved", ["w000"])
        await world.autosave(every=None)
        assert resumed in on_disk(started.instance_dir)
        assert registered(started.instance_dir) == on_disk(started.instance_dir)


async def test_what_a_world_is_about_to_be_restored_from_is_not_removed_either(
    tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A save that lands after the death makes older ones old, one of which was chosen already."""
    is_chosen, is_retained = anyio.Event(), anyio.Event()
    clear_away, retain, apply = Supervisor._clear_away, Autosave._retain, ManifestWriter.apply

    async def clear_away_late(supervisor: Supervisor) -> bool:
        is_chosen.set()
        await is_retained.wait()
        return await clear_away(supervisor)

    async def apply_late(writer: ManifestWriter, update: Update) -> None:
        if len(await run_sync(on_disk, started.instance_dir)) == 2:
            os.kill(started.pid, signal.SIGKILL)
            await is_chosen.wait()
        await apply(writer, update)

    async def retain_and_tell(autosave: Autosave, *args: Any) -> None:
        await retain(autosave, *args)
        if is_chosen.is_set():
            is_retained.set()

    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        (started,) = await world.start_many(1, run_dir=run, restart="checkpoint")
        await past(events)
        monkeypatch.setattr(Supervisor, "_clear_away", clear_away_late)
        monkeypatch.setattr(Autosave, "_retain", retain_and_tell)
        monkeypatch.setattr(ManifestWriter, "apply", apply_late)
        await world.autosave(every=0.01, keep=1)
        seen = await until(events, "ready", ["w000"])
        await world.autosave(every=None)
        lives = [one for one in kinds(seen, "w000") if not one.startswith("save")]
        assert lives == ["exited", *LIFE]


# ------------------------------------------------------------------------------- giving it up


async def test_a_world_that_dies_again_and_again_is_given_up(tmp_path: Path, run: Path) -> None:
    killed = WorldExit(signal="SIGKILL")
    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        batch = await world.start_many(2, run_dir=run, restart="fresh", max_restarts=2)
        await past(events)
        seen: list[WorldEvent] = []
        for last in ("ready", "ready", "gave_up"):
            await kill(run)
            seen += await until(events, last, ["w000"])
        assert kinds(seen, "w000") == [*["exited", *LIFE] * 2, "exited", "gave_up"]
        assert dict(seen[-1].detail) == {"reason": "it died too often", "restarts": 2}
        with pytest.raises(WorldExitedError) as caught:
            await world.connect("Rocky", instance="w000")
        assert caught.value.exit == killed
        home = run / "worlds" / "w000"
        await wait_until_async(lambda: manifest_of(home)["run"]["status"] == "failed")
        status = await now(run)
        assert (status.state, status.restarts, status.exit) == ("exited", 2, killed)
        assert [one["number"] for one in manifest_of(home)["restarts"]] == [1, 2]
        assert world.instances == ("w001",)
        assert not is_listening(batch["w000"].port)
        assert list((await world.start_many(1, run_dir=run)).done) == ["w000"]


async def test_a_world_that_cannot_be_brought_back_is_given_up(tmp_path: Path, run: Path) -> None:
    directory = make_motley_world(tmp_path)
    async with AsyncWorld(dir=directory) as world, world.events() as events:
        (started,) = await world.start_many(1, run_dir=run, restart="fresh", max_restarts=2)
        await past(events)
        (directory / "flags").write_text("--exit-at-once 4")
        await kill(run)
        seen = await until(events, "gave_up", ["w000"])
        attempt = ["restarting", "started", "start_failed"]
        assert kinds(seen, "w000") == ["exited", *attempt * 2, "gave_up"]
        errors = [one.detail["error"] for one in seen if one.kind == "start_failed"]
        assert [error.exit for error in errors] == [WorldExit(status=4)] * 2
        assert "restarts" not in manifest_of(started.instance_dir)
        assert world.metrics.start_failures == 2
    assert leftovers(run, [started.port]) == []


# ---------------------------------------------------------------------------------- meanwhile


async def test_calls_fail_while_a_world_comes_back_and_work_when_it_is_there(
    tmp_path: Path, run: Path
) -> None:
    errors: list[Exception] = []
    directory = make_motley_world(tmp_path)

    async def call(name: str) -> None:
        try:
            await world.connect("Rocky", instance=name)
        except WorldExitedError as error:
            errors.append(error)

    async with AsyncWorld(dir=directory) as world, world.events() as events:
        batch = await world.start_many(2, run_dir=run, restart="fresh")
        hanging = batch["w000"]
        switch(hanging, join="hang")
        (directory / "flags").write_text("--slow-boot 0.3")
        await past(events)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, "w000")
            await wait_until_async(lambda: requests(hanging, "/join"), what="a call is in flight")
            await kill(run)
            await until(events, "restarting", ["w000"])
            await call("w000")
        assert [error.exit for error in errors] == [WorldExit(signal="SIGKILL")] * 2
        saves = await world.save_all(instances=batch.done)
        assert type(saves.failed["w000"]) is WorldExitedError
        assert list(saves.done) == ["w001"]
        assert world.instances == ("w001",)
        await until(events, "ready", ["w000"])
        assert world.instances == ("w000", "w001")
        assert (await world.connect("Rocky", instance="w000"))["agent_id"] == "agent-1"
        assert len(await world.save_all()) == 2


async def dying(world: AsyncWorld, run: Path, moment: float) -> None:
    """Kill an instance, and go on a moment after."""
    await kill(run)
    await anyio.sleep(moment)


async def test_a_stop_ends_a_world_that_is_being_brought_back(tmp_path: Path, run: Path) -> None:
    chance = seeded()
    directory = make_motley_world(tmp_path, "--slow-boot", "0.05")
    async with AsyncWorld(dir=directory) as world:
        for _ in range(6):
            (started,) = await world.start_many(1, run_dir=run, restart="fresh")
            await dying(world, run, chance.uniform(0.0, 0.2))
            await world.stop(grace_seconds=5)
            assert world.instances == ()
            assert not marked_processes()
            assert not is_listening(started.port)
            assert not list((run / ".clawblox").glob("instances/*.lock"))
            assert (await now(run)).state == "exited"


@pytest.mark.parametrize("how", ["stop", "outside", "leave"])
async def test_a_world_that_does_not_get_ready_again_is_stopped(
    tmp_path: Path, run: Path, how: str
) -> None:
    directory = make_motley_world(tmp_path)
    async with AsyncWorld(dir=directory) as world, world.events() as events:
        (started,) = await world.start_many(1, run_dir=run, restart="fresh")
        (directory / "flags").write_text("--slow-boot 60")
        await past(events)
        await kill(run)
        await until(events, "started", ["w000"])
        await wait_until_async(lambda: len(marked_processes()) == 1, what="the shell is the world")
        if how == "stop":
            assert (await world.stop()).rung == "terminated"
        elif how == "outside":
            (result,) = await stop_instances(run, grace_seconds=10)
            assert result.rung == "terminated"
        if how != "leave":
            assert not marked_processes()
            assert (await now(run)).state == "exited"
            assert "ready" not in kinds(await past(events), "w000")
    assert leftovers(run, [started.port]) == []


async def test_a_detached_world_that_is_not_back_yet_is_not_left_half(
    tmp_path: Path, run: Path
) -> None:
    directory = make_motley_world(tmp_path)
    async with AsyncWorld(dir=directory) as world, world.events() as events:
        await world.start_many(1, run_dir=run, restart="fresh", detach=True)
        (directory / "flags").write_text("--slow-boot 60")
        await past(events)
        await kill(run)
        await until(events, "started", ["w000"])
    assert leftovers(run) == []
    assert (await now(run)).state == "exited"


# ----------------------------------------------------------------------------------- liveness

LIVELY = """
[run.liveness]
path = "/skill.md"
period = 0.05
timeout = 0.8
failure_threshold = 2
"""


@pytest.mark.parametrize("fault", ["hang", "status-500"])
async def test_a_world_that_does_not_answer_is_ended_and_brought_back(
    tmp_path: Path, run: Path, fault: str
) -> None:
    directory = make_world(tmp_path, "--ignore-sigterm", toml_extra=LIVELY)
    async with AsyncWorld(dir=directory) as world, world.events() as events:
        batch = await world.start_many(2, run_dir=run, restart="fresh")
        await past(events)
        sick = batch["w001"]
        await wait_until_async(lambda: len(requests(sick, "/skill.md")) > 3, what="it is looked at")
        switch(sick, doc=fault)
        seen = await until(events, "ready", ["w001"])
        assert kinds(seen, "w001") == ["unresponsive", "exited", *LIFE]
        assert kinds(seen, "w000") == []
        detail = next(one.detail for one in seen if one.kind == "unresponsive")
        assert detail["failures"] == 2
        assert ("500" if fault == "status-500" else "no answer") in detail["seen"]
        assert not is_alive(sick.pid)
        assert (await now(run, "w001")).restarts == 1
        assert (world.metrics.unresponsive, world.metrics.restarts) == (1, 1)
        assert ask(sick.port, "GET", "/skill.md").status == 200
        await world.stop_all(grace_seconds=0)


async def test_a_world_that_hangs_is_ended_even_when_nobody_brings_it_back(
    tmp_path: Path, run: Path
) -> None:
    directory = make_world(tmp_path, toml_extra=LIVELY)
    async with AsyncWorld(dir=directory) as world, world.events() as events:
        (started,) = await world.start_many(1, run_dir=run)
        os.kill(started.pid, signal.SIGSTOP)
        seen = await until(events, "exited", ["w000"])
        assert kinds(seen, "w000")[-2:] == ["unresponsive", "exited"]
        assert world.instances == ()
    assert manifest_of(started.instance_dir)["run"]["status"] == "failed"
    assert leftovers(run, [started.port]) == []


@attrs.define
class Script:
    """Stands for a probe: what it sees is written down."""

    answers: Iterator[bool | None]
    looks: int = 0
    seen: str = ""

    async def look(self) -> bool:
        self.looks += 1
        self.seen = f"look {self.looks}"
        answer = next(self.answers)
        if answer is None:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return answer


@pytest.mark.parametrize(
    ("script", "looks"),
    [
        ([False] * 3, 3),
        ([True, False, False, True, False, False, True, False, False, False], 10),
        ([False, None, False, None, None, False], 6),
    ],
    ids=["at once", "with successes between", "with looks that we could not take"],
)
async def test_only_failures_of_the_world_in_a_row_count(
    script: list[bool | None], looks: int
) -> None:
    probe: Any = Script(iter([*script, True]))
    rule = LivenessRule(path="/", period=0.001, timeout=5.0, failure_threshold=3)
    assert await wait_until_unresponsive(probe, rule) == f"look {looks}"


# --------------------------------------------------------------------------- we slept, not they


def told_by(program: Orchestrator) -> str:
    """Return the next line that a program says on purpose; its log goes the same way."""
    while not (line := program.hear()).startswith("told:"):
        pass
    return line.removeprefix("told:").strip()


SLEEPER = """
slow_dir = arguments[0]

async def main():
    async with AsyncWorld(dir=world_dir) as world, AsyncWorld(dir=slow_dir) as slow:
        batch = await world.start_many(4, run_dir=run_dir, restart="fresh")
        batch.raise_if_failed()
        failed = []

        async def start():
            failed.extend((await slow.start_many(4, run_dir=run_dir, health_timeout=2.5)).failed)

        async def save():
            failed.extend((await world.save_all(timeout=2.5)).failed)

        async with world.events() as events:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(start)
                tasks.start_soon(save)
            tell("told:", *failed)
            await hear_async()
            kinds = []
            with anyio.move_on_after(0):
                async for event in events:
                    kinds.append(event.kind)
            tell("told:", *kinds)
            tell("told:", *world.instances, *slow.instances)
anyio.run(main)
"""

LIVELY_SLEEPER = """
[run.liveness]
period = 0.2
failure_threshold = 2
"""

ASLEEP_S = 3.0


def sleep_through(orchestrator_pid: int, seconds: float) -> None:
    """Stop a process for a while, as a closed laptop does."""
    os.kill(orchestrator_pid, signal.SIGSTOP)
    over_at = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() > over_at)
    os.kill(orchestrator_pid, signal.SIGCONT)


def test_no_world_is_dead_or_late_because_its_orchestrator_slept(tmp_path: Path, run: Path) -> None:
    dripping = ("--snapshot", "slow-loris", "--drip-bytes", "20", "--drip-interval", "0.05")
    directory = make_world(tmp_path, *dripping, toml_extra=LIVELY_SLEEPER)
    slow = make_world(tmp_path, "--slow-boot", "0.7", name="slow")
    with orchestrator(SLEEPER, directory, run, str(slow)) as sleeper:
        # Both the saves and the starts are under way.
        wait_until(lambda: len(list(run.glob("worlds/*/checkpoints/.*.partial"))) == 4, HANG_S)
        wait_until(lambda: len(marked_processes()) == 8, HANG_S)
        sleep_through(sleeper.pid, ASLEEP_S)
        assert told_by(sleeper) == ""
        sleeper.tell("what was it like?")
        heard = told_by(sleeper).split()
        assert "lagged" in heard
        assert not {"unresponsive", "exited", "restarting", "save_failed"} & set(heard)
        assert heard.count("saved") == 4
        assert len(told_by(sleeper).split()) == 8
        assert sleeper.process.wait(HANG_S) == 0
    assert leftovers(run) == []


# ----------------------------------------------------------------------------- nothing to spare

EXHAUSTED = """
import json
from clawblox import ClawbloxError

def held():
    return len(os.listdir("/proc/self/fd")) - 1

async def main():
    async with AsyncWorld(dir=world_dir) as world:
        await world.start_many(1, run_dir=run_dir)  # what a process opens once, it has open now
        await world.connect("Rocky")
        await world.save_all()
        await world.stop_all()
        before = held()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
        used = time.process_time()
        batch = await world.start_many(40, run_dir=run_dir, health_timeout=30)
        saves = await world.save_all()
        used = time.process_time() - used
        stops = await world.stop_all(grace_seconds=10)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        errors = [*batch.failed.values(), *saves.failed.values(), *stops.failed.values()]
        told = [
            [len(batch.done), len(saves.done), len(stops.done) + len(stops.failed)],
            sorted({type(error).__name__ for error in errors}),
            [str(error) for error in errors if not isinstance(error, ClawbloxError)],
            used,
        ]
        tell("told:", json.dumps(told))
        assert held() <= before, (held(), before)
        again = await world.start_many(4, run_dir=run_dir)
        again.raise_if_failed()
        assert list(again.done) == ["w000", "w001", "w002", "w003"], again
        await world.stop_all()
        assert held() <= before, (held(), before)
anyio.run(main)
"""


def test_too_few_descriptors_fail_some_starts_and_cost_nothing_else(
    tmp_path: Path, run: Path
) -> None:
    with orchestrator(EXHAUSTED, make_world(tmp_path), run) as exhausted:
        (started, saved, stopped), types, untyped, used_s = json.loads(told_by(exhausted))
        assert exhausted.process.wait(HANG_S) == 0
    print(f"{started} started, {saved} saved, {stopped} stopped, {types}, {used_s:.2f} s of CPU")
    assert 0 < started < 40
    assert stopped == started  # or what could not be seen to end has been killed
    assert untyped == []
    assert "WorldStartError" in types
    assert "WorldIdentityError" not in types
    assert leftovers(run) == []


async def test_an_instance_that_cannot_be_looked_at_costs_no_other(
    tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Probe.look

    async def look(probe: Probe) -> bool:
        if probe.log_file.name == "w001.log":
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return await original(probe)

    monkeypatch.setattr(Probe, "look", look)
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        batch = await world.start_many(3, run_dir=run)
        assert list(batch.done) == ["w000", "w002"]
        with pytest.raises(WorldStartError, match=os.strerror(errno.EMFILE)):
            batch["w001"]
        assert marked_processes() == {one.pid for one in batch}


DISK_FULL = """
import hashlib, json
from pathlib import Path

def manifests():
    found = Path(run_dir).glob("worlds/*/.clawblox/*.json")
    return {str(path): path.read_bytes() for path in found}

async def main():
    async with AsyncWorld(dir=world_dir) as world:
        batch = await world.start_many(3, run_dir=run_dir)
        saved = [one.path for one in await world.save_all()]
        before = manifests()
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
        saves = await world.save_all()
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert not saves.done and len(saves.failed) == 3
        errors = {f"{type(one).__name__}: {one.message}" for one in saves.failed.values()}
        tell("told:", json.dumps(sorted(errors)))
        assert manifests() == before
        assert sorted(Path(run_dir).glob("worlds/*/checkpoints/*")) == sorted(saved)
        assert len(await world.save_all()) == 3
anyio.run(main)
"""


def test_a_full_disk_fails_the_saves_and_harms_no_older_one(tmp_path: Path, run: Path) -> None:
    with orchestrator(DISK_FULL, make_world(tmp_path, "--snapshot-mb", "1"), run) as full:
        (message,) = json.loads(told_by(full))
        assert full.process.wait(HANG_S) == 0
    assert message == "SnapshotError: File too large"
    for number in range(3):
        home = run / "worlds" / f"w{number:03}"
        assert len(on_disk(home)) == 2
        assert registered(home) == on_disk(home)


IMPATIENT = """
world = World(dir=world_dir)
batch = world.start_many(8, run_dir=run_dir)
import atexit
atexit.register(lambda: tell("leaving"))
tell(*(started.port for started in batch))
time.sleep(600)
"""


def test_impatient_ctrl_c_kills_all_worlds_of_a_script_at_once(tmp_path: Path, run: Path) -> None:
    directory = make_world(tmp_path, "--ignore-sigterm")
    with orchestrator(IMPATIENT, directory, run, stderr=subprocess.DEVNULL) as script:
        ports = [int(word) for word in script.hear().split()]
        script.process.send_signal(signal.SIGINT)
        assert script.hear() == "leaving"

        def interrupted_again() -> bool:
            script.process.send_signal(signal.SIGINT)
            return script.process.poll() is not None

        wait_until(interrupted_again, HANG_S)
    wait_until(lambda: not marked_processes(), HANG_S)
    wait_until(lambda: not [port for port in ports if is_listening(port)], HANG_S)
    assert not list(run.rglob("*.partial"))
