"""The plan of a smoke run: kept and shortened parts of the original plan."""

from __future__ import annotations

from typing import Any

from clawblox.experiment import AgentSpec, Condition, Plan
from clawblox.experiment.plan.smoke import SMOKE_S, first_chains, make_smoke_plan

SWEEP = {
    "agents.*.model": ["claude-fable-5", "claude-opus-4-8"],
    "duration": ["1h", "2h"],
    "save.before": ["5m"],
}


def plan(**fields: Any) -> Plan:
    return Plan("/worlds/panda", [AgentSpec("claude", budget={"turns": 3})], **fields)


def test_each_condition_has_one_short_generation() -> None:
    given = plan(sweep=SWEEP, generations=9, seeds=[7, 8, 9], save={"before": "10m"})
    smoke = make_smoke_plan(given)
    chains = smoke.chains()
    assert [chain.name for chain in chains] == [
        "fable-duration3600-before300-s7",
        "fable-duration7200-before300-s7",
        "opus-duration3600-before300-s7",
        "opus-duration7200-before300-s7",
    ]
    assert [chain.name for chain in chains] == [chain.name for chain in first_chains(given)]
    assert {chain.plan.duration for chain in chains} == {SMOKE_S}
    assert {chain.plan.saving_s for chain in chains} == {SMOKE_S / 4}
    assert [chain.plan.agents[0].model for chain in chains[1:3]] == SWEEP["agents.*.model"]
    assert (smoke.generations, smoke.retry.attempts, smoke.limits.wall) == (1, 0, None)
    assert smoke.agents[0].budget == given.agents[0].budget


def test_a_smoke_run_sends_no_notices_and_waits_for_no_limit() -> None:
    smoke = make_smoke_plan(plan(on_pause=["tell"], on_done="https://a.org", tmux="t"))
    assert (smoke.on_pause, smoke.on_failure, smoke.on_done, smoke.tmux) == (None,) * 4
    assert smoke.retry.longest_pause == 1.0
    assert [chain.name for chain in smoke.chains()] == ["r1"]


def test_smoke_plan_shortens_only_the_saving_time_of_a_condition_with_a_save() -> None:
    save = {"prompt": "Write it down.", "before": "5m"}
    smoke = make_smoke_plan(plan(conditions=[Condition("A", {"save": save}), Condition("B")]))
    first, _ = smoke.chains()
    assert first.plan.save is not None
    assert (first.plan.save.prompt, first.plan.saving_s) == ("Write it down.", SMOKE_S / 4)


def test_a_long_name_does_not_prevent_a_smoke_run() -> None:
    prompts = ["Play the game. " * 9, "Play the game. " * 10]
    sweep = {"agents.*.prompt": prompts, "agents.*.model": ["m" * 30, "n" * 30]}
    assert len(make_smoke_plan(plan(name="x" * 50, sweep=sweep)).chains()) == 4
