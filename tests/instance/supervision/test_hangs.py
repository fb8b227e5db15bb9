"""A hanging world is ended, but not a world whose orchestrator slept."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from clawblox import AsyncWorld, ProcessExit
from clawblox.config.world_toml import LivenessRule
from clawblox.instance.health import ProbePacer, Steps, Wait, wait_until_unresponsive
from clawblox.protocol import HealthReport
from tests.instance.supervision.support import LIFE, now, told_by
from tests.support.crowd import kinds, leftovers, past, until
from tests.support.orchestrators import orchestrator
from tests.support.processes import is_alive, marked_processes
from tests.support.running import manifest_of, requests, switch
from tests.support.waiting import HANG_S, wait_until, wait_until_async
from tests.support.worlds import ask, make_world

pytestmark = pytest.mark.anyio


# ----------------------------------------------------------------------------------- liveness

LIVELY = """
[run.liveness]
path = "/skill.md"
period = 0.05
timeout = 0.8
failure_threshold = 2
"""


@pytest.mark.parametrize("fault", ["hang", pytest.param("status-500", marks=pytest.mark.thorough)])
async def test_unresponsive_world_is_ended_and_restarted(
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
        detail = next(one.data for one in seen if one.kind == "unresponsive")
        assert detail["failures"] == 2
        assert ("500" if fault == "status-500" else "no answer") in detail["seen"]
        assert not is_alive(sick.pid)
        assert (await now(run, "w001")).restarts == 1
        assert (world.metrics.unresponsive, world.metrics.restarts) == (1, 1)
        assert ask(sick.port, "GET", "/skill.md").status == 200
        await world.stop_all(grace_seconds=0)


@pytest.mark.thorough
async def test_hanging_world_is_ended_even_without_restarts(tmp_path: Path, run: Path) -> None:
    directory = make_world(tmp_path, toml_extra=LIVELY)
    async with AsyncWorld(dir=directory) as world, world.events() as events:
        (started,) = await world.start_many(1, run_dir=run)
        os.kill(started.pid, signal.SIGSTOP)
        seen = await until(events, "exited", ["w000"])
        assert kinds(seen, "w000")[-2:] == ["unresponsive", "exited"]
        assert world.instances == ()
    assert manifest_of(started.instance_dir)["run"]["status"] == "failed"
    assert leftovers(run, [started.port]) == []


async def test_an_unresponsive_world_has_failed_even_if_it_exits_with_0(
    tmp_path: Path, run: Path
) -> None:
    directory = make_world(tmp_path, toml_extra=LIVELY)
    async with AsyncWorld(dir=directory) as world, world.events() as events:
        (started,) = await world.start_many(1, run_dir=run)
        switch(started, doc="status-500")
        seen = await until(events, "exited", ["w000"])
        assert seen[-1].data["unresponsive"]
        assert seen[-1].data["exit"] == ProcessExit(status=0)
    assert manifest_of(started.instance_dir)["run"]["status"] == "failed"


@attrs.define
class Script:
    """A fake probe with scripted results."""

    answers: Iterator[bool | None]
    looks: int = 0
    seen: str = ""
    report: HealthReport = attrs.field(factory=HealthReport)

    def probe_once(self) -> Steps:
        yield Wait(0.0)
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
async def test_only_consecutive_failures_of_the_world_count(
    script: list[bool | None], looks: int
) -> None:
    probe: Any = Script(iter([*script, True]))
    rule = LivenessRule(path="/", period=0.001, timeout=5.0, failure_threshold=3)

    async def ignore(_report: HealthReport) -> None: ...

    assert await wait_until_unresponsive(probe, rule, ProbePacer(), ignore) == f"look {looks}"


# --------------------------------------------------------------------------- we slept, not they

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
    """Stop a process for a while, like closing a laptop."""
    os.kill(orchestrator_pid, signal.SIGSTOP)
    over_at = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() > over_at)
    os.kill(orchestrator_pid, signal.SIGCONT)


@pytest.mark.thorough
def test_sleep_of_the_orchestrator_does_not_make_a_world_dead_or_late(
    tmp_path: Path, run: Path
) -> None:
    dripping = ("--snapshot", "slow-loris", "--drip-bytes", "20", "--drip-interval", "0.05")
    directory = make_world(tmp_path, *dripping, toml_extra=LIVELY_SLEEPER)
    slow = make_world(tmp_path, "--slow-boot", "0.7", name="slow")
    with orchestrator(SLEEPER, directory, run, str(slow)) as sleeper:
        # Both the saves and the starts are running.
        wait_until(lambda: len(list(run.glob("worlds/*/checkpoints/.*.partial"))) == 4, HANG_S)
        wait_until(lambda: len(marked_processes()) == 8, HANG_S)
        sleep_through(sleeper.pid, ASLEEP_S)
        assert told_by(sleeper) == ""
        sleeper.tell("report")
        heard = told_by(sleeper).split()
        assert "lagged" in heard
        assert not {"unresponsive", "exited", "restarting", "save_failed"} & set(heard)
        assert heard.count("saved") == 4
        assert len(told_by(sleeper).split()) == 8
        assert sleeper.process.wait(HANG_S) == 0
    assert leftovers(run) == []
