"""Results cached for a version of the state equal freshly computed ones."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawblox.engine.settings import read_settings
from clawblox.engine.world.engine_world import EngineWorld
from clawblox.server import Clock, HostedWorld, Settings, Simulation, create_app
from clawblox.server.clocks import make_clock
from tests.server.conftest import EXAMPLES
from tests.server.tally import Tally

pytestmark = pytest.mark.anyio


class Restless(HostedWorld):
    """A world whose version is new whenever it is looked at, so that nothing is kept."""

    _versions = itertools.count()

    @property
    def version(self) -> int:
        return next(self._versions)

    @version.setter
    def version(self, value: int) -> None:
        pass


def engine_example() -> EngineWorld:
    world = EngineWorld(read_settings(EXAMPLES / "workshop"))
    world.begin()
    return world


INPUTS = (
    {"type": "Add", "data": 1},
    {"type": "MoveTo", "data": {"position": [9, 2, 4]}},
    {"type": "Jump"},
    {"type": "Select", "data": {"block": "Brick"}},
    {"type": "MoveTo"},
)
AGENT = st.integers(0, 2)
REQUESTS = st.one_of(
    st.tuples(st.sampled_from(["join", "leave", "observe", "observe", "chat"]), AGENT),
    st.tuples(st.just("input"), AGENT, st.sampled_from(INPUTS)),
    st.tuples(st.sampled_from(["spectate", "messages", "tick", "snapshot"])),
)


def answers(world: HostedWorld, requests: list[tuple[Any, ...]]) -> list[tuple[int, bytes]]:
    """Return the status and body of every answer."""
    return anyio.run(partial(_answers, world, requests))


async def _answers(world: HostedWorld, requests: list[tuple[Any, ...]]) -> list[tuple[int, bytes]]:
    world.ids.restore(b"the same for both", 0)
    application = create_app(world, Settings(clock=Clock.LOCKSTEP, operator_token=b"token"))
    transport = httpx.ASGITransport(application, raise_app_exceptions=False)
    sessions = ["nobody"] * 3
    seen = []
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as client:
        for request in [("join", 0), *requests]:
            answer = await _send(client, world, sessions, *request)
            seen.append((answer.status_code, answer.content))
            if request[0] == "join" and answer.status_code == httpx.codes.OK:
                sessions[request[1]] = answer.json()["session"]
    return seen


async def _send(
    client: httpx.AsyncClient,
    world: HostedWorld,
    sessions: list[str],
    what: str,
    agent: int = 0,
    body: Any = None,
) -> httpx.Response:
    headers = {"X-Session": sessions[agent]}
    match what:
        case "join":
            return await client.post(f"/join?name=agent-{agent}")
        case "leave":
            return await client.post("/leave", headers=headers)
        case "input":
            return await client.post("/input", headers=headers, json=body)
        case "chat":
            return await client.post("/chat", headers=headers, json={"content": "hello"})
        case "messages":
            return await client.get("/chat/messages", headers=headers)
        case "snapshot":
            return await client.get("/snapshot", headers={"X-Operator-Token": "token"})
        case "tick":
            if world.failure is None:
                world.step()
    return await client.get("/spectate" if what == "spectate" else "/observe", headers=headers)


def check(make: Callable[[], Simulation], requests: list[tuple[Any, ...]]) -> None:
    kept = answers(HostedWorld(make(), nonce=b"fixed"), requests)
    assert kept == answers(Restless(make(), nonce=b"fixed"), requests)


@pytest.mark.thorough
@given(requests=st.lists(REQUESTS, max_size=30))
@settings(max_examples=40, deadline=None)
def test_a_world_of_the_kit_answers_the_same_bytes_as_without_the_cache(requests):
    check(Tally, requests)


@pytest.mark.thorough
@given(requests=st.lists(REQUESTS, max_size=20))
@settings(max_examples=5, deadline=None)
def test_an_engine_world_answers_the_same_bytes_as_without_the_cache(requests):
    check(engine_example, requests)


async def test_an_observation_is_computed_once_for_each_version_but_fresh_after_an_input(
    client, simulation, monkeypatch
):
    computed = []
    observe = simulation.observe
    monkeypatch.setattr(simulation, "observe", lambda one: computed.append(one) or observe(one))
    ada, bo = [
        {"X-Session": (await client.post(f"/join?name={name}")).json()["session"]}
        for name in ("Ada", "Bo")
    ]
    for session in (ada, bo, ada, bo):
        assert (await client.get("/observe", headers=session)).status_code == 200
    assert len(computed) == 2
    for body in ({"type": "Add", "data": 1}, {"type": "Add", "data": None}):
        await client.post("/input", headers=ada, json=body)  # the second is refused
        await client.get("/observe", headers=ada)
        await client.get("/observe", headers=ada)
    assert len(computed) == 4
    await client.post("/chat", headers=bo, json={"content": "hello"})
    await client.get("/observe", headers=ada)
    assert len(computed) == 5


async def test_each_change_of_the_simulation_makes_a_new_version(hosted):
    versions = [hosted.version]

    def entered() -> bool:
        versions.append(hosted.version)
        return versions[-1] > versions[-2]

    session = hosted.join("Rocky")
    assert entered()
    hosted.observe(session)
    json.loads(hosted.observe(session, is_fresh=True))
    hosted.queue(session, "Add", 1)
    assert not entered()
    hosted.apply_inputs()
    assert entered()
    hosted.step()
    assert entered()
    hosted.say(session, "hello")
    assert entered()
    hosted.leave(session)
    assert entered()


@pytest.mark.parametrize("path", ["/observe", "/api.md", "/nothing"])
async def test_due_ticks_come_before_each_request(hosted, monkeypatch, path):
    clock = make_clock(hosted, Clock.LOCKSTEP)
    monkeypatch.setattr(clock, "catch_up", hosted.step)
    monkeypatch.setattr("clawblox.server.app.make_clock", lambda world, kind: clock)
    transport = httpx.ASGITransport(create_app(hosted, Settings()))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as client:
        await client.get(path)
        assert hosted.tick == 1
        await client.get(path, headers={"Host": "evil.example"})
        assert hosted.tick == 1
