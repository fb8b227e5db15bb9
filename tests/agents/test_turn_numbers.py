"""Events, status, usage and tables show the same number of turns, even after interruptions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clawblox.agents.running import dialogue
from clawblox.agents.status import AgentStatus, make_status
from clawblox.views.rows import agent_columns, describe_agent, summarise_agents
from tests.agents.small import opened, records, small, until

__all__ = ["small"]

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("small")]


def read(agent: Any) -> AgentStatus:
    return make_status(agent.dir, agent._record())


def shown(status: AgentStatus) -> set[int]:
    """Return the numbers of turns that tables, descriptions and summaries show."""
    (column,) = (column for column in agent_columns([status]) if column.heading == "TURN")
    (fact,) = (line for line in describe_agent(status).splitlines() if line.startswith("turn "))
    (summary,) = summarise_agents([status])
    told = summary.partition("; ")[2].partition(" turn")[0]
    return {int(column.cells[0]), int(fact.split()[1]), int(told), status.turn}


async def test_a_turn_repeated_after_a_crash_keeps_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialogue, "_FIRST_DELAY_S", 0.0)
    async with opened(tmp_path, "loop") as agent:
        await agent.start(initial_prompt="work")
        await agent.send(prompt="crash-once 3 work")
        await agent.wait()
        await agent.send(prompt="work")
        assert (await agent.wait()).usage.turns == 3
        assert shown(read(agent)) == {3}
    started = [one["turn"] for one in records(agent, "turn.started")]
    finished = [one["turn"] for one in records(agent, "turn.finished")]
    assert (started, finished) == ([1, 2, 2, 3], [1, 2, 3])


async def test_the_current_turn_has_the_next_number_and_an_interrupted_turn_does_not_count(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, "loop") as agent, agent.events() as events:
        await agent.start(initial_prompt="work")
        await until(events, "turn.finished")
        await agent.send(prompt="hang")
        await until(events, "turn.started")
        assert (agent.usage.turns, agent._owner.books.turn) == (1, 2)
        result = await agent.stop(grace_seconds=1)
        assert result.usage.turns == 1
        assert shown(read(agent)) == {1}
        await agent.send(prompt="work")
        await agent.wait()
        assert shown(read(agent)) == {2}
    assert [one["turn"] for one in records(agent, "turn.started")] == [1, 2, 2]


async def test_turn_numbers_continue_from_the_usage_file_alone(tmp_path: Path) -> None:
    async with opened(tmp_path) as agent:
        await agent.start(initial_prompt="work")
        await agent.wait()
        await agent.send(prompt="work")
        await agent.wait()
    (agent.dir / "events.jsonl").unlink()  # an archive does not contain it
    async with opened(tmp_path) as agent:
        await agent.send(prompt="work")
        await agent.wait()
        assert shown(read(agent)) == {3}
    assert [one["turn"] for one in records(agent, "turn.started")] == [3]
