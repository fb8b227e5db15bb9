"""Generated runs over fakes: the history of an experiment stays consistent in every run."""

from __future__ import annotations

import csv
import io
from collections import Counter
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawblox.experiment.history.checkpoints import Branch
from clawblox.experiment.history.plans import Plans
from clawblox.experiment.history.state import GenerationState
from clawblox.experiment.plan import AgentSpec, Plan
from clawblox.experiment.schedule.callbacks import Callbacks
from clawblox.experiment.schedule.ports import Room
from clawblox.experiment.schedule.spending import Spending
from clawblox.experiment.tables.results import make_results
from tests.experiment.fakes import Fault
from tests.experiment.histories import (
    FillDisk,
    ForkChain,
    Happening,
    History,
    LogIn,
    PauseChains,
    RunScript,
)

CHAINS = ("r1", "r2", "r3")
BEFORE_S = 300.0
TURN_S = 100.0
BUDGET = 3000
USD_PER_TOKEN = 1e-4


def make_plan(
    *, is_sandboxed: bool, has_save: bool, has_boundary: bool, has_end: bool, source: str
) -> Plan:
    agent = AgentSpec("claude", name="Eko", sandbox=is_sandboxed, budget={"output_tokens": BUDGET})
    return Plan(
        "worlds/panda",
        [agent],
        name="exp",
        generations=2,
        repeats=len(CHAINS),
        duration=3600.0,
        save={"before": BEFORE_S} if has_save else None,
        checkpoint={
            "every": 900.0,
            "keep": 2,
            "idle_wait": 0.0,
            "boundary": has_boundary,
            "end": has_end,
        },
        retry={"delay": 15.0, "longest_pause": "2h", "from": source},
        limits={"worlds": 2, "min_free": 1000},
    )


SECONDS = st.integers(0, 5000).map(float)
NAMES = st.sampled_from([*CHAINS, "r1-f1-1", "r2-f1-1"])
KINDS = (
    "world",
    "node",
    "agent",
    "limit",
    "auth",
    "ended",
    "budget",
    "secret",
    "full",
    "waiting",
    "defect",
)
FAULTS = st.builds(
    Fault,
    at=st.sampled_from([0.0, 1.0, 150.0, 1000.0, 2000.0, 3350.0]),
    kind=st.sampled_from(KINDS),
    lasts=st.sampled_from([None, 600.0, 10_000.0]),
)
ROOMS = st.builds(
    Room,
    node=st.sampled_from(["n1", "n2"]),
    lease_s=st.sampled_from([30.0, 300.0]),
    machine=st.fixed_dictionaries({"processor": st.sampled_from(["A", "B"])}),
)
HAPPENINGS: st.SearchStrategy[Happening] = st.one_of(
    st.builds(PauseChains, st.one_of(st.none(), st.sampled_from(CHAINS))),
    st.builds(
        ForkChain,
        st.sampled_from(CHAINS),
        st.integers(0, 8),
        st.integers(1, 2),
        st.sampled_from([None, 700.0]),
    ),
    st.builds(FillDisk, st.sampled_from([10, 10**9])),
    st.builds(LogIn, st.booleans()),
)
RUNS = st.builds(
    RunScript,
    happenings=st.lists(st.tuples(SECONDS, HAPPENINGS), max_size=4),
    faults=st.dictionaries(NAMES, st.lists(st.none() | FAULTS, max_size=5), max_size=3),
    kill_after=st.none() | st.integers(0, 60),
    is_written=st.booleans(),
    full_after=st.none() | st.integers(1, 60),
    duration_s=st.sampled_from([None, None, 1800.0, 5400.0]),
    dollars=st.sampled_from([None, None, 0.5, 1.2]),
    retries_failed=st.booleans(),
    rooms=st.dictionaries(NAMES, ROOMS, max_size=4),
    room_after_s=st.sampled_from([0.0, 0.0, 700.0]),
)
PLANS = st.builds(
    make_plan,
    is_sandboxed=st.booleans(),
    has_save=st.booleans(),
    has_boundary=st.booleans(),
    has_end=st.booleans(),
    source=st.sampled_from(["checkpoint", "template"]),
)


# -- invariants ---------------------------------------------------------------------------------


def sum_ledgers(history: History) -> int:
    """Return the tokens of all attempts, regardless of their outcome."""
    ledgers = history.backend.ledgers.values()
    return sum(usage.output_tokens for ledger in ledgers for usage in ledger)


def check_journal(history: History) -> None:
    """Check the invariants that hold after every run, however it ended."""
    lines = history.journal.lines
    commits = Counter((line.chain, line.generation) for line in lines if line.type == "committed")
    assert max(commits.values(), default=1) == 1
    for chain in history.state.chains.values():
        numbers = list(chain.generations)
        assert numbers == sorted(numbers)
        assert all(chain.generations[number].is_over for number in numbers[:-1])
        for generation in chain.generations.values():
            assert all(attempt.ending is not None for attempt in generation.attempts[:-1])
    assert history.backend.most_open <= history.plan.limits.worlds
    recorded = {
        attempt.attempt_id: attempt.host
        for chain in history.state.chains.values()
        for attempt in chain.attempts
    }
    for made in history.backend.attempts:
        assert recorded[made.order.attempt_id] == made.room.host


