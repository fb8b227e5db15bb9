"""No chain runs twice, as an observer of its worlds confirms, whatever is killed or paused.

A lost attempt takes its last action before the next attempt starts. Only a paused node may act
briefly when it continues, until its guard has killed it. The Ray tests do the same with Ray nodes.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs
import pytest

from clawblox.experiment.plan import cluster
from tests.experiment.cluster.lost_lives import MOST_ACTS, Lives, Loss
from tests.experiment.cluster.lost_nodes import find_node, signal_all
from tests.experiment.cluster.observers import Observer, observer
from tests.experiment.cluster.test_local_cluster import find_hosts
from tests.experiment.real import trials
from tests.experiment.real.trials import Trial
from tests.support.waiting import wait_until

pytestmark = pytest.mark.needs("curl")

DEAF_NODES = """
from pathlib import Path
from tests.experiment.cluster.local_engine import LocalHost

end = LocalHost.end

def end_unless_paused(self):
    stat = Path(f"/proc/{self.pid}/stat")
    if not (stat.exists() and ") T " in stat.read_text()):
        end(self)

LocalHost.end = end_unless_paused
"""
"""A paused node is never told that its host was ended."""

NO_LEASE = """
from tests.experiment.cluster import local_engine

local_engine._BOOT = (
    "from clawblox.system.guard import Guard; Guard.lease = lambda *_: None; " + local_engine._BOOT
)
"""
"""The guards of hosts ignore the lease."""


@attrs.define
class Watched(Lives):
    """An experiment under observation.

    Attributes:
        program: Its driver.
    """

    program: subprocess.Popen[str]

    @classmethod
    def start(cls, root: Path, seen: Observer, chains: Sequence[str], lease_s: float) -> Watched:
        trial = Trial.make(
            root,
            agents=["Eko"],
            repeats=len(chains),
            generations=1,
            nodes={f"node of {chain}": 2 for chain in chains},
            cluster={"lease": lease_s},
        )
        seen.watch_world(root / "counter")
        return cls(trial, seen, trial.start())

    def wait_for_life(self, chain: str) -> tuple[str, int]:
        """Wait until the attempt at a chain acts and has a checkpoint; return its life and host."""

        def find() -> tuple[str, int] | None:
            if life := self.find_life(chain):
                pids = {act.pid for act in self.seen.lives(chain)[life]}
                for host in find_hosts(self.program.pid):
                    if pids & set(find_node(host)):
                        return life, host
            return None

        return wait_until(find, what=f"{chain} lives")

    # -- faults -------------------------------------------------------------------------------

    def strike(self, chain: str, fault: str) -> Loss:
        """Kill or pause the processes that belong to the life of a chain."""
        life, host = self.wait_for_life(chain)
        pids = {act.pid for act in self.seen.lives(chain)[life]}
        *others, guard = find_node(host)
        loss = Loss(chain, life, fault, [*dict.fromkeys([*others, *pids]), guard])
        self.losses.append(loss)
        self.seen.measure_lag()
        if fault == "pause":
            signal_all(loss.node, signal.SIGSTOP)
            return loss
        if fault == "guard":  # another takes its place
            os.kill(guard, signal.SIGKILL)
            wait_until(lambda: find_node(host)[-1] not in (guard, *others))
        if fault == "both":
            os.kill(host, signal.SIGSTOP)  # otherwise it might replace its guard
            os.kill(guard, signal.SIGKILL)
        os.kill(host, signal.SIGKILL)
        return loss

    def kill_driver(self, chains: Sequence[str]) -> None:
        """Kill the driver, and start another at once."""
        for chain in chains:
            self.losses.append(Loss(chain, self.wait_for_life(chain)[0], "driver", []))
        self.seen.measure_lag()
        self.program.kill()
        self.program.communicate()
        self.program = self.trial.start()


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Observer]:
    monkeypatch.setattr(cluster, "_SHORTEST_LEASE_S", 0.1)
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # killed drivers leave partial messages
    monkeypatch.setattr(trials, "PROGRAM", DEAF_NODES + trials.PROGRAM)
    with observer() as seen:
        yield seen


@pytest.mark.thorough
def test_lost_host_takes_no_further_action(tmp_path: Path, seen: Observer) -> None:
    chains = ("r1", "r2")
    watched = Watched.start(tmp_path, seen, chains, 2.0)
    losses = [watched.strike("r1", "host"), watched.strike("r2", "pause")]
    for loss in losses:
        watched.judge(loss)
    watched.kill_driver(chains)
    before = {chain: len(seen.lives(chain)) for chain in chains}
    wait_until(lambda: all(len(seen.lives(chain)) > before[chain] for chain in chains))
    watched.trial.kill(watched.program)
    watched.judge_all(chains)


@pytest.mark.thorough
def test_twenty_lost_hosts_take_no_further_action(tmp_path: Path, seen: Observer) -> None:
    chains = ("r1", "r2", "r3", "r4")
    faults = ("host", "guard", "pause", "both")
    watched = Watched.start(tmp_path, seen, chains, 5.0)
    for number in range(4):
        struck = zip(chains, faults[number:] + faults[:number], strict=True)
        for loss in [watched.strike(*each) for each in struck]:
            watched.judge(loss)
        watched.kill_driver(chains)
    watched.trial.close(1)
    watched.program.communicate()
    assert watched.program.returncode == 0
    watched.trial.wait_for_silence()
    watched.judge_all(chains)


@pytest.mark.thorough
def test_two_hosts_act_at_the_same_time_without_the_lease(
    tmp_path: Path, seen: Observer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "PROGRAM", NO_LEASE + trials.PROGRAM)
    watched = Watched.start(tmp_path, seen, ["r1"], 2.0)
    loss = watched.strike("r1", "pause")
    wait_until(lambda: list(seen.lives("r1"))[-1] != loss.life)
    watched.continue_(loss)
    wait_until(lambda: watched.count_late(loss) >= 2 * MOST_ACTS)
    *_, (_, others) = seen.lives("r1").items()
    assert others[-1].at > loss.continued_at
    watched.trial.kill(watched.program)
