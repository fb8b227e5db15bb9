"""An engine world behind the server: routes, halts, answers to agents and spectators."""

from __future__ import annotations

import json

import anyio
import httpx
import pytest

from clawblox.engine.datastore.sqlite import SqliteStore
from clawblox.engine.page import PAGE_DIR
from clawblox.engine.settings import read_settings
from clawblox.engine.world.console import Console
from clawblox.engine.world.engine_world import EngineWorld
from clawblox.engine.world.world_state import REVISION
from clawblox.luau import run_deep
from clawblox.server import Clock, Halted, HostedWorld, Settings, create_app, recording
from clawblox.server.snapshot_document import make_snapshot, restore_snapshot
from tests.recording.files import read_all
from tests.server.recordings import open_recording

MAIN = """
local Players = game:GetService("Players")
game:GetService("AgentInputService").InputReceived:Connect(function(player, kind)
    if kind == "Fail" then error("boom") end
    if kind == "Kick" then player:Kick() end
end)
Players.PlayerAdded:Connect(function(player)
    player.Chatted:Connect(function(text) print(player.Name, text) end)
end)
local wall = Instance.new("Part", workspace)
wall.Anchored = true
wall:AddTag("Static")
"""
SETTINGS = 'name = "w"\nmax_players = 2\n'


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "world.toml").write_text(SETTINGS)
    (tmp_path / "main.lua").write_text(MAIN)
    return tmp_path


@pytest.fixture
def lines() -> list[str]:
    return []


def make_hosted(directory, lines) -> HostedWorld:
    world = EngineWorld(read_settings(directory), Console(lines.append, lines.append))
    return HostedWorld(world)


@pytest.fixture
def hosted(directory, lines) -> HostedWorld:
    hosted = make_hosted(directory, lines)
    hosted.begin()
    return hosted


class Client:
    """Sends requests to a world in the thread of its scripts, with an event loop per request."""

    def __init__(self, world: HostedWorld) -> None:
        self._app = create_app(world, Settings(clock=Clock.LOCKSTEP))

    def get(self, path, **options) -> httpx.Response:
        return self._send("GET", path, options)

    def post(self, path, **options) -> httpx.Response:
        return self._send("POST", path, options)

    def join(self, name="Rocky") -> dict[str, str]:
        return {"X-Session": self.post(f"/join?name={name}").json()["session"]}

    def act(self, session, action) -> httpx.Response:
        return self.post("/input", headers=session, json={"type": action})

    def _send(self, method, path, options) -> httpx.Response:
        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(self._app, raise_app_exceptions=False)
            url = "http://127.0.0.1:8080"
            async with httpx.AsyncClient(transport=transport, base_url=url) as client:
                return await client.request(method, path, **options)

        return run_deep(lambda: anyio.run(send))


@pytest.fixture
def client(hosted) -> Client:
    return Client(hosted)


def test_observation_has_only_the_fields_of_the_world(client):
    answer = client.act(client.join(), "Wave").json()
    assert answer.keys() == {
        "tick", "game_status", "player", "other_players", "world", "events", "recent_events",
    }  # fmt: skip
    assert (answer["tick"], answer["game_status"]) == (1, "active")


def test_an_observation_names_its_world_and_its_rate(client):
    answer = client.act(client.join(), "Wave").json()
    assert list(answer["world"]) == ["name", "tick_rate", "entities"]
    assert (answer["world"]["name"], answer["world"]["tick_rate"]) == ("w", 60)
    assert answer["events"] == []


def test_max_players_limits_the_agents(client):
    for _ in range(2):
        client.join()
    answer = client.post("/join?name=late")
    assert (answer.status_code, answer.text) == (400, "Instance is full")


def test_refused_input_and_kicked_player_get_status_400(client):
    session = client.join()
    answer = client.act(session, "MoveTo")
    assert (answer.status_code, answer.text[:21]) == (400, "MoveTo: data.position")
    client.act(session, "Kick")
    answer = client.act(session, "Wave")
    assert (answer.status_code, answer.text) == (400, "Not in any instance of this game")