def has_outlasted_hosts(history: History, script: RunScript) -> bool:
    """Return whether the last run waited until no host of an earlier run could be alive.

    A chain that is paused stops waiting.
    """
    is_paused = any(isinstance(what, PauseChains) for _, what in script.happenings)
    begun, ended = (
        next(line for line in reversed(history.journal.lines) if line.type == name)
        for name in ("session.begun", "session.ended")
    )
    return not any(
        attempt.ending is None
        and attempt.opened.seq < begun.seq
        and (
            ended.data["elapsed_s"] <= attempt.host.get("bound_s", 0.0)
            or (is_paused and attempt.host)
        )
        for chain in history.state.chains.values()
        for attempt in chain.attempts
    )


def check_rest(history: History) -> None:
    """Check the invariants after a run that was not killed."""
    state = history.state
    for chain in state.chains.values():
        for attempt in chain.attempts:
            assert attempt.ending is not None or attempt.step == "opened", attempt
    assert not history.backend.open_now
    tokens = sum_ledgers(history)
    results = make_results(Plans([history.plan], state))
    assert sum(row.spent_tokens for row in results.rows()) == tokens
    usd = Spending(Plans([history.plan], state)).ended_usd
    assert usd == pytest.approx(tokens * USD_PER_TOKEN)
    assert sum(row.spent_usd or 0.0 for row in results.rows()) == pytest.approx(usd)
    table = list(csv.DictReader(io.StringIO(results.to_csv())))
    committed = {(row["chain"], row["generation"]) for row in table if row["status"] == "committed"}
    assert len(committed) == sum(line.type == "committed" for line in history.journal.lines)


def check_committed(history: History) -> None:
    """Check the facts of the committed generations."""
    for chain in history.state.chains.values():
        for generation in chain.generations.values():
            branch = chain.branch
            is_first = branch is not None and branch.source.generation == generation.number
            check_generation(history, generation, branch if is_first else None)


def check_generation(history: History, generation: GenerationState, branch: Branch | None) -> None:
    attempt = generation.committed
    if attempt is None or attempt.ending is None:
        return
    facts = attempt.ending.data
    worked_s = facts["elapsed_s"] + facts["idle_s"]
    if branch is not None and branch.duration_s is None:
        worked_s -= branch.elapsed_s
    tokens = facts["used"][0]["output_tokens"]
    lineage = len(generation.attempts)
    assert worked_s - lineage <= tokens <= worked_s + BEFORE_S + lineage, facts
    assert tokens <= BUDGET + TURN_S + BEFORE_S
    assert facts["ended_by"], facts
    if facts["ended_by"] == "duration" and branch is None:
        plan = find_plan(history, generation)
        active_s = plan.duration - (BEFORE_S if plan.save is not None else 0.0)
        # Each attempt runs for at least a second.
        assert 0 <= facts["elapsed_s"] - active_s <= lineage, attempt


def find_plan(history: History, generation: GenerationState) -> Plan:
    """Return the plan under which a generation started."""
    revision = generation.attempts[0].revision
    assert all(attempt.revision == revision for attempt in generation.attempts)
    plan = history.plans[revision]
    branch = history.state.chains[generation.chain].branch
    return plan if branch is None else plan.but(duration=branch.duration_s or plan.duration)


def check_money(history: History, script: RunScript, spent_before: float) -> None:
    """Check that a run has not spent more than its limit plus the cost of a turn."""
    if script.dollars is None:
        return
    worlds = history.plan.limits.worlds
    above = worlds * (TURN_S + BEFORE_S + 60.0) * USD_PER_TOKEN
    assert sum_ledgers(history) * USD_PER_TOKEN <= max(script.dollars, spent_before) + above


async def play(plan: Plan, scripts: list[RunScript], *, has_score: bool) -> History:
    """Play runs, then fault-free runs until everything is done; check the history after each."""
    history = History(plan, Callbacks(score_nothing if has_score else None))
    history.backend.turn_s = TURN_S
    for script in scripts:
        spent = sum_ledgers(history) * USD_PER_TOKEN
        outcome = await history.play(script)
        check_journal(history)
        if outcome is not None and has_outlasted_hosts(history, script):
            check_rest(history)
            check_money(history, script, spent)
    history.backend.is_logged_in = True
    history.backend.free = 10**12
    calm = RunScript(retries_failed=True)
    for _ in range(3):
        outcome = await history.play(calm)
        assert outcome is not None
        if outcome.status == "done":
            break
    assert outcome.status == "done", outcome
    check_journal(history)
    check_rest(history)
    check_committed(history)
    return history


async def score_nothing(_end: Any) -> dict[str, float]:
    await anyio.lowlevel.checkpoint()
    return {"cubes": 0.0}


async def play_to_the_end(plan: Plan, scripts: list[RunScript], has_score: bool) -> None:
    history = await play(plan, scripts, has_score=has_score)
    before = list(history.journal.lines)
    results = make_results(Plans([history.plan], history.state)).to_csv()
    assert await history.play(RunScript(retries_failed=True)) is not None
    assert [line.type for line in history.journal.lines[len(before) :]] == [
        "session.begun",
        "session.ended",
    ]
    assert make_results(Plans([history.plan], history.state)).to_csv() == results


@given(PLANS, st.lists(RUNS, max_size=3), st.booleans())
@settings(max_examples=15)
def test_no_history_contradicts_itself(
    plan: Plan, scripts: list[RunScript], has_score: bool
) -> None:
    anyio.run(play_to_the_end, plan, scripts, has_score)


@pytest.mark.thorough
@given(PLANS, st.lists(RUNS, max_size=5), st.booleans())
@settings(max_examples=400)
def test_no_long_history_contradicts_itself(
    plan: Plan, scripts: list[RunScript], has_score: bool
) -> None:
    anyio.run(play_to_the_end, plan, scripts, has_score)
