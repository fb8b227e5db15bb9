"""No chain lives twice: seen by an observer of what its worlds do, whatever is killed or paused.

What a lost attempt does ends before the next one starts. Only a paused node acts for an instant
when it continues, until its guard has killed it. Nodes of Ray are killed by the tests of Ray.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs
import pytest

from clawblox.experiment.plan import cluster
from clawblox.system.clock import parse_utc
from clawblox.system.process_tree import all_processes
from tests.experiment.cluster.observers import Act, Observer, observer
from tests.experiment.cluster.test_local_cluster import find_hosts, find_node, lines, signal_all
from tests.experiment.real import trials
from tests.experiment.real.trials import Trial
from tests.support import wait_until

pytestmark = pytest.mark.needs("curl")

MOST_ACTS = 200
"""Acts of a process between SIGCONT and its death by the guard: a tenth of that is usual."""

DEAF_NODES = """
from pathlib import Path
from clawblox.experiment.cluster.local_engine import LocalHost

end = LocalHost.end

def end_unless_paused(self):
    stat = Path(f"/proc/{self.pid}/stat")
    if not (stat.exists() and ") T " in stat.read_text()):
        end(self)

LocalHost.end = end_unless_paused
"""
"""A paused node never hears that its host was ended."""

NO_LEASE = """
from clawblox.experiment.cluster import local_engine

local_engine._BOOT = (
    "from clawblox.system.guard import Guard; Guard.lease = lambda *_: None; " + local_engine._BOOT
)
"""
"""The guards of hosts know no lease."""


@attrs.define
class Loss:
    """What has happened to a life.

    Attributes:
        chain: The chain.
        life: Its life.
        fault: What happened.
        node: The processes of its node, the guard last.
        continued_at: When a paused one was continued; infinity for others.
    """

    chain: str
    life: str
    fault: str
    node: list[int]
    continued_at: float = float("inf")

    @property
    def attempt(self) -> str:
        return Path(self.life).name


@attrs.define
class Watched:
    """An experiment under observation.

    Attributes:
        trial: The experiment.
        seen: Its observer.
        program: Its driver.
        losses: What has happened.
        notes: What was measured, for people.
    """

    trial: Trial
    seen: Observer
    program: subprocess.Popen[str]
    losses: list[Loss] = attrs.field(factory=list)
    notes: list[str] = attrs.field(factory=list)

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
            if not lines(self.trial, "checkpoint", chain=chain):
                return None
            attempt = self.trial.attempts(chain, 1)[-1]
            if attempt.outcome is not None or not attempt.checkpoints:
                return None
            for life, acts in self.seen.lives(chain).items():
                pids = {act.pid for act in acts}
                for host in find_hosts(self.program.pid):
                    if Path(life).name == attempt.run_id and pids & set(find_node(host)):
                        return life, host
            return None

        return wait_until(find, what=f"{chain} lives")

    def acts(self, loss: Loss) -> list[Act]:
        """Return what a lost life has done."""
        return self.seen.lives(loss.chain)[loss.life]

    # -- faults -------------------------------------------------------------------------------

    def strike(self, chain: str, fault: str) -> Loss:
        """Kill or pause what belongs to the life of a chain."""
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
            os.kill(host, signal.SIGSTOP)  # or else it might replace its guard
            os.kill(guard, signal.SIGKILL)
        os.kill(host, signal.SIGKILL)
        return loss

    def judge(self, loss: Loss) -> None:
        """Wait until a life is lost and another acts, and judge what was seen of it."""
        named = {"chain": loss.chain, "attempt": loss.attempt, "cause": "node"}
        failed, *_ = wait_until(lambda: lines(self.trial, "failed", **named), what=f"end of {loss}")
        at = parse_utc(failed.at)
        assert at is not None
        lost_at = at.timestamp()
        wait_until(lambda: list(self.seen.lives(loss.chain))[-1] != loss.life)
        if loss.fault == "pause":
            self._judge_continued(loss)
        else:
            late = self.acts(loss)[-1].at - lost_at
            self.notes.append(f"{loss.fault}: last act {late:+.3f} s after its loss")
            assert loss.fault == "both" or late <= self.lag + 0.001  # of the line's time

    def continue_(self, loss: Loss) -> None:
        """Continue a paused node, its guard last."""
        loss.continued_at = time.time()
        signal_all(loss.node, signal.SIGCONT)

    def count_late(self, loss: Loss) -> int:
        """Return the number of acts of a process since its node was continued."""
        late = Counter(act.pid for act in self.acts(loss) if act.at > loss.continued_at)
        return max(late.values(), default=0)

    def _judge_continued(self, loss: Loss) -> None:
        self.continue_(loss)
        wait_until(lambda: not all_processes().keys() & set(loss.node))
        gone_at = time.time()
        late = self.acts(loss)[-1].at - loss.continued_at
        self.notes.append(
            f"pause: last act {late:+.3f} s after SIGCONT ({self.count_late(loss)} acts),"
            f" nothing left after {gone_at - loss.continued_at:.3f} s"
        )
        assert self.acts(loss)[-1].at <= gone_at + self.lag
        assert self.count_late(loss) < MOST_ACTS

    def kill_driver(self, chains: Sequence[str]) -> None:
        """Kill the driver, and start another at once."""
        for chain in chains:
            self.losses.append(Loss(chain, self.wait_for_life(chain)[0], "driver", []))
        self.seen.measure_lag()
        self.program.kill()
        self.program.communicate()
        self.program = self.trial.start()

    @property
    def lag(self) -> float:
        """The longest lag of the observer that was measured, in seconds."""
        return max(self.seen.lags)

    def find_double_lives(self, chains: Sequence[str]) -> list[tuple[str, str]]:
        """Return the lives that began while another of the chain was alive, not just continued."""
        continued_at = {loss.life: loss.continued_at for loss in self.losses}
        found = []
        for chain in chains:
            until = 0.0
            for life, acts in self.seen.lives(chain).items():
                if acts[0].at <= until:
                    found.append((chain, life))
                end = continued_at.get(life, float("inf"))
                until = max(until, *(act.at for act in acts if act.at <= end))
        return found

    def judge_all(self, chains: Sequence[str]) -> None:
        """Judge all lives, and tell what was measured."""
        print(*self.notes, f"lag {self.lag:.4f} s, {self.seen.count_missed()} missed", sep="\n")
        assert self.find_double_lives(chains) == []


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Observer]:
    monkeypatch.setattr(cluster, "_SHORTEST_LEASE_S", 0.1)
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # killed drivers leave what they were sending
    monkeypatch.setattr(trials, "PROGRAM", DEAF_NODES + trials.PROGRAM)
    with observer() as seen:
        yield seen


@pytest.mark.thorough
def test_no_act_is_seen_of_a_lost_life(tmp_path: Path, seen: Observer) -> None:
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
def test_no_act_is_seen_of_thirty_lost_lives(tmp_path: Path, seen: Observer) -> None:
    chains = ("r1", "r2", "r3", "r4")
    faults = ("host", "guard", "pause", "both")
    watched = Watched.start(tmp_path, seen, chains, 5.0)
    for number in range(6):
        struck = zip(chains, faults[number % 4 :] + faults[: number % 4], strict=True)
        for loss in [watched.strike(*each) for each in struck]:
            watched.judge(loss)
        watched.kill_driver(chains)
    watched.trial.close(1)
    watched.program.communicate()
    assert watched.program.returncode == 0
    watched.trial.wait_for_silence()
    watched.judge_all(chains)


@pytest.mark.thorough
def test_double_life_is_seen_without_the_lease(
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
