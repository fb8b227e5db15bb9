"""Plans: values are checked, parts can be mappings, and errors name the field."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest

from clawblox import Budget
from clawblox.errors import ConfigError
from clawblox.experiment import AgentSpec, Condition, Limits, Plan, Retry, Save, WorldSpec

EKO = AgentSpec("claude", model="claude-fable-5")


def plan(**fields: Any) -> Plan:
    return Plan(**{"world": "worlds/panda", "agents": [EKO], **fields})


def error(**fields: Any) -> str:
    """Return the first line of the error that a plan with these fields raises."""
    with pytest.raises(ConfigError) as caught:
        plan(**fields)
    return str(caught.value).splitlines()[0]


def test_a_plan_of_a_world_and_an_agent_has_one_chain() -> None:
    simple = plan()
    (chain,) = simple.chains()
    assert (simple.name, chain.name, chain.index, chain.repeat) == ("panda", "r1", 0, 1)
    assert chain.plan == simple
    assert simple.world.dir == Path("worlds/panda").absolute()


def test_agents_without_a_name_get_the_usual_names_by_position() -> None:
    ten = plan(agents=[EKO] * 9 + [EKO.but(name="Last")])
    names = "Eko Moa Rua Tavi Oni Zev Ika Pala Agent8 Last"
    assert " ".join(str(agent.name) for agent in ten.agents) == names


def test_parts_can_be_mappings_and_durations_and_sizes_can_be_text() -> None:
    given = plan(
        agents=[{"driver": "codex", "budget": {"turns": 3}}],
        duration="1.5h",
        save={"before": "2m"},
        limits={"worlds": 6, "wall": "2d", "min_free": "5GB"},
        retry={"from": "template", "pause_after": 90},
        conditions=[{"name": "short", "set": {"duration": "30m"}}],
    )
    assert given == plan(
        agents=[AgentSpec("codex", name="Eko", budget=Budget(turns=3))],
        duration=5400,
        save=Save(before=120),
        limits=Limits(worlds=6, wall=172800.0, min_free=5_000_000_000),
        retry=Retry(source="template", pause_after=90),
        conditions=[Condition("short", {"duration": 1800.0})],
    )
    assert hash(given) == hash(given.but())


def test_false_means_none() -> None:
    none = plan(save=False, checkpoint={"every": False, "keep": False}, limits={"min_free": False})
    assert none.save is None
    assert (none.checkpoint.every, none.checkpoint.keep, none.limits.min_free) == (None,) * 3


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"generations": 0}, "generations: must be a whole number, 1 or more, not 0"),
        ({"agents": []}, "agents: must be a list of at least one agent"),
        (
            {"agents": [EKO, {"driver": "kimi", "modle": "b"}]},
            "agents.1.modle: unknown key; did you mean model?",
        ),
        (
            {"agents": [EKO, {"driver": "kimi", "budget": {"turns": 0}}]},
            "agents.1.budget.turns: must be a whole number, 1 or more, not 0",
        ),
        (
            {"agents": [{"driver": "cluade"}]},
            "agents.0.driver: must be one of claude, codex, kimi, opencode, acp",
        ),
        ({"agents": [{"model": "m"}]}, "agents.0.driver: missing"),
        (
            {"agents": [EKO.but(name="Moa"), EKO]},
            "agents.1.name: must be a name that no other agent has, not 'Moa'",
        ),
        ({"agents": [{"driver": "kimi", "name": "a-r3"}]}, "agents.0.name: must be a letter"),
        (
            {"agents": [{"driver": "kimi", "env": ["KEY=hush"]}]},
            "agents.0.env: must be names of environment variables, not 'KEY'",
        ),
        (
            {"world": {"dir": "w", "env": {"API_KEY": "hush"}}},
            "world.env.API_KEY: must be left out",
        ),
        ({"duration": "soon"}, "duration: must be seconds, above 0"),
        ({"duration": float("inf")}, "duration: must be seconds, above 0"),
        ({"retry": {"from": "x"}}, "retry.from: must be checkpoint or template, not 'x'"),
        (
            {"save": True},
            'save: must be a table such as {"prompt": "…"}, or False, not True',
        ),
        ({"seeds": [1, 2, 1]}, "seeds: must be different numbers, not 1 twice"),
        ({"seeds": [1], "repeats": 2}, "repeats: must be left out with seeds"),
        (
            {"name": ".."},
            "name: must be 1 to 64 characters, the first neither '.' nor '-', not '..'",
        ),
        ({"prices": {"m": {"input": 1}}}, "prices.m.output: missing"),
        (
            {"layout": "flat", "repeats": 2},
            "layout: must be chains for an experiment of 2 chains, not 'flat'",
        ),
        (
            {"inherit": {"world": True}, "checkpoint": {"end": False}},
            "checkpoint.end: must be true if worlds are inherited",
        ),
        (
            {"repeats": 9999, "sweep": {"duration": [1, 2]}},
            "repeats: must be at most 10000 chains, not 19998",
        ),
        (
            {"sweep": {"agents.*.modle": ["m"]}},
            "sweep.agents.*.modle: unknown path; did you mean agents.*.model?",
        ),
        (
            {"sweep": {"agents.Ekko.model": ["m"]}},
            "sweep.agents.Ekko.model: no agent is called 'Ekko'",
        ),
        ({"sweep": {"generations": [1]}}, "sweep.generations: no such path"),
        ({"sweep": {"agents.Eko.name": ["m"]}}, "sweep.agents.Eko.name: unknown path"),
        (
            {"sweep": {"save": [{"befor": 3}]}},
            "sweep.save: save.befor: unknown key; did you mean before?",
        ),
        ({"sweep": {"world": ["m"]}}, "sweep.world: no such path"),
        ({"sweep": {"score": ["scores:a"]}}, "sweep.score: no such path"),
        *(
            (
                {"score": score},
                f"score: must be a module and a function, such as scores:cubes, not {score!r}",
            )
            for score in ("scores", "scores.py:cubes()", ":cubes", "scores:", "a b:cubes", 7, True)
        ),
        (
            {"sweep": {"duration": ["1h", 3600]}},
            "sweep.duration: must be different values; this value appears twice",
        ),
        ({"sweep": {"duration": 3}}, "sweep.duration: must be a list of at least one value, not 3"),
        ({"sweep": {"save.before": [-1]}}, "sweep.save.before: must be seconds, above 0"),
        (
            {"conditions": [Condition("a"), Condition("a")]},
            "conditions.1.name: must be a name that no other condition has, not 'a'",
        ),
        (
            {"sweep": {"agents.*.model": ["opus"]}, "conditions": [Condition("opus")]},
            "conditions.0.name: must differ from the names of swept conditions",
        ),
        (
            {"name": "x" * 64, "agents": [EKO.but(name="y" * 32)]},
            "name: must be shorter by 3 characters, as names of agents contain it",
        ),
    ],
)
def test_errors_begin_with_the_field_and_the_problem(fields: dict[str, Any], text: str) -> None:
    assert error(**fields).startswith(text)


def test_an_error_never_shows_a_value_that_may_be_secret() -> None:
    for fields in (
        {"agents": [{"driver": "kimi", "env": ["KEY=hush"]}]},
        {"agents": [{"driver": "kimi", "env": ["sk-ant-hush"]}]},
        {"agents": [{"driver": "kimi", "env": "KEY=hush"}]},
        {"agents": [{"driver": "kimi", "env": {"KEY": "hush"}}]},
        {"agents": [{"driver": "kimi", "environ": {"KEY": "hush"}}]},
        {"world": WORLD_WITH_KEY},
    ):
        with pytest.raises(ConfigError) as caught:
            plan(**fields)
        assert "hush" not in str(caught.value)


WORLD_WITH_KEY = {"dir": "w", "env": {"API_KEY": "hush"}}


def test_plans_can_be_copied_and_sent_to_other_processes() -> None:
    rich = plan(labels={"a": 1}, sweep={"agents.*.model": ["a", "b"]}, prices={"m": PRICE})
    assert pickle.loads(pickle.dumps(rich)) == copy.deepcopy(rich) == rich


PRICE = {"input": 1, "output": 2}


def test_the_world_can_be_an_address() -> None:
    address = "https://github.com/someone/worlds/tree/main/panda"
    assert plan(world=address).world == WorldSpec(address)
    assert plan(world=address).name == "panda"


@pytest.mark.parametrize(
    ("limits", "key"),
    [({"agents": 1}, "limits.agents"), ({"per_model": {"opus": 1}}, "limits.per_model.opus")],
)
def test_limits_that_prevent_every_start_are_refused(limits: dict[str, object], key: str) -> None:
    agents = [AgentSpec("claude", model="opus"), AgentSpec("claude", model="opus")]
    with pytest.raises(ConfigError, match="at least 2") as caught:
        Plan("worlds/panda", agents, limits=limits)
    assert caught.value.key == key


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("agent", "the key of its driver is 'driver'"),
        ("dir", "the experiment gives each agent a directory"),
        ("tmux", "the key 'tmux' of the plan"),
        ("restart_window", "'max_restarts' counts within 600 s"),
    ],
)
def test_agent_option_that_plans_do_not_support_is_refused_with_the_reason(
    option: str, reason: str
) -> None:
    text = f'[world]\ndir = "w"\n[[agents]]\ndriver = "claude"\n{option} = "x"\n'
    with pytest.raises(ConfigError, match=rf"agents.0.{option}: must be left out") as raised:
        Plan.loads(text)
    assert reason in str(raised.value)


def test_restarts_silence_and_request_rate_of_agents_are_fields_of_plans() -> None:
    limits = 'max_restarts = 0\nstall_timeout = "20m"\nrequest_rate = false\n'
    text = f'[world]\ndir = "w"\n[[agents]]\ndriver = "claude"\n{limits}'
    plan = Plan.loads(text)
    (agent,) = plan.agents
    assert (agent.max_restarts, agent.stall_timeout, agent.request_rate) == (0, 1200.0, None)
    assert Plan.loads(plan.dumps()) == plan
    with pytest.raises(
        ConfigError, match=r"agents\.0\.stall_timeout: must be seconds, above 0, or a"
    ):
        Plan.loads(text.replace('"20m"', "0"))


def test_options_inherited_by_plans_accept_durations_and_false() -> None:
    world = WorldSpec("w", health_timeout="2m", datastore=False)  # type: ignore[arg-type]
    assert (world.health_timeout, world.datastore) == (120.0, None)
    agent = AgentSpec("claude", model=False, binary=False)
    assert (agent.model, agent.binary) == (None, None)
    with pytest.raises(ConfigError, match="health_timeout: must be seconds, above 0, or a dur"):
        WorldSpec("w", health_timeout=float("inf"))
