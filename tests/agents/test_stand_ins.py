"""Agents that run stand-ins for real programs with the real drivers, including failures."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawblox import AgentError, AsyncAgent
from clawblox.agents.prompts import AUTO_CONTINUE
from clawblox.agents.running import dialogue
from clawblox.agents.usage import Budget
from clawblox.system.clock import format_utc, utc_now
from tests.agents.small import records, until
from tests.agents.standins import hold, install, left_behind, misbehave
from tests.support.processes import is_alive
from tests.support.waiting import HANG_S

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("_short_delays")]

PROGRAMS = {"claude": "ANTHROPIC_API_KEY", "codex": "OPENAI_API_KEY"}


@pytest.fixture
def _short_delays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(dialogue, "_FIRST_DELAY_S", 0.01)
    monkeypatch.setattr(dialogue, "_FIRST_BUSY_DELAY_S", 0.01)
    return None


@pytest.fixture(scope="module")
def binaries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    directory = tmp_path_factory.mktemp("programs")
    return {program: install(directory, program) for program in PROGRAMS}


also_with_codex = pytest.mark.parametrize(
    "program", ["claude", pytest.param("codex", marks=pytest.mark.thorough)], indirect=True
)
"""For behaviour in which the two kinds of programs differ little."""


@pytest.fixture(params=PROGRAMS)
def program(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Stand:
    """An agent that runs a stand-in, with its start options."""

    def __init__(self, root: Path, program: str, binary: Path) -> None:
        self.root, self.program, self.binary = root, program, binary
        self.workspace = root / "Eko" / "workspace"
        self.workspace.mkdir(parents=True)
        self.env = {PROGRAMS[program]: "sk-canary-000000000000"}

    @asynccontextmanager
    async def agent(self, **options: Any) -> AsyncIterator[AsyncAgent]:
        given = {"auto_continue": False, "permission_mode": "bypassPermissions", **options}
        with anyio.fail_after(HANG_S):
            async with AsyncAgent(
                agent=self.program, name="Eko", dir=self.root / "Eko", binary=self.binary, **given
            ) as agent:
                yield agent

    async def start(self, agent: AsyncAgent, prompt: str = "SAY hello") -> Any:
        return await agent.start(initial_prompt=prompt, system_prompt="be good", env=self.env)


@pytest.fixture
def stand(tmp_path: Path, program: str, binaries: dict[str, Path]) -> Stand:
    return Stand(tmp_path, program, binaries[program])


@pytest.mark.thorough
async def test_a_conversation_continues_across_stops(stand: Stand) -> None:
    async with stand.agent() as agent, agent.events() as events:
        started = await stand.start(agent)
        assert started.version is not None
        await until(events, "turn.finished")
        await agent.stop(grace_seconds=2)
    async with stand.agent() as other, other.events() as events:
        again = await other.send(prompt="SAY again", env=stand.env)
        assert again.session_id == started.session_id
        found = await until(events, "turn.finished")
        said = [event.data["text"] for event in found if event.kind == "message"]
        assert "again" in "".join(said)
        assert other.usage.turns == 2
        assert other.usage.tokens > 0


@also_with_codex
async def test_the_nudge_is_the_next_message(stand: Stand) -> None:
    async with stand.agent(auto_continue=True) as agent, agent.events() as events:
        await stand.start(agent)
        await until(events, "turn.finished", 2)
        await agent.stop(grace_seconds=2)
    assert AUTO_CONTINUE in "".join(
        path.read_text() for path in (agent.dir / "session").rglob("*.jsonl")
    )


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(
            {"crash_at_turn": {"times": 1, "status": 3}}, id="crash", marks=pytest.mark.thorough
        ),
        pytest.param(
            {"crash_at_tool": {"times": 1, "signal": 9}}, id="killed", marks=pytest.mark.thorough
        ),
        pytest.param({"api_error": {"times": 1, "status": 529}}, id="overloaded"),
    ],
)
async def test_temporary_failures_are_retried(stand: Stand, fault: dict[str, Any]) -> None:
    misbehave(stand.workspace, **fault)
    async with stand.agent() as agent:
        await stand.start(agent, "RUN true\nSAY done")
        assert (await agent.wait()).state == "idle", agent.failure
    assert records(agent, "process.exited")[0]["status"] == "restarting"


@also_with_codex
@pytest.mark.parametrize("status", [401, 400])
async def test_permanent_failures_end_the_agent(stand: Stand, status: int) -> None:
    misbehave(stand.workspace, api_error=status)
    async with stand.agent() as agent:
        with suppress(AgentError):
            await stand.start(agent)
        result = await agent.wait()
        assert result.state == "failed"
    assert len(records(agent, "process.started")) == 1
    assert records(agent)[-1]["status"] == "failed"


IN_AN_HOUR = utc_now().replace(microsecond=0) + timedelta(hours=1)


@pytest.mark.parametrize(
    ("fault", "retry_at"),
    [
        ({"resets_at": int(IN_AN_HOUR.timestamp())}, IN_AN_HOUR),
        (True, None),
        pytest.param({"resets_at": 10**400}, None, marks=pytest.mark.thorough, id="huge"),
        pytest.param({"resets_at": "soon"}, None, marks=pytest.mark.thorough),
    ],
)
async def test_a_usage_limit_ends_the_agent_with_the_limits_end_if_reported(
    stand: Stand, fault: Any, retry_at: datetime | None
) -> None:
    misbehave(stand.workspace, usage_limit=fault)
    async with stand.agent() as agent:
        with suppress(AgentError):
            await stand.start(agent)
        assert (await agent.wait()).ended_by == "failure"
        assert isinstance(agent.failure, AgentError)
        assert (agent.failure.kind, agent.failure.retry_at) == ("limit", retry_at)
        assert not agent.is_waiting_for_provider
    limits = [record["data"] for record in records(agent, "limit")]
    dated = [format_utc(retry_at)] if retry_at else []
    assert [limit["resets_at"] for limit in limits if "resets_at" in limit] == dated


@also_with_codex
@pytest.mark.parametrize(
    "fault",
    [
        {"usage_limit": {"after": 1, "times": 1}},
        pytest.param(
            {"api_error": {"after": 1, "times": 1, "status": 401}}, marks=pytest.mark.thorough
        ),
    ],
)
async def test_an_agent_that_could_not_work_continues_its_conversation_later(
    stand: Stand, fault: dict[str, Any]
) -> None:
    misbehave(stand.workspace, **fault)
    async with stand.agent(auto_continue=True) as agent:
        started = await stand.start(agent)
        assert (await agent.wait()).state == "failed"
        agent.set_budget(Budget(turns=agent.usage.turns + 1))
        again = await agent.send(env=stand.env)
        assert again.session_id == started.session_id
        assert (await agent.wait()).ended_by == "budget"
        assert agent.failure is None


@also_with_codex
async def test_a_login_that_expires_between_two_turns_ends_the_agent(stand: Stand) -> None:
    misbehave(stand.workspace, api_error={"after": 1, "status": 401})
    async with stand.agent(auto_continue=True) as agent, agent.events() as events:
        await stand.start(agent)
        await until(events, "turn.finished")
        assert (await agent.wait()).ended_by == "failure"
        assert isinstance(agent.failure, AgentError)
        assert (agent.failure.kind, agent.failure.retry_at) == ("auth", None)


@also_with_codex
async def test_an_agent_whose_program_retries_waits_for_its_provider(stand: Stand) -> None:
    misbehave(stand.workspace, api_retry={"attempts": 2, "delay_s": 0.01})
    async with stand.agent() as agent, agent.events() as events:
        assert (agent.is_waiting_for_provider, agent.provider_wait_s) == (False, 0.0)
        with hold(stand.workspace):
            await stand.start(agent)
            await until(events, "retry", 2)
            assert agent.is_waiting_for_provider
            assert agent.provider_wait_s > 0.0
        await until(events, "message")
        assert (agent.is_waiting_for_provider, agent.provider_wait_s) == (False, 0.0)


@also_with_codex
async def test_another_conversation_is_an_error(stand: Stand) -> None:
    async with stand.agent() as agent, agent.events() as events:
        await stand.start(agent)
        await until(events, "turn.finished")
        await agent.stop(grace_seconds=2)
        misbehave(stand.workspace, wrong_id=True)
        with pytest.raises(AgentError, match="conversation"):
            await agent.send(prompt="SAY again", env=stand.env)
        assert agent.state == "failed"


@also_with_codex
async def test_a_torn_transcript_is_an_error(stand: Stand) -> None:
    misbehave(stand.workspace, torn=True)
    async with stand.agent() as agent:
        with suppress(AgentError):
            await stand.start(agent)
        result = await agent.wait()
        assert result.state == "failed"
        assert "in the middle of a line" in result.reason


@also_with_codex
async def test_background_processes_end_with_the_agent(stand: Stand) -> None:
    misbehave(stand.workspace, leave_behind=2, ignore_term=True)
    async with stand.agent() as agent:
        with hold(stand.workspace):
            started = await stand.start(agent)
            while len(left := left_behind(stand.workspace)) < 2:
                await anyio.sleep(0.02)
            await agent.stop(grace_seconds=0.2)
        assert not [pid for pid in (started.pid, *left) if is_alive(pid)]


async def test_no_file_and_no_event_contains_a_key(stand: Stand) -> None:
    async with stand.agent() as agent, agent.events() as events:
        started = await stand.start(agent)
        await until(events, "turn.finished")
        text = started.command_file.read_text()
        await agent.stop(grace_seconds=2)
    assert stand.env[PROGRAMS[stand.program]] not in text
    for path in agent.dir.rglob("*"):
        if path.is_file():
            assert b"sk-canary" not in path.read_bytes(), path


async def test_a_permission_mode_that_the_program_refuses_is_an_error_with_its_name(
    stand: Stand,
) -> None:
    async with stand.agent(permission_mode="everything") as agent:
        with pytest.raises(AgentError, match="everything") as caught:
            await stand.start(agent)
        assert "could not be started" not in str(caught.value)
