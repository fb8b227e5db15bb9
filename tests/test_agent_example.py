"""The example of agents in a world, and the programs of the page about agents, work."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agents.standins import install

SCRIPT = Path(__file__).parent.parent / "examples" / "agent_in_a_world.py"
PAGE = Path(__file__).parent.parent / "docs" / "agents.md"
QUICK = {"turns=20": "turns=2", "minutes=60": "minutes=0.02"}
TIMEOUT_S = 60.0
KEYS = {
    "ANTHROPIC_API_KEY": "sk-of-the-example-1",
    "OPENAI_API_KEY": "sk-of-the-example-2",
    "GEMINI_API_KEY": "sk-of-the-example-3",
}
PRINTED = """\
Ada is working in DIR/runs/{first}/agents/Ada/workspace
Ben is working in DIR/runs/{first}/agents/Ben/workspace
Ada: budget of 3 turns used up; N tokens
Ben: budget of 3 turns used up; N tokens
Ada goes on in DIR/runs/{second}/agents/Ada
Ben goes on in DIR/runs/{second}/agents/Ben
"""


@pytest.mark.thorough
@pytest.mark.parametrize("driver", ["claude", "codex"])
def test_two_agents_continue_their_conversations(driver: str, tmp_path: Path) -> None:
    binary = install(tmp_path / "bin", driver)
    env = {**os.environ, **KEYS, "PATH": f"{binary.parent}:{os.environ['PATH']}"}
    for first, second in (("agents", "agents-2"), ("agents-3", "agents-4")):  # in one place
        done = subprocess.run(
            [sys.executable, SCRIPT, driver],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        assert done.returncode == 0, done.stderr
        printed = done.stdout.replace(str(tmp_path), "DIR")
        printed = re.sub(r"\d+ tokens", "N tokens", printed)
        assert printed == PRINTED.format(first=first, second=second)


@pytest.mark.thorough
def test_the_programs_of_the_page_about_agents_run_in_sequence(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    whole = [block for block in blocks if not block.startswith(" ")]  # others are parts of one
    program = "\n".join([*whole, "print(agent.state, agent.name); agent.stop(); world.stop()"])
    for shown, quick in QUICK.items():
        assert shown in program
        program = program.replace(shown, quick)
    binary = install(tmp_path / "bin", "claude")
    install(tmp_path / "bin", "acp", name="gemini")
    (tmp_path / "examples").symlink_to(SCRIPT.parent)
    env = {**os.environ, **KEYS, "PATH": f"{binary.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    team, agent = done.stdout.splitlines()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+ [0-9a-f-]{36}", team)
    assert agent == "working Eko"
