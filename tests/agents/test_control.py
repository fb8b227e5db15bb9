"""Requests to an agent's orchestrator, through the socket in the agent's directory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import attrs
import pytest

from clawblox.agents.control import ask_agent, open_control
from clawblox.agents.layout import AgentDir
from clawblox.agents.status import AgentRecord
from clawblox.errors import AgentResumeError, AgentStartError, ControlError, UsageError
from clawblox.rundir.control_client import control_dir, request

pytestmark = pytest.mark.anyio


@attrs.define
class FakeAgent:
    """Records its requests."""

    record: AgentRecord = attrs.field(
        factory=lambda: AgentRecord(name="Eko", driver="claude", state="working")
    )
    asked: list[object] = attrs.field(factory=list)

    async def send(self, prompt: str) -> None:
        if prompt == "fail":
            raise AgentResumeError("its transcript is torn", agent="Eko", hint="restore it")
        self.asked.append(prompt)

    async def stop(self, grace_seconds: float) -> None:
        self.asked.append(grace_seconds)
        self.record = attrs.evolve(self.record, state="stopped", reason="stopped on request")


@asynccontextmanager
async def served(directory: Path) -> AsyncIterator[FakeAgent]:
    agent = FakeAgent()
    calls = (lambda: agent.record), agent.send, agent.stop
    server = await open_control("Eko", AgentDir(directory), *calls)
    assert server is not None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.run)
        yield agent
        await server.aclose()


async def test_an_agent_takes_messages_stops_and_reports_its_status(tmp_path: Path) -> None:
    async with served(tmp_path) as agent:
        sent = await ask_agent(tmp_path, "send", {"prompt": "Look around. ü"})
        now = await ask_agent(tmp_path, "status")
        stopped = await ask_agent(tmp_path, "stop", {"grace_seconds": 1})
        assert agent.asked == ["Look around. ü", 1]
    assert sent is not None
    assert now is not None
    assert stopped is not None
    assert sent.state == now.state == "working"
    assert (stopped.state, stopped.reason) == ("stopped", "stopped on request")
    assert stopped.dir == tmp_path


async def test_an_agent_without_an_orchestrator_does_not_answer(tmp_path: Path) -> None:
    assert await ask_agent(tmp_path, "status") is None
    async with served(tmp_path):
        pass
    assert await ask_agent(tmp_path, "stop", {"grace_seconds": 1}) is None


async def test_two_orchestrators_cannot_serve_one_agent(tmp_path: Path) -> None:
    async with served(tmp_path):
        agent = FakeAgent()
        calls = (lambda: agent.record), agent.send, agent.stop
        with pytest.raises(AgentStartError, match="another orchestrator runs it") as raised:
            await open_control("Eko", AgentDir(tmp_path), *calls)
        assert (raised.value.agent, raised.value.agent_dir) == ("Eko", tmp_path)


async def test_the_error_of_an_agent_reaches_the_requester(tmp_path: Path) -> None:
    async with served(tmp_path):
        with pytest.raises(ControlError, match="its transcript is torn") as raised:
            await ask_agent(tmp_path, "send", {"prompt": "fail"})
    assert raised.value.error_type == "AgentResumeError"
    assert raised.value.hint == "restore it"


@pytest.mark.parametrize(
    ("op", "arguments", "complaint"),
    [
        ("send", {}, "prompt: must be text, not empty"),
        ("send", {"prompt": ""}, "prompt: must be text, not empty"),
        ("send", {"prompt": ["x"]}, "prompt: must be text, not empty"),
        ("send", {"prompt": "x", "env": {"KEY": "1"}}, "send takes no 'env'; it takes: prompt"),
        ("stop", {}, "seconds, 0 or more, not None"),
        ("stop", {"grace_seconds": -1}, "seconds, 0 or more, not -1"),
        ("status", {"x": 1}, "status takes no 'x'; it takes: nothing"),
        ("save", {}, "unknown op 'save'; there are: send, stop, status"),
    ],
)
async def test_a_wrong_request_is_refused(
    tmp_path: Path, op: str, arguments: dict[str, object], complaint: str
) -> None:
    async with served(tmp_path) as agent:
        with pytest.raises(ControlError) as raised:
            await request(control_dir(tmp_path) / "agent.sock", op, arguments)
        assert complaint in str(raised.value)
        assert agent.asked == []


async def test_a_message_that_is_too_long_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    async with served(tmp_path) as agent:
        await ask_agent(tmp_path, "send", {"prompt": "x" * 60_000})
        with pytest.raises(UsageError, match="longer than 64 kB"):
            await ask_agent(tmp_path, "send", {"prompt": "x" * 65_536})
        assert agent.asked == ["x" * 60_000]
