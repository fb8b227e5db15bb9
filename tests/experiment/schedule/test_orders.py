"""Orders for attempts."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from clawblox.experiment.history.checkpoints import CheckpointRef
from clawblox.experiment.history.machine import Begin
from clawblox.experiment.history.state import ExperimentState
from clawblox.experiment.plan import AgentSpec, Inherit, Plan
from clawblox.experiment.schedule.orders import find_family, make_order
from tests.experiment.journals import Journal, used


@pytest.mark.parametrize(("workspace", "inherited"), [(True, "exp-g001"), (False, None)])
def test_workspaces_are_inherited_unless_the_plan_says_otherwise(
    tmp_path: Path, *, workspace: bool, inherited: str | None
) -> None:
    plan = Plan(tmp_path / "world", [AgentSpec("claude")], inherit=Inherit(workspace=workspace))
    begin = Begin(generation=2, inherited="exp-g001")
    order = make_order(ExperimentState(), plan.chains()[0], begin, "exp-g002")
    assert order.inherited == inherited


@pytest.mark.parametrize("world", [True, False])
def test_a_world_continues_from_the_end_of_the_generation_before_if_the_plan_says_so(
    tmp_path: Path, *, world: bool
) -> None:
    plan = Plan(tmp_path / "world", [AgentSpec("claude")], inherit=Inherit(world=world))
    (chain,) = plan.chains()
    journal = Journal()
    attempt = journal.open("r1", 1).work()
    attempt.checkpoint("boundary")
    end = CheckpointRef(**attempt.checkpoint("end"))
    attempt.commit([used(1)])
    first, second = (Begin(generation=number) for number in (1, 2))
    assert make_order(journal.state, chain, first, "exp-g001").world is None
    assert make_order(journal.state, chain, second, "exp-g002").world == (end if world else None)
    again = Begin(generation=2, origin=end)
    assert make_order(journal.state, chain, again, "exp-g002-r").world is None


@pytest.mark.parametrize(
    ("sandboxes", "family"), [((True, True), None), ((True, False), "r1"), ((False, False), "r1")]
)
def test_chains_that_know_the_same_address_are_of_one_family(
    tmp_path: Path, sandboxes: tuple[bool, bool], family: str | None
) -> None:
    agents = [AgentSpec("claude", sandbox=sandbox) for sandbox in sandboxes]
    (chain,) = Plan(tmp_path / "world", agents).chains()
    journal = Journal()
    source = journal.open("r1", 1).work().checkpoint()
    for name in ("r1-f1-1", "r1-f1-1-f1-1"):
        fork = {"source": source, "group": 1, "number": 1}
        journal.write("chain.forked", fork, chain=name)
        source = journal.open(name, 1).work().checkpoint()
    for name in ("r1", "r1-f1-1", "r1-f1-1-f1-1"):
        assert find_family(journal.state, attrs.evolve(chain, name=name)) == family
