"""Recognition of answers, of ready lines in logs, and of the world's own listener."""

from __future__ import annotations

import contextlib
import math
import os
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import anyio
import anyio.to_thread
import pytest

from clawblox.instance import health
from clawblox.instance.health import (
    ReadinessProbe,
    Steps,
    StrangerAnswers,
    Wait,
    look_once,
    require_own_listener,
    run_steps,
    steps_until_ready,
)
from clawblox.protocol import HealthReport
from clawblox.system.process_tree import Mark
from tests.support.resources import open_fds
from tests.support.sockets import free_port
from tests.support.waiting import HANG_S
from tests.support.worlds import running_world

pytestmark = pytest.mark.anyio

HOST = "127.0.0.1"

Handler = Callable[[socket.socket], None]


class Server:
    """Passes every connection to a handler in a thread; leaves connections open."""

    def __init__(self, handler: Handler, host: str = HOST) -> None:
        self.requests: list[str] = []
        self._handler = handler
        self._connections: list[socket.socket] = []
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, free_port()), family=family)
        self.port = int(self._listener.getsockname()[1])
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            with contextlib.suppress(OSError):
                self.requests.append(connection.recv(65536).decode())
                self._handler(connection)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        for connection in self._connections:
            with contextlib.suppress(OSError):  # closed already, or reset
                connection.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        for connection in (*self._connections, self._listener):
            connection.close()


@contextlib.contextmanager
def serving(handler: Handler, host: str = HOST) -> Iterator[Server]:
    server = Server(handler, host)
    try:
        yield server
    finally:
        server.close()


