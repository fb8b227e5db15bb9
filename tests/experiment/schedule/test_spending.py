"""Costs and spending, with and without the costs that programs report."""

from __future__ import annotations

import attrs
import pytest

from clawblox.agents.values import Usage
from clawblox.experiment.plan import AgentSpec
from clawblox.experiment.plan.parts import Price
from clawblox.experiment.schedule.spending import Cost, compute_cost, sum_costs
from tests.experiment.fakes import Fault, Simulation, check_history, make_plan
from tests.experiment.journals import used

pytestmark = pytest.mark.anyio

PRICE = Price(input=10.0, output=100.0)
PRICES = {"gpt-6": {"input": 0.0, "output": 100.0}}  # as the fakes report


def test_reported_cost_is_not_an_estimate() -> None:
    assert compute_cost(used(10, 2.0), PRICE) == Cost(2.0)


def test_a_cost_that_is_not_reported_is_estimated_from_the_price() -> None:
    usage = Usage(input_tokens=1_000_000, output_tokens=10_000)
    assert compute_cost(usage, PRICE) == Cost(11.0, is_estimated=True)


def test_cached_tokens_have_their_own_price_or_the_input_price() -> None:
    usage = Usage(cached_tokens=100_000, cache_write_tokens=10_000)
    assert compute_cost(usage, PRICE).usd == pytest.approx(1.1)
    price = attrs.evolve(PRICE, cached=1.0, cache_write=20.0)
    assert compute_cost(usage, price).usd == pytest.approx(0.3)


def test_a_sum_with_an_unknown_cost_is_unknown() -> None:
    assert compute_cost(used(10), None) == Cost(None)
    assert sum_costs([Cost(1.0), Cost(None), Cost(2.0, is_estimated=True)]) == Cost(None, True)


def test_cost_of_unreported_turns_is_unknown() -> None:
    for price in (None, PRICE):
        assert compute_cost(Usage(turns=1), price) == Cost(None)
    assert compute_cost(Usage(turns=1, cost_usd=0.0), None) == Cost(0.0)


def test_an_agent_without_usage_costs_zero() -> None:
    assert compute_cost(Usage(), None) == compute_cost(Usage(), PRICE) == Cost(0.0)


def make_simulation(limit: float) -> Simulation:
    """Return an experiment whose programs report no costs."""
    agents = [AgentSpec("codex", name="Eko", model="gpt-6")]
    plan = make_plan(generations=5, repeats=2, limits={"dollars": limit}, prices=PRICES)
    simulation = Simulation(plan.but(agents=agents))
    simulation.backend.reports_cost = False
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


async def test_lost_attempts_are_priced_too() -> None:
    simulation = make_simulation(100.0)
    simulation.backend.faults["r1"] = [Fault(1000.0, "world")]
    assert await simulation.run()
    check_history(simulation)
    spent = [
        usage.output_tokens for ledger in simulation.backend.ledgers.values() for usage in ledger
    ]
    assert simulation.scheduler.spending.ended_usd == pytest.approx(sum(spent) * 1e-4)
    assert len(spent) == 11
