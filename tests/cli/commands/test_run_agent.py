"""``clawblox run --agent``: an agent in a world, from one command."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from clawblox import AUTO_CONTINUE
from clawblox.cli import main
from tests.agents.standins import misbehave, told
from tests.cli.conftest import API_KEY, Command, Start, assert_nothing_runs, only_run, transcript
from tests.support.worlds import ask, make_world

WORDS = ("--port", "0", "--agent", "claude")


@pytest.fixture
def world(tmp_path: Path) -> Path:
    return make_world(tmp_path)


def made_run(command: Command) -> Path:
    return only_run(Path.cwd())


@pytest.mark.thorough
def test_an_agent_works_in_its_world_until_its_budget_is_used_up(
    call: Start, claude_env: dict[str, str], world: Path, tmp_path: Path
) -> None:
    prompt, system = tmp_path / "prompt.txt", tmp_path / "system.md"
    prompt.write_text("Look for the number.")
    system.write_text("You are curious.")
    files = ("--prompt", f"@{prompt}", "--system-prompt", str(system))
    command = call("run", str(world), *WORDS, *files, "--max-turns", "3", env=claude_env)
    assert command.wait() == 0, command.err
    run_dir = made_run(command)
    agent = run_dir / "agents" / "Eko"
    assert "Agent Eko (claude 2.1.197" in command.out
    for place in ("logs/agent.log", "events.jsonl"):
        assert f"{agent.relative_to(Path.cwd())}/{place}" in command.out
        assert (agent / place).stat().st_size
    assert "I have noted that." in command.out
    assert "Agent Eko: budget of 3 turns used up (3 turns, " in command.err
    assert f"--resume runs/{run_dir.name}/checkpoints/t0" in command.err
    first = told(transcript(agent))[0]
    (address,) = re.findall(r"(http://127\.0\.0\.1:\d+)/api\.md", first)
    assert address in (agent / "world_access.json").read_text()
    assert first.endswith("\n\nLook for the number.")
    assert (agent / "runtime" / "system_prompt.md").read_text() == "You are curious."
    assert (run_dir / "checkpoints" / "t000000.ckpt").exists()
    assert API_KEY not in command.out + command.err
    assert_nothing_runs()


def test_first_signal_ends_world_and_agent_and_prints_the_resume_command(
    start: Start, claude_env: dict[str, str], world: Path, tmp_path: Path
) -> None:
    command = start("run", str(world), *WORDS, env=claude_env)
    command.wait_for("end of turn")
    assert command.interrupt() == 130
    assert "Agent Eko: stopped on request" in command.err
    old = made_run(command)
    assert f"--resume runs/{old.name}/checkpoints/t0" in command.err
    assert_nothing_runs()
    archive = (
        old
        / "checkpoints"
        / json.loads((old / "checkpoints" / "checkpoint.json").read_text())["checkpoint"]
    )
    new = tmp_path / "again"
    words = ("--resume", str(archive), "--run-dir", str(new), "--max-turns", "20")
    resumed = start("run", str(world), *WORDS, *words, env=claude_env)
    resumed.wait_for("end of turn")
    assert resumed.interrupt() == 130, resumed.err
    before, after = (path / "agents" / "Eko" for path in (old, new))
    for name in ("claude_session_id.txt", "world_session.txt", "world_access.json"):
        assert (after / name).read_text() == (before / name).read_text()
    said = told(transcript(after))
    assert said[0].startswith("You act in a world")
    assert not [text for text in said[1:] if text.startswith("You act in a world")]


@pytest.mark.thorough
def test_max_turns_counts_from_the_current_start(
    call: Start, claude_env: dict[str, str], world: Path
) -> None:
    first = call("run", str(world), *WORDS, "--max-turns", "2", env=claude_env)
    assert first.wait() == 0, first.err
    assert "budget of 2 turns used up (2 turns, " in first.err
    old = made_run(first)
    archive = max((old / "checkpoints").glob("*.ckpt"), key=lambda path: path.stat().st_mtime)
    words = ("--resume", str(archive), "--run-dir", "again", "--max-turns", "3")
    resumed = call("run", str(world), *WORDS, *words, env=claude_env)
    assert resumed.wait() == 0, resumed.err
    assert "budget of 5 turns used up (5 turns, " in resumed.err  # over all starts
    agent = Path("again", "agents", "Eko")
    status = json.loads((agent / "runtime" / "status.json").read_text())
    assert (status["turn"], status["usage"]["turns"]) == (5, 5)
    assert status["inherited"]["turns"] == 2
    events = [json.loads(line) for line in (agent / "events.jsonl").read_text().splitlines()]
    assert [one["turn"] for one in events if one["type"] == "turn.finished"] == [3, 4, 5]


def test_missing_requirements_are_errors_before_the_world_starts(
    call: Start, world: Path, tmp_path: Path
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    command = call("run", str(world), *WORDS, env={"PATH": str(empty)})
    assert command.wait() == 1
    assert "its program 'claude' is not on PATH" in command.err
    assert "clawblox doctor shows how" in command.err
    assert "is ready at" not in command.out
    assert not (Path.cwd() / "runs").exists()


def test_unavailable_sandbox_is_an_error_before_the_world_starts(
    call: Start, claude_env: dict[str, str], world: Path, tmp_path: Path
) -> None:
    refusing = tmp_path / "refusing"
    refusing.mkdir()
    bwrap = refusing / "bwrap"
    bwrap.write_text("#!/bin/sh\necho 'No permissions to create new namespace' >&2\nexit 1\n")
    bwrap.chmod(0o755)
    path = f"{refusing}:{claude_env['PATH']}"
    command = call("run", str(world), *WORDS, "--sandbox", env={**claude_env, "PATH": path})
    assert command.wait() == 1
    assert "No permissions to create new namespace" in command.err
    assert "is ready at" not in command.out


@pytest.mark.thorough
def test_a_file_that_cannot_be_read_is_named_before_the_world_starts(
    call: Start, claude_env: dict[str, str], world: Path
) -> None:
    for words, key in ((("--prompt", "@none.txt"), "prompt"), (("--system-prompt", "x"), "system")):
        command = call("run", str(world), *WORDS, *words, env=claude_env)
        assert command.wait() != 0
        assert key in command.err
        assert "No such file" in command.err
        assert "is ready at" not in command.out


@pytest.mark.parametrize(
    "words", [("--model", "x"), pytest.param(("--sandbox",), marks=pytest.mark.thorough)]
)
def test_agent_options_without_agent_are_refused(
    call: Start, world: Path, words: tuple[str, ...]
) -> None:
    command = call("run", str(world), *words)
    assert command.wait() == 2
    assert f"{words[0]}: must be given with --agent" in command.err


@pytest.mark.parametrize("words", [("--max-turns", "0"), ("--agent", "eliza")])
def test_wrong_value_of_an_agent_option_is_named(
    call: Start, world: Path, words: tuple[str, ...]
) -> None:
    command = call("run", str(world), *WORDS, *words)
    assert command.wait() == 2
    assert words[-1] in command.err


@pytest.mark.parametrize(
    ("driver", "words", "said"),
    [
        ("acp", (), "--agent-command: must be one of"),
        ("command", (), "--agent-command: must be a table such as"),
        ("command", ("--agent-command", "my-agent 'x"), "--agent-command: it cannot be read"),
        ("command", ("--agent-command", '{"start": '), "--agent-command: it cannot be read"),
        (
            "command",
            ("--agent-command", '{"start": ["x"]}'),
            "--agent-command.start: must have {prompt}",
        ),
    ],
)
def test_a_wrong_agent_command_is_reported_with_its_option(
    tmp_path: Path, driver: str, words: tuple[str, ...], said: str
) -> None:
    given = ["run", str(make_world(tmp_path)), "--run-dir", str(tmp_path / "run"), *words]
    result = CliRunner().invoke(main, [*given, "--agent", driver], standalone_mode=False)
    assert said in f"{result.output}{result.exception}"


@pytest.mark.thorough
def test_any_program_can_be_an_agent_with_a_command_template(
    call: Start, world: Path, tmp_path: Path
) -> None:
    program = tmp_path / "my-agent"
    program.write_text('#!/bin/sh\necho session: 4711\necho "$@" >> said\n')
    program.chmod(0o700)
    table = {
        "start": [str(program), "{prompt}"],
        "resume": [str(program), "{session}", "{prompt}"],
        "session": r"session: (\S+)",
    }
    words = ("--agent", "command", "--agent-command", json.dumps(table), "--max-turns", "2")
    command = call("run", str(world), "--port", "0", *words, env={})
    assert command.wait() == 0, command.err
    said = (made_run(command) / "agents" / "Eko" / "workspace" / "said").read_text()
    assert said.splitlines()[-1] == f"4711 {AUTO_CONTINUE}"
    assert "Checkpoint: " in command.err
    assert "with its agent:" not in command.err, "an archive has no conversation of this driver"


@pytest.mark.thorough
def test_a_failed_agent_ends_the_world_with_its_reason(
    call: Start, claude_env: dict[str, str], world: Path, tmp_path: Path
) -> None:
    workspace = tmp_path / "run" / "agents" / "Eko" / "workspace"
    workspace.mkdir(parents=True)
    misbehave(workspace, api_error=401)
    without_key = {"PATH": claude_env["PATH"]}
    command = call("run", str(world), *WORDS, "--run-dir", str(tmp_path / "run"), env=without_key)
    assert command.wait() == 1
    assert ", 0 tokens)" in command.err
    error = command.err.partition("Error: ")[2]
    assert "agent Eko" in error
    assert "401" in error
    assert max(map(len, error.splitlines())) < 400
    assert "hint: it may not be logged in: " in error
    assert "set ANTHROPIC_API_KEY" in error
    assert_nothing_runs()


@pytest.mark.thorough
def test_a_world_that_dies_ends_its_agent(
    start: Start, claude_env: dict[str, str], world: Path, tmp_path: Path
) -> None:
    run_dir = tmp_path / "run"
    command = start("run", str(world), *WORDS, "--run-dir", str(run_dir), env=claude_env)
    command.wait_for("end of turn")
    port = int(command.out.partition("http://127.0.0.1:")[2].partition(" ")[0])
    ask(port, "POST", "/__die?status=9")
    assert command.wait() == 1
    assert "ended" in command.err
    assert_nothing_runs()
    last: dict[str, Any] = json.loads(
        (run_dir / "agents" / "Eko" / "events.jsonl").read_text().splitlines()[-1]
    )
    assert last["status"] == "stopped"


@pytest.mark.thorough
def test_an_agent_that_is_stopped_from_outside_ends_the_run(
    start: Start, call: Start, claude_env: dict[str, str], world: Path, tmp_path: Path
) -> None:
    run_dir = tmp_path / "run"
    command = start("run", str(world), *WORDS, "--run-dir", str(run_dir), env=claude_env)
    command.wait_for("end of turn")
    assert call("agent", "stop", str(run_dir)).wait() == 0
    assert command.wait() == 0, command.err
    assert_nothing_runs()


@pytest.mark.thorough
def test_second_signal_kills_world_and_agent(
    start: Start, claude_env: dict[str, str], world: Path, tmp_path: Path
) -> None:
    workspace = tmp_path / "run" / "agents" / "Eko" / "workspace"
    workspace.mkdir(parents=True)
    misbehave(workspace, ignore_term=True)
    words = ("--run-dir", str(tmp_path / "run"), "--grace", "600")
    command = start("run", str(world), *WORDS, *words, env=claude_env)
    command.wait_for("end of turn")
    command.send(signal.SIGINT)
    command.wait_for("A second Ctrl-C kills them.")
    command.send(signal.SIGINT)
    assert command.wait() == 130
    assert_nothing_runs()
