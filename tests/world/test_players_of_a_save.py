"""Joining a fork or a resumed world by a plain name: as the player of the save, or as a new one."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
import structlog

from clawblox import AsyncWorld, StartedWorld
from clawblox.concurrency.threads import run_blocking
from clawblox.rundir.records import read_record
from clawblox.world import players
from clawblox.world.access import join_answer
from clawblox.world.agent_client import AsyncAgentClient
from clawblox.world.kept_sessions import KeptSession
from tests.support.plain import copy_plain_world, read_players
from tests.support.running import Bot, requests
from tests.support.waiting import HANG_S
from tests.support.worlds import make_world

pytestmark = pytest.mark.anyio


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this process forget the players of all saves, like a later process."""
    monkeypatch.setattr(players, "_MAX_SAVES", 0)


@asynccontextmanager
async def opened(world_dir: Path) -> AsyncIterator[AsyncWorld]:
    with anyio.fail_after(HANG_S):
        async with AsyncWorld(world_dir) as world:
            yield world


def keep(run_dir: Path, client: AsyncAgentClient) -> None:
    """Keep the session of a client like ``act``."""
    record = read_record(run_dir, "w000")
    assert record is not None
    KeptSession(run_dir, "w000", record.run_id, client.name).write(join_answer(client.access))


async def forked(world: AsyncWorld, tmp_path: Path) -> StartedWorld:
    (fork,) = await world.fork(await world.save(instance="w000"), run_dir=tmp_path / "forks")
    return fork


@pytest.mark.thorough
async def test_a_name_that_joined_here_is_the_same_player_in_a_fork(
    tmp_path: Path, run_dir: Path
) -> None:
    async with opened(copy_plain_world(tmp_path)) as world:
        await world.start(run_dir=run_dir)
        red = await world.join("Red")
        assert not red.rejoined
        fork = await forked(world, tmp_path)
        twin = await world.join("Red", instance=fork.name)
        assert twin.rejoined
        urls = {"base_url": fork.url, "internal_base_url": fork.url}
        assert twin.access == {**red.access, **urls}
        assert read_players((await world.save(instance=fork.name)).path) == ["Red"]
        others = [
            await world.join("Red", instance=fork.name),  # the first one is in use
            await world.join("Red", instance=fork.name, new=True),
            await world.join("Blue", instance=fork.name),
        ]
        assert [other.rejoined for other in others] == [False] * 3
        names = read_players((await world.save(instance=fork.name)).path)
        assert names == ["Red", "Red", "Red", "Blue"]


@pytest.mark.thorough
async def test_several_players_of_one_name_rejoin_one_by_one(tmp_path: Path, run_dir: Path) -> None:
    async with opened(copy_plain_world(tmp_path)) as world:
        await world.start(run_dir=run_dir)
        bots = [await world.join("bot") for _ in range(3)]
        fork = await forked(world, tmp_path)
        twins = [await world.join("bot", instance=fork.name) for _ in range(3)]
        assert [twin.access.session for twin in twins] == [bot.access.session for bot in bots]
        assert not (await world.join("bot", instance=fork.name)).rejoined


@pytest.mark.thorough
async def test_a_player_is_known_to_later_world_objects_of_this_process(
    tmp_path: Path, run_dir: Path
) -> None:
    directory = copy_plain_world(tmp_path)
    async with opened(directory) as world:
        await world.start(run_dir=run_dir)
        red = await world.join("Red")
        saved = await world.save()
        blue = await world.join("Blue")  # not in the save
    async with opened(directory) as world:
        await world.start(run_dir=tmp_path / "again", resume=saved.path)
        assert (await world.join("Red")).access.session == red.access.session
        assert (await world.join("Blue")).access.session != blue.access.session
        assert read_players((await world.save()).path) == ["Red", "Blue"]


