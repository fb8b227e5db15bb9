"""The example of a chain of generations: its options, and a run."""

from __future__ import annotations

import csv
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from click.core import ParameterSource

from clawblox.cli.commands.generations import command as generations
from clawblox.experiment.harness.options import GenerationOptions
from tests.agents.standins import install, misbehave
from tests.support.processes import marked_processes
from tests.support.sockets import free_port
from tests.support.waiting import wait_until
from tests.support.worlds import make_world

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
def test_the_example_makes_the_same_plan_as_the_command(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_world(tmp_path)
    example = load_example()
    words = ["--world-dir", "counter", "--experiment-id", "e1", *words]
    context = generations.make_context("generations", list(words))
    values = {**context.params, "full_save_phase": True}
    given = [
        name
        for name in context.params
        if context.get_parameter_source(name) is ParameterSource.ENVIRONMENT
    ]
    expected = GenerationOptions(values=values, given=given).new_plan()
    assert example.make_plan(example.parse_arguments(words)) == expected


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"CHECKPOINT_EVERY": "0", "SAVE_GRACE_SECONDS": "0"}, []),
        ({"CHECKPOINT_EVERY": "0.0", "SAVE_GRACE_SECONDS": "00", "SAVE_PROMPT": "Save."}, []),
        ({"MAX_GENERATION_RETRIES": "0", "RETRY_DELAY_SECONDS": "0"}, []),
        ({"PORT_WAIT_SECONDS": "0", "HEALTH_TIMEOUT": "2", "SAVE_GRACE_SECONDS": "7"}, []),
        (dict.fromkeys(("GENERATIONS", "GOAL", "CHECKPOINT_EVERY", "SAVE_GRACE_SECONDS"), ""), []),
        ({}, ["--goal", "", "--permission-mode", "", "--tmux-prefix", "", "--model", ""]),
    ],
)
def test_variables_and_empty_options_make_the_same_plan_as_the_command(
    variables: dict[str, str], words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    test_the_example_makes_the_same_plan_as_the_command(words, tmp_path, monkeypatch)


@pytest.mark.parametrize(
    "name", ["HEALTH_TIMEOUT", "PORT_WAIT_SECONDS", "MAX_GENERATION_RETRIES", "STOP_GRACE_SECONDS"]
)
def test_the_error_names_a_variable_that_is_not_a_number(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "soon")
    example = load_example()
    arguments = example.parse_arguments(["--world-dir", str(make_world(tmp_path))])
    with pytest.raises(SystemExit, match=f"Error: {name}: must be a number, not 'soon'"):
        anyio.run(example.run, arguments)


@pytest.mark.parametrize(
    ("variable", "value", "is_on"),
    [
        *(("SANDBOX", value, True) for value in ("", "true", "1", "yes")),
        ("SANDBOX", "false", False),
        ("BARE", "true", True),
        *(("BARE", value, False) for value in ("", "false", "1")),
    ],
)
def test_switches_have_the_same_meaning_as_in_the_script(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, is_on: bool
) -> None:
    monkeypatch.setenv(variable, value)
    assert getattr(load_example().parse_arguments([]), variable.lower()) is is_on


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("OTHER=1\n export CLAUDE_CODE_OAUTH_TOKEN= 'a=b' \nCLAUDE_CODE_OAUTH_TOKEN=c\n", "a=b"),
        ("#CLAUDE_CODE_OAUTH_TOKEN=a\nMY_CLAUDE_CODE_OAUTH_TOKEN=b\n", None),
        (None, None),
    ],
)
def test_the_login_can_come_from_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, found: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CLAUDE_CODE_OAUTH_TOKEN", raising=False)
    if text is not None:
        (tmp_path / ".env").write_text(text)
    expected = {} if found is None else {"CLAUDE_CODE_OAUTH_TOKEN": found}
    assert load_example().find_login() == expected
    monkeypatch.setenv("CLAUDE_CODE_OAUTH_TOKEN", "own")
    assert load_example().find_login() == {}


@pytest.mark.thorough
def test_a_chain_runs_and_is_resumed_after_its_end_and_a_kill(tmp_path: Path) -> None:
    make_world(tmp_path)
    (tmp_path / "template").mkdir()
    misbehave(tmp_path / "template", turn_s=0.05)
    binary = install(tmp_path / "bin", "claude")
    env = {
        **os.environ,
        "ANTHROPIC_API_KEY": "sk-of-the-example-1",
        "PATH": f"{binary.parent}:{os.environ['PATH']}",
        "SAVE_GRACE_SECONDS": "1",
        "CHECKPOINT_EVERY": "1",
        "BASE_PORT": str(free_port()),
        "SANDBOX": "false",
        "CLAUDE_NATIVE_SANDBOX": "false",
    }
    experiment = tmp_path / "counter/results/e1"

    def start(*words: str | Path) -> subprocess.Popen[str]:
        fixed = ["--world-dir", "counter", "--experiment-id", "e1", "--template", "template"]
        return subprocess.Popen(
            [sys.executable, SCRIPT, *fixed, *words],
            cwd=tmp_path,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(*words: str | Path) -> None:
        with start(*words) as process:
            out, err = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, err
        assert "done: 1 generation committed" in out

    run("--generation-duration", "3", "--generations", "1")
    run("--generation-duration", "4", "--generations", "2", "--resume")
    with start("--generation-duration", "4", "--generations", "3", "--resume") as process:
        archives = (experiment / "runs/e1-g003/checkpoints").glob
        archive = wait_until(lambda: next(archives("gen003-*.ckpt"), None), what="a checkpoint")
        process.kill()
    wait_until(lambda: not marked_processes(), what="no process of the killed chain is left")
    run("--generation-duration", "4", "--generations", "3", "--resume-from", archive)
    with (experiment / "generation_chain.csv").open() as table:
        rows = [(row["run_id"], row["template_in"]) for row in csv.DictReader(table)]
    assert [run_id[:7] for run_id, _ in rows] == ["e1-g001", "e1-g002", "e1-g003"]
    assert rows[2][0].startswith("e1-g003-r")
    assert rows[2][1] == f"checkpoint:{archive}"
