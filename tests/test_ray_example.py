"""The example of worlds on the nodes of a Ray cluster works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.experiment.cluster.ray_clusters import ray_cluster

SCRIPT = Path(__file__).parent.parent / "examples" / "worlds_on_ray.py"


@pytest.mark.ray
def test_a_save_of_one_node_continues_on_both_nodes() -> None:
    with ray_cluster({"num_cpus": 1}, {"num_cpus": 1}) as cluster:
        done = cluster.drive(SCRIPT, env={"RAY_ADDRESS": cluster.address})
        assert done.returncode == 0, done.stdout + done.stderr
        lines = re.findall(r"^round .*", done.stdout, re.MULTILINE)
        numbers = [[int(number) for number in re.findall(r"\d+", line)] for line in lines]
        assert [line[:2] for line in numbers] == [[1, 8], [2, 8]]
        assert numbers[0][2] <= numbers[1][2]  # points of both rounds
        assert numbers[0][3] < numbers[1][3]  # the save contains one more agent
        assert not list((cluster.directory).glob("tmp*"))
