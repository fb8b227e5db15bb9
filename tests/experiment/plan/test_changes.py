"""Changes of a plan at a resume: free, accepted by name, or never possible."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from clawblox import Budget
from clawblox.errors import ConfigError, PlanChangedError
from clawblox.experiment import AgentSpec, Condition, Plan, WorldSpec
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


def test_cluster_may_be_added_removed_or_changed_at_a_resume() -> None:
    there = OLD.but(cluster={"cpus": 2})
    changes = [*change(OLD, cluster={"cpus": 2}), *change(there, cluster=None)]
    changes += change(there, cluster={"cpus": 3, "memory": "3GB"})
    assert [(one.field, one.kind) for one in changes] == [
        ("cluster", "free"),
        ("cluster", "free"),
        ("cluster.cpus", "free"),
        ("cluster.memory", "free"),
    ]
    require_acceptable(changes)


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
        ({"cluster": {}}, {"cluster": "free"}),
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
        ({"world": "/b/worlds/panda"}, {"world.dir": "free"}),
        ({"world": "/a/worlds/carts", "name": "panda"}, {"world.dir": "never"}),
        ({"world": {"dir": "/a/worlds/panda", "env": {"A": "b"}}}, {"world.env.A": "never"}),
        ({"world": {"dir": "/a/worlds/panda", "port": 3}}, {"world.port": "free"}),
        ({"name": "other"}, {"name": "never"}),
        ({"conditions": [Condition("A")]}, {"conditions": "free", "chains": "never"}),
    ],
)
def test_each_field_has_a_kind(fields: dict[str, Any], changes: dict[str, str]) -> None:
    assert kinds(**fields) == changes


SINGLE = OLD.but(repeats=1, agents=[EKO])
COMMAND = AgentSpec("command", name="Oni", command={"argv": ["true"]})

FIELDS: dict[type, dict[str, tuple[str, dict[str, Any]]]] = {
    Plan: {
        "world": ("never", {"world": {"dir": "/a/worlds/panda", "record": False}}),
        "agents": ("never", {"agents": [EKO, MOA]}),
        "name": ("never", {"name": "other"}),
        "generations": ("free", {"generations": 4}),
        "duration": ("amendment", {"duration": "2h"}),
        "repeats": ("free", {"repeats": 2}),
        "seeds": ("free", {"seeds": [1], "repeats": 1}),
        "labels": ("free", {"labels": {"a": 1}}),
        "save": ("amendment", {"save": {"full": True}}),
        "checkpoint": ("free", {"checkpoint": {"keep": None}}),
        "inherit": ("never", {"inherit": {"workspace": False}}),
        "stop": ("amendment", {"stop": {"agents_ended": "any"}}),
        "limits": ("free", {"limits": {"worlds": 1}}),
        "retry": ("free", {"retry": {"attempts": 0}}),
        "sweep": ("free", {"sweep": {"duration": [60]}}),
        "conditions": ("free", {"conditions": [Condition("A")]}),
        "order": ("free", {"order": "depth"}),
        "prices": ("free", {"prices": {"m": {"input": 1, "output": 2}}}),
        "layout": ("never", {"layout": "flat"}),
        "run_prefix": ("never", {"run_prefix": "p"}),
        "cluster": ("free", {"cluster": {"cpus": 2}}),
        "tmux": ("free", {"tmux": "t"}),
        "prune": ("free", {"prune": False}),
        "score": ("free", {"score": "/a/scores:points"}),
        "naming": ("never", {"naming": 1}),
        "on_pause": ("free", {"on_pause": "https://example.org"}),
        "on_failure": ("free", {"on_failure": ["tell", "me"]}),
        "on_done": ("free", {"on_done": ["/bin/tell"]}),
    },
    WorldSpec: {
        "dir": ("never", {"dir": "/a/worlds/carts"}),
        "record": ("never", {"record": False}),
        "env": ("never", {"env": {"A": "b"}}),
        "port": ("free", {"port": 9000}),
        "port_wait": ("free", {"port_wait": 7}),
        "host": ("free", {"host": "0.0.0.0"}),
        "health_timeout": ("free", {"health_timeout": 7}),
        "datastore": ("never", {"datastore": "none"}),
    },
    AgentSpec: {
        "driver": ("never", {"driver": "kimi"}),
        "name": ("never", {"name": "Moa"}),
        "model": ("never", {"model": "opus"}),
        "binary": ("free", {"binary": "/b/claude"}),
        "template": ("amendment", {"template": "/t"}),
        "system_prompt": ("amendment", {"system_prompt": None}),
        "prompt": ("never", {"prompt": "Build."}),
        "env": ("free", {"env": ["A"]}),
        "version": ("amendment", {"version": "2"}),
        "sandbox": ("never", {"sandbox": True}),
        "claude_native_sandbox": ("never", {"claude_native_sandbox": True}),
        "permission_mode": ("never", {"permission_mode": "plan"}),
        "bare": ("never", {"bare": True}),
        "auto_continue": ("never", {"auto_continue": False}),
        "budget": ("amendment", {"budget": Budget(turns=3)}),
        "max_restarts": ("amendment", {"max_restarts": 0}),
        "stall_timeout": ("amendment", {"stall_timeout": None}),
        "request_rate": ("amendment", {"request_rate": 5}),
        "command": ("never", {"command": {"argv": ["false"]}}),
    },
}
"""By part of a plan and field: whether a resume may change it, and a change."""


@pytest.mark.parametrize("part", FIELDS)
def test_every_field_of_a_plan_has_a_rule_for_changes(part: Any) -> None:
    assert FIELDS[part].keys() == {field.name for field in attrs.fields(part)}
    for name, (kind, fields) in FIELDS[part].items():
        old = SINGLE
        if part is WorldSpec:
            fields = {"world": {"dir": "/a/worlds/panda", **fields}}
        elif part is AgentSpec:
            agent = COMMAND if name == "command" else EKO
            old = SINGLE.but(agents=[agent])
            fields = {"agents": [agent.but(**fields)]}
        # A missing chain is reported in addition to the changed field.
        changes = [one for one in change(old, **fields) if one.field != "chains"]
        assert {one.kind for one in changes} == {kind}, name


def test_moved_program_is_a_free_change_but_another_program_is_not() -> None:
    words = ["{prompt}"]
    agent = COMMAND.but(command={"start": ["/a/bin/agent", *words]})
    old = SINGLE.but(agents=[agent])
    for program, kind in (
        ("/b/agent", "free"),
        ("{workspace}/agent", "free"),
        ("/a/bin/other", "never"),
        ("agent", "free"),
    ):
        moved = agent.but(command={"start": [program, *words]})
        assert [one.kind for one in change(old, agents=[moved])] == [kind]
    other = agent.but(command={"start": ["/a/bin/agent", "-v", *words]})
    assert [one.kind for one in change(old, agents=[other])] == ["never"]


SWEPT = OLD.but(sweep={"agents.*.model": ["fable", "opus"]})


def test_additional_values_and_conditions_are_free_changes() -> None:
    longer = {"agents.*.model": ["fable", "opus", "haiku"]}
    changes = change(SWEPT, sweep=longer, conditions=[Condition("A", {"duration": 60})])
    assert {one.field: one.kind for one in changes} == {
        "sweep.agents.*.model": "free",
        "conditions": "free",
    }


def test_change_of_an_unused_value_is_ignored() -> None:
    assert change(SWEPT, agents=agents(model="unused")) == ()


def test_a_chain_whose_name_now_means_another_condition_is_never_resumed() -> None:
    (swept, model) = change(SWEPT, sweep={"agents.*.model": ["a/opus", "fable", "b/opus"]})[:2]
    assert (swept.kind, model) == (
        "free",
        PlanChange("agents.Eko.model", "opus", "a/opus", "never"),
    )


@pytest.mark.parametrize(
    ("duration", "old", "new", "is_changed"),
    [
        (3600, 300, None, False),
        (600, 300, None, False),
        (600, 150, None, False),
        (600, None, 150, False),
        (600, None, 300, True),
        (3600, None, 300, False),
        (3600, 120, None, True),
        (3600, 120, 60, True),
    ],
)
def test_default_saving_time_written_by_an_earlier_version_is_not_a_change(
    duration: float, old: float | None, new: float | None, *, is_changed: bool
) -> None:
    plan = OLD.but(duration=duration, save={"before": old})
    assert [one.field for one in change(plan, save={"before": new})] == (
        ["save.before"] if is_changed else []
    )
    assert [one.field for one in change(plan, save={"before": old}, duration=60)] == ["duration"]


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
        "  to change agents.Eko.model: start another experiment (--name NEW), or fork",
    ]


OLD_SAVE = (
    "{'prompt': 'You will be reset in 5 minutes. Update your workspace memory files now.',"
    " 'full': False}"
)


def test_unchangeable_field_cannot_be_accepted() -> None:
    changes = change(OLD, agents=agents(model="opus"))
    with pytest.raises(PlanChangedError):
        require_acceptable(changes, ["duration", "budget", "world"])


def test_a_score_that_has_moved_is_a_free_change() -> None:
    old, new = (OLD.but(score=f"/{place}/scores:points") for place in "ab")
    (only,) = compare(old, new)
    assert only == PlanChange("score", old.score, new.score, "free")
    assert compare(old, old) == ()
    assert [one.kind for one in compare(OLD, new)] == ["free"]
