"""A world slower than real time gets proportionally more time, up to the limit of the check."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from clawblox.conformance import input_timing, pace, polling
from clawblox.conformance.context import CheckContext
from clawblox.conformance.exchange import Exchange
from clawblox.conformance.input_timing import InputArrival, InputTiming
from clawblox.conformance.instances import Instances
from clawblox.conformance.live import AgentInput, LiveWorld
from clawblox.conformance.pace import SLOWEST, SimulationPace, has_time_for
from clawblox.conformance.registry import Check, TooLittleSeen
from clawblox.conformance.runner import BodyFiles, _run_check
from clawblox.system.request import Answer
from clawblox.world.private_copies import TrialOptions

pytestmark = pytest.mark.anyio

TICK_S = 0.002


class SlowWorld:
    """A world of 500 Hz with a simulated clock for real time."""

    def __init__(self, rate: float, *, stops_at: float = math.inf, answer_s: float = 0.01) -> None:
        self.now = 0.0
        self._rate = rate
        self._stops_at = stops_at
        self._answer_s = answer_s

    def current_time(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    @property
    def time(self) -> float:
        return TICK_S * math.floor(min(self.now * self._rate, self._stops_at) / TICK_S + 1e-9)

    async def answer(self, *_: object) -> Exchange:
        self.now += self._answer_s
        body = json.dumps({"time": self.time, "tick": round(self.time / TICK_S)}).encode()
        return Exchange("GET", "/observe", {}, None, None, Answer(200, body))

    @property
    def player(self) -> Any:
        live = SimpleNamespace(snapshot=self.answer)
        return SimpleNamespace(observe=self.answer, act=self.answer, live=live)


@pytest.fixture
def run_in(monkeypatch: pytest.MonkeyPatch) -> Any:
    def run_in(world: SlowWorld) -> None:
        for module in (input_timing, polling):
            clock = SimpleNamespace(
                current_time=world.current_time, sleep=world.sleep, Event=anyio.Event
            )
            monkeypatch.setattr(module, "anyio", clock)

    return run_in


async def land(world: SlowWorld, aim: float) -> InputArrival:
    action = AgentInput("Push")
    return await input_timing._land(world.player, action, aim, is_opaque=False, who="it")


@pytest.mark.parametrize("rate", [1.0, 0.2, 0.021])
async def test_input_reaches_its_aim_at_any_speed_of_the_world(run_in: Any, rate: float) -> None:
    run_in(world := SlowWorld(rate))
    landing = await land(world, aim=0.3)
    assert landing.time == pytest.approx(0.3, abs=0.03)
    assert landing.slowness == pytest.approx(1 / rate, rel=0.1)


@pytest.mark.thorough
async def test_wait_is_limited_for_worlds_below_a_fiftieth_of_real_time(run_in: Any) -> None:
    run_in(world := SlowWorld(0.0005))
    landing = await land(world, aim=0.3)
    assert landing.time < 0.25
    assert landing.slowness == SLOWEST


async def test_stopped_world_is_not_treated_as_slow(run_in: Any) -> None:
    run_in(world := SlowWorld(0.1, stops_at=0.1))
    documents = await polling.collect(world.player.observe, until=10.0)
    assert max(documents) == pytest.approx(0.1)
    assert world.now < 10


async def test_slow_run_is_observed_up_to_the_time_of_the_earlier_run(
    run_in: Any,
) -> None:
    run_in(world := SlowWorld(0.021))
    documents = await polling.collect(world.player.observe, wanted=1, until=1.0)
    assert max(documents) >= 1.0, "48 s of real time"


def test_pace_is_measured_from_the_first_observation():
    seen = SimulationPace(0.0)
    assert seen.slowness(100.0) == 1.0
    assert [seen.note(*each) for each in [(5.0, 10.0), (5.0, 11.0), (6.0, 14.0)]] == [
        True,
        False,
        True,
    ]
    assert seen.slowness(14.0) == 4.0
    assert not seen.is_hopeless(20.0, still_s=8.0, longest_s=4.0)
    assert seen.is_hopeless(22.1, still_s=8.0, longest_s=4.0)
    assert SimulationPace(0.0).is_hopeless(9.0, still_s=10.0, longest_s=8.0)


async def test_run_that_would_exceed_the_time_limit_is_not_started() -> None:
    assert has_time_for(1e9)
    with anyio.move_on_after(60):
        assert has_time_for(30)
        assert not has_time_for(61)


async def test_time_for_further_runs_grows_with_the_slowest_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = SlowWorld(0.1)
    monkeypatch.setattr(input_timing, "anyio", world)
    monkeypatch.setattr(input_timing, "has_time_for", lambda seconds: world.now < 1000)
    landed = [InputArrival(float(number), {}, {}, "it", 10.0) for number in range(20)]
    original = landed.pop(0)
    lived = InputTiming((), None, AgentInput("Push"), original, (), False)  # type: ignore[arg-type]

    async def restore(*_: object, is_saved: bool) -> InputArrival:
        world.now += 70.0
        return landed.pop(0)

    monkeypatch.setattr(input_timing, "_restore_landing", restore)
    restored = await input_timing._restore_landings(None, lived)  # type: ignore[arg-type]
    assert len(restored) == input_timing._RESTORES, "630 s of a world that is ten times slower"
    assert pace.SLOWEST == 50


async def test_sparsely_observed_slow_world_is_not_observed_for_minutes(
    run_in: Any,
) -> None:
    run_in(world := SlowWorld(0.18, answer_s=0.25))
    await polling.collect(world.player.observe)
    assert world.now == pytest.approx(60, abs=1), "it was seen at one of 22 ticks"


@pytest.mark.parametrize(("slowness", "seconds"), [(1.5, 0), (3.0, 240), (10.9, 660), (50.0, 3000)])
def test_a_slow_world_is_reported_as_slow_with_the_timeout_to_give(
    slowness: float, seconds: int
) -> None:
    advice = pace.advise_time(slowness, 120.0)
    rate = f"the world ran at 1/{slowness:.1f} of real time"
    assert advice == (
        f"{rate}; give each check more time with --check-timeout {seconds}" if seconds else ""
    )


@pytest.mark.parametrize("outcome", [TooLittleSeen("nothing was seen"), None])
async def test_check_with_too_little_time_names_the_slowness(
    outcome: Exception | None, tmp_path: Path
) -> None:
    async def look(_context: CheckContext) -> str:
        await anyio.lowlevel.checkpoint()
        if outcome is not None:
            raise outcome
        await anyio.sleep_forever()
        return ""

    instances = Instances(world=None, options=TrialOptions(), scratch=tmp_path, seed=1)
    ctx = CheckContext(instances, url="http://127.0.0.1:1")
    live = LiveWorld("http://127.0.0.1:1")
    live.pace.note(0.0, 10.0)
    live.pace.note(1.0, 20.0)
    ctx.instances.lives.append(live)
    check = Check("restore.trace", "must", "It is.", look)
    assert "1/10.0" not in (await _run_check(ctx, check, 0.0, BodyFiles(tmp_path))).evidence
    ctx.runs_by_itself = True
    result = await _run_check(ctx, check, 0.0 if outcome is None else 9.0, BodyFiles(tmp_path))
    live.close()
    assert result.status == "could_not_run"
    assert "; give each check more time with --check-timeout 600" in result.evidence
    assert "1/10.0 of real time" in result.evidence


async def test_search_for_landings_leaves_equal_time_for_waiting_inputs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = SlowWorld(0.1)
    monkeypatch.setattr(input_timing, "anyio", world)
    monkeypatch.setattr(input_timing, "has_time_for", lambda seconds: world.now + seconds < 120)
    original = InputArrival(0.0, {}, {}, "it", 10.0)
    lived = InputTiming((), None, AgentInput("Push"), original, (), False)  # type: ignore[arg-type]

    async def restore(*_: object, is_saved: bool) -> InputArrival:
        world.now += 20.0
        return InputArrival(world.now, {}, {}, "it", 10.0)

    monkeypatch.setattr(input_timing, "_restore_landing", restore)
    await input_timing._restore_landings(None, lived)  # type: ignore[arg-type]
    assert world.now <= 60
