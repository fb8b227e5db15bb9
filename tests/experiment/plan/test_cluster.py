"""The table ``[cluster]`` of a plan, in Python and in TOML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clawblox.errors import ConfigError
from clawblox.experiment import AgentSpec, Cluster, Plan, WorldSpec

DOCUMENT = """\
world = { dir = "panda", port = 8000 }
tmux = "watch"

[[agents]]
driver = "claude"

[cluster]
address = "ray://head:10001"
lease = "4s"
"""


def make_plan(**fields: Any) -> Plan:
    return Plan(**{"world": "/worlds/panda", "agents": [AgentSpec("claude")], **fields})


def test_a_plan_without_the_table_has_no_cluster_and_writes_none() -> None:
    plan = make_plan()
    assert plan.cluster is None
    assert "cluster" not in plan.dumps()
    assert make_plan(cluster=False).cluster is None


def test_a_table_can_be_a_mapping_or_a_cluster_and_survives_its_file() -> None:
    table = {"cpus": 2, "memory": "3GB", "lease": "45s", "resources": {"tpu.v4": 1.5}}
    plan = make_plan(cluster=table)
    assert plan.cluster == Cluster(
        cpus=2.0, memory=3 * 10**9, lease=45.0, resources={"tpu.v4": 1.5}
    )
    assert make_plan(cluster=plan.cluster) == plan == Plan.loads(plan.dumps())
    assert hash(plan.cluster) == hash(Plan.loads(plan.dumps()).cluster)
    assert make_plan(cluster={}).cluster == Cluster()


@pytest.mark.parametrize("address", ["auto", "head:6379", "10.0.0.1:1", "[fd00::1]:65535"])
def test_an_address_is_auto_or_a_host_with_a_port(address: str) -> None:
    assert Cluster(address=address).address == address


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"address": "ray://h:1"}, 'cluster.address: must be "auto" or "host:port", not \'ray://'),
        *(
            ({"address": text}, 'cluster.address: must be "auto" or "host:port"')
            for text in ("", "head", "head:0", "head:65536", "head:x", "http://head:1", 7)
        ),
        ({"cpus": -1}, "cluster.cpus: must be a number, 0 or more, not -1.0"),
        ({"cpus": True}, "cluster.cpus: must be a number, 0 or more, not True"),
        ({"cpus": float("nan")}, "cluster.cpus: must be a number, 0 or more, not nan"),
        ({"memory": "much"}, "cluster.memory: must be bytes above 0"),
        ({"gpus": 0.5}, "cluster.gpus: must be a whole number, 0 or more, not 0.5"),
        ({"resources": [1]}, "cluster.resources: must be a mapping of names to amounts"),
        ({"resources": {"a": "b"}}, "cluster.resources.a: must be a number, 0 or more, not 'b'"),
        ({"lease": "9s"}, "cluster.lease: must be 10 to 3600 seconds, not 9.0"),
        ({"lease": "61m"}, "cluster.lease: must be 10 to 3600 seconds, not 3660.0"),
        ({"lease": True}, "cluster.lease: must be seconds, above 0"),
        ({"keys": "both"}, "cluster.keys: must be driver or node, not 'both'"),
        ({"trusted_network": 1}, "cluster.trusted_network: must be True or False, not 1"),
        ({"cpu": 1}, "cluster.cpu: unknown key; did you mean cpus?"),
        ("auto", "cluster: must be Cluster, or a table of its fields (address, cpus, memory, …)"),
    ],
)
def test_an_error_names_the_key_and_the_value(table: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_plan(cluster=table)
    assert str(caught.value).startswith(message)


def test_the_refusal_of_a_ray_client_address_says_what_to_do() -> None:
    with pytest.raises(ConfigError) as caught:
        Cluster(address="ray://head:10001")
    assert "run the experiment on a node" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({"tmux": "watch"}, "tmux"),
        ({"world": WorldSpec("/worlds/panda", port=8000)}, "world.port"),
        ({"world": WorldSpec("/worlds/panda", host="0.0.0.0")}, "world.host"),
        ({"sweep": {"world.port": [8000, 8001]}}, "sweep.world.port"),
    ],
)
def test_settings_for_this_machine_are_refused_with_a_cluster(
    fields: dict[str, Any], key: str
) -> None:
    make_plan(**fields)
    with pytest.raises(ConfigError, match="must be left out with a cluster") as caught:
        make_plan(cluster={}, **fields)
    assert caught.value.key == key


@pytest.mark.parametrize("path", ["cluster", "cluster.cpus"])
def test_conditions_cannot_change_the_cluster(path: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_plan(sweep={path: [1, 2]})
    message = f"sweep.{path}: no such path: cluster is the same in all conditions"
    assert str(caught.value).startswith(message)


def test_all_faults_of_a_file_are_found_with_their_lines(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(DOCUMENT)
    with pytest.raises(ConfigError) as caught:
        Plan.load(tmp_path / "plan.toml")
    faults = [(fault.key, fault.line) for fault in (caught.value, *caught.value.others)]
    assert faults == [
        ("cluster.address", 8),
        ("cluster.lease", 9),
        ("tmux", 2),
        ("world.port", 1),
    ]
