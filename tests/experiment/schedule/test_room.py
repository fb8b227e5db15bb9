"""Room on a machine: chains that wait for it, attempts that lose it, and waits of a resume."""

from __future__ import annotations

import pickle
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import anyio
import attrs
import pytest

from clawblox.agents.values import Usage
from clawblox.experiment.history.facts import check_members
from clawblox.experiment.history.lines import JournalLine, encode
from clawblox.experiment.history.plans import Plans
from clawblox.experiment.plan.plan import Chain
from clawblox.experiment.schedule.callbacks import Callbacks
from clawblox.experiment.schedule.pauses import PauseRequest
from clawblox.experiment.schedule.ports import AgentFailed, AttemptError, ProviderError, Room
from clawblox.experiment.schedule.scheduler import Scheduler
from clawblox.experiment.schedule.spending import Spending
from clawblox.system.clock import parse_utc
from tests.experiment.fakes import ACCOUNT, Fault, Simulation, check_history, make_plan

pytestmark = pytest.mark.anyio

REQUEST = PauseRequest(reason="request", text="asked for")
MACHINE = {"processor": "A", "libc": "glibc 2.36", "python": "3.11.7"}
NODE = Room(node="n1", lease_s=30.0, machine=MACHINE)
HOST = {"node": "n1", "lease_s": 30.0, "bound_s": 31.0, "machine": MACHINE}


async def test_chain_without_room_opens_no_attempt() -> None:
    simulation = Simulation(make_plan())
    simulation.backend.has_room = False
    seen: list[tuple[list[str], list[str]]] = []
    waited: dict[str, str] = {}

    async def during(scheduler: Scheduler) -> None:
        await simulation.clock.sleep_until(100.0)
        seen.append((list(simulation.backend.waiting), simulation.types()))
        waited.update(scheduler.awaits)
        simulation.backend.has_room = True

    assert await simulation.run(during)
    assert seen == [(["r1"], [])]
    assert waited == {"r1": "for a node"}
    assert simulation.types()[-1] == "committed"
    assert not simulation.backend.waiting


async def test_a_pause_ends_the_wait_for_room_without_opening_an_attempt() -> None:
    simulation = Simulation(make_plan())
    simulation.backend.has_room = False

    async def during(scheduler: Scheduler) -> None:
        await simulation.clock.sleep_until(100.0)
        scheduler.pause(REQUEST)

    assert await simulation.run(during)
    assert simulation.scheduler.pauses == {"r1": REQUEST}
    assert simulation.types() == []
    assert not simulation.backend.waiting
    assert simulation.scheduler.state.chains == {}


async def test_pause_at_the_moment_of_finding_room_opens_no_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    simulation = Simulation(make_plan())

    @asynccontextmanager
    async def room(_chain: Chain) -> AsyncIterator[Room]:
        simulation.scheduler.pause(REQUEST)
        yield Room()

    monkeypatch.setattr(simulation.backend, "room", room)
    with anyio.fail_after(30):
        assert await simulation.run()
    assert simulation.types() == []


async def test_an_attempt_whose_node_is_lost_fails_and_another_continues() -> None:
    simulation = Simulation(make_plan())
    simulation.backend.faults["r1"] = [Fault(1000.0, "node")]
    assert await simulation.run()
    (failed,) = (line for line in simulation.journal.lines if line.type == "failed")
    assert (failed.data["cause"], failed.data["text"]) == ("node", "the node n1 is lost")
    assert simulation.warnings == [("node.lost", f"{failed.attempt}: the node n1 is lost")]
    assert simulation.types()[-1] == "committed"
    check_history(simulation)


async def test_only_attempts_that_run_a_world_need_room(monkeypatch: pytest.MonkeyPatch) -> None:
    for score, rooms in ((None, 1), (lambda _live: 1.0, 2)):
        simulation = Simulation(make_plan(), Callbacks(score=score))
        entered: list[str] = []
        given = simulation.backend.room

        def room(chain: Chain, entered: list[str] = entered, given: Any = given) -> Any:
            entered.append(chain.name)
            return given(chain)

        monkeypatch.setattr(simulation.backend, "room", room)
        end = await seq_of_end(score)
        simulation.kill_at(end, is_written=True)
        await simulation.run_to_end()
        assert simulation.types()[-1] == "committed"
        assert len(entered) == rooms


async def seq_of_end(score: Any) -> int:
    """Return the line number of the final checkpoint."""
    simulation = Simulation(make_plan(), Callbacks(score=score))
    assert await simulation.run()
    return next(line.seq for line in simulation.journal.lines if line.data.get("kind") == "end")


