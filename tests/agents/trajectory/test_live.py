"""Trajectories of agents that ran in several processes, with faults."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import anyio
import attrs
import pytest
from atif import Trajectory

from clawblox.agents.async_agent import AsyncAgent
from clawblox.agents.control import ask_agent
from clawblox.agents.status import read_status
from clawblox.agents.trajectory import encode_trajectory, export_trajectory
from clawblox.agents.trajectory.turns import TurnIndex
from clawblox.agents.trajectory.window import read_window
from clawblox.agents.values import Usage, sum_usage
from clawblox.errors import AgentError
from tests.agents.standins import ANSWER, install, misbehave
from tests.support.waiting import HANG_S

pytestmark = pytest.mark.anyio

ENV = {
    "claude": {"ANTHROPIC_API_KEY": "sk-ant-0123456789"},
    "codex": {"CODEX_API_KEY": "sk-0123456789"},
    "kimi": {"KIMI_MODEL_API_KEY": "sk-0123456789", "KIMI_MODEL_NAME": "k2"},
    "acp": {},
}
PROGRAMS = [
    pytest.param("claude", "2.1.197", marks=pytest.mark.thorough),
    ("claude", "2.1.330"),
    pytest.param("codex", None, marks=pytest.mark.thorough),
    pytest.param("kimi", None, marks=pytest.mark.thorough),
    pytest.param("acp", None, marks=pytest.mark.thorough),
]


def make_agent(tmp_path: Path, program: str, version: str | None) -> AsyncAgent:
    binary = install(tmp_path / "bin", program, version=version)
    return AsyncAgent(
        agent=program,
        name="Eko",
        dir=tmp_path / "Eko",
        auto_continue=False,
        **{"command": [str(binary)]} if program == "acp" else {"binary": binary},
    )


def export(directory: Path) -> Trajectory:
    return Trajectory.model_validate_json(encode_trajectory(export_trajectory(directory)))


def used(trajectory: Trajectory) -> Usage:
    """Return the usage of a trajectory's steps, after comparing it with the document."""
    metrics = [step.metrics for step in trajectory.steps if step.metrics is not None]
    total = trajectory.final_metrics
    assert total is not None
    assert total.extra is not None
    prompts = sum(one.prompt_tokens or 0 for one in metrics)
    assert prompts == total.total_prompt_tokens
    written = total.extra["cache_write_tokens"]
    cached = total.total_cached_tokens or 0
    costs = [one.cost_usd for one in metrics if one.cost_usd is not None]
    return Usage(
        input_tokens=prompts - cached - written,
        cached_tokens=sum(one.cached_tokens or 0 for one in metrics),
        cache_write_tokens=written,
        output_tokens=sum(one.completion_tokens or 0 for one in metrics),
        reasoning_tokens=total.extra["reasoning_tokens"],
        cost_usd=pytest.approx(sum(costs)) if costs else None,
        turns=3,
    )


def check_turns(directory: Path, usage: Usage) -> None:
    """Check turns and windows of a running or finished agent against its ledger and trajectory."""
    turns = TurnIndex(directory)
    turns.read_on()
    assert sum_usage(turn.usage for turn in turns.turns) == attrs.evolve(
        usage, turns=0, cost_usd=usage.cost_usd and pytest.approx(usage.cost_usd)
    )
    assert [turn.number for turn in turns.turns] == [1, 2, 3]
    assert all(turn.ended_at and not turn.is_cut_off for turn in turns.turns)
    steps = [{**step, "metrics": None} for step in export_trajectory(directory)["steps"][1:]]
    for max_bytes in (1, 600, 1 << 20):
        windows = [read_window(turns, 0, max_bytes=max_bytes)]
        while windows[-1].has_later:
            windows.append(read_window(turns, windows[-1].last, max_bytes=max_bytes))
        found = [step for window in windows for step in window.steps]
        said = [(step["source"], step["message"]) for step in found if step["message"]]
        assert said == [(step["source"], step["message"]) for step in steps if step["message"]]
        assert all(step["timestamp"] for step in found)
    assert [step.get("tool_calls") for step in found] == [step.get("tool_calls") for step in steps]


