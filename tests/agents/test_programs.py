"""The real agent programs, driven by Agent, with a stand-in for their models' API.

They are installed from npm (``tests/support/programs.py``). The output and the files of the
stand-ins are compared here with those of the programs.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from clawblox import Agent, AgentResumeError
from clawblox.agents.drivers import find_driver
from clawblox.agents.layout import AgentDir
from clawblox.agents.usage import Budget
from tests.agents import standins
from tests.agents.standins.running import CLAUDE, CODEX, StandIn, new_id
from tests.support import model_api as models
from tests.support.model_api import ModelApi, model_api, system_text, user_messages
from tests.support.processes import is_alive
from tests.support.programs import Installed, Programs
from tests.support.tmux import Tmux, windows
from tests.support.waiting import wait_until

pytestmark = pytest.mark.cli

AUTO_CONTINUE = "Please don't stop. Just continue doing whatever you want to do."
SYSTEM_PROMPT = "You are the one who counts melons."
TURN_TIMEOUT_S = 90.0
NAMES = ("claude-2.1.197", "claude", "codex", "kimi")


def credentials(driver: str, url: str) -> dict[str, str]:
    """Return variables that give a program a key, and the address of its model's API."""
    return {
        "claude": {"ANTHROPIC_API_KEY": "not-a-key", "ANTHROPIC_BASE_URL": url},
        "codex": {"OPENAI_API_KEY": "not-a-key", "OPENAI_BASE_URL": f"{url}/v1"},
        "kimi": {
            "KIMI_MODEL_NAME": "stand-in",
            "KIMI_MODEL_API_KEY": "not-a-key",
            "KIMI_MODEL_BASE_URL": f"{url}/v1",
            "KIMI_MODEL_PROVIDER_TYPE": "openai",
        },
    }[driver]


@attrs.frozen
class Bench:
    """A program, its model, and the agents that use them."""

    installed: Installed
    api: ModelApi
    root: Path
    agents: list[Agent] = attrs.field(factory=list)

    @property
    def driver(self) -> str:
        return self.installed.name.partition("-")[0]

    @property
    def env(self) -> dict[str, str]:
        return credentials(self.driver, self.api.url)

    def agent(self, name: str = "Eko", **more: Any) -> Agent:
        agent = Agent(
            agent=self.driver,
            name=name,
            dir=self.root / "agents" / name,
            model="claude-sonnet-4-5" if self.driver == "claude" else "stand-in",
            binary=self.installed.binary,
            permission_mode="bypassPermissions",
            **more,
        )
        self.agents.append(agent)
        return agent

    def start(self, agent: Agent, prompt: str = "Count to one.") -> Any:
        return agent.start(initial_prompt=prompt, system_prompt=SYSTEM_PROMPT, env=self.env)

    def told(self) -> list[str]:
        """Return the messages of the newest request."""
        return user_messages(self.api.requests[-1]) if self.api.requests else []

    def wait_told(self, condition: Callable[[list[str]], bool]) -> list[str]:
        """Wait until the agent's messages satisfy a condition."""

        def look() -> list[str] | None:
            told = self.told()
            return told if condition(told) else None

        return wait_until(look, TURN_TIMEOUT_S, "the model is told") or []

    def has_transcript(self, agent: Agent) -> bool:
        """Return whether the driver finds the agent's conversation on disk."""
        found = find_driver(self.driver).transcripts(AgentDir(agent.dir))
        return found is None or agent.session_id in found


@pytest.fixture(params=NAMES)
def bench(
    request: pytest.FixtureRequest,
    programs: Programs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Bench]:
    installed = programs.install(request.param)
    monkeypatch.setenv("PATH", installed.path)
    with model_api() as api:
        made = Bench(installed, api, tmp_path)
        try:
            yield made
        finally:
            api.gate.set()
            for agent in made.agents:
                agent.stop(grace_seconds=1)
                agent.close()


def test_an_agent_is_nudged_and_resumes_an_interrupted_turn(bench: Bench) -> None:
    agent = bench.agent()
    started = bench.start(agent)
    assert started.version
    id_file = agent.dir / f"{bench.driver}_session_id.txt"
    assert id_file.read_text().strip() == started.session_id == agent.session_id
    told = bench.wait_told(lambda told: told.count(AUTO_CONTINUE) >= 2)
    assert told[0] == "Count to one."
    assert set(told[1:]) == {AUTO_CONTINUE}
    assert SYSTEM_PROMPT in system_text(bench.api.requests[-1])
    agent.stop(grace_seconds=2)
    before = len(bench.api.requests)

    again = agent.send(prompt="Count to two.", env=bench.env)
    assert again.session_id == started.session_id
    told = bench.wait_told(lambda told: "Count to two." in told)
    assert told[0] == "Count to one."
    assert SYSTEM_PROMPT in system_text(bench.api.requests[-1])
    assert len(bench.api.requests) > before


