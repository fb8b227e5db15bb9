"""The example of a chain of generations: its options, and a run of it."""

from __future__ import annotations

import csv
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clawblox.cli.commands.generations import command as generations
from clawblox.cli.running.generation_plans import GenerationOptions
from tests.agents.standins import install, misbehave
from tests.support import free_port, make_world

SCRIPT = Path(__file__).parent.parent / "examples" / "run_agent_generations.py"
TIMEOUT_S = 60.0


def load_example() -> Any:
    spec = importlib.util.spec_from_file_location("run_agent_generations", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--generations", "3", "--generation-duration", "90s", "--agents-per-world", "2"],
        ["--backend", "codex", "--model", "gpt-6", "--no-sandbox", "--no-record", "--bare"],
        ["--template", "t", "--system-prompt", "p", "--run-prefix", "r", "--tmux-prefix", "x"],
    ],
)
def test_it_makes_the_plan_of_the_command(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_world(tmp_path)
    example = load_example()
    words = ["--world-dir", "counter", "--experiment-id", "e1", *words]
    context = generations.make_context("generations", list(words))
    values = dict(context.params)
    expected = GenerationOptions(values={**values, "full_save_phase": True}, given=()).new_plan()
    assert example.make_plan(example.parse_arguments(words)) == expected


@pytest.mark.thorough
def test_a_chain_runs_and_is_resumed(tmp_path: Path) -> None:
    make_world(tmp_path)
    (tmp_path / "template").mkdir()
    misbehave(tmp_path / "template", turn_s=0.05)
    binary = install(tmp_path / "bin", "claude")
    env = {
        **os.environ,
        "ANTHROPIC_API_KEY": "sk-of-the-example-1",
        "PATH": f"{binary.parent}:{os.environ['PATH']}",
        "SAVE_GRACE_SECONDS": "1",
        "BASE_PORT": str(free_port()),
        "SANDBOX": "false",
        "CLAUDE_NATIVE_SANDBOX": "false",
    }
    words = ["--world-dir", "counter", "--experiment-id", "e1", "--template", "template"]
    for count, more in ((1, ()), (2, ("--resume",))):
        done = subprocess.run(
            [
                *(sys.executable, SCRIPT, *words, "--generation-duration", "2"),
                *("--generations", str(count), *more),
            ],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        assert done.returncode == 0, done.stderr
        assert "done: 1 generation committed" in done.stdout
    with (tmp_path / "counter/results/e1/generation_chain.csv").open() as table:
        assert [row["run_id"] for row in csv.DictReader(table)] == ["e1-g001", "e1-g002"]
