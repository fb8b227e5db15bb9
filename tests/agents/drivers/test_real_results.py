"""Reports of Claude Code outside answers to messages, and its costs, by version.

They are installed from npm (``tests/support/programs.py``), and talk to a stand-in for their model.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import pytest

from clawblox import Agent, AgentResumeError
from tests.support.model_api import ModelApi, Request, model_api
from tests.support.programs import Programs
from tests.support.waiting import wait_until

pytestmark = pytest.mark.cli

TURN_TIMEOUT_S = 90.0
IN_BACKGROUND = "Run it in the background."


@attrs.frozen
class Bench:
    """A version of Claude Code and its model."""

    binary: Path
    api: ModelApi

    def agent(self, directory: Path) -> Agent:
        return Agent(
            agent="claude",
            name="rocky",
            dir=directory / "rocky",
            model="claude-sonnet-4-5",
            binary=self.binary,
            auto_continue=False,
        )

    @property
    def env(self) -> dict[str, str]:
        return {"ANTHROPIC_API_KEY": "not-a-key", "ANTHROPIC_BASE_URL": self.api.url}

    def run_in_background(self, command: str) -> None:
        """Let the model run a command in the background on request."""
        call = "Bash", {"command": command, "description": "x", "run_in_background": True}
        self.api.tool = lambda request: call if IN_BACKGROUND in latest(request) else None


def latest(request: Request) -> str:
    return json.dumps(request["messages"][-1])


@pytest.fixture(params=["claude-2.1.278", "claude-2.1.300", "claude-2.1.330"])
def bench(request, programs: Programs, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    installed = programs.install(request.param)
    monkeypatch.setenv("PATH", installed.path)
    with model_api() as api:
        yield Bench(installed.binary, api)


def origins(agent: Agent) -> list[Any]:
    """Return the origin of each finished turn; None for messages."""
    lines = (agent.dir / "events.jsonl").read_text().splitlines()
    ends = (event for event in map(json.loads, lines) if event["type"] == "turn.finished")
    return [event["data"].get("origin") for event in ends]


def start(bench: Bench, agent: Agent, prompt: str = "Begin") -> None:
    agent.start(initial_prompt=prompt, system_prompt="Be kind.", env=bench.env)
    assert agent.wait().state == "idle"


def close(bench: Bench, agent: Agent) -> None:
    bench.api.gate.set()
    agent.stop(grace_seconds=5)
    agent.close()


def test_a_message_after_a_killed_background_command_is_answered(bench: Bench, tmp_path: Path):
    bench.run_in_background("sleep 600")
    agent = bench.agent(tmp_path)
    try:
        start(bench, agent, IN_BACKGROUND)
        agent.stop(grace_seconds=0)
        bench.api.gate.clear()
        asked = len(bench.api.requests)
        agent.send(prompt="Which word was it?", env=bench.env)
        wait_until(lambda: len(bench.api.requests) > asked, TURN_TIMEOUT_S, "the model is asked")
        wait_until(lambda: len(origins(agent)) == 2, TURN_TIMEOUT_S, "the command is reported")
        assert origins(agent) == [None, "task-notification"]
        assert agent.state == "working"
        assert not agent.is_between_turns
        bench.api.gate.set()
        result = agent.wait()
        assert (result.state, result.usage.turns) == ("idle", 2)
        assert "Which word was it?" in bench.api.told()
    finally:
        close(bench, agent)


def test_the_end_of_a_background_command_starts_a_turn_that_is_not_counted(
    bench: Bench, tmp_path: Path
):
    release = tmp_path / "release"
    bench.run_in_background(f"until test -e {release}; do sleep 0.1; done")
    agent = bench.agent(tmp_path)
    try:
        start(bench, agent, IN_BACKGROUND)
        before = agent.usage
        bench.api.gate.clear()
        release.touch()
        wait_until(lambda: agent.state == "working", TURN_TIMEOUT_S, "the program begins a turn")
        assert not agent.is_between_turns
        bench.api.gate.set()
        wait_until(lambda: len(origins(agent)) == 2, TURN_TIMEOUT_S, "the turn has ended")
        assert origins(agent) == [None, "task-notification"]
        assert agent.wait().state == "idle"
        assert agent.usage.turns == before.turns == 1
        assert agent.usage.tokens == before.tokens * 3 / 2  # the model was asked twice before
        assert agent.usage.cost_usd == pytest.approx((before.cost_usd or 0.0) * 3 / 2)
    finally:
        close(bench, agent)


def test_the_cost_of_each_turn_is_counted_once_across_resumes(bench: Bench, tmp_path: Path):
    agent = bench.agent(tmp_path)
    try:
        start(bench, agent)
        per_turn = agent.usage.cost_usd
        assert per_turn
        for number in range(2, 5):
            agent.stop(grace_seconds=5)
            agent.send(prompt="Go on", env=bench.env)
            usage = agent.wait().usage
            assert (usage.turns, usage.missing_costs) == (number, 0)
            assert usage.cost_usd == pytest.approx(number * per_turn)
    finally:
        close(bench, agent)


def test_the_cost_of_one_turn_is_missing_after_a_kill(bench: Bench, tmp_path: Path):
    agent = bench.agent(tmp_path)
    try:
        start(bench, agent)
        per_turn = agent.usage.cost_usd
        assert per_turn
        started = agent.send(prompt="Go on", env=bench.env)
        assert agent.wait().usage.cost_usd == pytest.approx(2 * per_turn)
        assert started.pid is not None
        os.kill(started.pid, signal.SIGKILL)
        for number in (3, 4):
            agent.send(prompt="Go on", env=bench.env)
            usage = agent.wait().usage
            assert (usage.turns, usage.missing_costs) == (number, 1)
            assert usage.cost_usd == pytest.approx((number - 1) * per_turn)
    finally:
        close(bench, agent)


@pytest.mark.parametrize("message", [{}, {"role": "assistant", "content": None}, 5])
def test_a_damaged_transcript_is_a_failure_of_the_resume(
    programs: Programs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, message: Any
):
    installed = programs.install("claude-2.1.197")  # later versions skip such damage
    monkeypatch.setenv("PATH", installed.path)
    with model_api() as api:
        bench = Bench(installed.binary, api)
        agent = bench.agent(tmp_path)
        try:
            start(bench, agent)
            agent.stop(grace_seconds=5)
            [transcript] = agent.dir.glob("session/projects/*/*.jsonl")
            records = map(json.loads, transcript.read_text().splitlines())
            damaged = [
                {**record, "message": message} if record["type"] == "assistant" else record
                for record in records
            ]
            transcript.write_text("".join(f"{json.dumps(record)}\n" for record in damaged))
            with suppress(AgentResumeError):
                agent.send(prompt="Go on", env=bench.env)
            assert agent.wait().state == "failed"
            lines = (agent.dir / "events.jsonl").read_text().splitlines()
            errors = [event for event in map(json.loads, lines) if event["type"] == "error"]
            assert {error["data"]["kind"] for error in errors} == {"resume"}
        finally:
            close(bench, agent)
