"""Liveness: conditions under which a ready world counts as hung."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.to_thread
import pytest

from clawblox.config.world_toml import LivenessRule
from clawblox.instance.health import (
    ProbePacer,
    ReadinessProbe,
    Steps,
    Wait,
    wait_until_unresponsive,
)
from clawblox.protocol import HealthReport
from tests.support.resources import open_fds
from tests.support.sockets import free_port
from tests.support.waiting import HANG_S
from tests.support.worlds import RunningWorld, running_world

pytestmark = pytest.mark.anyio


RULE = LivenessRule(period=0.005, timeout=HANG_S, failure_threshold=3)
HASTY = LivenessRule(period=0.005, timeout=0.05, failure_threshold=3)


@pytest.fixture(
    scope="module", params=["asyncio", pytest.param("trio", marks=pytest.mark.thorough)]
)
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Script:
    """A fake probe with scripted results; exceptions are raised."""

    def __init__(self, *looks: bool | Exception) -> None:
        self.seen = "nothing yet"
        self.report = HealthReport()
        self.number = 0
        self._looks = iter(looks)

    def probe_once(self) -> Steps:
        yield Wait(0.0)
        self.number += 1
        self.seen = f"look {self.number}"
        outcome = next(self._looks)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


async def wait(probe: Any, rule: LivenessRule) -> str:
    async def ignore(_report: HealthReport) -> None: ...

    return await wait_until_unresponsive(cast(ReadinessProbe, probe), rule, ProbePacer(), ignore)


async def run(probe: Any, rule: LivenessRule = RULE) -> str:
    with anyio.fail_after(HANG_S):
        return await wait(probe, rule)


# --------------------------------------------------------------------------------- counting

GOOD, BAD, UNKNOWN = True, False, OSError(24, "Too many open files")
SCRIPTS: dict[str, list[bool | Exception]] = {
    "at once": [BAD, BAD, BAD],
    "after a good time": [GOOD, GOOD, BAD, BAD, BAD],
    "one answer makes up for all before": [BAD, BAD, GOOD, BAD, BAD, GOOD, BAD, BAD, BAD],
    "failures of this process do not count": [BAD, UNKNOWN, BAD, UNKNOWN, UNKNOWN, BAD],
}


@pytest.mark.parametrize("looks", SCRIPTS.values(), ids=SCRIPTS)
async def test_only_consecutive_probe_failures_count(looks: list[bool | Exception]) -> None:
    probe = Script(*looks, BAD, BAD)
    assert await run(probe) == f"look {len(looks)}"
    assert probe.number == len(looks)


@pytest.mark.parametrize("threshold", [1, 5])
async def test_world_counts_as_hung_after_the_failure_threshold(threshold: int) -> None:
    probe = Script(*[BAD] * 9)
    await run(probe, LivenessRule(period=0.001, timeout=HANG_S, failure_threshold=threshold))
    assert probe.number == threshold


async def test_the_first_probe_comes_after_the_first_period() -> None:
    probe = Script(BAD)
    with anyio.move_on_after(0.02) as scope:
        await wait(probe, LivenessRule(period=HANG_S))
    assert scope.cancelled_caught
    assert probe.number == 0


# -------------------------------------------------------------------------------- real worlds


@pytest.fixture
def world(tmp_path: Path) -> Iterator[RunningWorld]:
    with running_world(tmp_path) as running:
        yield running


def make_probe(port: int) -> ReadinessProbe:
    return ReadinessProbe("127.0.0.1", port, "/api.md", None, Path("/nonexistent"), 0)


async def calling(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    return await anyio.to_thread.run_sync(lambda: function(*args, **options))


async def looks_at(world: RunningWorld) -> int:
    """Return the number of checks of a world."""
    requests = (await calling(world.ask, "GET", "/__requests")).json()
    return sum(request["path"] == "/api.md" for request in requests)


async def test_answering_world_is_probed_forever(world: RunningWorld) -> None:
    before = open_fds()
    async with anyio.create_task_group() as group:
        group.start_soon(run, make_probe(world.port))
        while await looks_at(world) < 10:
            await anyio.sleep(0)
        group.cancel_scope.cancel()
    left = {fd for fd, target in open_fds().items() if fd not in before and "socket" in target}
    assert left == set()


async def test_world_that_answers_with_an_error_counts_as_hung(world: RunningWorld) -> None:
    await calling(world.set, doc="status-500")
    assert await run(make_probe(world.port)) == "GET /api.md answered 500"
    assert await looks_at(world) == 3


async def test_world_that_does_not_answer_counts_as_hung(world: RunningWorld) -> None:
    await calling(world.set, doc="hang")
    seen = await run(make_probe(world.port), HASTY)
    assert seen == "connected, no answer to GET /api.md within 0.05 s"
    assert await looks_at(world) == 3


async def test_suspended_world_counts_as_hung(world: RunningWorld) -> None:
    os.kill(world.process.pid, signal.SIGSTOP)
    try:
        seen = await run(make_probe(world.port), HASTY)
    finally:
        os.kill(world.process.pid, signal.SIGCONT)
    assert seen == "connected, no answer to GET /api.md within 0.05 s"


async def test_world_that_closes_its_listener_counts_as_hung() -> None:
    seen = await run(make_probe(free_port()))
    assert seen == "connection failed: Connection refused"


async def test_temporary_failures_are_forgiven(world: RunningWorld) -> None:
    patient = LivenessRule(period=0.005, timeout=HANG_S, failure_threshold=100_000)
    ended: list[str] = []

    async def watch() -> None:
        ended.append(await run(make_probe(world.port), patient))

    async with anyio.create_task_group() as group:
        group.start_soon(watch)
        for doc in ("status-500", "served", "status-500", "served"):
            await calling(world.set, doc=doc)
            before = await looks_at(world)
            while await looks_at(world) <= before + 1:
                await anyio.sleep(0)
        group.cancel_scope.cancel()
    assert ended == []
