"""An agent's address of its world: the programs that get it, and the time in which it answers."""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawblox import Agent, AgentResumeError, AsyncAgent, AsyncWorld, UsageError, World
from clawblox.agents.access.agent_access import AgentAccess
from clawblox.agents.access.grant import Grant
from clawblox.concurrency.threads import run_blocking
from tests.agents.small import make_agent, small
from tests.support.running import running
from tests.support.waiting import HANG_S, wait_until_async
from tests.support.worlds import ask, make_world

__all__ = ["small"]

NAMES = ("CLAWBLOX_WORLD_URL", "CLAWBLOX_AGENT_NAME")
SHOW = "env | grep ^CLAWBLOX_ > found; echo done"


def command_agent(directory: Path, **options: Any) -> AsyncAgent:
    command = {"start": ["sh", "-c", SHOW, "{prompt}"]}
    given = {"name": "Rocky-r003", "dir": directory, "auto_continue": False, **options}
    return AsyncAgent(agent="command", command=command, **given)


async def variables(agent: AsyncAgent) -> dict[str, str]:
    """Return the variables about the world in the environment of the agent's program."""
    await agent.start(initial_prompt="Begin")
    assert (await agent.wait()).state == "idle"
    lines = (agent.dir / "workspace" / "found").read_text().splitlines()
    found = dict(line.split("=", 1) for line in lines)
    return {name: found[name] for name in NAMES if name in found}


@pytest.mark.thorough
@pytest.mark.anyio
@pytest.mark.parametrize("sandbox", [False, pytest.param(True, marks=pytest.mark.needs("bwrap"))])
async def test_a_program_without_a_language_model_gets_world_and_name_in_its_environment(
    tmp_path: Path, sandbox: bool
) -> None:
    agent = command_agent(tmp_path / "agent", sandbox=sandbox)
    async with running(tmp_path) as (world, _), agent:
        access = await world.connect(agent)
        found = await variables(agent)
        assert found == {
            "CLAWBLOX_WORLD_URL": access["base_url"],
            "CLAWBLOX_AGENT_NAME": access["name"],
        }
        assert found["CLAWBLOX_AGENT_NAME"] == "Rocky"
    script = (agent.dir / "runtime" / "start.sh").read_text()
    for name, value in found.items():  # these are not secrets
        assert re.search(rf"{name}[= ]'?{re.escape(value)}", script)


@pytest.mark.anyio
async def test_a_program_without_a_world_gets_its_name_but_no_address(tmp_path: Path) -> None:
    async with command_agent(tmp_path / "agent") as agent:
        assert await variables(agent) == {"CLAWBLOX_AGENT_NAME": "Rocky"}


@pytest.mark.anyio
@pytest.mark.usefixtures("small")
async def test_a_language_model_gets_its_world_only_in_its_prompt(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, _), make_agent(tmp_path) as agent:
        await world.connect(agent)
        await agent.start(initial_prompt="work")
        script = (agent.dir / "runtime" / "start.sh").read_text()
    assert "export" in script
    assert not any(name in script for name in NAMES)


# -- from connect to close -------------------------------------------------------------------------


def proxy_port(access: Any) -> int:
    return int(access["base_url"].rpartition(":")[2])


async def ask_status(access: Any, target: str) -> int:
    return (await run_blocking(ask, proxy_port(access), "GET", target)).status


@pytest.mark.anyio
@pytest.mark.usefixtures("small")
async def test_the_address_answers_from_connect_to_the_end_of_the_block(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, _):
        async with make_agent(tmp_path) as agent:
            access = await world.connect(agent)
            assert await ask_status(access, "/api.md") == 200
            await agent.start(initial_prompt="work")
            assert await ask_status(access, "/api.md") == 200
            await agent.stop(grace_seconds=1)
            assert [await ask_status(access, target) for target in ("/api.md", "/join")] == [
                200,
                403,
            ]
            await agent.send(prompt="work")
            assert await ask_status(access, "/observe") == 200
            await world.stop()
            assert await ask_status(access, "/api.md") == 503
        with pytest.raises(ConnectionRefusedError):
            await ask_status(access, "/api.md")


@pytest.mark.anyio
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("is_cancelled", [True, False])
async def test_an_agent_closed_during_a_connect_keeps_no_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_cancelled: bool
) -> None:
    granting, closed = threading.Event(), threading.Event()
    grant, close = AgentAccess.grant, AgentAccess.close

    def grant_late(access: AgentAccess, given: Grant) -> str:
        granting.set()
        assert closed.wait(HANG_S)
        return grant(access, given)

    def close_and_tell(access: AgentAccess) -> None:
        close(access)
        closed.set()

    monkeypatch.setattr(AgentAccess, "grant", grant_late)
    monkeypatch.setattr(AgentAccess, "close", close_and_tell)
    ends = list[str]()

    async def connect(world: AsyncWorld, agent: AsyncAgent) -> None:
        try:
            await world.connect(agent)
        except UsageError as error:
            ends.append(error.message)

    async with running(tmp_path) as (world, _), anyio.create_task_group() as tasks:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as inner, make_agent(tmp_path) as agent:
                (inner if is_cancelled else tasks).start_soon(connect, world, agent)
                await wait_until_async(granting.is_set)
                if is_cancelled:
                    scope.cancel()
    assert ends == ([] if is_cancelled else ["this agent was closed in the meantime"])
    assert not agent.dir.joinpath("world_access.json").exists()


@pytest.mark.usefixtures("small")
def test_a_script_reads_the_documentation_of_the_world_to_build_its_prompt(tmp_path: Path) -> None:
    agent = Agent(
        agent="small", name="Eko", dir=tmp_path / "Eko", binary=sys.executable, auto_continue=False
    )
    with World(make_world(tmp_path)) as world:
        started = world.start(run_dir=tmp_path / "run")
        access = world.connect(agent=agent)
        documentation = ask(proxy_port(access), "GET", "/api.md").body
        assert documentation == ask(started.port, "GET", "/api.md").body
        agent.close()
        with pytest.raises(ConnectionRefusedError):
            ask(proxy_port(access), "GET", "/api.md")
        assert world.connect(agent=agent) == access
        assert ask(proxy_port(access), "GET", "/api.md").status == 200
        agent.close()


@pytest.mark.anyio
@pytest.mark.usefixtures("small")
async def test_an_agent_that_is_not_open_is_not_connected(tmp_path: Path) -> None:
    agent = make_agent(tmp_path)
    async with running(tmp_path) as (world, _):
        with pytest.raises(UsageError, match="is not open") as caught:
            await world.connect(agent)
        assert "async with" in str(caught.value.hint)
        assert not (agent.dir / "world_access.json").exists()
        async with agent:
            access = await world.connect(agent)
            assert await ask_status(access, "/api.md") == 200


@pytest.mark.anyio
@pytest.mark.usefixtures("small")
async def test_an_agent_stopped_before_its_start_gives_its_address_to_the_next_agent(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (world, _), make_agent(tmp_path) as first:
        access = await world.connect(first)
        async with make_agent(tmp_path) as second:
            with pytest.raises(AgentResumeError, match="by the agent Eko of this process"):
                await world.connect(second)
            assert (await first.stop()).state == "new"
            assert await world.connect(second) == access
            assert await ask_status(access, "/observe") == 200
