"""The state machine on every prefix of a journal with all kinds of lines, and on torn lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import attrs
import pytest

from clawblox.experiment.history.journal import JOURNAL_NAME, Journal, read_lines
from clawblox.experiment.history.lines import JournalLine, encode
from clawblox.experiment.history.machine import CloseAttempt, Commit, Finished, next_step
from clawblox.experiment.history.orders import AttemptOrder
from clawblox.experiment.history.plans import Plans
from clawblox.experiment.history.state import ChainState, ExperimentState
from clawblox.experiment.plan import AgentSpec, Plan
from clawblox.experiment.schedule.callbacks import Callbacks
from clawblox.experiment.schedule.ports import Room
from clawblox.experiment.tables.results import make_results
from tests.experiment.fakes import Fault, make_plan
from tests.experiment.histories import ForkChain, History, PauseChains, RunScript

GENERATIONS = 2
NODE = Room(node="n1", lease_s=30.0, machine={"processor": "A"})
TYPES = {
    "account.cleared",
    "account.limited",
    "chain.forked",
    "chain.retried",
    "checkpoint",
    "checkpoint.failed",
    "checkpoint.removed",
    "closing",
    "committed",
    "experiment.begun",
    "failed",
    "interrupted",
    "opened",
    "paused",
    "plan.amended",
    "prepared",
    "saved",
    "scored",
    "session.begun",
    "session.ended",
    "working",
}


async def score(_end: Any) -> dict[str, float]:
    await anyio.lowlevel.checkpoint()
    return {"cubes": 3.0}


@cache
def record() -> tuple[Plan, Sequence[JournalLine]]:
    """Return a plan and the lines of its experiment, with every kind of event."""
    plan = make_plan(
        generations=GENERATIONS,
        repeats=3,
        checkpoint={"every": 900.0, "keep": 1, "idle_wait": 0.0},
        retry={"attempts": 1},
    ).but(agents=[AgentSpec("claude", name="Eko", sandbox=True)])
    history = History(plan, Callbacks(score))
    deaths: list[Fault | None] = [Fault(50.0, "world"), Fault(50.0, "agent")]
    scripts = [
        RunScript(
            happenings=[(2000.0, ForkChain("r1", 1, generations=2)), (2500.0, PauseChains("r2"))],
            faults={"r1": [Fault(1000.0, "limit", 600.0)], "r3": [*deaths]},
            kill_after=60,
            rooms={"r1": NODE, "r2": NODE},
        ),
        RunScript(
            faults={"r1-f1-1": [Fault(1e9, "secret")], "r2": [Fault(950.0, "world")]},
            duration_s=1800.0,
            retries_failed=True,
            rooms={"r1": attrs.evolve(NODE, machine={"processor": "B"})},
        ),
        RunScript(retries_failed=True),
    ]

    async def play() -> None:
        for script in scripts:
            await history.play(script)

    anyio.run(play)
    lines = history.journal.lines
    assert {line.type for line in lines} == TYPES
    assert any("differs" in line.data for line in lines)
    return plan, lines


def prefixes() -> Iterator[ExperimentState]:
    _, lines = record()
    for length in range(len(lines) + 1):
        yield ExperimentState(lines[:length])


def record_plans(state: ExperimentState) -> Plans:
    plan, _ = record()
    return Plans([plan, plan.but(duration=1800.0)], state)


def steps(state: ExperimentState) -> dict[str, Any]:
    plans = record_plans(state)
    return {name: next_step(plans, chain) for name, chain in plans.chains.items()}


def test_state_updated_line_by_line_equals_the_state_of_the_whole_journal() -> None:
    _, lines = record()
    followed = ExperimentState()
    for state, line in zip(prefixes(), [*lines, None], strict=True):
        assert followed.chains == state.chains
        assert followed.accounts == state.accounts
        assert steps(followed) == steps(state)
        if line is not None:
            followed.apply(line)


def test_no_prefix_of_a_journal_contradicts_itself() -> None:
    for state in prefixes():
        for name, step in steps(state).items():
            check_step(record_plans(state), state.chain(name), step)


def check_step(plans: Plans, chain: ChainState, step: Any) -> None:
    last = plans.last_generation(plans.chains[chain.name])
    over = [number for number, generation in chain.generations.items() if generation.is_over]
    latest = chain.latest
    match step:
        case Finished(status="done"):
            assert over[-1] == last
        case Finished():
            assert latest is not None
            assert latest.attempts[-1].outcome == "failed"
        case AttemptOrder(generation=number, attempt_id=""):
            assert number not in over
            assert number <= last
            assert latest is None or number == latest.number + latest.is_over
            assert latest is None or all(attempt.ending for attempt in latest.attempts)
            check_order(plans, chain, step)
        case AttemptOrder(attempt_id=name):
            assert latest is not None
            attempt = latest.attempts[-1]
            assert (attempt.ending, attempt.step, attempt.attempt_id) == (None, "opened", name)
            described = {name: attempt.opened.data[name] for name in step.describe()}
            assert described == step.describe()
            check_order(plans, chain, step)
        case Commit(order=order):
            assert latest is not None
            attempt = latest.attempts[-1]
            assert (attempt.ending, attempt.step, attempt.attempt_id) == (
                None,
                "scored",
                order.attempt_id,
            )
            assert (order.origin, order.phase) == (attempt.origin, attempt.phase)
        case CloseAttempt(attempt=attempt):
            assert attempt.ending is None
            assert attempt.step in ("prepared", "working", "closing", "saved")


def check_order(plans: Plans, chain: ChainState, order: AttemptOrder) -> None:
    """Check the plan of an order, and that its checkpoint exists in the same generation."""
    assert plans.revisions[order.revision].duration in (order.chain.plan.duration, 3600.0)
    if order.origin is None:
        first = 1 if chain.branch is None else chain.branch.source.generation
        assert (order.inherited is None) == (order.generation == first)
        assert (order.active_s, order.used, order.phase) == (0.0, (), "work")
        return
    source = plans.state.chain(order.origin.chain).generations[order.origin.generation]
    (point,) = [point for point in source.checkpoints() if point.ref == order.origin]
    assert order.generation == point.ref.generation
    if order.branch is None:
        assert (order.active_s, order.used) == (point.active_s, point.usage)
        assert (order.phase != "work") == bool(order.close_reason)
    else:
        assert order.origin == order.branch.source


def test_every_prefix_of_a_journal_has_rows() -> None:
    for state in prefixes():
        plans = record_plans(state)
        rows = make_results(plans).rows()
        generations = [
            (name, number) for name in plans.chains for number in state.chain(name).generations
        ]
        assert [(row.chain, row.generation) for row in rows] == generations


@pytest.mark.parametrize(
    "stride", [101, pytest.param(1, marks=pytest.mark.thorough)], ids=["some", "every"]
)
@pytest.mark.parametrize("kind", sorted(TYPES))
def test_torn_last_line_of_each_type_is_ignored(tmp_path: Path, kind: str, stride: int) -> None:
    _, lines = record()
    first = encode(lines[0])
    line = next(line for line in lines if line.type == kind)
    text = encode(attrs.evolve(line, seq=2))
    path = tmp_path / JOURNAL_NAME
    for length in [*range(0, len(text), stride), len(text) - 1]:
        path.write_bytes(first + text[:length])
        assert read_lines(tmp_path) == [lines[0]]
    with Journal(tmp_path) as journal:
        assert journal.lines == [lines[0]]
    path.write_bytes(first + text)
    assert read_lines(tmp_path) == [lines[0], attrs.evolve(line, seq=2)]
