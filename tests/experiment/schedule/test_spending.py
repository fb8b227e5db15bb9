"""What an experiment has spent, with and without the costs that programs report."""

from __future__ import annotations

import pytest

from clawblox.experiment.plan import AgentSpec
from tests.experiment.fakes import Simulation, Trouble, check_history, make_plan

pytestmark = pytest.mark.anyio

PRICES = {"gpt-6": {"input": 0.0, "output": 100.0}}  # as the fakes report


def make_simulation(limit: float) -> Simulation:
    """Return an experiment whose programs report no costs."""
    agents = [AgentSpec("codex", name="Eko", model="gpt-6")]
    plan = make_plan(generations=5, repeats=2, limits={"dollars": limit}, prices=PRICES)
    simulation = Simulation(plan.but(agents=agents))
    simulation.workshop.reports_cost = False
    return simulation


async def test_prices_limit_the_cost_of_programs_that_report_none() -> None:
    simulation = make_simulation(0.89)
    assert await simulation.run()
    committed = [line for line in simulation.journal.lines if line.type == "committed"]
    assert [line.data["ended_by"] for line in committed] == ["duration"] * 2 + ["dollars"] * 2
    assert 0.89 <= simulation.scheduler.spending.ended_usd < 1.0
    before = len(simulation.journal.lines)
    assert await simulation.run()
    assert [line.type for line in simulation.journal.lines[before:]] == [
        "session.begun",
        "session.ended",
    ]


async def test_lost_attempts_have_a_price_too() -> None:
    simulation = make_simulation(100.0)
    simulation.workshop.troubles["r1"] = [Trouble(1000.0, "world")]
    assert await simulation.run()
    check_history(simulation)
    spent = [
        usage.output_tokens for ledger in simulation.workshop.ledgers.values() for usage in ledger
    ]
    assert simulation.scheduler.spending.ended_usd == pytest.approx(sum(spent) * 1e-4)
    assert len(spent) == 11
