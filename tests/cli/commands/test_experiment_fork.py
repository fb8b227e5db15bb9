"""``clawblox experiment fork --dry-run``: the preview of a fork."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commands.test_experiment import KEYS, refuse, write_plan
from tests.cli.conftest import Start
from tests.support.files import look_at

DIRECTORY = "experiments/memory"
FORK = ("experiment", "fork", DIRECTORY, "r1/g001", "-n", "2", "--parallel", "1", "--dry-run")


@pytest.mark.thorough
def test_dry_run_of_a_fork_lists_branches_without_changes(tmp_path: Path, call: Start) -> None:
    write_plan(tmp_path / "cwd")
    run = call("experiment", "run", "exp.toml", env=KEYS)
    assert run.wait() == 0, run.err
    before = look_at(Path.cwd())
    more = ("--prompt", "-", "--prompt", "Wait for rain.", "--duration", "2m", "--generations", "2")
    fork = call(*FORK, *more)
    assert fork.wait() == 0, fork.err
    source, each, money, _, *branches = fork.out.splitlines()
    assert source.startswith("4 branches of r1/g001 after ")
    assert each == "Each: 2 generations, 4m. 1 at a time: at least 16m."
    assert money.startswith("The experiment has spent $")
    assert "The generation of the checkpoint has cost $" in money
    assert branches == [
        "r1-f1-1  control",
        "r1-f1-2  wait-for-rain: Wait for rain.",
        "r1-f1-3  control",
        "r1-f1-4  wait-for-rain: Wait for rain.",
    ]
    facts = json.loads(call(*FORK, *more, "--json").out)
    assert [branch["name"] for branch in facts["branches"]] == [f"r1-f1-{n}" for n in range(1, 5)]
    assert facts["branches"][1]["prompt"] == "Wait for rain."
    assert (facts["at_a_time"], facts["forecast_s"], facts["pid"]) == (1, 960.0, None)
    assert look_at(Path.cwd()) == before

    words = tuple(word for word in FORK[1:] if word not in ("--parallel", "1"))
    assert "outside a sandbox" in refuse(call, *words)
    Path("bin/claude").unlink()
    assert "agents.Eko" in refuse(call, *FORK[1:])
    assert "must be a module and a function" in refuse(call, *FORK[1:], "--score", "none")
