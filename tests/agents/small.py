"""The driver of the small program, and agents that run it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawblox.agents import drivers
from clawblox.agents.async_agent import AsyncAgent
from clawblox.agents.drivers.driver import (
    AgentSetup,
    Conversation,
    Driver,
    Invocation,
    Requirement,
    Turn,
)
from clawblox.agents.layout import AgentDir
from clawblox.agents.programs import UUID, Program
from clawblox.agents.running.start_request import ProgramLimits
from clawblox.agents.values import AgentEvent, DriverReport, Usage
from tests.support.waiting import HANG_S

PROGRAM = Path(__file__).with_name("small_program.py")

SMALL = Program(
    driver="small",
    command="small",
    home_dir=".small",
    state_variable="SMALL_STATE",
    id_pattern=re.compile(UUID),
    credential_variables=("SMALL_KEY",),
)


class SmallConversation(Conversation):
    def __init__(self, prompt: str, *, is_loop: bool) -> None:
        self.is_loop = is_loop
        self.pending = json.dumps(prompt).encode() + b"\n" if is_loop else b""

    def say(self, text: str) -> bool:
        if self.is_loop:
            self.pending += json.dumps(text).encode() + b"\n"
        return self.is_loop

    def read(self, line: bytes) -> Sequence[DriverReport]:
        try:
            found = json.loads(line)
            data = dict(found["data"])
        except (ValueError, TypeError, KeyError):
            return ()
        if found["type"] == "usage":
            data = {"usage": Usage(output_tokens=data["tokens"]), "scope": "turn"}
        return [DriverReport(found["type"], data)]

    def outgoing(self) -> bytes:
        pending, self.pending = self.pending, b""
        return pending


class SmallDriver(Driver):
    """``command=`` lists flags of the program: ``loop``, ``silent``, ``unread``."""

    program = SMALL

    def __init__(self) -> None:
        self.missing: list[Requirement] = []

    def name_binary(self, binary: str | None, command: object) -> str:
        return binary or SMALL.command

    def version_argv(self, binary: str) -> tuple[str, ...]:
        return binary, "-I", "-S", str(PROGRAM), "--version"

    def check(self, setup: AgentSetup, env: Mapping[str, str], version: str) -> list[Requirement]:
        assert version == "small 1.0"
        return self.missing

    def prepare(self, setup: AgentSetup, env: Mapping[str, str]) -> None:
        (setup.directory.home / "settings").write_text("prepared")

    def transcripts(self, directory: AgentDir) -> Mapping[str, Path]:
        return {path.stem: path for path in directory.state.glob("*.jsonl")}

    def invocation(self, setup: AgentSetup, turn: Turn) -> Invocation:
        flags = [str(flag) for flag in setup.command or ()]
        option = "--resume" if turn.continued_id else "--new"
        session = (option, turn.start.conversation_id)
        argv = (setup.binary, "-I", "-S", str(PROGRAM), *session, *(f"--{one}" for one in flags))
        is_loop = "loop" in flags
        return Invocation(
            argv=argv if is_loop else (*argv, turn.prompt),
            env={"SMALL_STATE": str(setup.state)},
            has_stdin=is_loop,
        )

    def converse(self, setup: AgentSetup, turn: Turn) -> SmallConversation:
        return SmallConversation(turn.prompt, is_loop="loop" in (setup.command or ()))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> SmallDriver:
    """Register the small driver."""
    driver = SmallDriver()
    monkeypatch.setattr(drivers, "DRIVERS", {"small": driver})
    return driver


def make_agent(
    directory: Path, *flags: str, limits: ProgramLimits | None = None, **options: Any
) -> Any:
    """Return an agent that runs the small program."""
    given = {"auto_continue": False, "name": "Eko", "binary": sys.executable, **options}
    agent = AsyncAgent(agent="small", dir=directory / "Eko", command=flags or None, **given)
    agent._limits = limits or ProgramLimits(confirm_timeout=HANG_S, leave_timeout=2.0)
    return agent


@asynccontextmanager
async def opened(directory: Path, *flags: str, **options: Any) -> AsyncIterator[AsyncAgent]:
    with anyio.fail_after(HANG_S):
        async with make_agent(directory, *flags, **options) as agent:
            yield agent


def records(agent: Any, kind: str | None = None) -> list[dict[str, Any]]:
    """Return the records in the agent's ``events.jsonl``."""
    lines = (agent.dir / "events.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    return [one for one in found if kind in (None, one["type"])]


async def until(events: Any, kind: str, count: int = 1) -> list[AgentEvent]:
    """Return the events up to the ``count``-th of that type."""
    found: list[AgentEvent] = []
    async for event in events:
        found.append(event)
        count -= event.kind == kind
        if not count:
            return found
    raise AssertionError(f"the stream ended before {kind}: {[one.kind for one in found]}")


def transcript(agent: Any) -> list[str]:
    """Return the messages in the agent's conversation."""
    path = agent.dir / "session" / f"{agent.session_id}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]
