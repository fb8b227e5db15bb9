"""The loop-lag watchdog detects a blocked loop and a suspended process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest

from clawblox import AsyncWorld
from clawblox.concurrency import deadlines as watchdog
from clawblox.concurrency.deadlines import watch_loop
from clawblox.world import fleet
from tests.support.processes import read_process
from tests.support.waiting import HANG_S, wait_until, wait_until_async
from tests.support.worlds import make_world

BLOCKED_S = 0.3


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(autouse=True)
def _quick_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "_LAG_TICK_S", 0.01)


@pytest.mark.anyio
async def test_every_tick_is_noted_and_none_is_early() -> None:
    lags: list[float] = []
    async with anyio.create_task_group() as group:
        group.start_soon(watch_loop, lags.append)
        await wait_until_async(lambda: len(lags) >= 5, HANG_S)
        group.cancel_scope.cancel()
    assert min(lags) >= 0.0


@pytest.mark.thorough
@pytest.mark.anyio
async def test_the_lag_of_a_blocked_loop_equals_the_blocked_time() -> None:
    lags: list[float] = []
    async with anyio.create_task_group() as group:
        group.start_soon(watch_loop, lags.append)
        await wait_until_async(lambda: lags, HANG_S)
        time.sleep(BLOCKED_S)
        count = len(lags)
        await wait_until_async(lambda: len(lags) > count, HANG_S)
        group.cancel_scope.cancel()
    assert max(lags) >= BLOCKED_S - watchdog._LAG_TICK_S


@pytest.mark.thorough
@pytest.mark.anyio
async def test_time_spent_reporting_the_lag_counts_too() -> None:
    lags: list[float] = []

    def note(lag_s: float) -> None:
        lags.append(lag_s)
        until = time.monotonic() + (BLOCKED_S if len(lags) == 1 else 0.0)
        while time.monotonic() < until:
            pass

    async with anyio.create_task_group() as group:
        group.start_soon(watch_loop, note)
        await wait_until_async(lambda: len(lags) >= 2, HANG_S)
        group.cancel_scope.cancel()
    assert lags[1] >= BLOCKED_S - watchdog._LAG_TICK_S


WATCH = """
import anyio
from clawblox.concurrency import deadlines as watchdog
from clawblox.concurrency.deadlines import watch_loop
watchdog._LAG_TICK_S = 0.01
async def main():
    with anyio.fail_after(30):
        await watch_loop(lambda lag_s: print(lag_s, flush=True))
anyio.run(main)
"""


def test_a_suspended_process_reports_its_lag_afterwards() -> None:
    words = [sys.executable, "-c", WATCH]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        os.kill(process.pid, signal.SIGSTOP)
        wait_until(lambda: state_of(process.pid) == "T")
        time.sleep(BLOCKED_S)
        os.kill(process.pid, signal.SIGCONT)
        while float(process.stdout.readline()) < BLOCKED_S - 0.01:
            pass
        process.kill()


def state_of(pid: int) -> str:
    process = read_process(pid)
    assert process is not None
    return process.state


@pytest.mark.thorough
@pytest.mark.anyio
async def test_a_world_counts_every_tick_and_reports_missed_ticks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "GAP_S", BLOCKED_S / 2)
    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        await wait_until_async(lambda: world.metrics.loop_lag_s.count >= 3, HANG_S)
        time.sleep(BLOCKED_S)
        with anyio.fail_after(HANG_S):
            event = await anext(aiter(events))
        assert (event.kind, event.subject) == ("lagged", "")
        assert event.data["seconds"] > BLOCKED_S / 2
        assert world.metrics.loop_lag_s.sum >= event.data["seconds"]
