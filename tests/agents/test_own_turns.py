"""Turns that a program starts by itself answer no message, and are not counted as turns."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest

from clawblox import AsyncAgent
from clawblox.agents.prompts import AUTO_CONTINUE
from clawblox.agents.running import dialogue
from clawblox.agents.usage import Budget
from clawblox.agents.values import AgentEvent
from tests.agents.small import records, until
from tests.agents.standins import USAGE, hold, hold_own, install, misbehave, told
from tests.support.waiting import HANG_S, wait_until_async

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("_short_delays")]

OLD, NEW = "2.1.197", "2.1.330"
"""Two versions; the newer reports the progress of each message."""
PER_TURN = USAGE["input"] + USAGE["cached"] + USAGE["written"] + USAGE["output"]


@pytest.fixture
def _short_delays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(dialogue, "_FIRST_DELAY_S", 0.01)
    return None


class Stand:
    """An agent that runs a stand-in of Claude Code."""

    def __init__(self, root: Path, version: str) -> None:
        self.dir = root / "Eko"
        self.workspace = self.dir / "workspace"
        self.workspace.mkdir(parents=True)
        self.binary = install(root / "bin", "claude", version=version)
        self.env = {"ANTHROPIC_API_KEY": "not-a-key"}

    @asynccontextmanager
    async def agent(self, **options: Any) -> AsyncIterator[AsyncAgent]:
        given = {"auto_continue": False, "permission_mode": "bypassPermissions", **options}
        with anyio.fail_after(HANG_S):
            async with AsyncAgent(
                agent="claude", name="Eko", dir=self.dir, binary=self.binary, **given
            ) as agent:
                yield agent

    async def start(self, agent: AsyncAgent, prompt: str = "SAY one") -> None:
        await agent.start(initial_prompt=prompt, system_prompt="", env=self.env)

    def told(self) -> list[str]:
        [path] = self.dir.glob("session/projects/*/*.jsonl")
        return told(path)


@pytest.fixture
def stand(tmp_path: Path, request: pytest.FixtureRequest) -> Stand:
    return Stand(tmp_path, getattr(request, "param", NEW))


both_versions = pytest.mark.parametrize(
    "stand", [pytest.param(OLD, marks=pytest.mark.thorough), NEW], indirect=True
)


async def until_own(events: Any) -> list[AgentEvent]:
    """Return the events up to the end of a turn that the program started by itself."""
    found = await until(events, "turn.finished")
    assert "origin" in found[-1].data
    return found


@both_versions
@pytest.mark.parametrize(
    "origin", ["task-notification", pytest.param(None, marks=pytest.mark.thorough)]
)
async def test_a_message_after_a_resume_is_answered_after_turns_of_the_programs_own(
    stand: Stand, origin: str | None
) -> None:
    async with stand.agent() as agent:
        await stand.start(agent)
        await agent.wait()
        await agent.stop(grace_seconds=5)
        misbehave(stand.workspace, own_turns_before={"count": 3, "origin": origin})
        async with agent.events() as events:
            with hold(stand.workspace):
                await agent.send(prompt="SAY two", env=stand.env)
                for _ in range(3):
                    ended = await until_own(events)
                    assert ended[-1].data["origin"] == (origin or "unknown")
                assert agent.state == "working"
                assert not agent.is_between_turns
            result = await agent.wait()
        assert (result.state, result.usage.turns) == ("idle", 2)
        assert stand.told() == ["SAY one", "SAY two"]


async def test_an_idle_agent_works_during_its_programs_own_turn_without_counting_it(
    stand: Stand,
) -> None:
    misbehave(stand.workspace, own_turns_after={"count": 2, "steps": 1, "times": 1})
    async with stand.agent() as agent, agent.events() as events:
        with hold_own(stand.workspace):
            await stand.start(agent)
            await until(events, "turn.started", 2)
            await wait_until_async(lambda: agent.state == "working", HANG_S, "it works")
            assert not agent.is_between_turns
        await until_own(events)
        await until_own(events)
        assert (await agent.wait()).state == "idle"
        assert agent.usage.turns == 1
        assert agent.usage.tokens == 3 * PER_TURN
        assert agent.usage.cost_usd == pytest.approx(3 * USAGE["cost"])
        await agent.send(prompt="SAY two", env=stand.env)
        assert (await agent.wait()).usage.turns == 2
        assert {record["turn"] for record in records(agent, "turn.finished")} == {1, 2}


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize(
    "budget",
    [
        Budget(tokens=3 * PER_TURN),
        pytest.param(Budget(usd=3 * USAGE["cost"]), marks=pytest.mark.thorough),
    ],
)
async def test_a_budget_is_checked_after_each_turn_of_the_programs_own(
    stand: Stand, place: str, budget: Budget
) -> None:
    misbehave(stand.workspace, **{f"own_turns_{place}": {"count": 2, "steps": 3}})
    with hold(stand.workspace) if place == "before" else nullcontext():
        async with stand.agent(budget=budget) as agent:
            await stand.start(agent)
            await wait_until_async(lambda: agent.state == "stopped", HANG_S, "the budget is spent")
            result = await agent.wait()
    assert result.ended_by == "budget"
    assert result.usage.turns == (place == "after")


@both_versions
async def test_a_message_that_waits_for_a_turn_of_the_programs_own_survives_a_kill(
    stand: Stand,
) -> None:
    misbehave(
        stand.workspace,
        own_turns_before={"count": 1, "steps": 1, "times": 1},
        crash_at_message={"signal": 9, "times": 1},
    )
    async with stand.agent() as agent:
        await stand.start(agent)
        assert (await agent.wait()).usage.turns == 1
        assert stand.told() == ["SAY one"]
        assert len(records(agent, "process.started")) == 2


@both_versions
async def test_a_message_absorbed_by_a_turn_of_the_programs_own_is_answered(
    stand: Stand,
) -> None:
    misbehave(stand.workspace, joins_own_turn={"after": 1})
    async with stand.agent() as agent:
        agent._limits = attrs.evolve(agent._limits, pass_over_timeout=0.05)
        await stand.start(agent)
        await agent.wait()
        await agent.send(prompt="SAY two", env=stand.env)
        result = await agent.wait()
        assert (result.state, result.usage.turns) == ("idle", 2)
        assert stand.told() == ["SAY one", "SAY two"]


@both_versions
async def test_an_empty_turn_of_the_programs_own_never_answers_a_message(
    stand: Stand,
) -> None:
    misbehave(stand.workspace, own_turns_within={"count": 2})
    async with stand.agent() as agent, agent.events() as events:
        agent._limits = attrs.evolve(agent._limits, pass_over_timeout=0.0)
        with hold(stand.workspace):
            await stand.start(agent)
            await until_own(events)
            await until_own(events)
            assert agent.state == "working"
        answered = await until(events, "turn.finished")
        assert answered[-1].data["text"] == "one"
        assert ((await agent.wait()).state, agent.usage.turns) == ("idle", 1)


async def test_automatic_continuation_works_after_turns_of_the_programs_own(stand: Stand) -> None:
    misbehave(stand.workspace, own_turns_before={"count": 2}, own_turns_after={"count": 1})
    async with stand.agent(auto_continue=True, budget=Budget(turns=3)) as agent:
        await stand.start(agent)
        result = await agent.wait()
    assert (result.ended_by, result.usage.turns) == ("budget", 3)
    assert stand.told() == ["SAY one", AUTO_CONTINUE, AUTO_CONTINUE]


async def test_an_idle_agent_whose_program_dies_in_a_turn_of_its_own_gets_no_message(
    stand: Stand,
) -> None:
    misbehave(stand.workspace, own_turns_after=1)
    async with stand.agent() as agent, agent.events() as events:
        with hold_own(stand.workspace):
            await stand.start(agent)
            await until(events, "turn.started", 2)
            await wait_until_async(lambda: agent.state == "working", HANG_S, "it works")
            os.kill(records(agent, "process.started")[-1]["pid"], signal.SIGKILL)
            await until(events, "process.exited")
        result = await agent.wait()
        assert (result.state, result.usage.turns) == ("idle", 1)
        assert stand.told() == ["SAY one"]
