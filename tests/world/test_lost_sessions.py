"""Agents that joined after the restored save of their instance, and shared sessions."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest

from clawblox import ActionRefusedError, AsyncWorld, StartedWorld, WorldSessionError
from clawblox.telemetry.events import EventStream
from tests.support.crowd import past, until
from tests.support.running import manifest_of, next_event, requests
from tests.support.waiting import HANG_S
from tests.support.worlds import make_world
from tests.world.test_access_grants import Program, at_work, get

pytestmark = pytest.mark.anyio

MARBLES = Path(__file__).parents[2] / "examples" / "marbles"
SAME_NONCE = {"_CLAWBLOX_SESSION_NONCE": "of every launch"}
"""With this, worlds of the kit that were restored from one save issue the same sessions."""


@attrs.define
class Agent:
    """An agent with a directory, whose caller has its session."""

    name: str
    dir: Path


@asynccontextmanager
async def restarting(
    directory: Path, run: Path, **options: Any
) -> AsyncIterator[tuple[AsyncWorld, StartedWorld, EventStream]]:
    with anyio.fail_after(HANG_S):
        async with AsyncWorld(dir=directory) as world, world.events() as events:
            options = {"restart": "checkpoint", "max_restarts": 100, **options}
            yield world, await world.start(run_dir=run, **options), events


async def crash(started: StartedWorld, events: EventStream) -> list[Any]:
    """Kill a world; return the events until its sessions were settled."""
    await past(events)
    os.kill(started.pid, signal.SIGKILL)
    seen = await until(events, "ready", [started.name])
    return [*seen, *await past(events)]


async def test_an_agent_behind_a_proxy_is_rejoined_if_it_joined_after_the_save(
    tmp_path: Path,
) -> None:
    run, agent = tmp_path / "run", Program("Rocky", tmp_path / "rocky")
    async with restarting(make_world(tmp_path), run) as (world, started, events), at_work(agent):
        await world.save()
        access = await world.connect(agent=agent)
        seen = await crash(started, events)
        (told,) = [event for event in seen if event.kind in ("rejoined", "session_lost")]
        assert (told.kind, told.subject, told.data["agent"]) == ("rejoined", "w000", "Rocky")
        assert (await get(access, "/observe")).json()["agent_id"] == told.data["agent_id"]
        recorded = (agent.dir / "world_session.txt").read_text()
        assert recorded.endswith("\n")
        assert recorded.strip() != access["session"]
        assert requests(started, "/observe")[-1]["headers"]["x-session"] == recorded.strip()
        again = await world.connect(agent=agent)
        assert (again["base_url"], again["session"]) == (access["base_url"], recorded.strip())
        # It is not in a save yet, so the next crash loses it again.
        assert world._fleet is not None
        now = world._fleet.find(None).started
        assert now is not None
        assert "rejoined" in {event.kind for event in await crash(now, events)}
    assert len(manifest_of(run)["agents"]) == 1


async def test_a_caller_with_its_own_session_gets_an_event_and_an_error(
    tmp_path: Path,
) -> None:
    agent = Agent("ada", tmp_path / "ada")
    async with restarting(make_world(tmp_path), tmp_path / "run") as (world, started, events):
        await world.save()
        client = await world.join(agent)
        seen = await crash(started, events)
        (told,) = [event for event in seen if event.kind in ("rejoined", "session_lost")]
        assert (told.kind, told.data["agent"]) == ("session_lost", "ada")
        assert "after the save" in told.data["reason"]
        before = len(requests(started))
        with pytest.raises(ActionRefusedError, match="session of ada was lost in a restart"):
            await client.observe()
        with pytest.raises(ActionRefusedError, match="lost"):
            await world.leave(client.access)
        assert len(requests(started)) == before  # no request was sent
        again = await world.join(agent)
        assert (await again.observe())["agent_id"] == again.access.agent_id
        assert (agent.dir / "world_session.txt").read_text().strip() == again.access.session


@pytest.mark.thorough
async def test_sessions_older_than_the_save_are_not_checked(tmp_path: Path) -> None:
    agent = Program("Rocky", tmp_path / "rocky")
    async with at_work(agent):
        running = restarting(make_world(tmp_path), tmp_path / "run")
        async with running as (world, started, events):
            await world.connect(agent=agent)
            ada = await world.join("ada")
            saved = await world.save()
            ben = await world.join("ben")
            seen = await crash(started, events)
            assert [one.data["agent"] for one in seen if one.kind == "session_lost"] == ["ben"]
            asked = [one for one in requests(started) if one["path"] in ("/observe", "/join")]
            assert [one["headers"]["x-session"] for one in asked] == [ben.access.session]
            (fork,) = await world.fork(saved, 1, run_dir=tmp_path / "forks", restart="checkpoint")
            twin = ada.on(fork.name)
            await twin.observe()
            await past(events)
            os.kill(fork.pid, signal.SIGKILL)
            seen = [*await until(events, "ready", [fork.name]), *await past(events)]
            assert "session_lost" not in {one.kind for one in seen}
            assert requests(fork, "/observe") == []


@pytest.mark.thorough
async def test_another_agent_name_cannot_use_a_session(tmp_path: Path) -> None:
    async with restarting(MARBLES, tmp_path / "run", env=SAME_NONCE) as (world, started, events):
        saved = await world.save()
        ada = await world.join("ada")
        forks = await world.fork(saved, 1, run_dir=tmp_path / "forks", env=SAME_NONCE)
        (fork,) = forks
        ben = await world.join("ben", instance=fork.name)
        assert ben.access.session == ada.access.session
        with pytest.raises(WorldSessionError, match="session of ada belongs to ben"):
            await ada.on(fork.name).observe()
        await ben.on(fork.name).observe()
        await crash(started, events)
        with pytest.raises(WorldSessionError, match="session of carl belongs to ada"):
            await world.join("carl", instance="w000")
        with pytest.raises(ActionRefusedError, match="lost"):
            await ada.observe()
        with pytest.raises(ActionRefusedError, match="lost"):
            await ada.say("I am Carl.")
        carl = await world.join("carl", instance="w000")
        assert carl.access.session != ada.access.session
        await world.join("ada", instance="w000")
    agents = manifest_of(tmp_path / "run")["agents"]
    assert sorted(agent["name"] for agent in agents) == ["ada", "carl"]


async def test_an_agent_that_joins_repeatedly_has_one_manifest_entry(tmp_path: Path) -> None:
    async with restarting(make_world(tmp_path), tmp_path / "run") as (world, _, _):
        for _ in range(3):
            async with await world.join("ada"):
                pass
        await world.join("ben")
        for _ in range(2):
            await world.join("carl")
    agents = manifest_of(tmp_path / "run")["agents"]
    assert [agent["name"] for agent in agents] == ["ada", "ben", "carl", "carl"]


async def test_connecting_triggers_a_save_if_autosave_is_on(tmp_path: Path) -> None:
    async with restarting(make_world(tmp_path), tmp_path / "run") as (world, started, events):
        await world.autosave(every=1000.0)
        await next_event(events, "saved")
        access = await world.connect(agent="ada")
        await next_event(events, "saved")
        seen = await crash(started, events)
        assert "session_lost" not in {event.kind for event in seen}
        assert requests(started, "/observe") == []
        assert (await world.join("ada")).access.session != access["session"]