def test_usage_equals_the_count_of_the_model(bench: Bench) -> None:
    agent = bench.agent(budget=Budget(turns=3))
    bench.start(agent)
    result = agent.wait()
    assert result.state == "stopped", result
    assert "3 turns" in result.reason
    used = result.usage
    assert used.turns == 3
    counts = (used.input_tokens, used.cached_tokens, used.output_tokens)
    one = (models.INPUT_TOKENS, models.CACHED_TOKENS, models.OUTPUT_TOKENS)
    assert counts == tuple(3 * count for count in one)


def test_a_killed_program_is_restarted_in_its_conversation(bench: Bench) -> None:
    agent = bench.agent()
    started = bench.start(agent)
    told = bench.wait_told(lambda told: AUTO_CONTINUE in told)
    bench.api.gate.clear()
    asked = len(bench.api.requests)
    wait_until(lambda: len(bench.api.requests) > asked, TURN_TIMEOUT_S)
    wait_until(lambda: bench.has_transcript(agent))  # written a moment after the turn
    pid = json.loads((agent.dir / "runtime" / "status.json").read_text())["pid"]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(pid))
    bench.api.gate.set()
    asked = len(bench.api.requests)
    wait_until(lambda: len(bench.api.requests) > asked + 1, TURN_TIMEOUT_S)
    assert agent.session_id == started.session_id
    assert bench.told()[: len(told)] == told


def test_an_unknown_conversation_is_an_error_and_not_replaced(bench: Bench) -> None:
    agent = bench.agent()
    started = bench.start(agent)
    agent.stop(grace_seconds=2)
    id_file = agent.dir / f"{bench.driver}_session_id.txt"
    other = started.session_id[:-4] + ("0000" if started.session_id[-4:] != "0000" else "1111")
    id_file.write_text(other)
    asked = len(bench.api.requests)
    with pytest.raises(AgentResumeError):
        agent.send(prompt="Count to two.", env=bench.env)
    assert len(bench.api.requests) == asked
    assert id_file.read_text() == other


def test_a_refusal_of_the_model_ends_the_agent_with_the_reason(bench: Bench) -> None:
    bench.api.fail = lambda _request: 401
    agent = bench.agent()
    env = {**bench.env, **({"CLAUDE_CODE_MAX_RETRIES": "1"} if bench.driver == "claude" else {})}
    try:
        agent.start(initial_prompt="Count.", system_prompt=SYSTEM_PROMPT, env=env)
        agent.wait()
    except Exception as error:
        assert "401" in str(error)  # noqa: PT017 - it depends on when the program says it
    assert agent.state == "failed"
    assert "401" in str(agent.failure)


def test_the_window_stays_open_across_turns(bench: Bench, tmux: Tmux) -> None:
    session = bench.root.name.replace(".", "_")
    agent = bench.agent(tmux=session)
    started = bench.start(agent)
    assert started.tmux_window == "agent-0-0"
    while len(told := bench.told()) < 3:
        assert windows(tmux, session) == ["agent-0-0"], told
    agent.stop(grace_seconds=2)
    assert windows(tmux, session) == []


@pytest.mark.needs("bwrap")
def test_an_agent_works_in_the_sandbox_and_is_continued_there(bench: Bench) -> None:
    agent = bench.agent(sandbox=True)
    assert str(agent.visible_workspace_dir) == "/workspace"
    started = bench.start(agent)
    bench.wait_told(lambda told: told.count(AUTO_CONTINUE) >= 2)
    agent.stop(grace_seconds=2)
    again = agent.send(prompt="Count to two.", env=bench.env)
    assert again.session_id == started.session_id
    told = bench.wait_told(lambda told: "Count to two." in told)
    assert told[0] == "Count to one."


# -- the stand-ins of the programs -------------------------------------------------------------


def real_turn(bench: Bench) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the program's output and its transcript for a turn with a tool."""
    tools = {"claude": "Bash", "codex": "exec_command", "kimi": "Bash"}
    argument = {"claude": "command", "codex": "cmd", "kimi": "command"}
    use = (tools[bench.driver], {argument[bench.driver]: "echo hello", "description": "x"})

    def tool(request: models.Request) -> models.Tool | None:
        is_done = "hello\\n" in json.dumps(request) or 'hello"' in json.dumps(request)
        return use if request.get("tools") and not is_done else None

    bench.api.tool = tool
    agent = bench.agent(auto_continue=False)
    bench.start(agent, "Say it.")
    agent.wait()
    agent.stop(grace_seconds=2)
    log = (agent.dir / "logs" / "agent.log").read_text()
    return parse(log), read_transcript(agent.dir / "session")


