"""Continuing a run with an agent: by the run's name, its ``checkpoint.json``, or a pasted line."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clawblox import AUTO_CONTINUE
from tests.agents.standins import told
from tests.cli.conftest import (
    Command,
    Start,
    assert_nothing_runs,
    environment,
    only_run,
    transcript,
)
from tests.rundir.support import make_record
from tests.support.worlds import make_world

IDENTITY = ("claude_session_id.txt", "world_session.txt", "world_access.json")
PASTE_S = 60.0


@pytest.fixture
def world(tmp_path: Path) -> Path:
    return make_world(tmp_path)


def identity(run_dir: Path) -> list[str]:
    """Return the ids of a run's agent, in its program and in its world."""
    return [(run_dir / "agents" / "Eko" / name).read_text() for name in IDENTITY]


def begin(
    start: Start, claude_env: dict[str, str], world: Path, *words: str
) -> tuple[Command, Path]:
    """Start a run with an agent, and return it after the agent's first action."""
    command = start("run", str(world), "--port", "0", "--agent", "claude", *words, env=claude_env)
    command.wait_for("end of turn")
    return command, only_run(Path.cwd())


def kill(command: Command) -> None:
    command.send(signal.SIGKILL)
    command.wait()


@pytest.mark.thorough
def test_first_checkpoint_is_shown_before_the_agents_actions(
    start: Start, claude_env: dict[str, str], world: Path
) -> None:
    command, run_dir = begin(start, claude_env, world, "--label", "seed=3")
    assert f"Checkpoint: {run_dir.relative_to(Path.cwd())}/checkpoints/t000000.ckpt" in command.err
    kill(command)
    pointer = json.loads((run_dir / "checkpoints" / "checkpoint.json").read_text())
    assert pointer["checkpoint"] == "t000000.ckpt"


@pytest.mark.thorough
@pytest.mark.parametrize("by", ["directory", "pointer"])
def test_a_killed_run_continues_elsewhere_with_its_options(
    start: Start, claude_env: dict[str, str], world: Path, by: str
) -> None:
    given = ("--label", "seed=3", "--model", "a b", "--health-timeout", "41")
    command, old = begin(start, claude_env, world, *given)
    kill(command)
    named = {"directory": old, "pointer": old / "checkpoints" / "checkpoint.json"}[by]
    resumed = start("run", "--resume", str(named), "--run-dir", "again", env=claude_env)
    resumed.wait_for("end of turn")
    assert resumed.interrupt() == 130, resumed.err
    new = Path("again")
    assert identity(new) == identity(old)
    said = told(transcript(new / "agents" / "Eko"))
    assert said[0].startswith("You act in a world")
    assert AUTO_CONTINUE in said[1:]
    assert not [text for text in said[1:] if text.startswith("You act in a world")]
    manifest = json.loads((new / ".clawblox" / "manifest.json").read_text())
    assert [entry["name"] for entry in manifest["agents"]] == ["Eko"]
    (line,) = (line for line in resumed.err.splitlines() if line.startswith("with its agent:"))
    for words in ("--label seed=3", "--model 'a b'", "--health-timeout 41", "--port 0"):
        assert words in line
    assert_nothing_runs()


@pytest.mark.thorough
@pytest.mark.parametrize("how", ["killed", "interrupted"])
def test_resume_restores_world_and_agent_in_the_same_run_directory(
    start: Start, call: Start, claude_env: dict[str, str], world: Path, how: str
) -> None:
    command, run_dir = begin(start, claude_env, world)
    agent = run_dir / "agents" / "Eko"
    (agent / "home" / "of-the-directory").touch()
    if how == "killed":
        kill(command)
    else:
        assert command.interrupt() == 130
    before, turns = identity(run_dir), len(told(transcript(agent)))
    latest = json.loads((run_dir / "checkpoints" / "checkpoint.json").read_text())["checkpoint"]
    shown = call("resume", str(run_dir), "--dry-run", env=claude_env)
    assert shown.wait() == 0, shown.err
    assert f"with its agent Eko, both from {latest}" in shown.out
    assert "Not resumed" not in shown.out
    resumed = start("resume", str(run_dir), env=claude_env)
    resumed.wait_for("end of turn")
    assert resumed.interrupt() == 130, resumed.err
    assert identity(run_dir) == before
    said = told(transcript(agent))
    assert AUTO_CONTINUE in said
    assert not [text for text in said[1:] if text.startswith("You act in a world")]
    is_kept = (agent / "home" / "of-the-directory").exists()
    set_aside = list((run_dir / ".clawblox").glob("set-aside/Eko-*/home/of-the-directory"))
    assert (is_kept, len(set_aside)) == ((False, 1) if how == "killed" else (True, 0))
    if how == "interrupted":
        assert len(said) > turns
    assert f"resume:  clawblox resume {run_dir.relative_to(Path.cwd())}" in resumed.err
    again = start("resume", str(run_dir), env=claude_env)
    again.wait_for("end of turn")
    assert again.interrupt() == 130, again.err
    assert_nothing_runs()


