"""An orchestrator is killed before or after lines of its journal, and run again."""

from __future__ import annotations

import csv
import random
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clawblox.agents.prompts import AUTO_CONTINUE
from clawblox.experiment.plan import cluster
from tests.experiment.real.trials import ACT, AGENTS, CUT_OFF, SAVE, Trial

pytestmark = pytest.mark.needs("curl")

KILLED = -signal.SIGKILL
TURNS = 3
"""Turns of each agent until a generation closes, with checkpoints in between."""


@pytest.fixture
def dice() -> random.Random:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    return random.Random(seed)


def make_trial(root: Path, generations: int, **more: Any) -> Trial:
    root.mkdir()
    trial = Trial.make(root, generations=generations, **more)
    for number in range(1, generations + 1):
        trial.close(number, TURNS)
    return trial


def choose_deaths(dice: random.Random, trial: Trial) -> Iterator[str]:
    """Yield moments near the next lines of a journal, without end."""
    while True:
        number = len(trial.lines) + dice.randint(1, 12)
        yield f"{dice.choice(('before', 'after'))} {number}"


def run_to_end(trial: Trial, *deaths: str) -> None:
    """Run a program, killed at each moment in turn, to its end, and check the history."""
    statuses = [trial.run(death)[0] for death in deaths]
    assert set(statuses) <= {KILLED, 0}
    status, said = trial.run()
    assert (status, said) == (0, {"status": "done", "text": ""})
    check_history(trial)


def check_history(trial: Trial) -> None:
    """Check that the history equals an undisturbed run, except for the lost attempts."""
    numbers = range(1, trial.plan.generations + 1)
    committed = Counter(line.generation for line in trial.lines if line.type == "committed")
    assert committed == dict.fromkeys(numbers, 1)
    rows = trial.record.results().rows()
    assert [(row.generation, row.status) for row in rows] == [(n, "committed") for n in numbers]
    table = (trial.chain_dir("r1") / "generation_chain.csv").read_text().splitlines()
    assert len(list(csv.DictReader(table))) == len(AGENTS) * len(numbers)
    assert not (trial.chain_dir("r1") / "alive-twice").exists()
    assert not list((trial.chain_dir("r1") / "runs").glob(".*"))
    for row in rows:
        check_generation(trial, row.generation)
        assert row.scores == {"counter": len(AGENTS)}  # each agent has acted once in this history
        assert row.turns >= (TURNS + 1) * len(AGENTS)


def check_generation(trial: Trial, number: int) -> None:
    *lost, last = trial.attempts("r1", number)
    assert {attempt.outcome for attempt in lost} <= {"interrupted"}
    assert last.outcome == "committed"
    assert last.ending is not None
    files = (
        trial.record.state.chains["r1"]
        .generations[number]
        .find_attempt(str(last.ending.data["files"]))
    )
    assert files is not None
    for messages in trial.messages(files):
        assert messages[0] == f"Begin\n{ACT}"
        assert set(messages[1:-1]) <= {AUTO_CONTINUE, CUT_OFF}
        assert messages[-1] == SAVE
    for place in last.ending.data["workspaces"]:
        assert (trial.chain_dir("r1") / place / "saves.txt").read_text() == "saved\n" * number


@pytest.mark.thorough
def test_a_generation_that_is_killed_at_random_lines_is_committed_once(
    tmp_path: Path, dice: random.Random
) -> None:
    trial = make_trial(tmp_path / "trial", generations=1)
    deaths = choose_deaths(dice, trial)
    for _ in range(3):
        death = next(deaths)
        print(death)
        trial.run(death)
    run_to_end(trial)


@pytest.mark.thorough
@pytest.mark.parametrize("first", [1, 2])
def test_generations_that_are_killed_at_any_line_and_again_are_committed_once(
    tmp_path: Path, dice: random.Random, first: int
) -> None:
    for number in range(first, 1000, 2):
        trial = make_trial(tmp_path / str(number), generations=2)
        moment = dice.choice(("before", "after"))
        status, _ = trial.run(f"{moment} {number}")
        again = next(choose_deaths(dice, trial))
        print(moment, number, again)
        trial.run(again)
        run_to_end(trial)
        if status != KILLED:
            return


@pytest.mark.thorough
@pytest.mark.parametrize("first", [1, 2])
def test_driver_killed_at_any_line_continues_the_attempts_on_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    monkeypatch.setattr(cluster, "_SHORTEST_LEASE_S", 0.1)
    on_nodes = {"nodes": {"first": 1, "second": 1}, "cluster": {"lease": 2.0}}
    for number in range(first, 1000, 2):
        trial = make_trial(tmp_path / str(number), generations=1, **on_nodes)
        moment = "after" if number % 2 else "before"
        status, _ = trial.run(f"{moment} {number}")
        print(moment, number)
        run_to_end(trial)
        if status != KILLED:
            return
