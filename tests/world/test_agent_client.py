"""The client of a joined agent: requests, answers, and the death of the world."""

from __future__ import annotations

import json
import math
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawblox import (
    Access,
    ActionRefusedError,
    AsyncAgentClient,
    AsyncWorld,
    ConfigError,
    UsageError,
    World,
    WorldCallError,
    WorldExitedError,
    WorldSessionError,
)
from tests.support.running import Bot, manifest_of, next_event, requests, running, switch
from tests.support.waiting import HANG_S, wait_until_async
from tests.support.worlds import ask, make_world, world_command

pytestmark = pytest.mark.anyio

ON_BOTH_LOOPS = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])


def sent_to(started: Any, path: str) -> list[tuple[Any, ...]]:
    """Return method, query, body and session of each request to a path."""
    found = requests(started, path)
    return [
        (one["method"], one["query"], one["body"], one["headers"].get("x-session")) for one in found
    ]


# -- the verbs ------------------------------------------------------------------------------


@ON_BOTH_LOOPS
async def test_each_verb_is_one_request_with_the_session(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, started):
        agent = await world.join("Rocky")
        session = agent.access.session
        assert (await agent.observe())["counter"] == 0
        assert (await agent.act("add", 5))["counter"] == 5
        assert (await agent.act("add"))["counter"] == 6
        await agent.say("Grüße")
        await agent.say("again")
        assert [one["content"] for one in await agent.messages()] == ["Grüße", "again"]
        assert [one["id"] for one in await agent.messages(after=1, limit=7)] == [2]
        assert (await agent.api()).startswith("# Counter\n")
        await agent.leave()
        assert sent_to(started, "/join") == [("POST", {"name": "Rocky"}, "", None)]
        assert sent_to(started, "/observe") == [("GET", {}, "", session)]
        assert sent_to(started, "/input") == [
            ("POST", {}, '{"type":"add","data":5}', session),
            ("POST", {}, '{"type":"add"}', session),
        ]
        assert sent_to(started, "/chat")[1] == ("POST", {}, '{"content":"again"}', session)
        assert sent_to(started, "/chat/messages") == [
            ("GET", {}, "", session),
            ("GET", {"after": "1", "limit": "7"}, "", session),
        ]
        assert sent_to(started, "/leave") == [("POST", {}, "", session)]
        for path in ("/input", "/chat"):
            assert requests(started, path)[0]["headers"]["content-type"] == "application/json"


async def test_join_connects_and_its_access_equals_the_result_of_connect(
    tmp_path: Path,
) -> None:
    bot = Bot("Rocky-r003", tmp_path / "run" / "agents" / "rocky")
    async with running(tmp_path, "--join", "extra-fields") as (world, started):
        agent = await world.join(bot)
        connected = await world.connect(bot)
        assert type(connected) is dict
        assert isinstance(agent.access, Access)
        assert agent.access == connected
        assert agent.access["spawn"] == {"x": 1.5}
        assert (agent.name, agent.instance) == ("Rocky", "w000")
        assert repr(agent) == "<AsyncAgentClient 'Rocky' in w000>"
        assert (bot.dir / "world_session.txt").read_text().strip() == agent.access.session
        assert world.api_path(access=agent.access) == f"{started.url}/api.md"
        await world.leave(agent.access)
        with pytest.raises(ActionRefusedError, match="join first"):
            await agent.observe()
    (entry,) = manifest_of(tmp_path / "run")["agents"]
    assert (entry["dir"], entry["run_name"]) == ("agents/rocky", "Rocky-r003")


