"""Claude Code 2.1.330 continues sub-agents, workflows and tasks after a move of its agent.

It is installed from npm, and talks to a stand-in for its model's API on loopback.
"""

from __future__ import annotations

import base64
import json
import shutil
import threading
import uuid
from pathlib import Path
from typing import Any

import attrs
import pytest

from clawblox.agents.programs.program import project_slug
from clawblox.checkpoint import load_checkpoint, save_checkpoint
from tests.checkpoint.test_agent_clis import RUN_TIMEOUT_S, claude_env, run, running
from tests.support.model_api import ANSWER, ModelApi, Request, Tool
from tests.support.programs import Installed, Programs
from tests.support.waiting import HANG_S

pytestmark = pytest.mark.cli

PROMPT = "This is the main conversation. Remember the word MELON."
AGENT_PROMPT = "You are the sub-agent. Remember the word PEACH."
SHEEP, WOLF = "You count the sheep.", "You count the wolves."

SCRIPT = f"""export const meta = {{ name: "count", description: "counts", phases: [] }}
const sheep = await agent("{SHEEP}", {{label: "sheep"}})
const wolves = await agent("{WOLF}", {{label: "wolves"}})
return sheep + wolves
"""

JPEG = base64.b64decode(
    "/9j/4AAQSkZJRgABAQEASABIAAD/2wBDAP" + "/" * 86 + "wAALCAABAAEBAREA/8QAFAABAAAAAAAAAAAAAAAAAAAA"
    "A//EABQQAQAAAAAAAAAAAAAAAAAAAAD/2gAIAQEAAD8AR//Z"
)

PDFTOPPM = """#!/bin/sh
for last; do :; done
[ "$last" = -v ] && { echo "pdftoppm version 22.12.0" >&2; exit 0; }
cp "$(dirname "$0")/page.jpg" "$last-1.jpg"
"""
"""A stand-in that draws a page of every PDF."""


@pytest.fixture(scope="module")
def claude(programs: Programs) -> Installed:
    return programs.install("claude-2.1.330")


@attrs.frozen
class Agent:
    """An agent directory with Claude Code in it."""

    dir: Path
    claude: Installed
    api: ModelApi
    tools: Path

    @property
    def workspace(self) -> Path:
        return self.dir / "workspace"

    @property
    def project(self) -> Path:
        return self.dir / "session" / "projects" / project_slug(str(self.workspace))

    def arguments(self, prompt: str, *which: str) -> dict[str, Any]:
        """Return the arguments for a turn without questions about permissions."""
        for name in ("workspace", "session", "home"):
            (self.dir / name).mkdir(parents=True, exist_ok=True)
        env = self.claude.env(
            self.dir / "home",
            CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING="1",
            **claude_env(self.dir / "session", self.api.url),
        )
        flags = ["--output-format", "stream-json", "--verbose", "--model", "claude-sonnet-4-5"]
        policy = ["--permission-mode", "bypassPermissions", "--setting-sources", "user"]
        return {
            "command": ["claude", "-p", prompt, *flags, *policy, "--strict-mcp-config", *which],
            "env": {**env, "PATH": f"{self.tools}:{env['PATH']}"},
            "cwd": self.workspace,
        }

    def turn(self, prompt: str, tools: list[Tool], *which: str) -> list[str]:
        """Let the agent use tools one after another, then answer; return the results."""
        left = iter(tools)
        self.api.tool = lambda request: next(left, None) if is_main(request) else None
        arguments = self.arguments(prompt, *which)
        status, output, errors = run(**arguments, timeout=RUN_TIMEOUT_S)
        assert status == 0, (output[-2000:], errors[-2000:])
        assert ANSWER in output
        events = [json.loads(line) for line in output.splitlines()]
        blocks = [
            block
            for event in events
            if event["type"] == "user"
            for block in event["message"]["content"]
        ]
        return [json.dumps(block["content"]) for block in blocks if block["type"] == "tool_result"]

    def record(self, session_id: str) -> None:
        (self.dir / "claude_session_id.txt").write_text(session_id)

    def move(self, run_dir: Path) -> tuple[Agent, dict[str, str]]:
        """Save, remove and load the agent; return the new agent, and reasons of exclusions."""
        path = save_checkpoint(run_dir.with_name("a.ckpt"), agents={"rocky": self.dir})
        shutil.rmtree(self.dir)
        loaded = load_checkpoint(path, run_dir)
        assert (loaded["excluded"], loaded["lost_sessions"]) == ([], {})
        excluded = {entry["path"]: entry["reason"] for entry in loaded["metadata"]["excluded"]}
        return attrs.evolve(self, dir=loaded["agents"]["rocky"]), excluded


def is_main(request: Request) -> bool:
    return PROMPT in json.dumps(request["messages"]) and bool(request.get("tools"))


def asked(requests: list[Request], text: str) -> list[str]:
    """Return messages with a text in requests outside the main conversation."""
    messages = [json.dumps(each["messages"]) for each in requests if not is_main(each)]
    return [each for each in messages if text in each]