@pytest.mark.parametrize(("program", "version"), PROGRAMS)
async def test_three_turns_in_two_starts_are_one_trajectory(
    tmp_path: Path, program: str, version: str | None
) -> None:
    with anyio.fail_after(HANG_S):
        async with make_agent(tmp_path, program, version) as agent:
            started = await agent.start(
                initial_prompt="Begin\nRUN echo hi-there",
                system_prompt="You are Eko.",
                env=ENV[program],
            )
            script = await anyio.Path(started.command_file).read_text()
            if program != "acp":  # which has other pending requests
                assert "RUN echo hi-there" in script
            await agent.wait()
            asked = await ask_agent(agent.dir, "send", {"prompt": "Say it again."})
            assert asked is not None
            assert asked.turn == 2
            await agent.wait()
            stopped = await ask_agent(agent.dir, "stop", {"grace_seconds": 5})
            assert stopped is not None
            assert stopped.state == "stopped"
        async with make_agent(tmp_path, program, version) as again:
            await again.send(prompt="Go on", env=ENV[program])
            await again.wait()
            usage = again.usage
    trajectory = await anyio.to_thread.run_sync(export, agent.dir)
    assert used(trajectory) == usage
    await anyio.to_thread.run_sync(check_turns, agent.dir, usage)
    told = [(step.source, step.message) for step in trajectory.steps if step.source != "agent"]
    assert told == [
        ("system", "You are Eko."),
        ("user", "Begin\nRUN echo hi-there"),
        ("user", "Say it again."),
        ("user", "Go on"),
    ]
    answers = [step for step in trajectory.steps if step.source == "agent"]
    assert [step.message for step in answers if step.message] == [ANSWER] * 3
    (call,) = [call for step in answers for call in step.tool_calls or ()]
    assert "echo hi-there" in json.dumps(call.arguments)
    (result,) = [
        found for step in answers if step.observation for found in step.observation.results
    ]
    assert result.source_call_id == call.tool_call_id
    assert "hi-there" in str(result.content)
    assert [step.extra["turn"] for step in trajectory.steps[1:] if step.extra] == sorted(
        step.extra["turn"] for step in trajectory.steps[1:] if step.extra
    )
    status = await anyio.to_thread.run_sync(read_status, agent.dir)
    assert status is not None
    assert (status.state, status.usage, status.session_id) == (
        "stopped",
        usage,
        trajectory.session_id,
    )


async def test_a_failure_is_reported_once(tmp_path: Path) -> None:
    agent = make_agent(tmp_path, "claude", None)
    (agent.dir / "workspace").mkdir(parents=True)
    misbehave(agent.dir / "workspace", api_error=400)
    with anyio.fail_after(HANG_S):
        async with agent:
            with contextlib.suppress(AgentError):
                await agent.start(initial_prompt="Begin", env=ENV["claude"])
            await agent.wait()
            assert agent.state == "failed"
    steps = (await anyio.to_thread.run_sync(export, agent.dir)).steps
    (failure,) = [step for step in steps[1:] if step.source == "system"]
    assert "400" in str(failure.message)
    assert failure.extra is not None
    assert failure.extra["kind"] == "invalid"


@pytest.mark.thorough
async def test_a_crash_in_a_turn_is_a_step_between_the_messages_around_it(
    tmp_path: Path,
) -> None:
    agent = make_agent(tmp_path, "claude", None)
    (agent.dir / "workspace").mkdir(parents=True)
    misbehave(agent.dir / "workspace", crash_at_tool={"times": 1, "signal": 9})
    with anyio.fail_after(HANG_S):
        async with agent:
            await agent.start(initial_prompt="Begin\nRUN echo x", env=ENV["claude"])
            await agent.wait()
    steps = (await anyio.to_thread.run_sync(export, agent.dir)).steps[1:]
    sources = [step.source for step in steps]
    assert sources == ["user", "agent", "system", "user", "agent"]
    assert "SIGKILL" in str(steps[2].message)
    assert steps[3].message != steps[0].message