async def test_the_agent_is_found_below_the_base_path_of_its_instance(tmp_path: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        await world.start(run_dir=tmp_path / "run", name="a")
        await world.start(run_dir=tmp_path / "run", name="b", base_path="/w1")
        async with await world.join("Rocky", instance="b") as agent:
            assert agent.access.base_url.endswith("/w1")
            assert (await agent.observe())["agent_id"] == "agent-1"
        with pytest.raises(UsageError, match="no instance was named"):
            await world.join("Rocky")


async def test_the_routes_come_from_the_world_toml(tmp_path: Path) -> None:
    routes = '[api]\nobserve = "/chat/messages"\ninput = "/chat"\ndoc_url_path = "/skill.md"\n'
    async with AsyncWorld(dir=make_world(tmp_path, toml_extra=routes)) as world:
        started = await world.start(run_dir=tmp_path / "run")
        agent = await world.join("Rocky")
        assert await agent.observe() == []
        with pytest.raises(WorldCallError):
            await agent.act("add")  # this world does not accept the chat message
        assert (await agent.api()).startswith("# Counter")
        assert len(requests(started, "/skill.md")) == len(requests(started, "/chat")) == 1


async def test_many_tasks_use_one_client_without_waiting_for_each_other(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, started):
        agent = await world.join("Rocky")
        switch(started, acting="hang")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(agent.observe)
            await wait_until_async(lambda: requests(started, "/observe"))
            await agent.say("I wait for nobody")
            switch(started, acting="none")
            async with anyio.create_task_group() as inner:
                for number in range(1, 9):
                    inner.start_soon(agent.act, "add", number)
            assert (await agent.observe())["counter"] == 36
            tasks.cancel_scope.cancel()


# -- errors ---------------------------------------------------------------------------------


async def test_a_refusal_contains_the_status_and_text_of_the_world(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, started):
        agent = await world.join("Rocky")
        with pytest.raises(ActionRefusedError) as caught:
            await agent.act("fly", {"to": "the moon"})
    error = caught.value
    assert (error.status, error.text) == (400, "unknown type of input")
    assert (error.instance, error.url) == (started.name, started.url)
    assert str(error).splitlines() == [
        "w000: POST /input was refused: unknown type of input",
        "  status: 400",
        f"  url: {started.url}",
    ]


UNUSABLE = {
    "status-500": (500, "the answer to POST /input has the status 500"),
    "redirect": (302, "the answer to POST /input has the status 302"),
    "not-json": (200, "the answer to POST /input is not JSON"),
    "unsized-number": (200, "the answer to POST /input has no end"),
    "unsized-truncated": (200, "the answer to POST /input is not JSON"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("fault", UNUSABLE)
async def test_the_error_for_an_unusable_answer_quotes_its_start(
    tmp_path: Path, fault: str
) -> None:
    status, message = UNUSABLE[fault]
    async with running(tmp_path) as (world, started):
        agent = await world.join("Rocky")
        switch(started, acting=fault)
        with pytest.raises(WorldCallError) as caught:
            await agent.act("add", 1)
        error = caught.value
        assert (error.message, error.status) == (message, status)
        assert (error.instance, error.url) == (started.name, started.url)
        assert not isinstance(error, ActionRefusedError)
        switch(started, acting="none")
        assert (await agent.observe())["counter"] == 1, "an input is sent once"


async def test_json_without_a_length_is_accepted_but_text_is_not(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, started):
        agent = await world.join("Rocky")
        switch(started, acting="unsized", doc="unsized")
        assert (await agent.observe())["counter"] == 0
        with pytest.raises(WorldCallError, match=r"the answer to GET /api\.md has no end"):
            await agent.api()


@pytest.mark.thorough
async def test_a_call_ends_at_its_timeout(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, started):
        agent = await world.join("Rocky", timeout=0.2)
        switch(started, acting="hang")
        with pytest.raises(WorldCallError, match=r"GET /observe got no answer within 0\.2 s"):
            await agent.observe()
        switch(started, acting="none")
        assert (await agent.observe())["counter"] == 0


CYCLE: list[Any] = []
CYCLE.append(CYCLE)
WRONG: dict[str, tuple[str, Callable[[AsyncAgentClient], Awaitable[Any]]]] = {
    "type": ("type", lambda agent: agent.act(7)),  # type: ignore[arg-type]
    "NaN": ("data", lambda agent: agent.act("add", {"x": math.nan})),
    "an object": ("data", lambda agent: agent.act("add", object())),
    "a cycle": ("data", lambda agent: agent.act("add", CYCLE)),
    "text": ("text", lambda agent: agent.say(None)),  # type: ignore[arg-type]
    "limit": ("limit", lambda agent: agent.messages(limit=0)),
    "limit type": ("limit", lambda agent: agent.messages(limit="7")),  # type: ignore[arg-type]
}


async def test_the_error_names_an_invalid_argument_before_a_request_is_sent(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, started):
        agent = await world.join("Rocky")
        for key, call in WRONG.values():
            with pytest.raises(ConfigError) as caught:
                await call(agent)
            assert caught.value.key == key
        for key in ("timeout", "wait_restart"):
            with pytest.raises(ConfigError, match=key):
                await world.join("Bullwinkle", **{key: -1})
        assert len(requests(started, "/join")) == 1
        assert requests(started, "/input") == requests(started, "/chat") == []


# -- leaving --------------------------------------------------------------------------------


async def test_calls_after_leaving_fail_but_leaving_twice_is_allowed(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (world, started):
        agent = await world.join("Rocky")
        await agent.leave()
        await agent.leave()
        with pytest.raises(UsageError, match="Rocky has left the world"):
            await agent.observe()
        assert len(requests(started, "/leave")) == 1


@ON_BOTH_LOOPS
async def test_an_agent_leaves_the_world_however_the_block_ends(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, started):
        async with await world.join("Rocky") as agent:
            assert isinstance(agent, AsyncAgentClient)
        assert len(requests(started, "/leave")) == 1
        with pytest.raises(ValueError, match="mine"):
            async with await world.join("Rocky"):
                raise ValueError("mine")
        assert len(requests(started, "/leave")) == 2
        with anyio.CancelScope() as scope:
            async with await world.join("Rocky"):
                scope.cancel()
                await anyio.sleep_forever()
        assert len(requests(started, "/leave")) == 3


async def test_leaving_a_block_after_the_world_died_succeeds(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, _):
        async with await world.join("Rocky"):
            await world.stop()
        await world.start(run_dir=tmp_path / "run")
        agent = await world.join("Rocky")
        await world.stop()
        with pytest.raises(ValueError, match="mine"):
            async with agent:
                raise ValueError("mine")


# -- a world that dies ----------------------------------------------------------------------


@pytest.mark.thorough
@ON_BOTH_LOOPS
@pytest.mark.parametrize("verb", ["observe", "act"])
async def test_calls_to_a_dead_world_fail_immediately_with_its_last_lines(
    tmp_path: Path, verb: str
) -> None:
    async with running(tmp_path) as (world, started):
        agent = await world.join("Rocky", timeout=math.inf, wait_restart=math.inf)
        arguments = ("add", 1) if verb == "act" else ()
        call = getattr(agent, verb)
        switch(started, acting="die")
        for _ in range(2):
            with pytest.raises(WorldExitedError) as caught:
                await call(*arguments)
            assert "killed by SIGKILL" in caught.value.message
            assert caught.value.log_lines
            assert caught.value.instance == "w000"


async def test_a_call_in_progress_fails_when_the_world_is_stopped(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, started):
        agent = await world.join("Rocky", timeout=math.inf)
        switch(started, acting="hang")
        failures = []

        async def observe() -> None:
            with pytest.raises(WorldExitedError, match="has ended") as caught:
                await agent.observe()
            failures.append(caught.value)

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(observe)
            await wait_until_async(lambda: len(requests(started, "/observe")) == 3)
            await world.stop(grace_seconds=0.1)
        assert len(failures) == 3
    with pytest.raises(WorldExitedError):
        await agent.observe()


async def restarting(world: AsyncWorld, tmp_path: Path, **waits: float) -> Any:
    """Start an instance that is restarted from its save; return it and an agent in it."""
    started = await world.start(run_dir=tmp_path / "run", restart="checkpoint", record=True)
    agent = await world.join("Rocky", **waits)
    await agent.act("add", 7)
    await world.save()
    return started, agent


def acts(tmp_path: Path) -> list[Any]:
    """Return the inputs that all starts of the world recorded."""
    file = tmp_path / "run" / "recordings" / "counter.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()]


async def test_after_a_restart_the_client_continues_with_its_session(tmp_path: Path) -> None:
    with anyio.fail_after(HANG_S):
        async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
            started, agent = await restarting(world, tmp_path)
            await next_event(events, "ready")
            switch(started, acting="die")
            with pytest.raises(WorldExitedError):
                await agent.observe()
            await next_event(events, "ready")
            assert (await agent.observe())["counter"] == 7
            assert sent_to(started, "/join") == []


@pytest.mark.thorough
async def test_a_session_lost_in_a_restart_is_refused_with_a_hint(tmp_path: Path) -> None:
    with anyio.fail_after(HANG_S):
        async with AsyncWorld(dir=make_world(tmp_path)) as world:
            started = await world.start(run_dir=tmp_path / "run", restart="fresh")
            agent = await world.join("Rocky", wait_restart=HANG_S)
            switch(started, acting="die")
            with pytest.raises(ActionRefusedError, match="join first") as caught:
                await agent.observe()
            assert caught.value.hint is not None
            assert "join again" in caught.value.hint


@pytest.mark.thorough
@ON_BOTH_LOOPS
async def test_a_read_waits_for_a_restart_but_an_input_is_never_repeated(
    tmp_path: Path,
) -> None:
    with anyio.fail_after(HANG_S):
        async with AsyncWorld(dir=make_world(tmp_path)) as world:
            started, agent = await restarting(world, tmp_path, wait_restart=HANG_S)
            switch(started, acting="die")
            assert (await agent.observe())["counter"] == 7, "asked again after the restart"
            switch(started, acting="die")
            with pytest.raises(WorldExitedError):
                await agent.act("add", 100)
            # The restarted world is the one of the save, in which the input never happened.
            assert (await agent.act("add", 1))["counter"] == 8
            assert [one["data"] for one in acts(tmp_path)] == [7, 100, 1]


async def test_an_input_that_could_not_be_sent_waits_for_the_restart(tmp_path: Path) -> None:
    with anyio.fail_after(HANG_S):
        async with AsyncWorld(dir=make_world(tmp_path)) as world:
            started, agent = await restarting(world, tmp_path, wait_restart=HANG_S)
            switch(started, acting="unsized")
            await agent.observe()  # no connection is left after this
            ask(started.port, "POST", "/__close-listener")
            os.kill(started.pid, signal.SIGKILL)
            # This process does not know yet that the world is dead.
            assert (await agent.act("add", 1))["counter"] == 8
            assert [one["data"] for one in acts(tmp_path)] == [7, 1]


FIRST_LIFE_ONLY = 'test -e again && exec sleep 600; touch again; exec "$@"'


async def test_waiting_for_a_restart_ends_at_its_timeout(tmp_path: Path) -> None:
    directory = make_world(tmp_path)
    command = json.dumps(["sh", "-c", FIRST_LIFE_ONLY, "sh", *world_command()])
    (directory / "world.toml").write_text(f'name = "mortal"\n[run]\ncommand = {command}\n')
    with anyio.fail_after(HANG_S):
        async with AsyncWorld(dir=directory) as world, world.events() as events:
            started, agent = await restarting(world, tmp_path, wait_restart=0.1)
            switch(started, acting="die")
            for _ in range(2):
                with pytest.raises(WorldExitedError, match="has ended: killed by SIGKILL"):
                    await agent.observe()
            await next_event(events, "restarting")
            await world.stop(grace_seconds=0.1)


# -- forks ----------------------------------------------------------------------------------


async def test_an_agent_acts_independently_in_each_fork(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, _):
        agent = await world.join("Rocky")
        await agent.act("add", 7)
        forks = await world.fork(await world.save(), 2)
        forks.raise_if_failed()
        for number, started in enumerate(forks.done.values()):
            twin = agent.on(started.name)
            assert requests(started, "/join") == [], "nothing is sent yet"
            assert (twin.name, twin.instance) == ("Rocky", started.name)
            assert twin.access.base_url == started.url
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(twin.observe)
            assert (await twin.act("add", number))["counter"] == 7 + number
            urls = {"base_url": started.url, "internal_base_url": started.url}
            assert twin.access == {**agent.access, **urls}
            session = agent.access.session
            assert sent_to(started, "/join") == []
            assert {one[-1] for one in sent_to(started, "/observe")} == {session}
            (entry,) = manifest_of(started.instance_dir)["agents"]
            assert entry["name"] == "Rocky"
        assert (await agent.observe())["counter"] == 7


@pytest.mark.thorough
async def test_an_instance_that_does_not_know_the_session_refuses_the_client(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (world, _):
        agent = await world.join("Rocky")
        stranger = await world.start(run_dir=tmp_path / "run", name="stranger")
        twin = agent.on("stranger")
        for _ in range(2):
            with pytest.raises(WorldSessionError, match="expected session"):
                await twin.act("add", 1)
        assert requests(stranger, "/input") == []
        with pytest.raises(UsageError, match="no instance 'elsewhere'"):
            agent.on("elsewhere")


# -- without await --------------------------------------------------------------------------


def test_a_script_acts_without_await(tmp_path: Path) -> None:
    with World(dir=make_world(tmp_path)) as world:
        started = world.start(run_dir=tmp_path / "run")
        with world.join("Rocky") as agent:
            assert repr(agent) == "<AgentClient 'Rocky' in w000>"
            assert (agent.name, agent.instance) == ("Rocky", "w000")
            assert agent.act("add", 7)["counter"] == agent.observe()["counter"] == 7
            agent.say("hello")
            assert agent.messages(limit=1)[0]["content"] == "hello"
            assert agent.api().startswith("# Counter")
            assert agent.access["headers"] == {"X-Session": agent.access.session}
            with pytest.raises(ActionRefusedError, match="unknown type of input") as caught:
                agent.act("fly")
            assert [entry.name for entry in caught.traceback][-1] != "run"
            (fork,) = world.fork(world.save())
            assert agent.on(fork.name).act("add", 1)["counter"] == 8
        assert len(requests(started, "/leave")) == 1
        agent.leave()
        assert len(requests(started, "/leave")) == 1
        gone = world.join("Bullwinkle", instance="w000")
        world.stop_all()
        with pytest.raises(WorldExitedError):
            gone.observe()
