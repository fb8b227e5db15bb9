"""The engine on real Ray clusters of this machine; the drivers are those of ``ray_scenarios``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.experiment.cluster.ray_clusters import TOKEN, RayCluster, ray_cluster

pytestmark = pytest.mark.ray
SCENARIOS = Path(__file__).with_name("ray_scenarios.py")
WITH_MORE_WORDS = {
    "nobody_waits_for_a_head_that_is_stopped",
    "a_killed_raylet_ends_only_its_hosts",
    "a_token_is_enough_on_one_machine",
    "a_driver_without_token_is_refused",
}
NAMES = re.findall(r"^def (\w+)\(address.*\) -> None:", SCENARIOS.read_text(), re.MULTILINE)
HEAD = {"node_name": "alpha", "num_cpus": 4, "resources": {"seat": 1}}
OTHER = {"node_name": "beta", "num_cpus": 4}


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with ray_cluster(HEAD, OTHER) as running:
        yield running


def play(
    scenario: str, cluster: RayCluster, *words: str, env: Mapping[str, str] | None = None
) -> None:
    program = "from tests.experiment.cluster.ray_scenarios import run; run()"
    done = cluster.drive("-c", program, scenario, cluster.address, *words, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("scenario", sorted({*NAMES} - WITH_MORE_WORDS))
def test_scenario_succeeds_on_two_nodes(scenario: str, cluster: RayCluster) -> None:
    play(scenario, cluster)


def test_stopped_head_does_not_block_callers(cluster: RayCluster) -> None:
    play("nobody_waits_for_a_head_that_is_stopped", cluster, str(cluster.head))


def test_driver_token_does_not_count_as_cluster_token(cluster: RayCluster) -> None:
    play("a_cluster_without_token_is_warned_about", cluster, env=TOKEN)


def test_a_killed_raylet_ends_only_its_hosts() -> None:
    with ray_cluster(HEAD, OTHER) as cluster:
        node = cluster.add_node(node_name="gamma", resources={"victim": 1})
        play("a_killed_raylet_ends_only_its_hosts", cluster, str(node["raylet"]))


def test_a_cluster_with_a_token_refuses_a_driver_without_it() -> None:
    with ray_cluster(HEAD, env=TOKEN) as cluster:
        play("a_token_is_enough_on_one_machine", cluster, env=TOKEN)
        play("a_driver_without_token_is_refused", cluster)
