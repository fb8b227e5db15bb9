"""Agents join and leave a running instance: their names, sessions and access."""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from clawblox import AsyncWorld, ConfigError, WorldCallError, WorldSessionError
from clawblox.world.access import make_member
from tests.rundir.support import records_on_disk
from tests.support.running import Bot, manifest_of, requests, running, switch
from tests.support.worlds import ask, make_world

pytestmark = pytest.mark.anyio


async def test_connecting_a_name_sends_one_post_without_a_body(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, started):
        access = await world.connect(agent="Rocky")
        (request,) = requests(started, "/join")
    session = access["session"]
    assert access == {
        "session": session,
        "agent_id": "agent-1",
        "name": "Rocky",
        "headers": {"X-Session": session},
        "base_url": started.url,
        "internal_base_url": started.url,
    }
    assert (request["method"], request["query"], request["body"]) == (
        "POST",
        {"name": "Rocky"},
        "",
    )
    assert "x-session" not in request["headers"]
    assert "x-operator-token" not in request["headers"]


async def test_any_name_reaches_the_world_unchanged(tmp_path: Path) -> None:
    name = "Ročky & co/? 100% #1"
    async with running(tmp_path) as (world, started):
        assert (await world.connect(name))["name"] == name
        assert requests(started, "/join")[0]["query"] == {"name": name}


NAMES = {
    "Rocky-r003": "Rocky",
    "Rocky-r1-w2-a3": "Rocky",
    "Rocky-r7-replay": "Rocky",
    "Eko-rexp-g001-w0-a0": "Eko",
    "Eko-rexp_2-w12-a345": "Eko",
    "Mary Ann-r-w0-w1-a2": "Mary Ann",
    "Rocky-red": "Rocky-red",
    "Rocky-r": "Rocky-r",
    "Rocky-r-w0-a0": "Rocky-r-w0-a0",
    "Eko-rexp-g001": "Eko-rexp-g001",
    "Eko-rexp-w0": "Eko-rexp-w0",
    "Eko-rexp-a0-w0": "Eko-rexp-a0-w0",
    "Eko-rexp-w0-a": "Eko-rexp-w0-a",
    "Eko-rexp-w0-a0-end": "Eko-rexp-w0-a0-end",
    "Eko-rexp-w0-a0x": "Eko-rexp-w0-a0x",
    "Eko-Rexp-w0-a0": "Eko-Rexp-w0-a0",
    "Ekorexp-w0-a0": "Ekorexp-w0-a0",
    "Eko-w0-a0": "Eko-w0-a0",
    "r1": "r1",
    "-r1": "-r1",
    "-rexp-w0-a0": "-rexp-w0-a0",
}
"""Full names of agents, and the names that a world shows."""


@pytest.mark.parametrize("run_name", NAMES)
def test_only_the_run_suffix_is_cut(run_name: str) -> None:
    assert make_member(run_name).name == NAMES[run_name]


@pytest.mark.thorough
@pytest.mark.parametrize("run_name", ["Rocky-r003", "Eko-rexp-g001-w0-a0", "Rocky-red", "-r1"])
async def test_the_world_sees_the_name_up_to_its_run_suffix(tmp_path: Path, run_name: str) -> None:
    name = NAMES[run_name]
    async with running(tmp_path) as (world, started):
        assert (await world.connect(Bot(run_name, tmp_path / "bot")))["name"] == name
        assert requests(started, "/join")[0]["query"] == {"name": name}
    (entry,) = manifest_of(tmp_path / "run")["agents"]
    record = records_on_disk(tmp_path / "run")["w000"]
    assert entry == {
        "dir": str(tmp_path / "bot"),
        "name": name,
        "run_id": record["run_id"],
        "run_name": run_name,
        "world_agent_id": "agent-1",
    }


