"""Experiments of stand-ins on real Ray clusters on this machine, while parts are killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from clawblox.system.process_tree import all_processes, command_line
from tests.experiment.cluster.lost_lives import Lives, Loss
from tests.experiment.cluster.lost_nodes import check_chain, find_node, lines, signal_all
from tests.experiment.cluster.observers import Observer, observer
from tests.experiment.cluster.ray_clusters import TOKEN, RayCluster, ray_cluster
from tests.experiment.real.trials import KEYS, PROGRAM, Trial
from tests.support.processes import find_guards, processes_in
from tests.support.waiting import HANG_S, wait_until

pytestmark = [pytest.mark.ray, pytest.mark.needs("curl")]

CHAINS = [f"r{number}" for number in range(1, 7)]
NODES = ("alpha", "beta", "gamma")
HOST = "ray::_Actor"
"""Prefix of the process name of a host."""
LEASE_S = 10.0
PAUSE_S = 40.0
SWEEP = """
import anyio
from clawblox.experiment.cluster import scratch
scratch._NEW_S = 0.0
anyio.run(scratch.make_place)
"""
"""Makes a place for a host, as the next host on a node does a minute later."""


@pytest.fixture
def seen() -> Iterator[Observer]:
    with observer(ignores_term=False) as seen:
        yield seen


def test_chains_survive_a_killed_raylet_a_paused_node_and_a_killed_driver(
    tmp_path: Path, seen: Observer
) -> None:
    trial = Trial.make(
        tmp_path,
        repeats=len(CHAINS),
        faults={"turn_s": 1.0},
        checkpoint={"every": 3.0, "idle_quiet": 0.0, "idle_wait": 10.0},
        limits={"min_free": None, "worlds": len(CHAINS)},
        cluster={"lease": LEASE_S, "cpus": 1},
    )
    # There is exactly one place per attempt: attempts of lost nodes wait for the paused node.
    alpha = {"node_name": "alpha", "num_cpus": 2}
    with ray_cluster(alpha, env={**TOKEN, **trial.environment}) as cluster:
        beta, gamma = (cluster.add_node(node_name=name, num_cpus=2)["raylet"] for name in NODES[1:])
        trial = connect(trial, cluster, TOKEN)
        lives = Lives(trial, seen)
        seen.watch_world(tmp_path / "counter")
        program = trial.start()
        wait_until(lambda: all(lines(trial, "checkpoint", chain=chain) for chain in CHAINS))
        hosts = find_hosts(tmp_path)
        assert len(hosts) == len(CHAINS)
        assert not find_variables_of_ray(hosts)

        killed = lose(lives, "beta", "raylet")
        stopped = lose(lives, "gamma", "pause")
        os.kill(beta, signal.SIGKILL)
        paused = pause(gamma, *{act.pid for loss in stopped for act in lives.acts(loss)})
        paused_at = time.monotonic()
        wait_until(lambda: len(lines(trial, "failed")) == 4, what="lost attempts are failures")
        time.sleep(max(0.0, paused_at + PAUSE_S - time.monotonic()))
        of_raylet = {gamma, *(proc.pid for proc in all_processes().values() if proc.ppid == gamma)}
        of_raylet -= {*hosts}
        signal_all([*of_raylet], signal.SIGCONT)
        for loss in stopped:
            loss.node = [pid for pid in paused if pid not in of_raylet]
        lives.continue_(*stopped)
        for loss in stopped:
            lives.judge_continued(loss)

        trial.close(1)
        wait_until(lambda: len(lines(trial, "committed", generation=1)) == len(CHAINS))
        for loss in killed:
            lives.judge(loss)
        wait_until(lambda: count_saved(trial) == 4)
        seen.measure_lag()
        hosts += find_hosts(tmp_path)
        program.kill()
        program.communicate()
        wait_for_silence(tmp_path, hosts)

        trial.close(2, 1)
        program = trial.start()
        output, _ = program.communicate(timeout=HANG_S)
        assert (program.returncode, json.loads(output)["status"]) == (0, "done")
        wait_for_silence(tmp_path, hosts)
    first = {line.chain: line.data["cause"] for line in lines(trial, "failed")}
    assert first == dict.fromkeys(first, "node")
    second = {line.chain for line in lines(trial, "interrupted")}
    assert len(first) == len(second) == 4
    for chain in CHAINS:
        ends = ["failed"] * (chain in first), ["interrupted"] * (chain in second)
        check_chain(trial, chain, NODES, *ends)
    check_sweep(trial)
    lives.judge_all(CHAINS)


def test_keys_need_a_token_and_a_chain_that_waits_for_a_node_can_be_paused(tmp_path: Path) -> None:
    # A single test covers both, since a cluster takes seconds to start.
    settings = {"lease": LEASE_S, "cpus": 1}
    trial = Trial.make(tmp_path, repeats=2, cluster=settings)
    alpha = {"node_name": "alpha", "num_cpus": 1}
    with ray_cluster(alpha, env={**KEYS, **trial.environment}) as cluster:
        trial = connect(trial, cluster, {})
        refused = cluster.drive(
            "-c", PROGRAM, str(tmp_path), env={**KEYS, **trial.environment, **trial.env}
        )
        assert refused.returncode == 1
        assert "must require a token before keys of agents are sent to it" in refused.stderr
        assert "RAY_AUTH_MODE=token before ray start" in refused.stderr
        assert not lines(trial, "opened")

        trial = trial.with_plan(trial.plan.but(cluster={**settings, "keys": "node"}))
        program = trial.start()
        wait_until(lambda: lines(trial, "checkpoint"))
        runs = {line.chain for line in lines(trial, "opened")}
        shown = clawblox(cluster, trial, "status", "--json")
        states = {chain["name"]: chain for chain in json.loads(shown)["chains"]}
        (waits,) = states.keys() - runs
        assert states[waits]["state"] == "waiting"
        assert (states[waits]["cause"], states[waits]["reason"]) == ("node", "for a node")
        clawblox(cluster, trial, "stop")
        output, _ = program.communicate(timeout=HANG_S)
        assert (program.returncode, json.loads(output)["status"]) == (130, "stopped")
        assert {line.chain for line in lines(trial, "opened")} == runs
        wait_for_silence(tmp_path, [])


def connect(trial: Trial, cluster: RayCluster, env: dict[str, str]) -> Trial:
    """Return a trial whose program finds the cluster."""
    return attrs.evolve(trial, env={**cluster.env, "RAY_ADDRESS": cluster.address, **env})


def clawblox(cluster: RayCluster, trial: Trial, command: str, *flags: str) -> str:
    """Return the output of a command about the experiment."""
    words = ["-m", "clawblox", "experiment", command, str(trial.directory), *flags]
    done = cluster.drive(*words, env={**trial.environment, **trial.env})
    assert done.returncode == 0, done.stderr
    return done.stdout


def find_hosts(root: Path) -> list[int]:
    """Return the processes of the running hosts."""
    return [pid for pid in processes_in(root) if command_line(pid).startswith(HOST)]


def find_variables_of_ray(hosts: list[int]) -> set[bytes]:
    """Return the environment variables of Ray in worlds and agents."""
    found = set()
    for pid in find_node(*hosts):
        if not command_line(pid).startswith(HOST):
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                found |= {word for word in words if word.startswith(b"RAY_")}
    return found


def lose(lives: Lives, node: str, fault: str) -> list[Loss]:
    """Return the losses for the lives on a node that is about to be lost."""
    chains = [chain for chain in CHAINS if lives.trial.attempts(chain, 1)[-1].node == node]
    losses = [Loss(chain, lives.find_life(chain), fault, []) for chain in chains]
    lives.losses += losses
    lives.seen.measure_lag()
    return losses


def pause(raylet: int, *daemons: int) -> list[int]:
    """Stop all processes of a node, as if its machine were stopped, and return their pids.

    Args:
        raylet: The raylet.
        *daemons: Processes of its node whose parents may have died.
    """
    stopped: list[int] = []
    while new := [pid for pid in find_node(raylet, *daemons) if pid not in stopped]:
        signal_all(new, signal.SIGSTOP)
        stopped += new
    return stopped


def count_saved(trial: Trial) -> int:
    """Return the number of chains with a checkpoint of the second generation."""
    return len({line.chain for line in lines(trial, "checkpoint", generation=2)})


def wait_for_silence(root: Path, hosts: list[int]) -> None:
    """Wait until no process of an attempt runs on the nodes."""
    wait_until(
        lambda: not (find_hosts(root) or processes_in(root / "scratch") or find_guards(*hosts)),
        what="nothing is left on a node",
    )


def check_sweep(trial: Trial) -> None:
    """Check that the next host on a node removes the leftovers of lost hosts."""
    env = {**os.environ, **trial.environment}
    subprocess.run([sys.executable, "-c", SWEEP], env=env, check=True)
    (place,) = (trial.root / "scratch").glob("clawblox-hosts-*/hosts/*")
    assert [path.name for path in place.iterdir()] == ["lock"]
