"""httpx clients have the agent's address and session, and are closed with agent and world."""

from __future__ import annotations

import threading
from pathlib import Path

import anyio
import httpx
import pytest

from clawblox import AsyncWorld, UsageError, World
from tests.support.running import requests, running
from tests.support.waiting import HANG_S
from tests.support.worlds import make_world

ON_BOTH_LOOPS = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])


@pytest.mark.anyio
@ON_BOTH_LOOPS
async def test_an_agents_client_has_address_session_and_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    async with running(tmp_path) as (world, started):
        agent = await world.join("Rocky", timeout=7)
        client = agent.http()
        assert isinstance(client, httpx.AsyncClient)
        assert (await client.get("/observe")).json()["counter"] == 0
        assert client.timeout == httpx.Timeout(7)
        assert (client.trust_env, client.follow_redirects) == (False, False)
        (seen,) = requests(started, "/observe")
        headers = seen["headers"]
        assert headers["x-session"] == agent.access.session
        assert not [value for value in headers.values() if value.startswith("Bearer")]
        assert agent.http() is client
        await client.aclose()
        assert (await agent.http().get("observe")).status_code == 200


@pytest.mark.anyio
async def test_a_client_without_an_agent_has_no_session_and_no_token(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, started):
        client = started.http(timeout=3)
        assert (await client.get("/api.md")).text.startswith("# Counter\n")
        assert client is not world.http()
        assert client.timeout == httpx.Timeout(3)
        assert (await client.get("/snapshot")).status_code in (401, 403)
        sent = [name for seen in requests(started, "/snapshot") for name in seen["headers"]]
        assert {"x-session", "authorization"}.isdisjoint(sent)


@pytest.mark.anyio
async def test_clients_are_closed_when_the_agent_leaves_and_with_the_world(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, started):
        leaver, stayer = await world.join("Rocky"), await world.join("Molly")
        left, kept, without = leaver.http(), stayer.http(), started.http()
        await leaver.leave()
        assert (left.is_closed, kept.is_closed) == (True, False)
        with pytest.raises(UsageError, match="has left"):
            leaver.http()
        await kept.get("/observe")
    assert (kept.is_closed, without.is_closed) == (True, True)
    for late in (stayer.http, started.http, world.http):
        with pytest.raises(UsageError, match="not open"):
            late()


@pytest.mark.anyio
async def test_a_client_refuses_requests_to_another_host(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (world, _):
        client = (await world.join("Rocky")).http()
        for url in ("http://127.0.0.1:1/", "https://example.org/", "http://localhost/observe"):
            with pytest.raises(UsageError, match="this client sends a session, so it is only for"):
                await client.get(url)


def test_a_client_belongs_to_the_event_loop_of_its_world(tmp_path: Path) -> None:
    directory, errors = make_world(tmp_path), []

    async def use_elsewhere() -> None:
        async with AsyncWorld(directory, run_dir=tmp_path / "run") as world:
            await world.start()
            agent = await world.join("Rocky")
            client = agent.http()

            async def get() -> None:
                for call in (lambda: client.get("/observe"), agent.http):
                    try:
                        await call()
                    except UsageError as error:
                        errors.append(error.message)

            thread = threading.Thread(target=anyio.run, args=(get,))
            thread.start()
            await anyio.to_thread.run_sync(thread.join, HANG_S)

    anyio.run(use_elsewhere)
    assert len(errors) == 2
    assert set(errors) == {"this client belongs to another event loop, in which its world is open"}


def test_the_sync_world_returns_a_blocking_client(tmp_path: Path) -> None:
    with World(make_world(tmp_path), run_dir=tmp_path / "run") as world:
        started = world.start()
        with world.join("Rocky") as agent:
            client = agent.http()
            assert isinstance(client, httpx.Client)
            assert client.get("/observe").json()["counter"] == 0
            assert client.post("/input", json={"type": "add", "data": 5}).json()["counter"] == 5
            with pytest.raises(UsageError, match="this client sends a session, so it is only for"):
                client.get("http://127.0.0.1:1/")
        assert client.is_closed
        others = (started.http(), world.http(timeout=2))
        assert others[0].get("/api.md").status_code == 200
    assert all(other.is_closed for other in others)
