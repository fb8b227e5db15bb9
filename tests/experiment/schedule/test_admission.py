"""Admission of attempts to places."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawblox.experiment.plan import AgentSpec, Plan
from clawblox.experiment.schedule.admission import make_slot
from tests.experiment.journals import Journal


@pytest.mark.parametrize(
    ("sandboxes", "family"), [((True, True), None), ((True, False), "r1"), ((False, False), "r1")]
)
def test_chains_with_the_same_address_run_one_at_a_time(
    tmp_path: Path, sandboxes: tuple[bool, bool], family: str | None
) -> None:
    agents = [AgentSpec("claude", sandbox=sandbox) for sandbox in sandboxes]
    plan = Plan(tmp_path / "world", agents)
    journal = Journal()
    source = journal.open("r1", 1).work().checkpoint()
    for name in ("r1-f1-1", "r1-f1-1-f1-1"):
        fork = {"source": source, "group": 1, "number": 1}
        journal.write("chain.forked", fork, chain=name)
        source = journal.open(name, 1).work().checkpoint()
    plans = journal.plans(plan)
    slots = [make_slot(plans, chain, 1) for chain in plans.chains.values()]
    assert [slot.address_group for slot in slots] == [family] * 3