def test_checkpoint_pointer_to_a_run_writable_by_others_is_refused(
    call: Start, tmp_path: Path, world: Path
) -> None:
    run_dir = tmp_path / "run"
    make_record(run_dir, 0, world_dir=str(world))
    (run_dir / "checkpoints").mkdir()
    (run_dir / "checkpoints" / "t1.ckpt").touch()
    pointer = run_dir / "checkpoints" / "checkpoint.json"
    pointer.write_text('{"checkpoint": "t1.ckpt"}')
    pointer.chmod(0o666)
    refused = call("run", "--resume", str(pointer))
    assert (refused.wait(), refused.out) == (2, "")
    assert f"but other users can write {pointer}" in refused.err
    assert f"if the run is yours, name it: --resume {run_dir}" in refused.err


@pytest.mark.thorough
def test_a_run_without_a_checkpoint_cannot_be_resumed(
    start: Start, call: Start, claude_env: dict[str, str], world: Path
) -> None:
    command, run_dir = begin(start, claude_env, world, "--checkpoint-every", "0")
    kill(command)
    before = identity(run_dir)
    pointer = run_dir / "checkpoints" / "checkpoint.json"
    for words in (
        ("resume", str(run_dir)),
        ("run", str(world), "--resume", str(run_dir)),
        ("run", str(world), "--resume", str(pointer)),
    ):
        refused = call(*words, env=claude_env)
        assert refused.wait() == 1
        assert "was saved yet: there is no checkpoint of its world and its agent" in refused.err
        assert "must save its sessions" not in refused.err
    words = ("--port", "0", "--agent", "claude", "--run-dir", str(run_dir))
    refused = call("run", str(world), *words, "--fresh", env=claude_env)
    assert refused.wait() == 1
    assert "has acted in " in refused.err
    assert "neither it nor its world was saved yet" in refused.err
    assert "must save its sessions" not in refused.err
    assert "is ready at" not in refused.out
    assert identity(run_dir) == before


@pytest.mark.thorough
def test_turn_limit_spans_a_resume_unless_max_turns_is_given_again(
    call: Start, claude_env: dict[str, str], world: Path
) -> None:
    words = ("--port", "0", "--agent", "claude", "--max-turns", "2")
    first = call("run", str(world), *words, env=claude_env)
    assert first.wait() == 0, first.err
    run_dir = only_run(Path.cwd())
    for refused in (
        call("run", "--resume", str(run_dir), env=claude_env),
        call("resume", str(run_dir), "w000", env=claude_env),
    ):
        assert refused.wait() == 1
        assert "The agent Eko has had its 2 turns" in refused.err
        assert f"clawblox run --resume {run_dir.relative_to(Path.cwd())} --max" in refused.err
    more = ("--resume", str(run_dir), "--run-dir", "again", "--max-turns", "1")
    resumed = call("run", *more, env=claude_env)
    assert resumed.wait() == 0, resumed.err
    assert "budget of 3 turns used up (3 turns, " in resumed.err


# -- the printed line ----------------------------------------------------------------------


