"""An engine world behind the server kit: routes, halting, what agents and spectators get."""

from __future__ import annotations

import json

import httpx
import pytest

from clawblox.engine.errors import WorldHalted
from clawblox.engine.page import PAGE_DIR
from clawblox.engine.settings import read_settings
from clawblox.engine.simulation import EngineSimulation
from clawblox.server import Clock, Halted, HostedWorld, InputError, Settings, create_app
from clawblox.server.snapshot_document import make_snapshot, restore_snapshot

pytestmark = pytest.mark.anyio


class StandIn:
    """The smallest world: it counts ticks, and fails when it is told to."""

    def __init__(self) -> None:
        self.ticks = 0
        self.agents: list[str] = []
        self.fails: str | None = None
        self.kicked: list[str] = []
        self.heard: list[tuple[int, str]] = []

    @property
    def time(self) -> float:
        return self.ticks / 60

    def content_hash(self) -> str:
        return "stand-in"

    def start(self) -> None:
        self._check()

    def restore(self, state) -> None:
        self.ticks, self.agents = state["ticks"], state["agents"]

    def reseed(self, seed: int) -> None:
        raise AssertionError

    def join(self, agent_id: str, name: str) -> None:
        self.agents.append(agent_id)

    def leave(self, agent_id: str) -> None:
        self.agents.remove(agent_id)

    def act(self, agent_id: str, action: str, data) -> None:
        if action == "Fail":
            self.fails = "Begin frame error"
        elif action == "Kick":
            self.kicked.append(agent_id)
        elif action == "Refused":
            raise InputError("data.position must be a finite [x, y, z] vector")

    def step(self) -> None:
        self._check()
        self.ticks += 1

    def removed(self) -> list[str]:
        kicked, self.kicked = self.kicked, []
        return kicked

    def audience(self, agent_id: str) -> list[str]:
        return self.agents[:1]

    def chatted(self, agent_id: str, content: str) -> None:
        self._check()
        self.heard.append((self.agents.index(agent_id), content))

    def observe(self, agent_id: str):
        return {"tick": self.ticks, "game_status": "active", "player": {"id": agent_id}}

    def spectate(self):
        return {"tick": self.ticks, "game_status": "playing"}

    def map(self):
        return {"entities": [{"id": self.ticks}]}

    def snapshot(self):
        return {"ticks": self.ticks, "agents": [*self.agents]}

    def _check(self) -> None:
        if self.fails is not None:
            raise WorldHalted(self.fails, "main.lua:3: boom")


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "world.toml").write_text('name = "w"\nmax_players = 2')
    (tmp_path / "main.lua").write_text("")
    return tmp_path


@pytest.fixture
def stand_in() -> StandIn:
    return StandIn()


@pytest.fixture
def simulation(directory, stand_in) -> EngineSimulation:
    return EngineSimulation(read_settings(directory), stand_in, lambda line: None)


@pytest.fixture
def hosted(simulation) -> HostedWorld:
    return HostedWorld(simulation)


