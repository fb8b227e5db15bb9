"""Fields of plans that the command line sets with ``--set``."""

from __future__ import annotations

from typing import Any

import click
import pytest

from clawblox.cli.plan_options import add_cluster, parse_settings
from clawblox.errors import ConfigError
from clawblox.experiment.plan import AgentSpec, Cluster, Plan, Price
from clawblox.experiment.plan.dotted import apply_settings


def make_plan() -> Plan:
    return Plan("/worlds/panda", [AgentSpec("claude"), AgentSpec("codex")])


def parse(*texts: str) -> dict[str, Any]:
    context = click.Context(click.Command("run"))
    return parse_settings(context, click.Option(["--set"]), texts)


def apply(*texts: str) -> Plan:
    return apply_settings(make_plan(), parse(*texts))


def test_setting_values_are_parsed_as_toml_or_text() -> None:
    assert parse("a=8", "b=1.5", "c=true", 'd="8"', "e=[1, 2]", "f=72h", "g=x=y", "h=") == {
        "a": 8,
        "b": 1.5,
        "c": True,
        "d": "8",
        "e": [1, 2],
        "f": "72h",
        "g": "x=y",
        "h": "",
    }
    assert parse("a=1\nb = 2") == {"a": "1\nb = 2"}


def test_fields_at_any_depth_can_be_set() -> None:
    plan = apply("limits.worlds=8", "limits.wall=72h", "generations=20", "agents.*.model=m-1")
    assert (plan.limits.worlds, plan.limits.wall, plan.generations) == (8, 259200.0, 20)
    assert [agent.model for agent in plan.agents] == ["m-1", "m-1"]
    plan = apply("agents.Moa.model=m-2", "save=false", "checkpoint.every=false")
    assert [agent.model for agent in plan.agents] == [None, "m-2"]
    assert (plan.save, plan.checkpoint.every) == (None, None)


def test_names_in_mappings_may_contain_dots() -> None:
    plan = apply("limits.per_model.gpt-5.5=3", "prices.gpt-5.5={input = 1, output = 2}")
    assert dict(plan.limits.per_model) == {"gpt-5.5": 3}
    assert dict(plan.prices) == {"gpt-5.5": Price(input=1, output=2)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("limits.wolds=1", "limits.wolds: unknown path; did you mean limits.worlds?"),
        ("limits.worlds=0", "limits.worlds: must be a whole number, 1 or more, not 0"),
        ("agents.Ek.model=x", "agents.Ek.model: no agent is called 'Ek'"),
        ("name=other", "name: no such path"),
        ("layout=flat", "layout: no such path"),
        ("world=elsewhere", "world: no such path"),
        ("save.before=never", "save.before: must be seconds, above 0"),
    ],
)
def test_errors_name_the_whole_path(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        apply(text)
    assert str(caught.value).startswith(message)


def test_a_setting_without_a_value_is_refused() -> None:
    with pytest.raises(click.BadParameter, match="must be PATH=VALUE"):
        parse("limits.worlds")


def test_all_faults_of_settings_are_reported_together() -> None:
    with pytest.raises(ConfigError) as caught:
        apply("limits.worlds=x", "duration=1h", "generations=0", "nope=1")
    keys = [fault.key for fault in (caught.value, *caught.value.others)]
    assert keys == ["limits.worlds", "generations", "nope"]


def test_cluster_field_can_be_set_without_a_cluster_table() -> None:
    plan = apply("cluster.cpus=2", "cluster.resources.tpu=1")
    assert plan.cluster == Cluster(cpus=2, resources={"tpu": 1})
    assert apply_settings(plan, parse("cluster=false")).cluster is None


def test_a_setting_that_another_field_excludes_names_that_field() -> None:
    with pytest.raises(ConfigError) as caught:
        apply("tmux=watch", "cluster.cpus=2")
    assert str(caught.value).startswith("tmux: must be left out with a cluster")


def test_cluster_address_keeps_other_fields_of_the_table() -> None:
    settings = parse("cluster.cpus=2")
    plan = apply_settings(make_plan(), add_cluster(settings, "head:6379"))
    assert plan.cluster == Cluster(address="head:6379", cpus=2)
    assert add_cluster(settings, None) == settings


@pytest.mark.parametrize("text", ["none", ""])
def test_empty_cluster_address_means_this_machine(text: str) -> None:
    settings = add_cluster(parse("cluster.cpus=2"), text)
    assert apply_settings(apply("cluster.cpus=3"), settings).cluster is None
