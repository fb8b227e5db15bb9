"""Routes that a simulation adds: plain ones, files, and a feed over WebSockets."""

from __future__ import annotations

import http.client
import os
import signal
from pathlib import Path

import anyio
import httpx
import pytest
from starlette.websockets import WebSocket

from clawblox.server import Settings, create_app
from clawblox.server import feed as feed_module
from clawblox.server.static_files import guess_media_type
from tests.server.gallery import Gallery
from tests.support import wait_until, wait_until_async
from tests.websockets import Refused, WebSocketClient

GALLERY = Path(__file__).with_name("gallery.py")

pytestmark = pytest.mark.anyio


@pytest.fixture
def simulation(tmp_path) -> Gallery:
    files = tmp_path / "files"
    files.mkdir()
    return Gallery(files)


# ------------------------------------------------------------------------------- plain ones


async def test_a_simulation_adds_routes_below_the_base_path(hosted):
    transport = httpx.ASGITransport(create_app(hosted, Settings(base_path="/one")))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as client:
        assert (await client.get("/one/show")).text == "0 None"
        assert (await client.get("/show")).status_code == 404
        assert (await client.post("/one/api.md")).status_code == 405


async def test_added_routes_are_behind_the_gate(client):
    assert (await client.get("/show")).text == "0 None"
    assert (await client.get("/show", headers={"Host": "evil:8080"})).status_code == 421
    assert (await client.get("/show", headers={"Origin": "http://evil"})).status_code == 403


async def test_without_a_document_the_api_route_is_404(client, simulation):
    simulation.api_doc = None
    for path in ("/api.md", "/skill.md"):
        answer = await client.get(path)
        assert (answer.status_code, answer.text) == (404, "No skill.md found")


# ------------------------------------------------------------------------------------ files


@pytest.mark.parametrize(
    ("name", "media_type"),
    [
        ("a.js", "text/javascript; charset=utf-8"),
        ("a.glb", "model/gltf-binary"),
        ("a.json", "application/json"),
        ("a.png", "image/png"),
        ("a.unheardof", "application/octet-stream"),
        ("deep/er/a.css", "text/css; charset=utf-8"),
    ],
)
async def test_a_file_is_served_with_its_media_type_and_without_the_hosts_time(
    client, simulation, name, media_type
):
    path = simulation.files / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"content")
    answer = await client.get(f"/files/{name}")
    assert (answer.status_code, answer.content) == (200, b"content")
    assert answer.headers["content-type"] == media_type
    assert not {"last-modified", "date"} & {*answer.headers}
    again = await client.get(f"/files/{name}", headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    path.write_bytes(b"changed!")
    again = await client.get(f"/files/{name}", headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (200, b"changed!")


@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt",
        "..%2fsecret.txt",
        "%2e%2e/secret.txt",
        "a/../../secret.txt",
        "%2fetc/passwd",
        "/etc/passwd",
        "link.txt",
        "links/secret.txt",
        "%00",
        "a%00.js",
        "x" * 300,
        "",
        "a",
        "a/",
        "nothing.js",
    ],
)
async def test_nothing_else_than_files_below_the_directory_is_served(client, simulation, path):
    (simulation.files.parent / "secret.txt").write_text("secret")
    (simulation.files / "a").mkdir()
    (simulation.files / "link.txt").symlink_to("../secret.txt")
    (simulation.files / "links").symlink_to("..")
    answer = await client.get(f"/files/{path}")
    assert answer.status_code == 404
    assert "secret" not in answer.text


async def test_a_directory_that_does_not_exist_has_no_files(client, simulation):
    simulation.files.rmdir()
    assert (await client.get("/files/a.js")).status_code == 404


def test_the_media_type_of_a_name_ignores_its_case():
    assert guess_media_type("Model.GLB") == "model/gltf-binary"


# -------------------------------------------------------------------------------- WebSockets


class Spectator:
    """A client in this process; it reads while ``may_read`` is set."""

    def __init__(self) -> None:
        self.states: list[str] = []
        self.closed: int | None = None
        self.may_read = anyio.Event()
        self.may_read.set()
        self._incoming = [{"type": "websocket.connect"}, {"type": "websocket.receive", "text": "x"}]
        scope = {"type": "websocket", "headers": []}
        self.socket = WebSocket(scope, self._receive, self._send)

    async def _receive(self):
        if not self._incoming:
            await anyio.sleep_forever()
        return self._incoming.pop(0)

    async def _send(self, message):
        if message["type"] == "websocket.send":
            self.states.append(message["text"])
            await self.may_read.wait()
        elif message["type"] == "websocket.close":
            self.closed = message["code"]


@pytest.fixture
async def watch(hosted, simulation):
    """Return a function that lets a spectator watch, all of one feed."""
    feed = feed_module.Feed(hosted, simulation.read)
    async with anyio.create_task_group() as tasks:

        def start() -> Spectator:
            spectator = Spectator()
            tasks.start_soon(feed.serve, spectator.socket)
            return spectator

        yield start
        tasks.cancel_scope.cancel()