@pytest.fixture
def agent(tmp_path: Path, claude: Installed, api: ModelApi) -> Agent:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "page.jpg").write_bytes(JPEG)
    (tools / "pdftoppm").write_text(PDFTOPPM)
    (tools / "pdftoppm").chmod(0o755)
    return Agent(tmp_path / "old" / "rocky", claude, api, tools)


def test_sub_agents_workflows_pdfs_and_tasks_continue_at_another_path(
    agent: Agent, tmp_path: Path
) -> None:
    session_id = str(uuid.uuid4())
    agent.workspace.mkdir(parents=True)
    (agent.workspace / "book.pdf").write_bytes(b"%PDF-1.4\n%%EOF\n")
    (agent.workspace / "notes.txt").write_text("one\n")
    notes = str(agent.workspace / "notes.txt")
    tools: list[Tool] = [
        ("Agent", {"description": "look", "prompt": AGENT_PROMPT, "run_in_background": True}),
        ("Workflow", {"script": SCRIPT}),
        ("Read", {"file_path": str(agent.workspace / "book.pdf"), "pages": "1-2"}),
        ("Bash", {"command": "seq 1 40000", "description": "count"}),
        ("Read", {"file_path": notes}),
        ("Edit", {"file_path": notes, "old_string": "one", "new_string": "two"}),
        ("TaskCreate", {"subject": "first", "description": "d"}),
        ("TaskCreate", {"subject": "second", "description": "d"}),
        ("TaskUpdate", {"taskId": "2", "status": "deleted"}),
    ]
    agent.turn(PROMPT, tools, "--session-id", session_id)
    agent.record(session_id)
    own = agent.project / session_id
    parts = {str(path.relative_to(own)) for path in own.rglob("*") if path.is_file()}
    assert list((agent.dir / "session" / "file-history").glob("*/*"))
    asked_before = len(agent.api.requests)

    new, excluded = agent.move(tmp_path / "another place" / "run")
    new_own = new.project / session_id
    assert {
        str(path.relative_to(new_own)) for path in new_own.rglob("*") if path.is_file()
    } == parts
    directories = {part.partition("/")[0] for part in parts}
    assert directories == {"subagents", "workflows", "tool-results"}
    assert any(part.startswith("tool-results/pdf-") for part in parts)
    assert any(part.endswith("/journal.jsonl") for part in parts)
    assert "agents/rocky/session/file-history" in excluded

    (agent_file,) = new_own.glob("subagents/agent-*.jsonl")
    (run_file,) = new_own.glob("workflows/wf_*.json")
    (script,) = new_own.glob("workflows/scripts/*.js")
    name = agent_file.stem.removeprefix("agent-")
    tools = [
        ("SendMessage", {"to": name, "summary": "ask", "message": "Which word was it?"}),
        ("Workflow", {"scriptPath": str(script), "resumeFromRunId": run_file.stem}),
        ("TaskCreate", {"subject": "third", "description": "d"}),
    ]
    results = new.turn("Go on.", tools, "--resume", session_id)
    resumed = agent.api.requests[asked_before:]
    first = json.dumps(resumed[0]["messages"])
    assert PROMPT in first
    assert "has been updated successfully" in first
    assert base64.b64encode(JPEG).decode() in first
    assert "Full output saved to" in first
    assert "Resuming agent" in results[0]
    (told,) = asked(resumed, "Which word was it?")
    assert AGENT_PROMPT in told
    assert "Workflow launched" in results[1]
    assert asked(resumed, SHEEP) == asked(resumed, WOLF) == []  # the journal contains their answers
    assert "Task #3" in results[2]


def test_an_interrupted_workflow_is_relaunched_at_another_path(
    agent: Agent, tmp_path: Path
) -> None:
    session_id = str(uuid.uuid4())
    reached, killed = threading.Event(), threading.Event()
    left = iter([("Workflow", {"script": SCRIPT})])

    def wait_for_wolves(request: Request) -> None:
        if WOLF in json.dumps(request["messages"]) and not is_main(request):
            reached.set()
            killed.wait(HANG_S)

    agent.api.tool = lambda request: next(left, None) if is_main(request) else None
    agent.api.fail = wait_for_wolves
    with running(**agent.arguments(PROMPT, "--session-id", session_id)):
        assert reached.wait(HANG_S)
    killed.set()
    agent.api.fail = lambda _request: None
    agent.record(session_id)
    asked_before = len(agent.api.requests)

    new, _ = agent.move(tmp_path / "another place" / "run")
    (script,) = (new.project / session_id).glob("workflows/scripts/*.js")
    run_id = script.stem.removeprefix("count-")
    relaunch = ("Workflow", {"scriptPath": str(script), "resumeFromRunId": run_id})
    (result,) = new.turn("Go on.", [relaunch], "--resume", session_id)
    resumed = agent.api.requests[asked_before:]
    first = json.dumps(resumed[0]["messages"])
    assert "To pick up where it left off, relaunch with Workflow({scriptPath, " in first
    assert "Workflow launched" in result
    assert asked(resumed, SHEEP) == []
    assert len(asked(resumed, WOLF)) == 1
    (state,) = (new.project / session_id).glob("workflows/wf_*.json")
    assert json.loads(state.read_bytes())["result"] == ANSWER + ANSWER
