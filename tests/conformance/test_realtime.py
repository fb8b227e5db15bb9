"""Runs of a running world have enough common simulated times, even on a slow machine."""

from __future__ import annotations

import json
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from clawblox.conformance import realtime
from clawblox.conformance.exchange import Exchange
from clawblox.conformance.polling import LEAST_COMMON
from clawblox.conformance.realtime import Realtime, Watched, require_equal
from clawblox.system.request import Answer

pytestmark = pytest.mark.anyio


def make_player(tick: int, ticks_an_answer: int) -> Any:
    """Return an agent of a world with some ticks between two answers."""
    ticks = count(tick, ticks_an_answer)

    async def answer() -> Exchange:
        tick = next(ticks)
        body = json.dumps({"time": tick / 64, "tick": tick}).encode()
        return Exchange("GET", "/observe", {}, None, None, Answer(200, body))

    return SimpleNamespace(observe=answer, live=SimpleNamespace(snapshot=answer))


@pytest.mark.parametrize("saving", [False, True])
async def test_run_on_a_slower_machine_gets_common_times_with_an_earlier_run(saving: bool) -> None:
    earlier = await realtime._watch(make_player(100, 1))
    lives = [make_player(100 + late, 7) for late in range(6)]

    def seen(life: Watched) -> list[realtime.Pair]:
        found = life.saved_observations if saving else life.observations
        return [(earlier.observations, found)]

    async def live() -> Watched:
        return await realtime._watch(lives.pop(), earlier, saving=saving)

    life = await realtime._live_until_met(live, Watched.joined, seen)
    assert require_equal("it", *seen(life)) >= LEAST_COMMON


@pytest.mark.thorough
async def test_slow_run_is_observed_for_longer() -> None:
    make = partial(make_player, ticks_an_answer=9)
    first = await realtime._watch(make(0))
    second = await realtime._watch(make(3), first)  # never at the same tick as the first
    assert min(max(first.observations), max(second.observations)) >= 80 * 9 / 64
    third = await realtime._watch(make(0), first, saving=True)
    assert require_equal("it", (first.observations, third.saved_observations)) >= LEAST_COMMON


async def test_run_without_common_times_is_not_repeated() -> None:
    lives = [make_player(0, 1)]
    life = await realtime._live_until_met(
        lambda: realtime._watch(lives.pop()), Watched.joined, lambda life: [({}, life.observations)]
    )
    assert (lives, len(life.observations) >= LEAST_COMMON) == ([], True)


@pytest.mark.parametrize("saving", [False, True])
async def test_late_observed_run_has_common_snapshots_with_the_earlier_run(
    saving: bool,
) -> None:
    earlier = await realtime._watch(make_player(100, 1))
    late = await realtime._watch(make_player(165, 1), earlier, saving=saving)
    assert require_equal("it", (earlier.snapshots, late.snapshots)) >= LEAST_COMMON


async def test_a_pass_without_a_common_snapshot_is_a_weaker_proof(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def saves_are_harmless(*_: object) -> bool:
        return True

    monkeypatch.setattr(Realtime, "_is_saving_harmless", saves_are_harmless)
    lives = Realtime(SimpleNamespace(), SimpleNamespace())  # type: ignore[arg-type]
    watched = await realtime._watch(make_player(0, 1))
    first: Any = SimpleNamespace(seen=watched)
    equal = await lives.compare(first, first, "it")
    assert equal.evidence == f"documents of {equal.equal_times} simulated times were equal"
    assert equal.limits == ()
    apart: Any = SimpleNamespace(seen=attrs.evolve(watched, snapshots={}))
    weaker = await lives.compare(first, apart, "it")
    assert weaker.evidence.endswith("no snapshots among them")
    assert weaker.limits == ("no snapshots of it were compared",)