def test_uncaught_error_halts_the_world_if_the_settings_require_it(directory, lines):
    (directory / "world.toml").write_text(SETTINGS + '[scripts]\non_error = "halt"\n')
    hosted = make_hosted(directory, lines)
    hosted.begin()
    client = Client(hosted)
    session = client.join()
    reason = "Failed to process agent inputs: main.lua:4: boom"
    text = f"Game halted: {reason}. See logs for full stack trace."
    for answer in (
        client.act(session, "Fail"),
        client.get("/observe", headers=session),
        client.post("/join?name=late"),
        client.get("/spectate"),
        client.get("/map"),
    ):
        assert (answer.status_code, answer.text) == (503, text)


def test_failing_main_script_fails_the_start_unless_the_world_is_watched(directory, lines):
    (directory / "main.lua").write_text("\n\nerror('boom')")
    with pytest.raises(Halted, match=r"^Failed to load script: main\.lua:3: boom$"):
        make_hosted(directory, lines).begin()
    console = Console(lines.append, lines.append)
    watched = EngineWorld(read_settings(directory), console, changed="main.lua")
    watched.begin()
    assert watched.failure == "Failed to load script: main.lua:3: boom"
    assert lines[-1].startswith("[Watch] main.lua changed, and the world halted as it loaded")


def test_spectator_state_and_map_show_the_current_world_without_a_session(client):
    for tick in (0, 1):
        state = client.get("/spectate").json()
        assert (state["tick"], state["game_status"]) == (tick, "playing")
        (wall,) = client.get("/map").json()["entities"]
        assert wall["name"] == "Part"
        client.act(client.join(), "Wave")


def test_speech_reaches_all_agents_and_scripts_in_the_next_tick(client, lines):
    first, second = client.join("A"), client.join("B")
    for session, text in ((first, " hi "), (second, "ho")):
        client.post("/chat", headers=session, json={"content": text})
    assert lines == []
    client.act(first, "Wave")
    assert lines == ["[Lua] A\thi", "[Lua] B\tho"]
    for session in (first, second, {}):
        answer = client.get("/chat/messages", headers=session)
        assert len(answer.json()["messages"]) == 2


def test_the_document_for_agents_is_served_and_its_absence_is_404(client, directory, lines):
    answer = client.get("/skill.md")
    assert (answer.status_code, answer.text) == (404, "No skill.md found")
    (directory / "API.md").write_text("# Dó")
    assert make_hosted(directory, lines).simulation.api_doc == "# Dó"


def test_renderer_manifest_has_the_settings_of_the_renderer(client, directory, lines):
    manifest = {
        "schema_version": 1,
        "api_version": 1,
        "name": "World Renderer",
        "mode": "module",
        "entry_url": None,
        "capabilities": [],
    }
    assert client.get("/renderer/manifest").json() == manifest
    (directory / "renderer").mkdir()
    (directory / "renderer" / "index.js").write_text("export const x = 1")
    own = '[renderer]\nname = "R"\nentry = "index.js"\ncapabilities = ["gui"]'
    (directory / "world.toml").write_text(SETTINGS + own)
    other = Client(make_hosted(directory, lines))
    shown = other.get("/renderer/manifest").json()
    entry = "/renderer-files/index.js"
    assert shown == {**manifest, "name": "R", "entry_url": entry, "capabilities": ["gui"]}
    answer = other.get(entry)
    assert answer.text == "export const x = 1"
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"


def test_only_the_public_files_of_the_world_are_served(client, directory):
    names = {"/assets": "assets", "/renderer-files": "renderer", "/static": "static"}
    for route, name in names.items():
        (directory / name).mkdir()
        (directory / name / "x.glb").write_bytes(b"glTF")
        answer = client.get(f"{route}/x.glb")
        assert (answer.content, answer.headers["content-type"]) == (b"glTF", "model/gltf-binary")
        for path in ("", "..%2fmain.lua", "%2e%2e/world.toml", "nothing"):
            assert (client.get(f"{route}/{path}")).status_code == 404, (route, path)


def test_player_figure_comes_from_the_world_or_the_page(client, directory):
    ours = client.get("/assets/player.glb")
    assert ours.content == (PAGE_DIR / "player.glb").read_bytes()
    assert ours.headers["content-type"] == "model/gltf-binary"
    (directory / "assets").mkdir()
    (directory / "assets" / "player.glb").write_bytes(b"glTF")
    assert (client.get("/assets/player.glb")).content == b"glTF"


