"""Room on a machine: chains that wait for it, and attempts that lose it."""

from __future__ import annotations

import pickle
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from clawblox.experiment.plan.plan import Chain
from clawblox.experiment.schedule.callbacks import Callbacks
from clawblox.experiment.schedule.pauses import Pause
from clawblox.experiment.schedule.ports import AgentFailed, AttemptError, ProviderError, Room
from clawblox.experiment.schedule.scheduler import Scheduler
from tests.experiment.fakes import Simulation, Trouble, check_history, make_plan

pytestmark = pytest.mark.anyio

REQUEST = Pause(reason="request", text="asked for")


async def test_a_chain_that_finds_no_room_opens_nothing_until_it_does() -> None:
    simulation = Simulation(make_plan())
    simulation.workshop.has_room = False
    seen: list[tuple[list[str], list[str]]] = []

    async def during(_scheduler: Scheduler) -> None:
        await simulation.clock.sleep_until(100.0)
        seen.append((list(simulation.workshop.waiting), simulation.types()))
        simulation.workshop.has_room = True

    assert await simulation.run(during)
    assert seen == [(["r1"], [])]
    assert simulation.types()[-1] == "committed"
    assert not simulation.workshop.waiting


async def test_a_pause_ends_the_wait_for_room_and_nothing_is_opened() -> None:
    simulation = Simulation(make_plan())
    simulation.workshop.has_room = False

    async def during(scheduler: Scheduler) -> None:
        await simulation.clock.sleep_until(100.0)
        scheduler.pause(REQUEST)

    assert await simulation.run(during)
    assert simulation.scheduler.pauses == {"r1": REQUEST}
    assert simulation.types() == []
    assert not simulation.workshop.waiting
    assert simulation.scheduler.state.chains == {}


async def test_a_pause_in_the_moment_that_room_is_found_opens_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    simulation = Simulation(make_plan())

    @asynccontextmanager
    async def room(_chain: Chain) -> AsyncIterator[Room]:
        simulation.scheduler.pause(REQUEST)
        yield Room()

    monkeypatch.setattr(simulation.workshop, "room", room)
    with anyio.fail_after(30):
        assert await simulation.run()
    assert simulation.types() == []


async def test_an_attempt_whose_node_is_lost_fails_and_another_continues() -> None:
    simulation = Simulation(make_plan())
    simulation.workshop.troubles["r1"] = [Trouble(1000.0, "node")]
    assert await simulation.run()
    (failed,) = (line for line in simulation.journal.lines if line.type == "failed")
    assert (failed.data["cause"], failed.data["text"]) == ("node", "the node n1 is lost")
    assert simulation.types()[-1] == "committed"
    check_history(simulation)


async def test_only_attempts_that_run_a_world_need_room(monkeypatch: pytest.MonkeyPatch) -> None:
    for score, rooms in ((None, 1), (lambda _live: 1.0, 2)):
        simulation = Simulation(make_plan(), Callbacks(score=score))
        entered: list[str] = []
        given = simulation.workshop.room

        def room(chain: Chain, entered: list[str] = entered, given: Any = given) -> Any:
            entered.append(chain.name)
            return given(chain)

        monkeypatch.setattr(simulation.workshop, "room", room)
        end = await seq_of_end(score)
        simulation.kill_at(end, is_written=True)
        await simulation.run_to_end()
        assert simulation.types()[-1] == "committed"
        assert len(entered) == rooms


async def seq_of_end(score: Any) -> int:
    """Return the number of the line of the checkpoint at the end."""
    simulation = Simulation(make_plan(), Callbacks(score=score))
    assert await simulation.run()
    return next(line.seq for line in simulation.journal.lines if line.data.get("kind") == "end")


def test_errors_of_attempts_are_the_same_in_another_process() -> None:
    error = pickle.loads(pickle.dumps(AttemptError("address", "it is taken")))
    assert (type(error), error.cause, error.text) == (AttemptError, "address", "it is taken")
    failure = AgentFailed(name="Eko", kind="auth", text="no login", account="claude")
    other = pickle.loads(pickle.dumps(ProviderError(failure)))
    assert (type(other), other.failure, str(other)) == (ProviderError, failure, "no login")
