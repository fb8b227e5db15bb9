"""An agent whose program clawblox runs gets its own address of a world."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest

from clawblox import AsyncWorld, ConfigError
from clawblox.agents.access.agent_access import AgentAccess
from clawblox.agents.access.grant import Grant
from clawblox.agents.layout import AgentDir
from clawblox.concurrency.threads import run_blocking
from clawblox.errors import AgentResumeError
from tests.support.running import manifest_of, next_event, requests, running, switch
from tests.support.worlds import Answer, ask, make_world

pytestmark = pytest.mark.anyio


@attrs.define
class Program:
    """A stand-in for an agent whose program clawblox runs."""

    name: str
    dir: Path
    driver: str = "claude"
    sandbox: str = "none"
    access: AgentAccess = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        is_sandboxed = self.sandbox == "bwrap"
        self.access = AgentAccess(self.name, AgentDir(self.dir), is_sandboxed=is_sandboxed)

    def grant_access(self, grant: Grant) -> str:
        return self.access.grant(grant)


@asynccontextmanager
async def at_work(agent: Program) -> AsyncIterator[None]:
    """Serve an agent's access like its owner."""
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(agent.access.serve)
            yield
            tasks.cancel_scope.cancel()
    finally:
        agent.access.close()


async def get(access: dict[str, Any], target: str) -> Answer:
    port = int(access["base_url"].rpartition(":")[2])
    return await run_blocking(ask, port, "GET", target)


async def test_an_agent_acts_at_its_own_address(tmp_path: Path) -> None:
    agent = Program("Rocky-r003", tmp_path / "rocky")
    async with running(tmp_path) as (world, started), at_work(agent):
        access = await world.connect(agent=agent)
        assert access["internal_base_url"] == started.url
        assert access["base_url"] not in (started.url, None)
        assert world.api_path(path="/api.md", access=access) == f"{access['base_url']}/api.md"
        assert (await get(access, "/observe")).json()["agent_id"] == access["agent_id"]
        assert [(await get(access, target)).status for target in ("/snapshot", "/join")] == [
            403
        ] * 2
        (seen,) = requests(started, "/observe")
        assert seen["headers"]["x-session"] == access["session"]
        assert requests(started, "/snapshot") == []
    (entry,) = manifest_of(tmp_path / "run")["agents"]
    assert (entry["driver"], entry["sandbox"], entry["name"]) == ("claude", "none", "Rocky")


async def test_agents_cannot_act_with_the_session_of_another_agent(tmp_path: Path) -> None:
    agents = [Program(name, tmp_path / name) for name in ("Rocky", "Eko")]
    async with running(tmp_path) as (world, _), at_work(agents[0]), at_work(agents[1]):
        accesses = [await world.connect(agent) for agent in agents]
        other = {"X-Session": accesses[1]["session"]}
        port = int(accesses[0]["base_url"].rpartition(":")[2])
        seen = await run_blocking(lambda: ask(port, "GET", "/observe", headers=other))
        assert seen.json()["agent_id"] == accesses[0]["agent_id"]


async def test_a_sandboxed_agent_knows_the_world_by_its_name(tmp_path: Path) -> None:
    agent = Program("Rocky", tmp_path / "rocky", driver="codex", sandbox="bwrap")
    async with running(tmp_path) as (world, started):
        access = await world.connect(agent)
        assert (access["base_url"], access["internal_base_url"]) == ("http://counter", started.url)
        assert world.api_path(access=access) == "http://counter/api.md"
    (entry,) = manifest_of(tmp_path / "run")["agents"]
    assert (entry["driver"], entry["sandbox"]) == ("codex", "bwrap")
    agent.access.close()


async def test_the_world_below_a_base_path_is_found(tmp_path: Path) -> None:
    agent = Program("Rocky", tmp_path / "rocky")
    async with AsyncWorld(dir=make_world(tmp_path)) as world, at_work(agent):
        await world.start(run_dir=tmp_path / "run", base_path="/worlds/w1")
        access = await world.connect(agent)
        assert (await get(access, "/observe")).status == 200
        assert (await get(access, "/worlds/w1/observe")).status == 403


