"""Routes that a simulation adds: plain ones, files, and a feed over WebSockets."""

from __future__ import annotations

import contextlib
import errno
import http.client
import os
import signal
import socket
from pathlib import Path

import anyio
import httpx
import pytest
from starlette.websockets import WebSocket

from clawblox.server import Halted, Settings, create_app, static_files
from clawblox.server import feed as feed_module
from clawblox.server.static_files import guess_media_type
from tests.server.conftest import PROTECTION
from tests.server.gallery import Gallery
from tests.support.waiting import HANG_S, wait_until, wait_until_async
from tests.support.websockets import Refused, WebSocketClient

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
async def test_only_files_below_the_directory_are_served(client, simulation, path):
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


@pytest.mark.parametrize(
    ("asked", "status", "content", "shown"),
    [
        ("bytes=0-3", 206, b"0123", "bytes 0-3/10"),
        ("bytes=7-", 206, b"789", "bytes 7-9/10"),
        ("bytes=-3", 206, b"789", "bytes 7-9/10"),
        ("bytes=-30", 206, b"0123456789", "bytes 0-9/10"),
        ("bytes=5-99", 206, b"56789", "bytes 5-9/10"),
        ("bytes=10-", 416, b"", "bytes */10"),
        ("bytes=5-4", 416, b"", "bytes */10"),
        ("bytes=-0", 416, b"", "bytes */10"),
        ("bytes=0-1,3-4", 200, b"0123456789", None),
        ("bytes=-", 200, b"0123456789", None),
        ("lines=1-2", 200, b"0123456789", None),
        ("bytes=" + "9" * 5000 + "-", 200, b"0123456789", None),
    ],
)
async def test_a_part_of_a_file_can_be_asked_for(client, simulation, asked, status, content, shown):
    (simulation.files / "a.mp3").write_bytes(b"0123456789")
    answer = await client.get("/files/a.mp3", headers={"Range": asked})
    assert (answer.status_code, answer.content) == (status, content)
    assert answer.headers.get("content-range") == shown
    assert answer.headers["content-length"] == str(len(content))
    etag = answer.headers["etag"]
    changed = await client.get("/files/a.mp3", headers={"Range": asked, "If-Range": f"{etag}x"})
    assert (changed.status_code, changed.content) == (200, b"0123456789")


async def test_the_head_of_a_file_has_its_length(client, simulation):
    (simulation.files / "a.js").write_bytes(b"content")
    (simulation.files / "empty.js").write_bytes(b"")
    answer = await client.head("/files/a.js")
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-length"] == "7"
    answer = await client.get("/files/empty.js")
    assert (answer.status_code, answer.content) == (200, b"")


async def test_a_file_of_many_pieces_is_whole(client, simulation):
    content = os.urandom(1_000_003)
    (simulation.files / "a.glb").write_bytes(content)
    assert (await client.get("/files/a.glb")).content == content
    part = await client.get("/files/a.glb", headers={"Range": "bytes=3-700001"})
    assert part.content == content[3:700002]


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
async def test_file_without_a_free_descriptor_is_not_answered_200(
    client, simulation, monkeypatch, number
):
    (simulation.files / "a.js").write_bytes(b"content")

    def refuse(*arguments):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(static_files.os, "open", refuse)
        answer = await client.get("/files/a.js")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert (await client.get("/files/a.js")).content == b"content"


async def test_a_descriptor_that_is_missing_for_a_moment_does_not_end_an_answer(
    client, simulation, monkeypatch
):
    content = os.urandom(700_000)
    (simulation.files / "a.glb").write_bytes(content)
    opened = []

    def open_now_and_then(*arguments):
        opened.append(arguments)
        if len(opened) == 2:
            raise OSError(errno.EMFILE, "Too many open files")
        return os_open(*arguments)

    os_open = os.open
    monkeypatch.setattr(static_files.os, "open", open_now_and_then)
    assert (await client.get("/files/a.glb")).content == content
    assert len(opened) == 4


async def test_files_for_sandboxed_frames_keep_headers_of_their_own(client, simulation):
    (simulation.files / "a.html").write_bytes(b"<p>")
    plain, framed = [await client.get(f"/{place}/a.html") for place in ("files", "frames")]
    assert PROTECTION.items() <= dict(plain.headers).items()
    assert framed.headers["content-security-policy"] == "sandbox allow-scripts"
    assert framed.headers["cross-origin-resource-policy"] == "cross-origin"
    assert framed.headers["x-content-type-options"] == "nosniff"
    again = await client.get("/frames/a.html", headers={"If-None-Match": framed.headers["etag"]})
    assert again.status_code == 304
    assert again.headers["x-content-type-options"] == "nosniff"


@pytest.fixture
def large_file(tmp_path: Path) -> Path:
    """A file that fits into no socket's buffer, in a directory that a gallery serves."""
    path = tmp_path / "served" / "large.glb"
    path.parent.mkdir()
    path.write_bytes(bytes(30_000_000))
    return path