async def test_a_spectator_gets_the_state_at_once_and_after_each_tick(watch, hosted):
    spectator = watch()
    await wait_until_async(lambda: spectator.states == ['{"ticks":0}'])
    hosted.step()
    await wait_until_async(lambda: spectator.states[-1] == '{"ticks":1}')


async def test_a_state_that_stays_the_same_is_read_once_and_repeated(watch, simulation):
    spectators = [watch(), watch()]
    await wait_until_async(lambda: all(len(one.states) > 2 for one in spectators))
    assert {*spectators[0].states, *spectators[1].states} == {'{"ticks":0}'}
    assert simulation.reads == 1


async def test_a_halt_is_shown_without_a_tick(watch, hosted, simulation):
    watch()
    await wait_until_async(lambda: simulation.reads == 1)
    hosted.failure = "boom"
    await wait_until_async(lambda: simulation.reads == 2)


async def test_a_slow_spectator_skips_states(watch, hosted, simulation):
    spectator = watch()
    spectator.may_read = anyio.Event()
    await wait_until_async(lambda: spectator.states == ['{"ticks":0}'])
    for _ in range(100):
        hosted.step()
        await anyio.lowlevel.checkpoint()
    spectator.may_read.set()
    await wait_until_async(lambda: len(spectator.states) > 1)
    assert spectator.states[1] == '{"ticks":100}'
    assert simulation.reads == 2


async def test_a_state_that_fails_closes_the_socket(watch, simulation, caplog):
    simulation.fails_to_show = True
    spectator = watch()
    await wait_until_async(lambda: spectator.closed == 1011)
    assert "the state for spectators failed" in caplog.text


@pytest.mark.parametrize(
    ("headers", "status"),
    [({"Host": "evil.example:8080"}, 421), ({"Origin": "http://evil.example"}, 403)],
)
def test_foreign_pages_open_no_websocket(launch, headers, status):
    world = launch(GALLERY)
    for path in ("/watch", "/nothing"):
        with pytest.raises(Refused) as caught:
            WebSocketClient(world.port, path, headers)
        assert caught.value.status == status


def test_spectators_of_a_real_world_come_and_go_and_are_limited(launch):
    world = launch(GALLERY, "--clock", "realtime")
    own = {"Origin": f"http://127.0.0.1:{world.port}"}
    watching = [WebSocketClient(world.port, "/watch", own) for _ in range(feed_module.MAX_CLIENTS)]
    with pytest.raises(Refused) as caught:
        WebSocketClient(world.port, "/watch")
    assert caught.value.status == 503
    states = watching[0].states()
    assert next(states)["ticks"] < next(states)["ticks"]
    watching.pop().close()
    wait_until(lambda: can_watch(world.port), what="a place is free again")
    assert world.stop() == 0
    assert "Traceback" not in world.log
    for socket in watching:
        socket.close()


def test_a_spectator_may_stay_longer_than_a_request_may_take(launch):
    world = launch(GALLERY, "--clock", "realtime", "--request-timeout", "0.1")
    with WebSocketClient(world.port, "/watch") as socket:
        states = socket.states()
        for _ in range(12):  # 30 a second: four times as long as the limit
            next(states)
    assert world.stop() == 0
    assert "Traceback" not in world.log


def can_watch(port: int) -> bool:
    try:
        WebSocketClient(port, "/watch").close()
    except Refused:
        return False
    return True


@pytest.mark.parametrize(
    "frames",
    [
        b"\xff" * 64,  # reserved bits and an unknown kind
        b"\x81\x05hello",  # not masked
        b"\x81\xff" + b"\xff" * 8 + b"mask",  # longer than any message may be
        b"\x81\xff" + (1 << 17).to_bytes(8, "big") + b"mask" + bytes(1 << 17),  # too long
        b"\x88\x82mask" + bytes(2),  # closed with a strange code
    ],
    ids=["garbage", "unmasked", "endless", "too long", "closed"],
)
def test_malformed_messages_close_the_socket_and_the_world_runs_on(launch, frames):
    world = launch(GALLERY)
    with WebSocketClient(world.port, "/watch") as socket:
        socket.send_raw(frames)
        socket.read_until_closed()
    assert world.ask("GET", "/show").status == 200
    assert "Traceback" not in world.log


def test_spectators_do_not_keep_agents_out(launch):
    world = launch(GALLERY, "--max-connections", "3")
    sockets = [WebSocketClient(world.port, "/watch") for _ in range(2)]
    idle = []
    for _ in range(3):  # each stays open, and makes room for the next when it is idle long enough
        connection = http.client.HTTPConnection("127.0.0.1", world.port, timeout=10)
        connection.request("GET", "/show")
        assert connection.getresponse().read() == b"0 None"
        idle.append(connection)
    assert next(sockets[0].states()) == {"ticks": 0}
    for opened in (*sockets, *idle):
        opened.close()


# ------------------------------------------------------------------------------ its own thread


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_world_on_another_thread_stops_on_a_signal(launch, number):
    world = launch(GALLERY)
    assert world.port
    os.kill(world.process.pid, number)
    assert world.process.wait(10) == 0
