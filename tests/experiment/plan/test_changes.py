"""What a resume may change of a plan: freely, by name, or never."""

from __future__ import annotations

from typing import Any

import pytest

from clawblox import Budget
from clawblox.errors import ConfigError, PlanChangedError
from clawblox.experiment import AgentSpec, Condition, Plan
from clawblox.experiment.plan.changes import compare, require_acceptable
from clawblox.results import PlanChange

EKO = AgentSpec("claude", name="Eko", model="fable", system_prompt="/a/system.md")
MOA = AgentSpec("codex", name="Moa")
OLD = Plan("/a/worlds/panda", [EKO, MOA], generations=3, repeats=2)


def change(old: Plan, **fields: Any) -> tuple[PlanChange, ...]:
    return compare(old, old.but(**fields))


def kinds(**fields: Any) -> dict[str, str]:
    return {one.field: one.kind for one in change(OLD, **fields)}


def agents(**fields: Any) -> list[AgentSpec]:
    return [EKO.but(**fields), MOA]


def test_the_same_plan_has_no_changes() -> None:
    assert compare(OLD, OLD) == ()
    assert compare(OLD, Plan.loads(OLD.dumps())) == ()


@pytest.mark.parametrize(
    ("fields", "changes"),
    [
        ({"limits": {"dollars": 3}}, {"limits.dollars": "free"}),
        ({"generations": 4}, {"generations": "free"}),
        ({"generations": 2}, {"generations": "never"}),
        ({"repeats": 3}, {"repeats": "free"}),
        ({"repeats": 1}, {"repeats": "free", "chains": "never"}),
        ({"repeats": 1, "seeds": [1, 2]}, {"repeats": "free", "seeds": "free", "chains": "never"}),
        ({"retry": {"from": "template"}}, {"retry.from": "free"}),
        ({"checkpoint": {"every": None}}, {"checkpoint.every": "free"}),
        ({"labels": {"a": 1}, "tmux": "x"}, {"labels.a": "free", "tmux": "free"}),
        ({"prices": {"m": {"input": 1, "output": 2}}}, {"prices.m": "free"}),
        ({"order": "depth"}, {"order": "free"}),
        ({"duration": "2h"}, {"duration": "amendment"}),
        ({"save": False}, {"save": "amendment"}),
        ({"save": {"before": 3}}, {"save.before": "amendment"}),
        ({"stop": {"world_time": 3}}, {"stop.world_time": "amendment"}),
        ({"agents": agents(budget=Budget(turns=3))}, {"agents.Eko.budget": "amendment"}),
        ({"agents": agents(version="2")}, {"agents.Eko.version": "amendment"}),
        ({"agents": agents(system_prompt=None)}, {"prompts": "amendment"}),
        ({"agents": agents(template="/t")}, {"templates": "amendment"}),
        ({"agents": agents(system_prompt="/elsewhere/system.md")}, {}),
        (
            {"agents": agents(env=["A"], binary="/b/claude")},
            dict.fromkeys(["agents.Eko.binary", "agents.Eko.env"], "free"),
        ),
        ({"agents": agents(model="opus")}, {"agents.Eko.model": "never"}),
        ({"agents": agents(driver="kimi")}, {"agents.Eko.driver": "never"}),
        ({"agents": agents(sandbox=True)}, {"agents.Eko.sandbox": "never"}),
        ({"agents": [EKO]}, {"agents": "never"}),
        ({"agents": [MOA, EKO]}, {"agents": "never"}),
        ({"inherit": {"world": True}}, {"inherit.world": "never"}),
        ({"world": "/b/worlds/panda"}, {}),
        ({"world": "/a/worlds/carts", "name": "panda"}, {"world.dir": "never"}),
        ({"world": {"dir": "/a/worlds/panda", "env": {"A": "b"}}}, {"world.env.A": "never"}),
        ({"world": {"dir": "/a/worlds/panda", "port": 3}}, {"world.port": "free"}),
        ({"name": "other"}, {"name": "never"}),
        ({"conditions": [Condition("A")]}, {"conditions": "free", "chains": "never"}),
    ],
)
def test_each_field_has_a_kind(fields: dict[str, Any], changes: dict[str, str]) -> None:
    assert kinds(**fields) == changes


SWEPT = OLD.but(sweep={"agents.*.model": ["fable", "opus"]})


def test_further_values_and_conditions_are_free() -> None:
    longer = {"agents.*.model": ["fable", "opus", "haiku"]}
    changes = change(SWEPT, sweep=longer, conditions=[Condition("A", {"duration": 60})])
    assert {one.field: one.kind for one in changes} == {
        "sweep.agents.*.model": "free",
        "conditions": "free",
    }


def test_a_value_that_no_chain_uses_is_no_change() -> None:
    assert change(SWEPT, agents=agents(model="unused")) == ()


def test_a_chain_whose_name_now_means_another_condition_is_never_resumed() -> None:
    (swept, model) = change(SWEPT, sweep={"agents.*.model": ["a/opus", "fable", "b/opus"]})[:2]
    assert (swept.kind, model) == (
        "free",
        PlanChange("agents.Eko.model", "opus", "a/opus", "never"),
    )


def test_amendments_are_accepted_by_name() -> None:
    changes = change(OLD, save={"before": 3}, agents=agents(budget=Budget(turns=3)), order="depth")
    require_acceptable(changes, {"save", "budget"})
    with pytest.raises(PlanChangedError) as caught:
        require_acceptable(changes, ["save"])
    assert [one.field for one in caught.value.changes] == ["agents.Eko.budget"]
    with pytest.raises(ConfigError, match="accept: must be one of") as wrong:
        require_acceptable(changes, ["budgets"])
    assert wrong.value.hint == "did you mean budget?"


def test_the_error_lists_old_and_new_values_and_the_ways_to_continue() -> None:
    changes = change(OLD, duration="2h", save=False, agents=agents(model="opus", template="/t"))
    with pytest.raises(PlanChangedError) as caught:
        require_acceptable(changes)
    assert str(caught.value).splitlines() == [
        "the plan differs in 4 fields from the plan of the experiment",
        "  agents.Eko.model: was 'fable', is 'opus'",
        "  templates: was not set, is 't'",
        "  duration: was 3600.0, is 7200.0",
        f"  save: was {OLD_SAVE}, is False",
        "  accept for later generations: --accept templates --accept duration --accept save",
        "  for another agents.Eko.model: begin another experiment (--name NEW), or fork",
    ]


OLD_SAVE = (
    "{'prompt': 'You will be reset in 5 minutes. Update your workspace memory files now.',"
    " 'before': 300.0, 'full': False}"
)


def test_never_is_never_accepted() -> None:
    changes = change(OLD, agents=agents(model="opus"))
    with pytest.raises(PlanChangedError):
        require_acceptable(changes, ["duration", "budget", "world"])
