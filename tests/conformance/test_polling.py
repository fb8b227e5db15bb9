"""A run that is observed at few of its ticks gets concurrent requests if it can handle them."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from anyio import Event, lowlevel

from clawblox.conformance import polling, realtime
from clawblox.conformance.exchange import Exchange
from clawblox.conformance.polling import LEAST_COMMON, collect
from clawblox.conformance.registry import NotMet
from clawblox.system.request import Answer

pytestmark = pytest.mark.anyio

BEAR: Any = 99


class Busy:
    """A world that answers requests one after the other, with a few ticks per request."""

    def __init__(
        self, *, ticks: int, answer_s: float = 0.1, bears: int = BEAR, padding: int = 0
    ) -> None:
        self.now = 0.0
        self.tick = 0
        self.most = self.saves = 0
        self._waiting = 0
        self._ticks, self._answer_s, self._bears, self._padding = ticks, answer_s, bears, padding

    async def answer(self) -> Exchange:
        self._waiting += 1
        self.most = max(self.most, self._waiting)
        status = 200 if self._waiting <= self._bears else 429
        await lowlevel.checkpoint()
        self.now += self._answer_s
        self.tick += self._ticks
        self._waiting -= 1
        document = {"time": self.tick / 64, "tick": self.tick, "padding": "x" * self._padding}
        return Exchange(
            "GET", "/observe", {}, None, None, Answer(status, json.dumps(document).encode())
        )

    async def save(self) -> Exchange:
        self.saves += 1
        return await self.answer()


@pytest.fixture
def run_in(monkeypatch: pytest.MonkeyPatch) -> Any:
    def run_in(world: Busy) -> Busy:
        async def sleep(seconds: float) -> None:
            world.now += seconds
            await lowlevel.checkpoint()

        clock = SimpleNamespace(current_time=lambda: world.now, sleep=sleep, Event=Event)
        monkeypatch.setattr(polling, "anyio", clock)
        return world

    return run_in


@pytest.mark.parametrize(
    ("world", "most"),
    [
        (Busy(ticks=5), 8),
        (Busy(ticks=1), 1),
        (Busy(ticks=5, answer_s=2.0), 1),
        (Busy(ticks=5, padding=1 << 20), 1),
    ],
    ids=["sparse", "dense", "slow to answer", "large"],
)
async def test_sparse_run_gets_concurrent_requests_if_answers_are_fast(
    run_in: Any, world: Busy, most: int
) -> None:
    documents = await collect(run_in(world).answer)
    assert (world.most, len(documents) >= LEAST_COMMON) == (most, True)


async def test_run_that_refuses_concurrent_requests_gets_single_requests(
    run_in: Any,
) -> None:
    world = run_in(Busy(ticks=5, bears=1))
    documents = await collect(world.answer)
    assert (world.most, len(documents) >= LEAST_COMMON) == (8, True)


async def test_run_that_refuses_a_single_request_fails(run_in: Any) -> None:
    with pytest.raises(NotMet, match="429"):
        await collect(run_in(Busy(ticks=5, bears=0)).answer)


async def test_sparse_run_is_not_observed_beyond_the_earlier_run(
    run_in: Any,
) -> None:
    world = run_in(Busy(ticks=50, answer_s=0.5))
    await collect(world.answer, until=400 / 64)
    assert world.tick <= 1200, "it was far from the expected number of common times"


async def test_run_is_saved_only_a_few_times_regardless_of_duration(run_in: Any) -> None:
    world = run_in(Busy(ticks=9))
    player: Any = SimpleNamespace(observe=world.answer, live=SimpleNamespace(snapshot=world.save))
    await collect(realtime._saving_too(player), least=1000)
    assert world.saves == realtime._SAVES