@pytest.fixture
async def client(hosted):
    settings = Settings(clock=Clock.LOCKSTEP)
    transport = httpx.ASGITransport(create_app(hosted, settings), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as client:
        yield client


async def join(client) -> dict[str, str]:
    answer = await client.post("/join?name=Rocky")
    return {"X-Session": answer.json()["session"]}


async def act(client, session, action):
    return await client.post("/input", headers=session, json={"type": action})


async def test_s2_an_observation_has_the_fields_of_the_world_only(client):
    answer = await act(client, await join(client), "Move")
    assert answer.json().keys() == {"tick", "game_status", "player"}
    assert answer.json()["tick"] == 1


async def test_max_players_limits_the_agents(client):
    for _ in range(2):
        await join(client)
    answer = await client.post("/join?name=late")
    assert (answer.status_code, answer.text) == (400, "Instance is full")


async def test_a_refused_input_is_400(client):
    answer = await act(client, await join(client), "Refused")
    assert (answer.status_code, answer.text[:13]) == (400, "data.position")


async def test_n10_a_kicked_player_is_in_no_instance(client):
    session = await join(client)
    answer = await act(client, session, "Kick")
    assert (answer.status_code, answer.text) == (400, "Not in any instance of this game")


async def test_n3_an_uncaught_error_halts_the_world(client, directory):
    (directory / "API.md").write_text("# Do")
    session = await join(client)
    text = "Game halted: Begin frame error: main.lua:3: boom. See logs for full stack trace."
    for answer in (
        await act(client, session, "Fail"),
        await client.get("/observe", headers=session),
        await client.post("/join?name=late"),
        await client.get("/spectate"),
        await client.get("/map"),
    ):
        assert (answer.status_code, answer.text) == (503, text)


def test_n3_a_main_script_that_fails_is_an_error_of_the_start(simulation, stand_in):
    stand_in.fails = "Failed to load script"
    with pytest.raises(Halted, match=r"^Failed to load script: main\.lua:3: boom$"):
        simulation.begin()


async def test_n17_the_map_is_served_without_a_session_and_as_it_is_now(client):
    assert (await client.get("/map")).json() == {"entities": [{"id": 0}]}
    await act(client, await join(client), "Move")
    assert (await client.get("/map")).json() == {"entities": [{"id": 1}]}


async def test_spectators_see_the_state_once(client):
    assert (await client.get("/spectate")).json() == {"tick": 0, "game_status": "playing"}


async def test_speech_reaches_the_audience_of_the_world(client):
    first, second = await join(client), await join(client)
    await client.post("/chat", headers=second, json={"content": "hi"})
    for session, heard in ((first, 1), (second, 1), ({}, 0)):
        answer = await client.get("/chat/messages", headers=session)
        assert len(answer.json()["messages"]) == heard


async def test_speech_reaches_the_scripts_of_the_world(client, stand_in):
    first, second = await join(client), await join(client)
    for session, text in ((first, " hi "), (second, "ho")):
        await client.post("/chat", headers=session, json={"content": text})
    assert stand_in.heard == [(0, "hi"), (1, "ho")]


def test_n15_the_document_for_agents(directory, stand_in):
    (directory / "API.md").write_text("# Dó")
    simulation = EngineSimulation(read_settings(directory), stand_in, lambda line: None)
    assert simulation.api_doc == "# Dó"


async def test_n15_without_a_document_skill_md_is_404(client):
    answer = await client.get("/skill.md")
    assert (answer.status_code, answer.text) == (404, "No skill.md found")


async def test_n15_the_manifest_of_the_renderer(client):
    assert (await client.get("/renderer/manifest")).json() == {
        "schema_version": 1,
        "api_version": 1,
        "name": "World Renderer",
        "mode": "module",
        "entry_url": None,
        "capabilities": [],
    }


@pytest.fixture
def decorated(directory, stand_in) -> HostedWorld:
    """Return a world with a renderer of its own."""
    (directory / "renderer").mkdir()
    (directory / "renderer" / "index.js").write_text("export const x = 1")
    (directory / "world.toml").write_text(
        'name = "w"\n[renderer]\nname = "R"\nentry = "index.js"\ncapabilities = ["gui"]'
    )
    return HostedWorld(EngineSimulation(read_settings(directory), stand_in, print))


async def test_n15_the_manifest_names_the_module_of_the_world(decorated):
    transport = httpx.ASGITransport(create_app(decorated, Settings()))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as client:
        manifest = (await client.get("/renderer/manifest")).json()
        assert (manifest["name"], manifest["capabilities"]) == ("R", ["gui"])
        answer = await client.get(manifest["entry_url"])
        assert answer.text == "export const x = 1"
        assert answer.headers["content-type"] == "text/javascript; charset=utf-8"


@pytest.mark.parametrize(
    ("route", "directory_name"),
    [("/assets", "assets"), ("/renderer-files", "renderer"), ("/static", "static")],
)
async def test_files_of_the_world_are_served_and_nothing_else_of_it(
    client, directory, route, directory_name
):
    (directory / directory_name).mkdir()
    (directory / directory_name / "x.glb").write_bytes(b"glTF")
    answer = await client.get(f"{route}/x.glb")
    assert (answer.content, answer.headers["content-type"]) == (b"glTF", "model/gltf-binary")
    for path in ("", "..%2fmain.lua", "%2e%2e/world.toml", "nothing"):
        assert (await client.get(f"{route}/{path}")).status_code == 404


async def test_players_have_the_figure_of_the_world_or_else_that_of_the_page(client, directory):
    ours = await client.get("/assets/player.glb")
    assert ours.content == (PAGE_DIR / "player.glb").read_bytes()
    assert ours.headers["content-type"] == "model/gltf-binary"
    (directory / "assets").mkdir()
    (directory / "assets" / "player.glb").write_bytes(b"glTF")
    assert (await client.get("/assets/player.glb")).content == b"glTF"


def test_a_snapshot_restores_the_world(hosted, directory):
    hosted.join("Rocky")
    hosted.step()
    document = make_snapshot(hosted)
    assert document["format"] == "clawblox-engine-v1"
    copy = HostedWorld(EngineSimulation(read_settings(directory), StandIn(), print))
    restore_snapshot(copy, json.dumps(document).encode())
    assert make_snapshot(copy) == document


def test_a_world_tells_where_to_look(directory, stand_in):
    lines: list[str] = []
    simulation = EngineSimulation(read_settings(directory), stand_in, lines.append)
    simulation.serving("http://127.0.0.1:8080/one")
    assert lines == [
        "Server running on http://localhost:8080/one",
        "Spectator frontend: http://127.0.0.1:8080/one/",
    ]
