"""Experiments on cluster nodes that are all this machine, while nodes and drivers are killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from clawblox.experiment.plan import cluster
from clawblox.system.process_tree import all_processes, command_line
from tests.experiment.cluster.lost_nodes import check_chain, find_node, lines, signal_all
from tests.experiment.real.trials import Trial
from tests.support.waiting import wait_until

pytestmark = pytest.mark.needs("curl")

CHAINS = ("r1", "r2")
NODES = {"first": 1, "second": 1, "third": 1}


@pytest.fixture(autouse=True)
def short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_SHORTEST_LEASE_S", 0.1)


@pytest.mark.thorough
def test_chains_survive_a_killed_node_a_paused_node_and_a_killed_driver(tmp_path: Path) -> None:
    # A single test covers all of this, since each process takes seconds to start.
    trial = Trial.make(tmp_path, generations=1, repeats=2, nodes=NODES, cluster={"lease": 2.0})
    program = trial.start()
    wait_until(lambda: all(lines(trial, "checkpoint", chain=chain) for chain in CHAINS))
    killed, paused = find_hosts(program.pid)
    node = find_node(paused)
    signal_all(node, signal.SIGSTOP)
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: len(lines(trial, "failed", cause="node")) == 2)
    signal_all(node, signal.SIGCONT)
    wait_until(lambda: not all_processes().keys() & set(node))
    wait_until(lambda: all(count_saves(trial, chain) for chain in CHAINS))
    trial.kill(program)
    trial.close(1)
    assert trial.run() == (0, {"status": "done", "text": ""})
    first, retried = ({trial.attempts(c, 1)[i].node for c in CHAINS} for i in range(2))
    assert retried - first  # where nothing was lost
    for chain in CHAINS:
        check_chain(trial, chain, NODES, ["failed", "interrupted"])
    assert not list((tmp_path / "scratch").glob("clawblox-hosts-*/hosts/*/run"))


def count_saves(trial: Trial, chain: str) -> int:
    """Return the number of checkpoints that the second attempt of a chain has made."""
    return sum(len(attempt.checkpoints) for attempt in trial.attempts(chain, 1)[1:2])


def find_hosts(driver: int) -> list[int]:
    """Return the processes of the hosts that a driver has started."""
    return [
        proc.pid
        for proc in all_processes().values()
        if proc.ppid == driver and "local_engine" in command_line(proc.pid)
    ]