def say(*parts: bytes) -> Handler:
    """Answer, and keep the connection regardless of the request."""

    def answer(connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for part in parts:
            connection.sendall(part)

    return answer


def say_and_close(*parts: bytes) -> Handler:
    def answer(connection: socket.socket) -> None:
        say(*parts)(connection)
        connection.shutdown(socket.SHUT_RDWR)

    return answer


def say_for_ever(head: bytes) -> Handler:
    def answer(connection: socket.socket) -> None:
        connection.sendall(head)
        while True:
            connection.sendall(b"x" * 65536)

    return answer


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def make_probe(
    port: int,
    *,
    host: str = HOST,
    path: str | None = "/api.md",
    pattern: str | None = None,
    log: Path = Path("/nonexistent"),
    log_start: int = 0,
) -> ReadinessProbe:
    compiled = re.compile(pattern, re.MULTILINE) if pattern else None
    return ReadinessProbe(host, port, path, compiled, log, log_start)


async def look(probe: ReadinessProbe) -> bool:
    return await anyio.to_thread.run_sync(look_once, probe, HANG_S)


@pytest.fixture
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait without limit for the end of an answer, to prove that the answer itself ended."""
    monkeypatch.setattr(health, "_DRAIN_TIMEOUT_S", 10 * HANG_S)
    monkeypatch.setattr(health, "_ANSWER_TIMEOUT_S", 10 * HANG_S)


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_DRAIN_TIMEOUT_S", 0.05)
    monkeypatch.setattr(health, "_ANSWER_TIMEOUT_S", 0.2)


# --------------------------------------------------------------------------------- answers

BODY = b"# The world\n"
SIZED = b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n"
HINTS = b"HTTP/1.1 103 Early Hints\r\nContent-Length: 0\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"
HINTED = HINTS + b"HTTP/1.1 200 OK\r\n" + SIZED
ANSWERS: dict[str, tuple[Handler, int]] = {
    "a kept connection": (say(b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\n" + SIZED), 200),
    "lower case and blanks": (say(b"HTTP/1.1 200\r\ncontent-length:   0  \r\n\r\n"), 200),
    "pieces": (say(*(bytes([byte]) for byte in b"HTTP/1.1 200 OK\r\n" + SIZED)), 200),
    "HTTP/1.0": (say_and_close(b"HTTP/1.0 200 OK\r\n\r\n", BODY), 200),
    "chunks": (say_and_close(CHUNKED), 200),
    "an early end": (say_and_close(b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\nx"), 200),
    "a body without end": (say_for_ever(b"HTTP/1.1 200 OK\r\n\r\n"), 200),
    "a huge body": (say_for_ever(b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n"), 200),
    "interim answers first": (say(HINTED), 200),
    "interim answers in pieces": (say(*(bytes([byte]) for byte in HINTED)), 200),
    "interim answers that refuse": (say(HINTS + b"HTTP/1.1 503 No\r\n" + SIZED), 503),
    "another protocol": (say_and_close(b"HTTP/1.1 101 Switching Protocols\r\n\r\n"), 101),
    "not yet": (say(b"HTTP/1.1 503 Service Unavailable\r\n" + SIZED), 503),
    "not there": (say(b"HTTP/1.1 404 Not Found\r\n" + SIZED), 404),
    "elsewhere": (say(b"HTTP/1.1 302 Found\r\nLocation: /\r\n" + SIZED), 302),
    "another good status": (say_and_close(b"HTTP/1.1 204 No Content\r\n\r\n"), 204),
}


@pytest.mark.usefixtures("_patient")
@pytest.mark.parametrize(("handler", "status"), ANSWERS.values(), ids=ANSWERS)
async def test_probe_accepts_only_status_200_in_any_framing(handler: Handler, status: int) -> None:
    with serving(handler) as server:
        probe = make_probe(server.port)
        assert await look(probe) is (status == 200)
        assert probe.seen == f"GET /api.md answered {status}"


UNSIZED: dict[str, bytes] = {
    "no length": b"HTTP/1.1 200 OK\r\n\r\nbody",
    "chunks": CHUNKED,
    "a head that goes on": b"HTTP/1.1 200 OK\r\nServer: slow\r\n",
}


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("answer", UNSIZED.values(), ids=UNSIZED)
async def test_probe_does_not_wait_for_an_answer_without_length(answer: bytes) -> None:
    with serving(say(answer)) as server:
        assert await look(make_probe(server.port))


NO_ANSWER = "connected, no answer to GET /api.md"
NO_HTTP = "GET /api.md answered something that is not HTTP"
NON_ANSWERS: dict[str, tuple[Handler, str]] = {
    "silence": (say(), NO_ANSWER),
    "noise": (say(b"\x00\xff\r\n\r\n"), NO_ANSWER),
    "noise and an end": (say_and_close(b"220 mail"), NO_HTTP),
    "an end": (say_and_close(), NO_HTTP),
    "interim answers alone": (say(HINTS), NO_ANSWER),
    "interim answers and an end": (say_and_close(HINTS), NO_HTTP),
    "half a status": (say_and_close(b"HTTP/1.1 20"), NO_HTTP),
    "a reset": (reset, "GET /api.md failed: Connection reset by peer"),
}


@pytest.mark.thorough
@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize(("handler", "seen"), NON_ANSWERS.values(), ids=NON_ANSWERS)
async def test_probe_reports_an_invalid_answer(handler: Handler, seen: str) -> None:
    with serving(handler) as server:
        probe = make_probe(server.port)
        assert not await look(probe)
        assert probe.seen == seen


async def test_probe_reports_a_refused_connection() -> None:
    probe = make_probe(free_port())
    assert probe.seen == "nothing yet"
    assert not await look(probe)
    assert probe.seen == "connection failed: Connection refused"


@pytest.mark.parametrize(
    ("host", "bound", "named"),
    [
        ("127.0.0.1", "127.0.0.1", "127.0.0.1"),
        ("0.0.0.0", "0.0.0.0", "127.0.0.1"),
        ("localhost", "127.0.0.1", "127.0.0.1"),
        ("::1", "::1", "[::1]"),
    ],
)
async def test_probe_request_is_small_and_closes_the_connection(
    host: str, bound: str, named: str
) -> None:
    with serving(say(b"HTTP/1.1 200 OK\r\n" + SIZED), bound) as server:
        assert await look(make_probe(server.port, host=host, path="/base/api.md"))
        first, *headers = server.requests[0].split("\r\n")
        assert first == "GET /base/api.md HTTP/1.1"
        assert {f"Host: {named}:{server.port}", "Connection: close"} <= set(headers)
        assert not [header for header in headers if "token" in header.lower()]


async def test_probe_ignores_a_connection_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    class BoundToItsDestination(socket.socket):
        def connect_ex(self, address: tuple[str, int]) -> int:  # type: ignore[override]
            if self.getsockname()[1] != address[1]:
                self.bind(address)
            return super().connect_ex(address)

    with BoundToItsDestination() as proof:
        assert proof.connect_ex((HOST, free_port())) == 0
        assert proof.getsockname() == proof.getpeername()
    for path in ("/api.md", None):
        probe = make_probe(free_port(), path=path)
        with monkeypatch.context() as patch:
            patch.setattr(socket, "socket", BoundToItsDestination)
            assert not await look(probe)
        assert probe.seen == "no listener"


async def test_a_cancelled_probe_closes_its_connection() -> None:
    with serving(say()) as server:
        before = open_fds()
        with anyio.move_on_after(0.02) as scope:
            await run_steps(make_probe(server.port).probe_once())
        assert scope.cancelled_caught
        assert not {
            fd for fd, target in open_fds().items() if fd not in before and "socket" in target
        } - {connection.fileno() for connection in server._connections}


# ------------------------------------------------------------------------------------ logs


class WorldLog:
    """A log written by a test, and a probe that searches it, with an open port."""

    def __init__(self, path: Path, port: int, pattern: str, start: int = 0) -> None:
        self.path = path
        self.probe = make_probe(port, path=None, pattern=pattern, log=path, log_start=start)

    def append(self, data: bytes) -> None:
        with open(self.path, "ab", buffering=0) as file:
            file.write(data)

    async def shows(self, data: bytes) -> bool:
        self.append(data)
        return await look(self.probe)


@pytest.fixture
def port() -> Iterator[int]:
    with serving(say()) as server:
        yield server.port


async def test_log_pattern_is_found_over_several_checks_and_stays_found(
    tmp_path: Path, port: int
) -> None:
    log = WorldLog(tmp_path / "log", port, r"^ready: zwölf \d+$")
    before, after = "ready: zwölf 8080".encode().split(b"\xb6")
    assert not await log.shows(b"starting\nre")
    assert not await log.shows(b"ally\nnot ready: zwoelf 1\n")
    assert log.probe.seen == "no log line matches '^ready: zwölf \\\\d+$'"
    assert not await log.shows(before)
    assert await log.shows(b"\xb6" + after + b"\n")
    (tmp_path / "log").write_bytes(b"")
    assert await look(log.probe)


@pytest.mark.parametrize("offset", [-8, -1, 0, 1, 8])
async def test_log_pattern_is_found_across_chunks(tmp_path: Path, port: int, offset: int) -> None:
    log = WorldLog(tmp_path / "log", port, "^READY$")
    for line in (b"x" * 99 + b"\n", b"x"):
        size = 3 * health._LOG_CHUNK_BYTES + offset
        filler = (line * (size // len(line) + 1))[: size - 1] + b"\n"
        assert not await log.shows(filler)
    assert await log.shows(b"READY\n")


async def test_unfinished_log_line_is_searched_completely(tmp_path: Path, port: int) -> None:
    log = WorldLog(tmp_path / "log", port, "READY")
    assert await log.shows(b"x" * (3 * health._LOG_CHUNK_BYTES - 2) + b"READY")


async def test_log_lines_of_an_earlier_run_do_not_count(tmp_path: Path, port: int) -> None:
    (tmp_path / "log").write_bytes(b"READY\n")
    log = WorldLog(tmp_path / "log", port, "READY", start=6)
    assert not await log.shows(b"starting\n")
    assert await log.shows(b"READY\n")


async def test_ready_line_in_the_log_requires_a_listener(tmp_path: Path) -> None:
    log = WorldLog(tmp_path / "log", free_port(), "READY")
    assert not await log.shows(b"READY\n")
    assert log.probe.seen == "connection failed: Connection refused"


# ----------------------------------------------------------------------------- whose it is


async def become_ready(probe: ReadinessProbe, cookie: str) -> None:
    """Wait until the world reports ready, and check that the process with the cookie listens."""
    with anyio.fail_after(HANG_S):
        await run_steps(steps_until_ready(probe, 0.0, HANG_S))
    mark = Mark(f"CLAWBLOX_INSTANCE={cookie}".encode())
    await anyio.to_thread.run_sync(require_own_listener, probe, mark)


@pytest.mark.parametrize(
    ("host", "bound"),
    [
        (HOST, HOST),
        (HOST, "0.0.0.0"),
        (HOST, "::"),
        (HOST, "::ffff:127.0.0.1"),
        ("0.0.0.0", "0.0.0.0"),
        ("localhost", HOST),
        ("::1", "::1"),
        ("::", "::"),
    ],
)
async def test_listener_of_the_world_itself_is_accepted(
    tmp_path: Path, host: str, bound: str
) -> None:
    with running_world(tmp_path, "--bind", bound) as world:
        await become_ready(make_probe(world.port, host=host), world.cookie)


async def test_listener_of_a_child_is_accepted(tmp_path: Path) -> None:
    with running_world(tmp_path, wrapper="child") as world:
        await become_ready(make_probe(world.port), world.cookie)


async def test_listener_of_another_process_is_refused(tmp_path: Path) -> None:
    with running_world(tmp_path) as world:
        with pytest.raises(StrangerAnswers) as caught:
            await become_ready(make_probe(world.port), "another")
        assert str(caught.value).startswith(f"pid {world.process.pid} (")


async def test_listener_of_this_process_is_refused() -> None:
    with serving(say(b"HTTP/1.1 200 OK\r\n" + SIZED)) as server:
        probe = make_probe(server.port)
        with pytest.raises(StrangerAnswers) as caught:
            await become_ready(probe, "another")
        assert str(caught.value).startswith(f"pid {os.getpid()} (")


class ScriptedProbe:
    """A probe that is ready at its second check, and records the times of its checks."""

    interval: float | None = None
    is_inherited = False
    report = HealthReport()

    def __init__(self, **changes: object) -> None:
        self.at: list[float] = []
        vars(self).update(changes)

    def probe_once(self) -> Steps:
        self.at.append(anyio.current_time())
        yield Wait(0.0)
        return len(self.at) == 2


FIRST_PROBES: dict[str, tuple[float, dict[str, object], float]] = {
    "nothing is known": (0.0, {}, 0.0),
    "half of what others took": (0.2, {}, 0.1),
    "others were much slower": (100.0, {}, 0.25),
    "the world says how often": (100.0, {"interval": 0.001}, 0.0),
    "a socket that listens already": (100.0, {"is_inherited": True}, 0.0),
}


@pytest.mark.parametrize(("expected_s", "kind", "at_s"), FIRST_PROBES.values(), ids=FIRST_PROBES)
async def test_probing_starts_when_a_world_can_be_ready(
    expected_s: float, kind: dict[str, object], at_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    if at_s == 0.0:  # any wait would be endless
        monkeypatch.setattr(health, "_LONGEST_WAIT_S", 10 * HANG_S)
    probe = ScriptedProbe(**kind)
    begun_at = anyio.current_time()
    with anyio.fail_after(HANG_S):
        await run_steps(steps_until_ready(cast(ReadinessProbe, probe), expected_s, HANG_S))
    assert len(probe.at) == 2
    assert probe.at[0] - begun_at >= at_s


async def test_world_is_probed_once_even_after_its_deadline() -> None:
    probe = ScriptedProbe()
    assert not await run_steps(steps_until_ready(cast(ReadinessProbe, probe), 0.0, 0.0))
    assert await run_steps(steps_until_ready(cast(ReadinessProbe, probe), 0.0, 0.0))
    assert len(probe.at) == 2


class Silent(ScriptedProbe):
    """A probe of a world that accepts a connection and never answers."""

    def probe_once(self) -> Steps:
        self.at.append(anyio.current_time())
        while True:
            yield Wait(math.inf)


async def test_unanswered_probe_ends_at_the_deadline_and_is_repeated_once() -> None:
    probe = Silent()
    with anyio.fail_after(HANG_S):
        assert not await run_steps(steps_until_ready(cast(ReadinessProbe, probe), 0.0, 0.1))
    assert len(probe.at) == 2


@pytest.mark.thorough
async def test_a_world_that_is_busy_at_first_is_probed_again(tmp_path: Path) -> None:
    with running_world(tmp_path, "--unavailable", "0.5") as world:
        await become_ready(make_probe(world.port), world.cookie)
        assert len(world.ask("GET", "/__requests").json()) > 1
