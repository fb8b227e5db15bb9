"""The rate of a world in real time: its measurement, and its visibility."""

from __future__ import annotations

import math

import anyio
import pytest

from clawblox.protocol import TickRate
from clawblox.server import Clock, Settings
from clawblox.server.clocks import RateMeter, make_clock
from tests.server.conftest import TOKEN
from tests.support.waiting import wait_until_async

OPERATOR = {"X-Operator-Token": TOKEN}
RATE = TickRate(nominal_hz=60.0, achieved_hz=31.5, tick_cost_s=0.02)


@pytest.fixture
def settings():
    return Settings(operator_token=TOKEN.encode(), clock=Clock.REALTIME)


def metered(ticks, step_s, *, cost_s=0.001, begin=100.0):
    """Return a meter after some ticks, and the time after the last."""
    meter, now = RateMeter(60.0), begin
    meter.begin(now)
    for _ in range(ticks):
        now += step_s
        meter.note_tick(now, cost_s)
    return meter, now


def test_a_world_that_ticks_in_time_reaches_its_rate():
    meter, now = metered(1200, 1 / 60)
    rate = meter.read(now)
    assert rate.nominal_hz == 60.0
    assert rate.achieved_hz == pytest.approx(60.0)
    assert rate.tick_cost_s == pytest.approx(0.001)
    assert rate.share == pytest.approx(1.0)
    assert rate.cores == pytest.approx(0.06)


def test_a_slow_world_has_the_rate_that_it_reached():
    meter, now = metered(200, 0.1, cost_s=0.1)
    assert meter.read(now).achieved_hz == pytest.approx(10.0)
    assert meter.read(now).cores == pytest.approx(6.0)


def test_rate_counts_only_the_last_seconds():
    meter, now = metered(6000, 1 / 60)
    for _ in range(120):
        now += 0.1
        meter.note_tick(now, 0.05)
    assert meter.read(now).achieved_hz == pytest.approx(10.0, rel=0.05)


def test_ticks_that_take_longer_than_a_second_are_measured_too():
    meter, now = metered(4, 7.0)
    assert meter.read(now).achieved_hz == pytest.approx(1 / 7)


def test_a_world_that_has_stopped_ticking_slows_down_as_time_passes():
    meter, now = metered(60, 1 / 60)
    assert meter.read(now + 9.0).achieved_hz == pytest.approx(6.0)
    idle = RateMeter(60.0)
    idle.begin(5.0)
    assert idle.read(8.0) == TickRate(nominal_hz=60.0, achieved_hz=0.0, tick_cost_s=None)


def test_rate_is_unknown_before_the_first_second():
    assert RateMeter(60.0).read(0.0) is None
    meter, now = metered(30, 1 / 60)
    assert meter.read(now) is None


@pytest.mark.anyio
async def test_a_clock_in_real_time_counts_each_tick(hosted, monkeypatch):
    counted = []
    monkeypatch.setattr(RateMeter, "note_tick", lambda self, now, cost_s: counted.append(cost_s))
    clock = make_clock(hosted, Clock.REALTIME)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(clock.run)
        await wait_until_async(lambda: hosted.tick > 5)
        tasks.cancel_scope.cancel()
    assert len(counted) == hosted.tick
    assert all(0 <= cost_s < math.inf for cost_s in counted)


@pytest.mark.anyio
async def test_a_clock_in_lock_step_has_no_rate(hosted):
    assert make_clock(hosted, Clock.LOCKSTEP).rate() is None


@pytest.mark.anyio
async def test_an_operator_is_shown_the_rate_and_an_agent_is_not(client, monkeypatch):
    monkeypatch.setattr(RateMeter, "read", lambda self, now: RATE)
    session = (await client.post("/join?name=Rocky")).json()["session"]
    shown = (await client.get("/health", headers=OPERATOR)).json()
    assert shown == {
        "status": "ok",
        "tick_rate_hz": 60.0,
        "achieved_rate_hz": 31.5,
        "tick_cost_s": 0.02,
    }
    for headers in ({}, {"X-Session": session}, {"X-Operator-Token": "guessed"}):
        answer = await client.get("/health", headers=headers)
        assert answer.json() == {"status": "ok"}
    for path in ("/observe", "/api.md", "/chat/messages"):
        answer = await client.get(path, headers={"X-Session": session})
        assert not {"31.5", "0.02", "rate"} & set(answer.text.replace('"', " ").split())