async def test_an_agent_rejoins_the_session_recorded_in_its_directory(
    tmp_path: Path,
) -> None:
    bot = Bot("Rocky", tmp_path / "run" / "agents" / "rocky")
    async with running(tmp_path) as (world, started):
        first = await world.connect(bot)
        file = bot.dir / "world_session.txt"
        assert file.read_text().strip() == first["session"]
        inode = file.stat().st_ino
        assert await world.connect(bot) == first
        (seen,) = requests(started, "/observe")
        assert (seen["method"], seen["headers"]["x-session"]) == ("GET", first["session"])
        assert len(requests(started, "/join")) == 1
        assert file.stat().st_ino == inode
        saved = await world.save()
        await world.stop()
        await world.start(run_dir=tmp_path / "run", resume=saved["path"])
        again = await world.connect(bot)
        assert {**again, "base_url": "", "internal_base_url": ""} == {
            **first,
            "base_url": "",
            "internal_base_url": "",
        }
    assert [entry["dir"] for entry in manifest_of(tmp_path / "run")["agents"]] == ["agents/rocky"]


async def test_a_rejoin_returns_the_whole_answer_of_the_join(tmp_path: Path) -> None:
    bot = Bot("Rocky", tmp_path / "bot")
    async with running(tmp_path, "--join", "extra-fields") as (world, _):
        first = await world.connect(bot)
        assert first["spawn"] == {"x": 1.5}
        assert await world.connect(bot) == first
        file = bot.dir / "world_join.json"
        assert file.stat().st_mode & 0o777 == 0o600
        for content in ("", "[]", '{"session": "another", "spawn": 7}', "9" * 70_000):
            file.write_text(content)
            access = await world.connect(bot)
            assert (access["session"], access["agent_id"]) == (first["session"], None)
            assert "spawn" not in access


async def test_a_session_rejoins_by_post_in_a_world_without_observations(
    tmp_path: Path,
) -> None:
    bot = Bot("Rocky", tmp_path / "bot")
    world_dir = make_world(tmp_path, toml_extra='[api]\nobserve = "/nowhere"')
    async with AsyncWorld(dir=world_dir) as world:
        started = await world.start(run_dir=tmp_path / "run")
        first = await world.connect(bot)
        assert await world.connect(bot) == first
        assert len(requests(started, "/nowhere")) == 1
        _, again = requests(started, "/join")
        assert again["headers"]["x-session"] == first["session"]


async def test_no_join_is_sent_while_the_world_cannot_answer(
    tmp_path: Path,
) -> None:
    bot = Bot("Rocky", tmp_path / "bot")
    async with running(tmp_path) as (world, started):
        await world.connect(bot)
        switch(started, acting="status-500")
        with pytest.raises(WorldCallError, match="GET /observe answered 500") as caught:
            await world.connect(bot)
        assert not isinstance(caught.value, WorldSessionError)
        assert len(requests(started, "/join")) == 1


async def test_a_session_other_than_the_recorded_one_is_refused(tmp_path: Path) -> None:
    bot = Bot("Rocky", tmp_path / "bot")
    async with running(tmp_path) as (world, started):
        access = await world.connect(bot)
        session = access["session"]
        ask(started.port, "POST", "/leave", headers=access["headers"])
        switch(started, join="another-session")
        with pytest.raises(
            WorldSessionError, match=f"expected session {session}, got another"
        ) as caught:
            await world.connect(bot)
        assert caught.value.url == started.url
        assert "may have a second player" in str(caught.value)  # the failed join left no session
    assert (bot.dir / "world_session.txt").read_text().strip() == session


@pytest.mark.thorough
async def test_a_player_created_by_a_failed_rejoin_is_removed(tmp_path: Path) -> None:
    bot = Bot("Rocky", tmp_path / "bot")
    async with running(tmp_path) as (world, _):
        session = (await world.connect(bot))["session"]
        await world.stop()
        started = await world.start(run_dir=tmp_path / "run")
        with pytest.raises(WorldSessionError, match=f"expected session {session}, got ") as caught:
            await world.connect(bot)
        assert "second player" not in str(caught.value)
        assert len(requests(started, "/leave")) == 1
        assert json.loads((await world.save()).path.read_bytes())["sessions"] == []
    assert (bot.dir / "world_session.txt").read_text().strip() == session


