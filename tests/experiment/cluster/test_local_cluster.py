"""Experiments on the nodes of a cluster, all of which are this machine, and what kills them."""

from __future__ import annotations

import contextlib
import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from clawblox.agents.prompts import AUTO_CONTINUE
from clawblox.experiment.history.lines import Line
from clawblox.experiment.history.state import AttemptState
from clawblox.experiment.plan import cluster
from clawblox.system.files import has_digest
from clawblox.system.guard import GUARD_NAME
from clawblox.system.process_tree import all_processes, command_line
from tests.experiment.real.trials import Trial
from tests.support import wait_until

pytestmark = pytest.mark.needs("curl")

CHAINS = ("r1", "r2")
NODES = {"first": 1, "second": 1, "third": 1}


@pytest.fixture(autouse=True)
def short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_SHORTEST_LEASE_S", 0.1)


def test_chains_survive_a_killed_node_a_paused_node_and_a_killed_driver(tmp_path: Path) -> None:
    # One test for all of it, since each process takes seconds to start.
    trial = Trial.make(tmp_path, repeats=2, nodes=NODES, cluster={"lease": 2.0})
    program = trial.start()
    wait_until(lambda: all(lines(trial, "checkpoint", chain=chain) for chain in CHAINS))
    killed, paused = find_hosts(program.pid)
    node = find_node(paused)
    signal_all(node, signal.SIGSTOP)
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: len(lines(trial, "failed", cause="node")) == 2)
    signal_all(node, signal.SIGCONT)
    wait_until(lambda: not all_processes().keys() & set(node))
    wait_until(lambda: len(lines(trial, "working")) >= 2 * len(CHAINS))
    trial.close(1)
    wait_until(lambda: all(lines(trial, "checkpoint", chain=c, generation=2) for c in CHAINS))
    trial.kill(program)
    trial.close(2, 2)
    assert trial.run() == (0, {"status": "done", "text": ""})
    for chain in CHAINS:
        check_chain(trial, chain)
    assert not list((tmp_path / "scratch").glob("clawblox-hosts-*/hosts/*/run"))


def lines(trial: Trial, type_: str, **wanted: object) -> list[Line]:
    """Return the lines of a type with some members, or data."""
    return [
        line
        for line in trial.lines
        if line.type == type_
        and all(getattr(line, key, line.data.get(key)) == wanted[key] for key in wanted)
    ]


def find_hosts(driver: int) -> list[int]:
    """Return the processes of the hosts that a driver has started."""
    return [
        proc.pid
        for proc in all_processes().values()
        if proc.ppid == driver and "local_engine" in command_line(proc.pid)
    ]


def find_node(host: int) -> list[int]:
    """Return a host, its guard, and everything below it, the parent of each process before it."""
    processes = all_processes().values()
    found = [host]
    for pid in found:
        found += [proc.pid for proc in processes if proc.ppid == pid]
    guards = [p.pid for p in processes if f" {GUARD_NAME} {host} " in command_line(p.pid)]
    return [*found, *guards]


def signal_all(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def check_chain(trial: Trial, chain: str) -> None:
    """Check that everything is as if nothing had been lost, but for the lost attempts."""
    committed = Counter(line.generation for line in lines(trial, "committed", chain=chain))
    assert committed == {1: 1, 2: 1}
    assert not (trial.chain_dir(chain) / "alive-twice").exists()
    for generation in (1, 2):
        *lost, last = trial.attempts(chain, generation)
        assert [attempt.outcome for attempt in lost] == (
            ["failed"] if generation == 1 else ["interrupted"]
        )
        assert last.outcome == "committed"
        assert all(attempt.opened.data["host"]["node"] in NODES for attempt in (*lost, last))
        check_archives(trial, [*lost, last])
        check_minds(trial, lost[-1], last)


def check_archives(trial: Trial, attempts: list[AttemptState]) -> None:
    """Check that every archive that was kept is the one that the journal names."""
    for attempt in attempts:
        for point in attempt.checkpoints:
            found = list(
                trial.chain_dir(attempt.chain).glob(f"runs/*/checkpoints/{point.ref.file}")
            )
            assert any(has_digest(path, point.ref.sha256) for path in found)


def check_minds(trial: Trial, lost: AttemptState, last: AttemptState) -> None:
    """Check that the agents have continued, as the same players in the same conversations."""
    assert last.origin is not None
    for before, after in zip(lost.working["agents"], last.working["agents"], strict=True):
        for same in ("name", "session", "conversation", "base_url"):
            assert before[same] == after[same]
    for messages in trial.messages(last):
        assert AUTO_CONTINUE in messages