@pytest.mark.thorough
async def test_the_session_in_the_directory_of_an_agent_belongs_to_its_name(
    tmp_path: Path, run_dir: Path, forget: None
) -> None:
    bot = Bot("Red-r003", tmp_path / "elsewhere" / "Red-r003")
    (bot.dir / "workspace").mkdir(parents=True)
    async with opened(copy_plain_world(tmp_path)) as world:
        await world.start(run_dir=run_dir)
        access = await world.connect(bot)
        fork = await forked(world, tmp_path)
        twin = await world.join("Red", instance=fork.name)
        assert (twin.rejoined, twin.access.session) == (True, access["session"])
        archive = await world.checkpoint(tmp_path / "one.ckpt", {"Red": bot.dir}, instance="w000")
        await world.start(resume=archive, run_dir=tmp_path / "loaded", name="loaded")
        loaded = tmp_path / "loaded" / "agents" / "Red" / "world_session.txt"
        loaded.write_text(access["session"])  # no conversation contains the session
        assert (await world.join("Red", instance="loaded")).rejoined


async def test_a_session_kept_by_act_belongs_to_its_name(
    tmp_path: Path, run_dir: Path, forget: None
) -> None:
    async with opened(copy_plain_world(tmp_path)) as world:
        await world.start(run_dir=run_dir)
        red = await world.join("red")
        await run_blocking(keep, run_dir, red)
        fork = await forked(world, tmp_path)
        twin = await world.join("red", instance=fork.name)
        assert (twin.rejoined, twin.access.session) == (True, red.access.session)
        assert read_players((await world.save(instance=fork.name)).path) == ["red"]


async def test_a_player_with_an_unknown_session_joins_as_new_with_a_warning(
    tmp_path: Path, run_dir: Path, forget: None
) -> None:
    async with opened(make_world(tmp_path)) as world:
        started = await world.start(run_dir=run_dir)
        red = await world.join("Red")
        fork = await forked(world, tmp_path)
        with structlog.testing.capture_logs() as logs:
            await world.join("Blue", instance=fork.name)
            await world.join("Red", instance=fork.name, new=True)
            assert logs == []
            twin = await world.join("Red", instance=fork.name)
        (entry,) = logs
        assert (entry["agent"], entry["instance"]) == ("Red", fork.name)
        assert not twin.rejoined
        assert twin.access.session != red.access.session
        assert requests(started, "/observe") == []


@pytest.mark.thorough
async def test_a_session_missing_from_the_save_is_replaced(
    tmp_path: Path, run_dir: Path, forget: None
) -> None:
    async with opened(make_world(tmp_path)) as world:
        await world.start(run_dir=run_dir)
        red = await world.join("red")
        await world.leave(red.access)
        await run_blocking(keep, run_dir, red)
        fork = await forked(world, tmp_path)
        twin = await world.join("red", instance=fork.name)
        assert not twin.rejoined
        assert (await twin.observe())["agent_id"] == twin.access.agent_id
        assert requests(fork, "/leave") == []


async def test_connecting_a_name_always_makes_a_new_player(tmp_path: Path, run_dir: Path) -> None:
    async with opened(copy_plain_world(tmp_path)) as world:
        await world.start(run_dir=run_dir)
        access = await world.connect("Red")
        fork = await forked(world, tmp_path)
        again: dict[str, Any] = await world.connect("Red", instance=fork.name)
        assert again["session"] != access["session"]
        assert read_players((await world.save(instance=fork.name)).path) == ["Red", "Red"]


@pytest.mark.thorough
async def test_a_damaged_manifest_of_the_save_is_ignored(
    tmp_path: Path, run_dir: Path, forget: None
) -> None:
    directory = copy_plain_world(tmp_path)
    async with opened(directory) as world:
        await world.start(run_dir=run_dir)
        await world.join("Red")
        saved = await world.save()
    manifest = run_dir / ".clawblox" / "manifest.json"
    text = manifest.read_text().replace('"w000"', '"../../w000"')
    for content in (text, text.replace('"agents": [', '"agents": [3, {"name": "Red", "dir": 7}, ')):
        manifest.write_text(content)
        async with opened(directory) as world:
            name = f"again-{os.urandom(4).hex()}"
            await world.start(run_dir=tmp_path / name, resume=saved.path)
            assert not (await world.join("Red")).rejoined