def paste(line: str, claude_env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a printed line as if a person had pasted it into a shell."""
    place = Path(sys.executable).parent
    return subprocess.run(
        ["bash", "-c", line],
        env=environment({**claude_env, "PATH": f"{place}:{claude_env['PATH']}"}),
        capture_output=True,
        text=True,
        timeout=PASTE_S,
    )


@pytest.mark.thorough
def test_the_printed_command_line_can_be_pasted_into_a_shell(
    call: Start, claude_env: dict[str, str], tmp_path: Path
) -> None:
    odd = tmp_path / "it's $HOME & more"
    odd.mkdir()
    world, prompt = make_world(odd, name="my world"), 'Say "it\'s `done`"\n\tand $go on \\ \u200b!'
    given = {
        "--agent": "claude",
        "--agent-name": "Eko the 2nd",
        "--model": "-a 'model'",
        "--prompt": prompt,
        "--label": "note=a b;c",
        "--port": "0",
        "--max-turns": "1",
        "--grace": "3",
    }
    words = [f"{name}={value}" for name, value in given.items()]
    first = call("run", str(world), *words, "--record", env=claude_env)
    assert first.wait() == 0, first.err
    old = only_run(Path.cwd())
    (line,) = (line for line in first.err.splitlines() if line.startswith("with its agent:"))
    pasted = paste(line.partition(":")[2], claude_env)
    assert pasted.returncode == 0, pasted.stderr
    assert "budget of 2 turns used up (2 turns, " in pasted.stderr
    (new,) = (path for path in old.parent.iterdir() if path != old)
    for name in IDENTITY:
        agents = (run / "agents" / "Eko the 2nd" / name for run in (old, new))
        assert len({path.read_text() for path in agents}) == 1
    (again,) = (line for line in pasted.stderr.splitlines() if line.startswith("with its agent:"))
    assert again.partition(" --resume ")[0] == line.partition(" --resume ")[0]
    recorded: list[Any] = [
        json.loads((run / ".clawblox" / "agent.json").read_text())["options"] for run in (old, new)
    ]
    assert recorded[0] == recorded[1]
    assert recorded[0]["prompt"] == prompt
    assert (new / "recordings").is_dir()
    assert_nothing_runs()


@pytest.mark.thorough
def test_resume_prints_the_command_that_restores_an_agent_of_a_script(
    call: Start, claude_env: dict[str, str], world: Path
) -> None:
    words = [sys.executable, "-c", SCRIPT, str(world)]
    killed = subprocess.run(words, env=environment(claude_env), timeout=PASTE_S)
    assert killed.returncode == -signal.SIGKILL
    shown = call("resume", "run", "--dry-run", env=claude_env)
    assert "Not resumed: 1 agent, Eko." in shown.out
    (line,) = (line for line in shown.out.splitlines() if line.startswith("With an agent:"))
    pasted = paste(f"{line.partition(':')[2]} --max-turns 1 --port 0", claude_env)
    assert pasted.returncode == 0, pasted.stderr
    assert "budget of 2 turns used up (2 turns, " in pasted.stderr


SCRIPT = """
import os, sys
from clawblox import Agent, Checkpointer, World
world = World(sys.argv[1], run_dir="run")
world.start()
agent = Agent(agent="claude", name="Eko", dir="run/agents/Eko", auto_continue=False)
world.connect(agent=agent)
with Checkpointer(world, [agent], dir="run/checkpoints") as checkpointer:
    agent.start(initial_prompt="Begin")
    agent.wait()
    checkpointer.save()
    os.kill(os.getpid(), 9)
"""


@pytest.mark.thorough
def test_a_moved_run_with_an_agent_can_be_resumed(
    start: Start, claude_env: dict[str, str], world: Path
) -> None:
    command, old = begin(start, claude_env, world)
    assert command.interrupt() == 130
    moved = old.rename(Path.cwd() / "moved")
    before = identity(moved)
    resumed = start("resume", "moved", env=claude_env)
    resumed.wait_for("end of turn")
    assert resumed.interrupt() == 130, resumed.err
    assert identity(moved) == before
    assert AUTO_CONTINUE in told(transcript(moved / "agents" / "Eko"))


@pytest.mark.thorough
def test_resume_refuses_agents_started_by_python(
    call: Start, claude_env: dict[str, str], world: Path
) -> None:
    words = [sys.executable, "-c", TEAM, str(world)]
    killed = subprocess.run(words, env=environment(claude_env), timeout=PASTE_S)
    assert killed.returncode == -signal.SIGKILL
    for line in (("resume", "run"), ("run", "--resume", "run")):
        refused = call(*line, env=claude_env)
        assert refused.wait() == 1
        assert "The agents of 'run' were started by Python: Eko" in refused.err
        assert "AsyncTeam.resume(RUN_DIR)" in refused.err
    assert_nothing_runs()


TEAM = """
import os, sys
from clawblox import Agent, Team
agents = [Agent(agent="claude", name="Eko", dir="run/agents/Eko")]
with Team(sys.argv[1], agents, run_dir="run") as team:
    team.start()
    team.checkpoint()
    os.kill(os.getpid(), 9)
"""