def test_errors_of_attempts_are_the_same_in_another_process() -> None:
    error = pickle.loads(pickle.dumps(AttemptError("address", "it is taken")))
    assert (type(error), error.cause, error.text) == (AttemptError, "address", "it is taken")
    failure = AgentFailed(name="Eko", kind="auth", text="no login", account="claude")
    other = pickle.loads(pickle.dumps(ProviderError(failure)))
    assert (type(other), other.failure, str(other)) == (ProviderError, failure, "no login")


# -- recorded hosts, and the wait of a resume for them ------------------------------------------


def opened(simulation: Simulation, chain: str = "r1") -> list[JournalLine]:
    lines = simulation.journal.lines
    return [line for line in lines if line.type == "opened" and line.chain == chain]


async def kill_on_node(simulation: Simulation, step: str = "working") -> float:
    """Kill an orchestrator after a step of its first attempt on a node; return the time."""
    simulation.backend.rooms["r1"] = NODE
    simulation.kill_at(["opened", "prepared", "working"].index(step) + 2, is_written=True)
    assert not await simulation.run()
    assert simulation.types() == ["opened", "prepared", "working"][: len(simulation.types())]
    assert simulation.types()[-1] == step
    simulation.kill_at(None)
    return simulation.clock.monotonic()


def seconds(simulation: Simulation, line: JournalLine) -> float:
    """Return the time of a line on the simulated clock."""
    at = parse_utc(line.at)
    assert at is not None
    return simulation.clock.monotonic() - (simulation.clock.utc() - at).total_seconds()


async def test_line_of_a_remote_attempt_has_its_node_and_lease_bound() -> None:
    simulation = Simulation(make_plan(repeats=2))
    simulation.backend.rooms["r1"] = NODE
    assert await simulation.run()
    assert [line.data["host"] for line in opened(simulation)] == [HOST]
    assert ["host" in line.data for line in opened(simulation, "r2")] == [False]
    (attempt,) = simulation.state.chain("r1").attempts
    assert (attempt.node, attempt.host) == ("n1", HOST)


@pytest.mark.parametrize("step", ["opened", "prepared", "working"])
@pytest.mark.parametrize("is_local", [False, True])
async def test_resume_waits_for_the_lease_bound_of_a_possibly_alive_host_only(
    step: str, *, is_local: bool
) -> None:
    simulation = Simulation(make_plan(repeats=2, limits={"worlds": 1}))
    killed_at = await kill_on_node(simulation, step)
    before = len(simulation.journal.lines)
    simulation.backend.rooms = {} if is_local else {"r1": NODE}
    waited: list[dict[str, str]] = []

    async def during(scheduler: Scheduler) -> None:
        await simulation.clock.sleep_until(killed_at + 10.0)
        waited.append(dict(scheduler.awaits))
        await simulation.clock.sleep_until(killed_at + 32.0)
        waited.append(dict(scheduler.awaits))

    assert await simulation.run(during)
    until = simulation.clock.utc() - timedelta(seconds=simulation.clock.monotonic() - killed_at)
    time = f"{(until + timedelta(seconds=31)).astimezone():%H:%M:%S}"
    (first, *_) = opened(simulation)
    assert waited == [{"r1": f"until {time} for the end of {first.attempt} on node n1"}, {}]
    new = simulation.journal.lines[before:]
    starts = {chain: next(line for line in new if line.chain == chain) for chain in ("r1", "r2")}
    assert seconds(simulation, starts["r2"]) == killed_at
    assert seconds(simulation, starts["r1"]) >= killed_at + 31.0
    check_history(simulation)


async def test_cost_of_an_awaited_attempt_counts_as_spent() -> None:
    simulation = Simulation(make_plan(repeats=2, limits={"worlds": 1, "dollars": 0.05}))
    await kill_on_node(simulation)
    left = Usage(output_tokens=900, cost_usd=0.09)
    simulation.backend.ledgers["r1", opened(simulation)[0].attempt or ""] = [left]
    assert await simulation.run()
    assert simulation.types()[-1] == "working"
    assert simulation.scheduler.halted is not None
    assert simulation.scheduler.halted.reason == "dollars"
    assert simulation.scheduler.spending.ended_usd == pytest.approx(0.09)
    assert simulation.scheduler.spending.left("r1") == (left,)
    simulation.plan = simulation.plan.but(limits={"worlds": 1, "dollars": 100.0})
    assert await simulation.run()
    assert simulation.scheduler.spending.left("r1") == ()
    state = simulation.state
    spent = Spending(Plans([simulation.plan], state)).ended_usd
    assert simulation.scheduler.spending.ended_usd == pytest.approx(spent)


async def test_wait_for_a_host_survives_a_killed_or_paused_resume() -> None:
    simulation = Simulation(make_plan())
    await kill_on_node(simulation)

    async def pause(scheduler: Scheduler) -> None:
        await simulation.clock.sleep_until(simulation.clock.monotonic() + 10.0)
        scheduler.pause(REQUEST)

    assert await simulation.run(pause)
    assert simulation.scheduler.pauses == {"r1": REQUEST}
    assert simulation.types() == ["opened", "prepared", "working"]
    begun_at = simulation.clock.monotonic()
    assert await simulation.run()
    interrupted = next(line for line in simulation.journal.lines if line.type == "interrupted")
    assert seconds(simulation, interrupted) == begun_at + 31.0
    check_history(simulation)


