"""Stops and kills nodes, and checks an experiment that lost them."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections import Counter
from collections.abc import Iterable, Sequence

from clawblox.agents.prompts import AUTO_CONTINUE
from clawblox.experiment.history.lines import JournalLine
from clawblox.experiment.history.state import AttemptState
from clawblox.system.files import has_digest
from clawblox.system.guard import GUARD_NAME
from clawblox.system.process_tree import all_processes, command_line
from tests.experiment.real.trials import Trial


def lines(trial: Trial, type_: str, **wanted: object) -> list[JournalLine]:
    """Return the lines of a type whose members or data have the given values."""
    return [
        line
        for line in trial.lines
        if line.type == type_
        and all(getattr(line, key, line.data.get(key)) == wanted[key] for key in wanted)
    ]


def find_node(*tops: int) -> list[int]:
    """Return processes, their descendants and the guards of all; parents come first."""
    processes = all_processes().values()
    found = [*tops]
    for pid in found:
        found += [proc.pid for proc in processes if proc.ppid == pid]
    words = [f" {GUARD_NAME} {pid} " for pid in found]
    guards = [p.pid for p in processes if any(word in command_line(p.pid) for word in words)]
    return [*found, *guards]


def signal_all(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def check_chain(trial: Trial, chain: str, nodes: Iterable[str], *ends: Sequence[str]) -> None:
    """Check that a chain has the history of an undisturbed run, except for the lost attempts.

    Args:
        trial: The trial, whose program has ended.
        chain: The chain.
        nodes: The nodes of its attempts.
        *ends: The outcomes of the lost attempts at each of its generations.
    """
    committed = Counter(line.generation for line in lines(trial, "committed", chain=chain))
    assert committed == dict.fromkeys(range(1, len(ends) + 1), 1)
    assert not (trial.chain_dir(chain) / "alive-twice").exists()
    for generation, outcomes in enumerate(ends, 1):
        attempts = trial.attempts(chain, generation)
        assert [attempt.outcome for attempt in attempts] == [*outcomes, "committed"]
        assert {attempt.node for attempt in attempts} <= {*nodes}
        check_archives(trial, attempts)
        for before, after in itertools.pairwise(attempts):
            check_minds(trial, before, after)


def check_archives(trial: Trial, attempts: list[AttemptState]) -> None:
    """Check that every archive named in the journal exists with the recorded digest."""
    for attempt in attempts:
        for point in attempt.checkpoints:
            found = list(
                trial.chain_dir(attempt.chain).glob(f"runs/*/checkpoints/{point.ref.file}")
            )
            assert any(has_digest(path, point.ref.sha256) for path in found)


def check_minds(trial: Trial, lost: AttemptState, last: AttemptState) -> None:
    """Check that the agents have continued as the same players in the same conversations."""
    assert last.origin is not None
    for before, after in zip(lost.working["agents"], last.working["agents"], strict=True):
        for same in ("name", "session", "conversation", "base_url"):
            assert before[same] == after[same]
    for messages in trial.messages(last):
        assert AUTO_CONTINUE in messages