async def test_a_failed_rejoin_does_not_remove_other_agents(tmp_path: Path) -> None:
    bot = Bot("Rocky", tmp_path / "bot")
    async with running(tmp_path) as (world, started):
        other = await world.connect("Bullwinkle")
        bot.dir.mkdir()
        (bot.dir / "world_session.txt").write_text("the-old-one\n")
        switch(started, join="first-session")
        with pytest.raises(WorldSessionError, match=f"got {other['session']}"):
            await world.connect(bot)
        assert requests(started, "/leave") == []


STRICT = """
import os
from http.server import BaseHTTPRequestHandler, HTTPServer
class Strict(BaseHTTPRequestHandler):
    def do_GET(self): self.answer(200 if self.path == "/api.md" else 403)
    def do_POST(self): self.answer(401)
    def answer(self, status):
        self.send_response(status)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"what")
HTTPServer(("127.0.0.1", int(os.environ["WORLD_PORT"])), Strict).serve_forever()
"""


async def test_a_session_that_the_world_refuses_is_reported_as_lost(tmp_path: Path) -> None:
    directory, bot = tmp_path / "strict", Bot("Rocky", tmp_path / "bot")
    directory.mkdir()
    bot.dir.mkdir()
    (bot.dir / "world_session.txt").write_text("the-old-one\n")
    command = json.dumps([sys.executable, "-I", "-S", "-c", STRICT])
    (directory / "world.toml").write_text(f'name = "strict"\n[run]\ncommand = {command}\n')
    async with AsyncWorld(dir=directory) as world:
        await world.start(run_dir=tmp_path / "run")
        with pytest.raises(WorldSessionError, match="expected session the-old-one") as caught:
            await world.connect(bot)
        assert (caught.value.status, caught.value.body_start) == (401, "what")
        assert "started over" in str(caught.value.hint)
        with pytest.raises(WorldCallError, match="POST /join answered 401") as refused:
            await world.connect("Bullwinkle")
        assert not isinstance(refused.value, WorldSessionError)


@pytest.mark.thorough
@pytest.mark.parametrize("content", [b"", b"two words", b"\xff\xfe", b"x" * 600])
async def test_the_error_names_a_session_file_without_a_session(
    tmp_path: Path, content: bytes
) -> None:
    bot = Bot("Rocky", tmp_path)
    (tmp_path / "world_session.txt").write_bytes(content)
    async with running(tmp_path) as (world, started):
        with pytest.raises(ConfigError) as caught:
            await world.connect(bot)
        assert caught.value.path == tmp_path / "world_session.txt"
        assert requests(started, "/join") == []


async def test_the_error_names_a_session_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "world_session.txt").mkdir()
    async with running(tmp_path) as (world, _):
        with pytest.raises(ConfigError) as caught:
            await world.connect(Bot("Rocky", tmp_path))
        assert caught.value.path == tmp_path / "world_session.txt"


async def test_the_error_names_an_agent_directory_that_cannot_be_created(tmp_path: Path) -> None:
    (tmp_path / "a-file").touch()
    async with running(tmp_path) as (world, _):
        with pytest.raises(ConfigError) as caught:
            await world.connect(Bot("Rocky", tmp_path / "a-file" / "bot"))
        assert "a-file" in str(caught.value)


