"""The next step of a chain after each kind of end of an attempt."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawblox.experiment.history.checkpoints import Branch, CheckpointRef
from clawblox.experiment.history.machine import Finished, Next, count_failures, next_step
from clawblox.experiment.history.orders import AttemptOrder
from clawblox.experiment.plan import AgentSpec, Inherit, Retry
from tests.experiment.journals import Journal, make_plan, used

RETRY = Retry(attempts=3)
TEMPLATE = Retry(attempts=3, source="template")
MINDFUL = [AgentSpec("claude"), AgentSpec("codex")]
FORGETFUL = [AgentSpec("claude"), AgentSpec("opencode")]
"""Archives lack the conversations of the second agent."""


def follow(journal: Journal, retry: Retry = RETRY, **fields: Any) -> Next:
    """Return the next step of the chain r1, which has one generation."""
    plan = make_plan(**{"generations": 1, "repeats": 1, "retry": retry, **fields})
    return next_step(journal.plans(plan), plan.chains()[0])


def decide(journal: Journal, retry: Retry = RETRY, **fields: Any) -> AttemptOrder:
    """Return the next attempt in the chain r1."""
    step = follow(journal, retry, **fields)
    assert isinstance(step, AttemptOrder)
    return step


def fail(journal: Journal, cause: str = "world", **opened: Any) -> None:
    journal.open("r1", 1, **opened).work().end("failed", cause=cause)


def archive_name(order: AttemptOrder) -> str | None:
    return None if order.origin is None else order.origin.file


@pytest.mark.parametrize("cause", ["setup", "secret", "plan"])
def test_failure_that_would_recur_is_not_retried(cause: str) -> None:
    journal = Journal()
    fail(journal, cause)
    assert follow(journal) == Finished(status="failed")


@pytest.mark.parametrize("cause", ["world", "agent", "start", "address", "defect", "node"])
def test_other_failure_is_retried(cause: str) -> None:
    journal = Journal()
    fail(journal, cause)
    assert decide(journal).retry_reason == f"failed: {cause}"


def test_pauses_and_interruptions_do_not_count_as_failures() -> None:
    journal = Journal()
    attempt = journal.open("r1", 1).work()
    for _ in range(2):
        attempt.checkpoint()
    attempt.end("failed", cause="world")
    for ending in ("paused", "interrupted") * 3:
        journal.open("r1", 1).work().end(ending, reason="limit", text="limit")
    fail(journal)
    assert archive_name(decide(journal)) == "c0.ckpt"
    assert follow(journal, Retry(attempts=1)) == Finished(status="failed")


def lose(journal: Journal, times: int = 1) -> None:
    for _ in range(times):
        fail(journal, "node")


@pytest.mark.parametrize("retry", [RETRY, TEMPLATE])
def test_a_lost_node_goes_back_to_the_latest_checkpoint_and_no_further(retry: Retry) -> None:
    journal = Journal()
    attempt = journal.open("r1", 1).work()
    for _ in range(3):
        attempt.checkpoint()
    attempt.end("failed", cause="node")
    for _ in range(8):
        assert archive_name(decide(journal, retry)) == "c2.ckpt"
        lose(journal)
    assert archive_name(decide(journal, agents=FORGETFUL)) is None


def test_three_nodes_lost_in_a_row_without_a_new_checkpoint_count_as_one_failure() -> None:
    journal, once = Journal(), Retry(attempts=1)
    lose(journal, 5)
    assert decide(journal, once).retry_reason == "failed: node"
    lose(journal)
    assert follow(journal, once) == Finished(status="failed")
    journal.write("chain.retried", chain="r1")
    lose(journal, 2)
    journal.open("r1", 1).work().checkpoint()
    lose(journal, 5)
    assert archive_name(decide(journal, once)) == "c0.ckpt"


def test_lost_node_after_a_failure_does_not_end_the_chain() -> None:
    journal, never = Journal(), Retry(attempts=0)
    lose(journal)
    assert decide(journal, never).retry_reason == "failed: node"
    fail(journal)
    assert follow(journal, never) == Finished(status="failed")


@given(st.lists(st.sampled_from(["node", "world", "address", "interrupted", "checkpoint"])))
def test_failure_count_matches_its_definition(endings: list[str]) -> None:
    journal = Journal()
    expected: list[str] = []
    for ending in endings:
        attempt = journal.open("r1", 1).work()
        if ending == "checkpoint":
            attempt.checkpoint()
            expected = []
        elif ending != "interrupted":
            expected.append("n" if ending == "node" else "x")
        kind = "interrupted" if ending in ("interrupted", "checkpoint") else "failed"
        attempt.end(kind, cause=ending)
    counted = "".join(expected).replace("nnn", "x").count("x")
    generations = journal.state.chain("r1").generations
    assert counted == (count_failures(generations[1]) if generations else 0)


def test_retry_goes_back_along_the_history_of_the_latest_checkpoint() -> None:
    journal = Journal()
    attempt = journal.open("r1", 1).work()
    _, origin, _ = (attempt.checkpoint() for _ in range(3))
    attempt.end("failed", cause="world")
    again = journal.open("r1", 1, origin=origin).work()
    again.checkpoint()
    again.end("failed", cause="world")
    files = [archive_name(decide(journal))]
    for _ in range(2):
        fail(journal)
        files.append(archive_name(decide(journal)))
    assert files == ["c3.ckpt", "c1.ckpt", "c0.ckpt"]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_failures_after_the_active_time_do_not_go_back_further(count: int) -> None:
    journal = Journal()
    attempt = journal.open("r1", 1).work()
    attempt.checkpoint()
    attempt.checkpoint("boundary", reason="duration")
    attempt.end("failed", cause="world")
    for _ in range(count - 1):
        fail(journal)
    order = decide(journal)
    assert (archive_name(order), order.phase, order.close_reason) == ("c1.ckpt", "save", "duration")


def test_retry_from_the_template_restarts_the_generation() -> None:
    journal = Journal()
    attempt = journal.open("r1", 1).work()
    attempt.checkpoint()
    attempt.end("failed", cause="world")
    assert archive_name(decide(journal)) == "c0.ckpt"
    order = decide(journal, TEMPLATE)
    assert (order.origin, order.active_s) == (None, 0.0)


@pytest.mark.parametrize("kind", ["periodic", "pause", "boundary"])
def test_retry_restarts_the_generation_if_archives_lack_conversations(kind: str) -> None:
    journal = Journal()
    attempt = journal.open("r1", 1).work()
    attempt.checkpoint(kind)
    attempt.end("interrupted")
    assert archive_name(decide(journal)) == "c0.ckpt"
    assert archive_name(decide(journal, agents=FORGETFUL)) is None


@pytest.mark.parametrize("retry", [RETRY, TEMPLATE])
@pytest.mark.parametrize("agents", [MINDFUL, FORGETFUL])
def test_a_generation_with_its_last_checkpoint_is_only_scored(
    retry: Retry, agents: list[AgentSpec]
) -> None:
    for ending in ("failed", "paused", "interrupted"):
        journal = Journal()
        attempt = journal.open("r1", 1).work()
        attempt.checkpoint("end", reason="duration")
        attempt.end(ending, cause="world", reason="limit", text="limit")
        order = decide(journal, retry, agents=agents)
        assert (archive_name(order), order.phase) == ("c0.ckpt", "score")


@pytest.mark.parametrize(("duration_s", "elapsed_s"), [(None, 900.0), (600.0, 0.0)])
def test_branch_runs_for_the_rest_of_the_generation_or_its_own_duration(
    duration_s: float | None, elapsed_s: float
) -> None:
    journal = Journal()
    source = CheckpointRef(**journal.open("r1", 2).work().checkpoint())
    branch = Branch(
        source=source, group=1, number=1, prompt="x", elapsed_s=900.0, duration_s=duration_s
    )
    journal.write("chain.forked", attrs.asdict(branch), chain="r1-f1-1")
    plans = journal.plans(make_plan())
    chain = plans.chains["r1-f1-1"]
    order = AttemptOrder(
        chain=chain, generation=2, origin=source, active_s=elapsed_s, branch=branch
    )
    assert next_step(plans, chain) == order
    assert order.message == "x"


@pytest.mark.parametrize("workspace", [True, False])
def test_workspaces_are_inherited_unless_the_plan_refuses(*, workspace: bool) -> None:
    journal = Journal()
    first = journal.open("r1", 1).work().commit([])
    order = decide(journal, generations=2, inherit=Inherit(workspace=workspace))
    assert order.inherited == (first.name if workspace else None)


@pytest.mark.parametrize("world", [True, False])
def test_world_continues_from_the_previous_generation_if_the_plan_says_so(*, world: bool) -> None:
    fields: dict[str, Any] = {"generations": 2, "inherit": Inherit(world=world)}
    journal = Journal()
    assert decide(journal, **fields).world is None
    attempt = journal.open("r1", 1).work()
    attempt.checkpoint("boundary")
    end = CheckpointRef(**attempt.checkpoint("end"))
    attempt.commit([used(1)])
    assert decide(journal, **fields).world == (end if world else None)
    again = journal.open("r1", 2).work()
    again.checkpoint()
    again.end("interrupted")
    assert decide(journal, **fields).world is None


def test_a_save_prompt_is_sent_again_after_the_boundary() -> None:
    journal = Journal()
    attempt = journal.open("r1", 1).work()
    attempt.checkpoint("boundary", reason="duration")
    attempt.end("interrupted")
    assert decide(journal, save={"prompt": "Save now."}).message == "Save now."


def test_opened_attempt_keeps_its_name_and_plan() -> None:
    journal = Journal()
    attempt = journal.open("r1", 1)
    facts = {"revision": 1, "plan": "plan-1.toml", "changes": []}
    journal.write("plan.amended", facts)
    plans = journal.plans(make_plan(duration=600.0), make_plan(duration=1200.0))
    chain = plans.chains["r1"]
    order = next_step(plans, chain)
    assert isinstance(order, AttemptOrder)
    assert (order.attempt_id, order.revision) == (attempt.name, 0)
    assert (order.chain.plan.duration, chain.plan.duration) == (600.0, 1200.0)
