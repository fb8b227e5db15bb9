"""The system clock, and the simulated clock that tests use instead."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import anyio
import pytest

from clawblox.system.clock import SystemClock, TimeSource, format_utc, parse_utc
from tests.support.simulated_clock import BEGIN, SimulatedClock

pytestmark = pytest.mark.anyio


async def test_the_system_clock_returns_the_machines_time() -> None:
    clock: TimeSource = SystemClock()
    before = datetime.now(UTC)
    assert before <= clock.utc() <= datetime.now(UTC)
    deadline = clock.monotonic() + 0.02
    await clock.sleep_until(deadline)
    assert deadline <= time.monotonic()
    await clock.sleep_until(clock.monotonic() - 3600)


async def test_a_simulated_clock_jumps_from_deadline_to_deadline() -> None:
    clock: SimulatedClock = SimulatedClock()
    woken: list[tuple[float, float, datetime]] = []

    async def sleep(deadline: float) -> None:
        await clock.sleep_until(deadline)
        woken.append((deadline, clock.monotonic(), clock.utc()))

    async with anyio.create_task_group() as tasks:
        for deadline in (7200.0, 60.0, 0.0, 60.0):
            tasks.start_soon(sleep, deadline)
        assert await clock.jump() == 60.0
        assert [deadline for deadline, *_ in woken] == [0.0, 60.0, 60.0]
        assert await clock.jump() == 7200.0
    assert woken[-1] == (7200.0, 7200.0, BEGIN + timedelta(hours=2))


async def test_a_cancelled_sleeper_leaves_no_deadline() -> None:
    clock: TimeSource = SimulatedClock()
    assert isinstance(clock, SimulatedClock)
    async with anyio.create_task_group() as tasks:
        with anyio.move_on_after(0):
            await clock.sleep_until(1.0)
        tasks.start_soon(clock.sleep_until, 2.0)
        assert await clock.jump() == 2.0


def test_formatted_times_are_parsed_back() -> None:
    assert parse_utc(format_utc(BEGIN)) == BEGIN
    assert parse_utc("2026-06-22T20:59:25+02:00") == BEGIN
    for text in (None, "", "yesterday", "2026-06-22T18:59:25+99:00"):
        assert parse_utc(text) is None, text