@pytest.mark.parametrize(
    ("fault", "message", "status"),
    [
        ("no-session", "no usable 'session'", 200),
        ("status-500", "POST /join answered 500", 500),
    ],
)
async def test_the_error_for_an_unusable_answer_has_status_and_body(
    tmp_path: Path, fault: str, message: str, status: int
) -> None:
    bot = Bot("Rocky", tmp_path / "bot")
    async with running(tmp_path, "--join", fault) as (world, started):
        with pytest.raises(WorldCallError, match=message) as caught:
            await world.connect(bot)
        error = caught.value
        assert (error.status, error.url, error.instance) == (status, started.url, started.name)
        assert error.log_lines
        assert error.body_start
        assert f"body: {error.body_start!r}" in str(error)
        assert not (bot.dir / "world_session.txt").exists()
        switch(started, join="extra-fields")
        session = (await world.connect(bot))["session"]
        assert (bot.dir / "world_session.txt").read_text().strip() == session


async def test_further_fields_of_the_answer_are_part_of_the_access(tmp_path: Path) -> None:
    async with running(tmp_path, "--join", "extra-fields") as (world, _):
        assert (await world.connect("Rocky"))["spawn"] == {"x": 1.5}


async def test_a_call_without_an_answer_ends_at_its_timeout(tmp_path: Path) -> None:
    async with running(tmp_path, "--join", "hang") as (world, started):
        with pytest.raises(WorldCallError, match=r"no answer within 0\.1 s") as caught:
            await world.connect("Rocky", timeout=0.1)
        assert caught.value.status is None
        assert caught.value.elapsed_s is not None
        switch(started, join="extra-fields")
        assert (await world.connect("Rocky"))["session"]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "agent",
    [
        *(None, 7, "", SimpleNamespace(name="Rocky"), SimpleNamespace(dir="bot")),
        *(SimpleNamespace(name="", dir="bot"), SimpleNamespace(name="Rocky", dir=None)),
    ],
    ids=str,
)
async def test_a_value_that_is_not_an_agent_is_refused(tmp_path: Path, agent: Any) -> None:
    async with running(tmp_path) as (world, started):
        with pytest.raises(
            ConfigError, match=r"agent: must be a name, or an object with \.name and \.dir"
        ):
            await world.connect(agent)
        assert requests(started, "/join") == []


async def test_the_world_forgets_an_agent_that_left(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, started):
        access = await world.connect("Rocky")
        observe = functools.partial(ask, started.port, "GET", "/observe", headers=access["headers"])
        assert observe().status == 200
        await world.leave(access)
        assert observe().status == 401
        with pytest.raises(WorldCallError, match="POST /leave answered 401") as caught:
            await world.leave(access)
        assert caught.value.status == 401
        assert caught.value.body_start == "join first"


async def test_leaving_requires_an_access(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, _):
        for access in ({"session": "x"}, {"headers": {"X-Session": 5}}):
            with pytest.raises(ConfigError, match="access: must be a result of connect"):
                await world.leave(access)


async def test_api_path_returns_an_address_for_the_prompt(tmp_path: Path) -> None:
    world = AsyncWorld(dir=make_world(tmp_path))
    access = {"base_url": "http://world.example:1/x"}
    assert world.api_path(access=access) == "http://world.example:1/x/api.md"
    assert world.api_path(path="/observe", access=access) == "http://world.example:1/x/observe"


async def test_the_call_must_name_one_of_several_instances(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, first):
        second = await world.start(run_dir=tmp_path / "run", name="second")
        access = await world.connect("Rocky", instance="second")
        assert access["base_url"] == second.url
        assert requests(first, "/join") == []


@pytest.mark.thorough
async def test_the_error_for_a_session_of_another_run_explains_the_missing_restore(
    tmp_path: Path,
) -> None:
    bot = Bot("Rocky", tmp_path / "bot")
    async with running(tmp_path) as (world, _):
        await world.connect(bot)
        await world.stop()
        await world.start(run_dir=tmp_path / "again")
        with pytest.raises(WorldSessionError) as caught:
            await world.connect(bot)
    assert "started over" in str(caught.value.hint)
    assert "must save its sessions" not in str(caught.value)