def start_download(world, name: str) -> socket.socket:
    peer = socket.create_connection(("127.0.0.1", world.port), timeout=HANG_S)
    peer.sendall(f"GET /files/{name} HTTP/1.1\r\nHost: 127.0.0.1:{world.port}\r\n\r\n".encode())
    assert peer.recv(15) == b"HTTP/1.1 200 OK"
    return peer


def test_an_unread_file_holds_no_descriptor(launch, large_file):
    world = launch(GALLERY, env={"GALLERY_FILES": str(large_file.parent)})
    descriptors = Path(f"/proc/{world.process.pid}/fd")

    def is_closed() -> bool:
        held = {os.readlink(entry) for entry in descriptors.iterdir() if os.path.lexists(entry)}
        return str(large_file) not in held

    with start_download(world, large_file.name):
        assert world.ask("GET", "/show").status == 200
        wait_until(is_closed, what="the file is closed")


@pytest.mark.thorough
@pytest.mark.parametrize("replacement", ["pipe", "file", "link", "nothing"])
def test_a_file_that_is_replaced_while_it_is_sent_ends_its_answer(launch, large_file, replacement):
    world = launch(GALLERY, env={"GALLERY_FILES": str(large_file.parent)})
    with start_download(world, large_file.name) as peer:
        large_file.unlink()
        if replacement == "pipe":
            os.mkfifo(large_file)
        elif replacement == "file":
            large_file.write_bytes(b"x" * 30_000_000)
        elif replacement == "link":
            large_file.symlink_to("/dev/zero")
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while chunk := peer.recv(1 << 20):
                received += chunk
        assert len(received) < 30_000_000
        assert b"x" * 100 not in received
    wait_until(lambda: "an answer ends early" in world.log)
    assert world.ask("GET", "/show").status == 200
    assert "Traceback" not in world.log


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


async def test_a_spectator_gets_the_state_immediately_and_after_each_tick(watch, hosted):
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
    with pytest.raises(Halted), hosted.running():
        raise Halted("boom")
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
    for spectator in watching:
        spectator.close()


@pytest.mark.thorough
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


PING = b"\x89\x80mask"


@pytest.mark.thorough
@pytest.mark.parametrize(
    "frames",
    [
        PING * 20_000,
        b"\x8a\x80mask" * 20_000,  # pongs
        b"\x01\x80mask" + b"\x00\x80mask" * 20_000,  # a text in empty pieces
        b"\x81\x81mask\0" * 100,  # messages
        (b"\x82\xfe" + (1 << 15).to_bytes(2, "big") + b"mask" + bytes(1 << 15)) * 2,
    ],
    ids=["pings", "pongs", "pieces", "messages", "long messages"],
)
def test_a_spectator_that_sends_too_much_is_sent_away(launch, frames):
    world = launch(GALLERY, "--clock", "realtime")
    with (
        WebSocketClient(world.port, "/watch") as socket,
        WebSocketClient(world.port, "/watch") as other,
    ):
        socket.send_raw(frames)
        assert socket.close_code() == 1008
        states = other.states()
        assert next(states)["ticks"] < next(states)["ticks"]
    assert world.stop() == 0
    assert "Traceback" not in world.log


def test_the_bytes_of_a_websocket_are_limited_too(launch):
    world = launch(GALLERY)
    with WebSocketClient(world.port, "/talk") as socket:
        message = b"\x81\xfe" + (60_000).to_bytes(2, "big") + b"mask" + bytes(60_000)
        for _ in range(30):
            socket.send_raw(message)
        assert socket.close_code() == 1008


@pytest.mark.thorough
def test_a_spectator_may_ping(launch):
    world = launch(GALLERY, "--clock", "realtime")
    with WebSocketClient(world.port, "/watch") as socket:
        socket.send_raw(PING * 200)
        socket.send("hello")
        states = socket.states()
        for _ in range(30):
            next(states)


@pytest.mark.thorough
def test_spectators_do_not_keep_agents_out(launch):
    world = launch(GALLERY, "--max-connections", "3")
    sockets = [WebSocketClient(world.port, "/watch") for _ in range(2)]
    idle = []
    for _ in range(3):  # each stays open, and makes room for the next when it is idle long enough
        connection = http.client.HTTPConnection("127.0.0.1", world.port, timeout=HANG_S)
        connection.request("GET", "/show")
        assert connection.getresponse().read() == b"0 None"
        idle.append(connection)
    assert next(sockets[0].states()) == {"ticks": 0}
    for opened in (*sockets, *idle):
        opened.close()


# ------------------------------------------------------------------------------ its own thread


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_world_on_another_thread_stops_on_a_signal(launch, number):
    world = launch(GALLERY)
    assert world.port
    os.kill(world.process.pid, number)
    assert world.process.wait(HANG_S) == 0
