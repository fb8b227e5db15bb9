"""Hosts that were lost, and their actions as seen by an observer."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import attrs

from clawblox.system.clock import parse_utc
from clawblox.system.process_tree import all_processes
from tests.experiment.cluster.lost_nodes import lines, signal_all
from tests.experiment.cluster.observers import Act, Observer
from tests.experiment.real.trials import Trial
from tests.support.waiting import wait_until

MOST_ACTS = 200
"""Maximum actions of a process between SIGCONT and its kill by the guard; usually a tenth."""


@attrs.define
class Loss:
    """The loss of a host.

    Attributes:
        chain: The chain.
        life: The life of the chain on this host.
        fault: Cause of the loss.
        node: The processes of its node that must end; the guard is last.
        continued_at: Time at which a paused host was continued; infinity for other hosts.
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
class Lives:
    """The hosts of an observed experiment.

    Attributes:
        trial: The experiment.
        seen: Its observer.
        losses: The losses so far.
        notes: Measurements, for people.
    """

    trial: Trial
    seen: Observer
    losses: list[Loss] = attrs.field(factory=list, init=False)
    notes: list[str] = attrs.field(factory=list, init=False)

    def find_life(self, chain: str) -> str:
        """Return the life of the attempt at a chain; empty before it acts and has a checkpoint."""
        if not lines(self.trial, "checkpoint", chain=chain):
            return ""
        attempt = self.trial.attempts(chain, 1)[-1]
        if attempt.outcome is not None or not attempt.checkpoints:
            return ""
        lives = self.seen.lives(chain)
        return next((life for life in lives if Path(life).name == attempt.attempt_id), "")

    def acts(self, loss: Loss) -> list[Act]:
        """Return the actions of a lost life."""
        return self.seen.lives(loss.chain)[loss.life]

    def judge(self, loss: Loss) -> None:
        """Wait until a host is lost and another acts, and check the lost host's actions."""
        named = {"chain": loss.chain, "attempt": loss.attempt, "cause": "node"}
        failed, *_ = wait_until(lambda: lines(self.trial, "failed", **named), what=f"end of {loss}")
        at = parse_utc(failed.at)
        assert at is not None
        lost_at = at.timestamp()
        wait_until(lambda: list(self.seen.lives(loss.chain))[-1] != loss.life)
        if loss.fault == "pause":
            self.continue_(loss)
            self.judge_continued(loss)
        else:
            late = self.acts(loss)[-1].at - lost_at
            self.notes.append(f"{loss.fault}: last act {late:+.3f} s after its loss")
            assert loss.fault == "both" or late <= self.lag + 0.001  # of the line's time

    def continue_(self, *losses: Loss) -> None:
        """Continue the processes of a paused node, guards last.

        Args:
            *losses: The losses of the lives on the node.
        """
        continued_at = time.time()
        for loss in losses:
            loss.continued_at = continued_at
        signal_all(losses[0].node, signal.SIGCONT)

    def count_late(self, loss: Loss) -> int:
        """Return the number of actions of a process since its node was continued."""
        late = Counter(act.pid for act in self.acts(loss) if act.at > loss.continued_at)
        return max(late.values(), default=0)

    def judge_continued(self, loss: Loss) -> None:
        """Wait until all processes of a continued node have ended, and check a life there."""
        wait_until(lambda: not all_processes().keys() & set(loss.node))
        gone_at = time.time()
        late = self.acts(loss)[-1].at - loss.continued_at
        self.notes.append(
            f"pause: last act {late:+.3f} s after SIGCONT ({self.count_late(loss)} acts),"
            f" nothing left after {gone_at - loss.continued_at:.3f} s"
        )
        assert self.acts(loss)[-1].at <= gone_at + self.lag
        assert self.count_late(loss) < MOST_ACTS

    @property
    def lag(self) -> float:
        """The longest lag of the observer that was measured, in seconds."""
        return max(self.seen.lags)

    def find_double_lives(self, chains: Sequence[str]) -> list[tuple[str, str]]:
        """Return lives that started before an earlier life's last action, except after SIGCONT."""
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
        """Print the measured times, and check all lives."""
        acts = sum(len(acts) for chain in chains for acts in self.seen.lives(chain).values())
        total = (
            f"{len(self.losses)} lives lost, {acts} acts seen, {self.seen.count_missed()} missed"
        )
        print(*self.notes, f"{total}, lag {self.lag:.4f} s", sep="\n")
        assert self.find_double_lives(chains) == []