async def test_ended_attempt_is_not_awaited() -> None:
    simulation = Simulation(make_plan())
    simulation.backend.rooms["r1"] = NODE
    simulation.backend.faults["r1"] = [Fault(1000.0, "limit", lasts=10**6)]
    assert await simulation.run()
    assert simulation.types()[-1] == "paused"
    begun_at = simulation.clock.monotonic()
    simulation.kill_at(len(simulation.journal.lines) + 2, is_written=True)
    assert not await simulation.run()
    assert simulation.types()[-1] == "opened"
    assert seconds(simulation, simulation.journal.lines[-1]) == begun_at


@pytest.mark.parametrize("room", [Room(), attrs.evolve(NODE, node="n2")])
async def test_opened_attempt_is_not_continued_on_another_node(
    room: Room,
) -> None:
    simulation = Simulation(make_plan())
    await kill_on_node(simulation, "opened")
    simulation.backend.rooms["r1"] = room
    await simulation.run_to_end()
    assert simulation.types()[:3] == ["opened", "interrupted", "opened"]
    assert [line.data.get("host", {}).get("node", "") for line in opened(simulation)] == [
        "n1",
        room.node,
    ]
    check_history(simulation)


async def test_opened_attempt_is_continued_on_its_recorded_node() -> None:
    simulation = Simulation(make_plan())
    await kill_on_node(simulation, "opened")
    await simulation.run_to_end()
    assert len(opened(simulation)) == 1


@pytest.mark.parametrize(
    ("machine", "differs"),
    [
        (MACHINE, ""),
        ({}, ""),
        ({"processor": "B"}, "processor: B, before A"),
        (
            {**MACHINE, "libc": "musl 1.2", "python": "3.12.1"},
            "libc: musl 1.2, before glibc 2.36; python: 3.12.1, before 3.11.7",
        ),
    ],
)
async def test_a_continuation_on_another_machine_is_noted(
    machine: dict[str, str], differs: str
) -> None:
    simulation = Simulation(make_plan())
    simulation.backend.rooms["r1"] = NODE
    simulation.backend.faults["r1"] = [Fault(1000.0, "node"), Fault(10.0, "node")]

    async def during(_scheduler: Scheduler) -> None:
        await simulation.clock.sleep_until(1001.0)
        simulation.backend.rooms["r1"] = Room(node="n2", lease_s=30.0, machine=machine)

    assert await simulation.run(during)
    first, second, third = opened(simulation)
    assert "differs" not in first.data
    assert [line.data.get("differs", "") for line in (second, third)] == [differs] * 2
    changes = [text for kind, text in simulation.warnings if kind == "machine.changed"]
    expected = [f"{line.attempt} continues on another {differs}" for line in (second, third)]
    assert changes == (expected if differs else [])


@pytest.mark.parametrize(("room", "where"), [(NODE, " on node n1"), (Room(), "")])
@pytest.mark.parametrize("at", [0.0, 100.0])
async def test_a_pause_for_an_expired_login_names_the_node_and_keeps_the_account(
    room: Room, where: str, at: float
) -> None:
    for kind, named in (("auth", where), ("limit", "")):
        simulation = Simulation(make_plan(retry={"longest_pause": 10.0}))
        simulation.backend.rooms["r1"] = room
        simulation.backend.faults["r1"] = [Fault(at, kind)]
        assert await simulation.run()
        (paused,) = (line for line in simulation.journal.lines if line.type == "paused")
        assert (paused.data["text"], paused.data["account"]) == (f"Eko{named}: {kind}", ACCOUNT)


@pytest.mark.parametrize(
    "host",
    [
        {**HOST, "node": ""},
        {**HOST, "node": "a\nb"},
        {**HOST, "node": None},
        {**HOST, "bound_s": -1.0},
        {**HOST, "bound_s": 1e9},
        {**HOST, "bound_s": "31"},
        {**HOST, "machine": {"libc": 3}},
        {"node": "n1"},
        "n1",
    ],
)
def test_hostile_host_name_in_a_line_is_refused(host: Any) -> None:
    def check(host: object) -> None:
        data = {"origin": None, "host": host}
        at = "2026-06-22T18:01:00.000Z"
        place = {"chain": "r1", "generation": 1, "attempt": "exp-r1-g001"}
        line = JournalLine(seq=1, at=at, type="opened", data=data, **place)  # type: ignore[arg-type]
        check_members(encode(line), "opened")

    check(HOST)
    with pytest.raises(ValueError, match="host"):
        check(host)