def stand_in_turn(bench: Bench, version: str | None) -> tuple[list[Any], list[Any]]:
    (bench.root / "standin").mkdir()
    standin = StandIn(bench.root / "standin", bench.driver, version)
    arguments = {
        "claude": ["-p", "RUN echo hello", *CLAUDE, "--session-id", new_id()],
        "codex": [*CODEX, "RUN echo hello"],
        "kimi": ["-p", "RUN echo hello", "--output-format", "stream-json"],
    }
    ended = standin.run(*arguments[bench.driver])
    assert ended.status == 0
    return ended.records, read_transcript(standin.state)


def read_transcript(state: Path) -> list[dict[str, Any]]:
    patterns = ("projects/*/*.jsonl", "sessions/*/*/*/*.jsonl", "sessions/*/*/agents/main/*.jsonl")
    [path] = (path for pattern in patterns for path in state.glob(pattern))
    return parse(path.read_text())


def parse(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def kind(record: dict[str, Any]) -> tuple[Any, ...]:
    """Return the fields that distinguish kinds of records."""
    inner = next((record[key] for key in ("item", "payload", "event") if key in record), {})
    message = record.get("message", {})
    content = message.get("content") if isinstance(message, dict) else None
    block = content[0]["type"] if isinstance(content, list) and content else None
    names = [record.get(key) for key in ("type", "subtype", "role", "operation")]
    return (*names, inner.get("type"), inner.get("role"), block)


def shapes(records: list[dict[str, Any]]) -> dict[tuple[Any, ...], dict[str, str]]:
    """Return the members of each kind of record, with their types."""
    found: dict[tuple[Any, ...], dict[str, str]] = {}
    for record in records:
        members = {key: type(value).__name__ for key, value in record.items()}
        for key in ("message", "payload", "item", "event", "part"):
            if isinstance(record.get(key), dict):
                inner = {f"{key}.{name}": type(v).__name__ for name, v in record[key].items()}
                members |= inner
        found[kind(record)] = found.get(kind(record), {}) | members
    return found


def test_a_stand_in_writes_the_output_and_files_of_the_program(bench: Bench) -> None:
    version = bench.installed.version.split()[0] if bench.driver == "claude" else None
    for real, mimicked in zip(real_turn(bench), stand_in_turn(bench, version), strict=True):
        known = shapes(real)
        for name, members in shapes(mimicked).items():
            assert name in known, (name, sorted(map(str, known)))
            loose = {"int": "float", "NoneType": None}
            for key, value in members.items():
                assert key in known[name], (name, key, sorted(known[name]))
                kinds = {known[name][key], value}
                assert len({loose.get(each, each) for each in kinds} - {None}) <= 1, (name, key)


def test_a_stand_in_refuses_with_the_messages_of_the_program(bench: Bench) -> None:
    (bench.root / "standin").mkdir()
    standin = StandIn(bench.root / "standin", bench.driver, bench.installed.version.split()[0])
    unknown = new_id()
    cases = {
        "claude": [
            ["-p", "x", *CLAUDE, "--resume", unknown],
            ["-p", "x", *CLAUDE, "--session-id", "x"],
            ["-p", "x", *CLAUDE, "--session-id", unknown, "--resume", unknown],
            ["-p", "x", *CLAUDE, "--frobnicate"],
            ["-p", "x", "--output-format", "stream-json"],
            ["-p", *CLAUDE],
        ],
        "codex": [
            [*CODEX, "resume", unknown, "x"],
            ["exec", "--json", "x"],
            ["exec", "--frobnicate"],
            [*CODEX],
        ],
        "kimi": [
            ["-p", "x", "--output-format", "stream-json", "-r", f"session_{unknown}"],
            ["-p", "x", "--frobnicate"],
        ],
    }
    env = {**standin.env, **credentials(bench.driver, bench.api.url), "PATH": bench.installed.path}
    for arguments in cases[bench.driver]:
        done = subprocess.run(
            [bench.installed.binary, *arguments],
            env=env,
            cwd=standin.workspace,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TURN_TIMEOUT_S,
        )
        ended = standin.run(*arguments)
        assert (ended.status, ended.errors) == (done.returncode, done.stderr), arguments
        lines = [json.loads(line).get("type") for line in done.stdout.splitlines()]
        assert [record.get("type") for record in ended.records] == lines
    assert standins.ANSWER == models.ANSWER