async def test_the_address_outlives_a_crash_and_a_stop_of_the_world(tmp_path: Path) -> None:
    agent = Program("Rocky", tmp_path / "rocky")
    async with running(tmp_path) as (world, _), at_work(agent):
        access = await world.connect(agent)
        saved = await world.save()
        await world.stop()
        assert (await get(access, "/observe")).status == 503
        again = await world.start(
            run_dir=tmp_path / "run", resume=saved["path"], restart="checkpoint"
        )
        assert (await get(access, "/observe")).status == 503  # not connected to this instance
        assert await world.connect(agent) == {**access, "internal_base_url": again.url}
        assert (await get(access, "/observe")).status == 200
        async with world.events() as events:
            switch(again, acting="die")
            assert (await get(access, "/observe")).status in (502, 503)
            await next_event(events, "ready")
        assert (await get(access, "/observe")).status == 200


async def test_a_proxy_follows_a_restart_but_never_asks_another_user_of_the_port(
    tmp_path: Path,
) -> None:
    agent = Program("Rocky", tmp_path / "rocky")
    async with running(tmp_path) as (world, started), at_work(agent):
        access = await world.connect(agent)
        async with world.events() as events:
            switch(started, acting="die")
            assert (await get(access, "/observe")).status in (502, 503)
            await next_event(events, "exited")
        again = await world.restart(fresh=True)
        assert again.port == started.port
        assert (await get(access, "/api.md")).status == 200
        await world.stop()
        with socket.create_server(("127.0.0.1", started.port)) as stranger:
            stranger.setblocking(False)
            assert (await get(access, "/observe")).status == 503
            with pytest.raises(BlockingIOError):
                stranger.accept()


async def test_a_resumed_agent_requires_its_original_address(tmp_path: Path) -> None:
    agent = Program("Rocky", tmp_path / "rocky")
    async with running(tmp_path) as (world, _):
        access = await world.connect(agent)
        with pytest.raises(AgentResumeError, match="is taken"):
            await world.connect(Program("Rocky", tmp_path / "rocky"))
        agent.access.close()
        later = Program("Rocky", tmp_path / "rocky")
        assert await world.connect(later) == access
        later.access.close()


async def test_an_agent_is_not_connected_to_a_world_that_exposes_operator_routes(
    tmp_path: Path,
) -> None:
    directory = make_world(tmp_path, toml_extra='[api]\nobserve = "/snapshot"')
    async with AsyncWorld(dir=directory) as world:
        started = await world.start(run_dir=tmp_path / "run")
        with pytest.raises(ConfigError, match="never given to agents") as caught:
            await world.connect(Program("Rocky", tmp_path / "rocky"))
        assert caught.value.key == "api.observe"
        assert requests(started, "/join") == []


async def test_an_agent_never_receives_the_operator_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = "canary-of-the-operator-0123456789abcdef"
    monkeypatch.setattr("secrets.token_urlsafe", lambda *_: canary)
    agent = Program("Rocky", tmp_path / "rocky")
    async with running(tmp_path) as (world, started), at_work(agent):
        saved = await world.save()
        assert saved["size_bytes"] > 0
        (asked,) = requests(started, "/snapshot")
        assert asked["headers"]["x-operator-token"] == canary  # this check can fail
        access = await world.connect(agent)
        answers = [await get(access, target) for target in ("/observe", "/snapshot", "/api.md")]
        shown = f"{access!r} {agent.access.granted!r} {answers!r}"
        files = [path.read_bytes() for path in agent.dir.rglob("*") if path.is_file()]
        assert files
        assert canary not in shown
        assert not any(canary.encode() in data for data in files)
        agents_requests = requests(started, "/observe") + requests(started, "/join")
        assert not any(canary in str(one["headers"]) for one in agents_requests)