def test_a_snapshot_restores_the_world(hosted, directory, lines):
    hosted.join("Rocky")
    hosted.step()
    document = make_snapshot(hosted)
    assert document["format"] == "clawblox-engine-v1"
    copy = make_hosted(directory, lines)
    restore_snapshot(copy, json.dumps(document).encode())
    assert json.dumps(make_snapshot(copy)) == json.dumps(document)


def test_world_announces_its_address(hosted, lines):
    hosted.simulation.serving("http://127.0.0.1:8080/one")
    assert lines == [
        "Server running on http://localhost:8080/one",
        "Spectator frontend: http://127.0.0.1:8080/one/",
    ]


# --------------------------------------------------------------------------------------- recordings


def test_a_recorded_engine_world_has_frames_with_fingerprints(directory, lines, monkeypatch):
    monkeypatch.setattr(recording, "FRAME_SHARE", 1e9)  # regardless of their cost on this machine
    hosted = make_hosted(directory, lines)
    hosted.begin()
    hosted.join("Rocky")
    hosted.recorder = open_recording(directory, hosted, resumed=False)
    fingerprints = []
    for _ in range(12):
        hosted.step()
        fingerprints.append(hosted.simulation.fingerprint())
    hosted.recorder.close()
    start, *records = read_all(hosted.recorder.path)
    assert start["revision"] == REVISION
    frames = [fields for fields in records if "after" in fields]
    assert [fields["tick"] for fields in frames] == [0, 6, 12]
    assert [fields["frame"]["tick"] for fields in frames] == [0, 6, 12]
    assert [fields.get("fingerprints") for fields in frames] == [
        None, fingerprints[:6], fingerprints[6:]
    ]  # fmt: skip


def test_fingerprint_changes_with_script_actions_and_random_draws(directory, lines):
    (directory / "main.lua").write_text("""
    local idle = 0
    while true do
        task.wait()
        idle += 1
        if idle == 5 then for _ = 1, 10 do end end
        if idle == 9 then math.random() end
    end
    """)
    hosted = make_hosted(directory, lines)
    hosted.begin()
    fingerprints = []
    for _ in range(12):
        hosted.step()
        fingerprints.append(hosted.simulation.fingerprint())
    numbers = list(dict.fromkeys(fingerprints))
    order = [numbers.index(number) for number in fingerprints]
    assert order == [0] * 4 + [1] + [0] * 3 + [2] * 4  # the loop, and then the other random state


@pytest.mark.parametrize(
    "draw",
    [
        "stream:NextNumber()",
        "stream:NextInteger(1, 6)",
        "stream:NextUnitVector()",
        "stream:Shuffle({ 1, 2, 3 })",
    ],
)
def test_a_fingerprint_changes_with_draws_of_random_objects(directory, lines, draw):
    def collect_fingerprints(seed: int, *, restores: bool = False) -> list[int]:
        (directory / "main.lua").write_text(f"""
        local stream, ticks = Random.new({seed}), 0
        while true do
            task.wait()
            ticks += 1
            if ticks == 3 or ticks == 7 then {draw} end
        end
        """)
        hosted = make_hosted(directory, lines)
        hosted.begin()
        fingerprints = []
        for tick in range(9):
            if restores and tick == 5:
                document = make_snapshot(hosted)
                hosted = make_hosted(directory, lines)
                restore_snapshot(hosted, json.dumps(document).encode())
            hosted.step()
            fingerprints.append(hosted.simulation.fingerprint())
        return fingerprints

    usual, other = collect_fingerprints(1), collect_fingerprints(2)
    assert [tick for tick in range(9) if usual[tick] != other[tick]] == [2, 6]
    assert collect_fingerprints(1, restores=True) == usual


def test_recording_names_the_data_store_and_omits_only_shared_rows(directory, tmp_path):
    class Shared(SqliteStore):
        is_shared = True

    settings = read_settings(directory)
    stores = [None, SqliteStore(tmp_path / "rows.db"), Shared(tmp_path / "rows.db")]
    worlds = [EngineWorld(settings, Console(print), store=store) for store in stores]
    assert [world.has_shared_rows for world in worlds] == [False, False, True]
    assert [world.datastore for world in worlds] == ["none", "sqlite", "postgres"]
