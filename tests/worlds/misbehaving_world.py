"""A counter world that keeps the world contract, and breaks it on demand.

Without a flag it conforms: a counter that agents add to, sessions, chat, an exact snapshot.
Each flag below switches on one fault; `POST /__set?snapshot=empty` does the same at run time. Three
further control routes, `POST /__die?signal=SIGKILL` (or `?status=3`), `POST /__grow?mb=100` (a
child that uses memory) and `POST /__close-listener`, act immediately, and `GET /__requests` lists
the received requests.

The world uses only light modules of the standard library, so that `python -I -S misbehaving.py`
serves within 50 ms. It shares no code with the package under test, so that both sides of the
contract are independent. All its processes end by themselves after ten minutes, so that a failing
test cannot leave them running.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, NoReturn
from urllib.parse import parse_qsl, unquote, urlsplit

LIFETIME_S = 600
"""Seconds after which an alarm ends every process of this world, even if it ignores signals."""

REFUSED_STATUS = 3
"""Exit status of a world that cannot restore its snapshot."""

FORMAT = "counter-v1"
SHAPES = {
    "opaque": (b"COUNTER\x00", b"", "application/octet-stream"),
    "bom": (b"\xef\xbb\xbf", b"", "application/json"),
    "brace": (b"{\x00\xff", b"", "application/octet-stream"),
    "deep": (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b', "b": ', b"}", "application/json"),
    "text-html": (b"", b"", "text/html"),
}
"""The bytes before and after the document, and the content type, by the value of `--snapshot`."""
TICK_S = 0.5
BLOCK = b"0.123456," * 7281


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


# ------------------------------------------------------------------------------------- options


def setting(name: str, default: str = "") -> str:
    """Read a variable of the environment contract; a blank value counts as unset."""
    return os.environ.get(name) or default


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__,
        # Without a width, each argument would query the terminal with a heavy import.
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=100),
        allow_abbrev=False,
    )
    add_world_options(parser.add_argument_group("the world (flags override the environment)"))
    add_launch_faults(parser.add_argument_group("faults of the launch"))
    add_serving_faults(parser.add_argument_group("faults of the server"))
    add_snapshot_faults(parser.add_argument_group("faults of GET /snapshot"))
    add_process_faults(parser.add_argument_group("faults of the process tree"))
    add_output_faults(parser.add_argument_group("faults of the output"))
    return parser


def add_world_options(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--host", default=setting("WORLD_HOST", "127.0.0.1"))
    add("--port", type=int, default=int(setting("WORLD_PORT", "8080")))
    add("--base-path", default=setting("WORLD_BASE_PATH"))
    add("--resume", metavar="FILE", default=setting("WORLD_RESUME_PATH"))
    add("--reseed", type=int, metavar="N", default=setting("WORLD_RESEED") or None)
    add("--listen", choices=("bind", "inherit"), default="bind", help="serve on descriptor 3")
    add(
        "--scene", default="plain", help="content of the world; other scenes' snapshots are foreign"
    )
    add("--sidecar", action="store_true", help="serve nothing, live until SIGTERM")
    add("--dump", metavar="FILE", help="write environment, argv, cwd, descriptors… as JSON")
    add("--pid-file", metavar="FILE", help="write the process id")
    add("--append-manifest", type=int, default=0, metavar="N", help="register N recordings")
    add("--append-interval", type=float, default=0.0, metavar="S", help="seconds between them")


def add_launch_faults(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--exit-at-once", type=int, metavar="STATUS")
    add("--die-at-once", metavar="SIGNAL", help="for example SIGSEGV")
    add("--exit-after", type=float, metavar="S", help="exit with status 9 after S seconds")
    add("--slow-boot", type=float, default=0.0, metavar="S", help="sleep before listening")
    add("--never-listen", action="store_true", help="live, but never bind")
    add("--bind", metavar="HOST", help="bind this address instead, for example ::1")
    add("--bind-port", type=int, metavar="PORT", help="bind this port instead")


def add_serving_faults(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--mute", action="store_true", help="accept connections and never answer")
    add("--unavailable", type=float, default=0.0, metavar="S", help="answer 503 for S s, or inf")
    add("--doc", choices=DOC_FAULTS, default="served", help="break the agents' document")
    add("--health", action="store_true", help="serve /health; /api.md is not there")
    add("--say-ready", type=float, metavar="S", help="log 'READY to serve' after S seconds")
    add("--join", choices=JOIN_FAULTS, help="break POST /join")
    add("--acting", choices=ACTING_FAULTS, help="break the answers to GET /observe, POST /input")
    add("--ungated", action="store_true", help="serve the snapshot to everybody")


def add_snapshot_faults(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--snapshot", choices=SNAPSHOT_FAULTS, default="sized", help="how the answer is sent")
    add("--after-bytes", type=int, default=40, metavar="N", help="body bytes before the fault")
    add("--drip-bytes", type=int, default=1, metavar="N", help="slow-loris: bytes at a time")
    add("--drip-interval", type=float, default=0.05, metavar="S", help="slow-loris: pause")
    add("--redirect-to", default="", metavar="URL", help="Location of the redirect")
    add("--snapshot-mb", type=int, default=0, metavar="N", help="pad the document to N MB")
    add("--format-last", action="store_true", help="format and time behind everything else")


def add_process_faults(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--ignore-sigterm", action="store_true")
    add("--slow-stop", type=float, default=0.0, metavar="S", help="take S s to obey SIGTERM")
    add(
        "--daemon",
        action="store_true",
        help="leave a daemon that ignores SIGTERM and keeps the port",
    )
    add("--bare-daemon", action="store_true", help="the same, with an empty environment; no port")
    add("--stubborn-child", action="store_true", help="leave a child that ignores SIGTERM")
    add("--greedy-child", type=int, metavar="N", help="a child that uses N MB of memory")
    add("--graceful-child", type=float, metavar="S", help="a child that tidies up for S seconds")


def add_output_faults(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--flood-lines", type=int, default=0, metavar="N", help="N lines before listening")
    add("--flood-rate", type=int, default=0, metavar="N", help="N lines a second while serving")
    add("--long-line", type=int, default=0, metavar="N", help="N bytes without a line end")
    add("--raw-bytes", action="store_true", help="a line that is not UTF-8")
    add("--tell-token", action="store_true", help="print the operator token")


# ---------------------------------------------------------------------------- the counter


class Foreign(Exception):
    """The snapshot belongs to another world."""


class Counter:
    """The simulation. Time passes only with inputs, so that a run can be repeated."""

    def __init__(self, scene: str) -> None:
        self.scene_hash = f"scene-{scene}"
        self.value = 0
        self.ticks = 0
        self.reseed: int | None = None
        self.sessions: dict[str, dict[str, str]] = {}
        self.chat: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    @property
    def time(self) -> float:
        return self.ticks * TICK_S

    def join(self, name: str, session: str) -> dict[str, str]:
        with self._lock:
            if session not in self.sessions:
                session = os.urandom(16).hex()
                agent_id = f"agent-{len(self.sessions) + 1}"
                self.sessions[session] = {"session": session, "agent_id": agent_id, "name": name}
            return self.sessions[session]

    def act(self, message: dict[str, Any]) -> bool:
        if message.get("type") != "add":
            return False
        with self._lock:
            self.value += int(message.get("data", 1))
            self.ticks += 1
        return True

    def observe(self, session: str) -> dict[str, Any]:
        agent = self.sessions[session]
        seen = {"agent_id": agent["agent_id"], "time": self.time, "counter": self.value}
        return seen if self.reseed is None else {**seen, "reseed": self.reseed}

    def identity(self) -> dict[str, Any]:
        return {"format": FORMAT, "time": self.time}

    def state(self) -> dict[str, Any]:
        with self._lock:
            sessions = list(self.sessions.values())
        counter = {"scene_hash": self.scene_hash, "counter": self.value, "ticks": self.ticks}
        return {**counter, "reseed": self.reseed, "sessions": sessions, "chat": self.chat}

    def restore(self, body: bytes) -> None:
        try:
            document = json.loads(unwrap(body))
        except ValueError as error:
            raise Foreign("it is not a snapshot of a counter") from error
        if document.get("scene_hash") != self.scene_hash:
            raise Foreign(f"its scene is {document.get('scene_hash')}, not {self.scene_hash}")
        self.value, self.ticks = document["counter"], document["ticks"]
        self.sessions = {agent["session"]: agent for agent in document["sessions"]}
        self.chat, self.reseed = document["chat"], document.get("reseed")


def unwrap(body: bytes) -> bytes:
    if body.startswith(b"\x1f\x8b"):
        import zlib  # imported only for this shape

        return zlib.decompress(body, zlib.MAX_WBITS | 16)
    for before, after, _ in SHAPES.values():
        if before and body.startswith(before):
            return body.removeprefix(before).removesuffix(after)
    return body


# ---------------------------------------------------------------------------------------- HTTP


class Request(NamedTuple):
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


class Peer:
    """One connection. If `is_open` is False, it ends after the current request."""

    def __init__(self, connection: socket.socket) -> None:
        self.is_open = True
        self._connection = connection
        self._received = b""

    def read_request(self) -> Request | None:
        """Return the next request, or None when the client has hung up."""
        while b"\r\n\r\n" not in self._received:
            if not self._receive():
                return None
        head, _, self._received = self._received.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ", 2)
        pairs = (line.partition(":") for line in lines)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        url = urlsplit(target)
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        body = self._read_body(int(headers.get("content-length", "0")))
        return Request(method, unquote(url.path), query, headers, body)

    def _read_body(self, size: int) -> bytes:
        while len(self._received) < size and self._receive():
            pass
        body, self._received = self._received[:size], self._received[size:]
        return body

    def _receive(self) -> bool:
        chunk = self._connection.recv(65536)
        self._received += chunk
        return bool(chunk)

    def send(self, data: bytes) -> None:
        self._connection.sendall(data)

    def send_head(self, status: int, /, **headers: object) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [f"HTTP/1.1 {status} -", *(f"{name}: {value}" for name, value in named.items())]
        self.send("".join(f"{line}\r\n" for line in [*lines, ""]).encode())

    def answer(self, body: bytes, status: int = 200, kind: str = "text/plain") -> None:
        self.send_head(status, Content_Type=kind, Content_Length=len(body))
        self.send(body)

    def answer_json(self, value: object, status: int = 200) -> None:
        self.answer(json.dumps(value).encode(), status, "application/json")

    def linger(self) -> None:
        """Send nothing more, and keep the connection until the client gives up."""
        while self._receive():
            pass
        self.is_open = False


# ------------------------------------------------------------------------------ snapshots


class Document:
    """A snapshot of any size: a head, the same block `blocks` times, and a tail."""

    def __init__(self, head: bytes, tail: bytes = b"", blocks: int = 0) -> None:
        self.head, self.tail, self.blocks = head, tail, blocks
        self.size = len(head) + blocks * len(BLOCK) + len(tail)

    def __iter__(self) -> Iterator[bytes]:
        yield self.head
        for _ in range(self.blocks):
            yield BLOCK
        yield self.tail

    def start(self, size: int) -> bytes:
        return (self.head + BLOCK * min(self.blocks, 1) + self.tail)[:size]


def snapshot_document(counter: Counter, options: argparse.Namespace) -> Document:
    identity = counter.identity()
    if options.snapshot == "nan":
        identity["time"] = float("nan")
    if options.snapshot == "no-format":
        del identity["format"]
    parts = [identity, {"padding": [0]}, counter.state()]
    ordered = reversed(parts) if options.format_last else parts
    text = json.dumps({name: value for part in ordered for name, value in part.items()})
    head, tail = text.split('"padding": [0]')
    blocks = options.snapshot_mb * 1_000_000 // len(BLOCK)
    return Document(f'{head}"padding": ['.encode(), f"0]{tail}".encode(), blocks)


class Call(NamedTuple):
    """One `GET /snapshot` that passed the gate."""

    peer: Peer
    document: Document
    options: argparse.Namespace

    def send_head(self, **headers: object) -> None:
        self.peer.send_head(200, Content_Type="application/json", **headers)

    def send_start(self) -> None:
        self.peer.send(self.document.start(self.options.after_bytes))

    def hang_up(self) -> None:
        self.peer.is_open = False


SNAPSHOT_FAULTS: dict[str, Callable[[Call], None]] = {}
"""Answers to a snapshot request, by the value of `--snapshot`."""


def snapshot_fault(send: Callable[[Call], None]) -> Callable[[Call], None]:
    SNAPSHOT_FAULTS[send.__name__.replace("_", "-")] = send
    return send


@snapshot_fault
def sized(call: Call) -> None:
    call.send_head(Content_Length=call.document.size)
    for part in call.document:
        call.peer.send(part)


@snapshot_fault
def no_format(call: Call) -> None:
    sized(call)


@snapshot_fault
def nan(call: Call) -> None:
    sized(call)


@snapshot_fault
def chunked(call: Call) -> None:
    call.send_head(Transfer_Encoding="chunked")
    for part in call.document:
        send_chunk(call.peer, part)
    send_chunk(call.peer, b"")


@snapshot_fault
def close_delimited(call: Call) -> None:
    call.send_head(Connection="close")
    for part in call.document:
        call.peer.send(part)
    call.hang_up()


def wrapped(shape: str, call: Call) -> None:
    before, after, kind = SHAPES[shape]
    call.peer.answer(before + b"".join(call.document) + after, kind=kind)


SNAPSHOT_FAULTS |= {shape: partial(wrapped, shape) for shape in SHAPES}


@snapshot_fault
def hang_before_headers(call: Call) -> None:
    call.peer.linger()


@snapshot_fault
def hang_in_body(call: Call) -> None:
    call.send_head(Content_Length=call.document.size)
    call.send_start()
    call.peer.linger()


@snapshot_fault
def die_in_body(call: Call) -> None:
    call.send_head(Content_Length=call.document.size)
    call.send_start()
    os.kill(os.getpid(), signal.SIGKILL)


@snapshot_fault
def slow_loris(call: Call) -> None:
    call.send_head(Content_Length=call.document.size)
    body = b"".join(call.document)
    step = call.options.drip_bytes
    for begin in range(0, len(body), step):
        call.peer.send(body[begin : begin + step])
        time.sleep(call.options.drip_interval)


@snapshot_fault
def status_401(call: Call) -> None:
    call.peer.answer(b"who are you?", 401)


@snapshot_fault
def status_404(call: Call) -> None:
    call.peer.answer(b"there is no such thing", 404)


@snapshot_fault
def status_500(call: Call) -> None:
    call.peer.answer(b"Traceback (most recent call last): ...", 500)


@snapshot_fault
def redirect(call: Call) -> None:
    call.peer.send_head(302, Location=call.options.redirect_to, Content_Length=0)


@snapshot_fault
def truncated(call: Call) -> None:
    call.send_head(Content_Length=call.document.size)
    call.send_start()
    call.hang_up()


@snapshot_fault
def truncated_chunked(call: Call) -> None:
    call.send_head(Transfer_Encoding="chunked")
    send_chunk(call.peer, call.document.start(call.options.after_bytes))
    call.hang_up()


@snapshot_fault
def truncated_close_delimited(call: Call) -> None:
    call.send_head(Connection="close")
    call.send_start()
    call.hang_up()


@snapshot_fault
def empty(call: Call) -> None:
    call.peer.answer(b"", kind="application/json")


@snapshot_fault
def html(call: Call) -> None:
    call.peer.answer(b"<!doctype html><h1>It works!</h1>", kind="text/html")


@snapshot_fault
def garbage(call: Call) -> None:
    call.peer.answer(bytes(range(256)), kind="application/octet-stream")


@snapshot_fault
def endless(call: Call) -> None:
    call.send_head(Transfer_Encoding="chunked")
    send_chunk(call.peer, b'{"padding": [')
    while True:
        send_chunk(call.peer, BLOCK)


@snapshot_fault
def declared_huge(call: Call) -> None:
    call.send_head(Content_Length=10**15)
    call.send_start()
    call.peer.linger()


@snapshot_fault
def gzip(call: Call) -> None:
    body = compress(call.document)
    call.send_head(Content_Encoding="gzip", Content_Length=len(body))
    call.peer.send(body)


@snapshot_fault
def gzip_file(call: Call) -> None:
    call.peer.answer(compress(call.document), kind="application/gzip")


def compress(document: Document) -> bytes:
    import zlib  # imported only for these faults

    packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    return b"".join([*map(packer.compress, document), packer.flush()])


def send_chunk(peer: Peer, data: bytes) -> None:
    peer.send(f"{len(data):x}\r\n".encode() + data + b"\r\n")


# ------------------------------------------------------------------------- join, document


DOC_FAULTS: dict[str, Callable[[Peer], None]] = {
    "served": lambda peer: peer.answer(
        b"# Counter\n\nPOST /input {type: add, data: 1}\n", kind="text/markdown"
    ),
    "status-500": lambda peer: peer.answer(b"Traceback (most recent call last): ...", 500),
    "hang": lambda peer: peer.linger(),
    "unsized": lambda peer: send_unsized(peer, b"# Coun"),
}
"""Answers to `GET /api.md`, which liveness probes use, by the value of `--doc`."""

JOIN_FAULTS: dict[str, Callable[[Peer, dict[str, str]], None]] = {
    "another-session": lambda peer, agent: peer.answer_json({**agent, "session": "another"}),
    "no-session": lambda peer, _: peer.answer_json({"agent_id": "agent-1"}),
    "extra-fields": lambda peer, agent: peer.answer_json({**agent, "spawn": {"x": 1.5}}),
    "status-500": lambda peer, _: peer.answer(b"out of bodies", 500),
    "hang": lambda peer, _: peer.linger(),
    "first-session": lambda peer, agent: peer.answer_json(agent),
}
"""Faults of `POST /join`, by the value of `--join`."""


def send_unsized(peer: Peer, body: bytes) -> None:
    """Send a body that only the end of the connection ends."""
    peer.send_head(200, Connection="close")
    peer.send(body)
    peer.is_open = False


def die_in_head(peer: Peer) -> None:
    peer.send(b"HTTP/1.1 200 -\r\n")
    os.kill(os.getpid(), signal.SIGKILL)


ACTING_FAULTS: dict[str, Callable[[Peer, bytes], None]] = {
    "none": lambda peer, seen: peer.answer(seen, kind="application/json"),
    "hang": lambda peer, _: peer.linger(),
    "die": lambda peer, _: die_in_head(peer),
    "status-500": lambda peer, _: peer.answer(b"Traceback (most recent call last): ...", 500),
    "redirect": lambda peer, _: peer.send_head(302, Location="/api.md", Content_Length=0),
    "not-json": lambda peer, _: peer.answer(b"{oops"),
    "unsized": lambda peer, seen: send_unsized(peer, seen),
    "unsized-number": lambda peer, _: send_unsized(peer, b"12"),
    "unsized-truncated": lambda peer, seen: send_unsized(peer, seen[:-1]),
}
"""Answers to an applied input, by the value of `--acting`."""


# --------------------------------------------------------------------------------- server


class Server:
    """Answers every connection in a separate thread."""

    def __init__(
        self, options: argparse.Namespace, counter: Counter, listener: socket.socket
    ) -> None:
        self.options = options
        self.counter = counter
        self.listener = listener
        self.started_at = time.monotonic()
        self.received: list[dict[str, Any]] = []
        self.base_path = "".join(f"/{part}" for part in options.base_path.split("/") if part)
        doc_path = "/health" if options.health else "/api.md"
        self.routes: dict[tuple[str, str], Callable[[Peer, Request], None]] = {
            ("GET", doc_path): self.api_doc,
            ("GET", "/skill.md"): self.api_doc,
            ("GET", "/snapshot"): self.snapshot,
            ("POST", "/join"): self.join,
            ("POST", "/leave"): self.leave,
            ("GET", "/observe"): self.observe,
            ("POST", "/input"): self.act,
            ("POST", "/chat"): self.chat,
            ("GET", "/chat/messages"): self.chat_messages,
        }
        self.controls: dict[str, Callable[[Peer, Request], None]] = {
            "/__set": self.change_options,
            "/__die": self.die,
            "/__grow": self.grow,
            "/__close-listener": self.close_listener,
            "/__requests": self.list_requests,
        }

    def serve(self) -> NoReturn:
        while True:
            try:
                wait_for_signal(self.listener)
                connection, _ = self.listener.accept()
            except (OSError, ValueError):
                break  # closed on request
            in_background(self.serve_peer, connection)
        while True:
            wait_for_signal()

    def serve_peer(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer = Peer(connection)
        try:
            while peer.is_open and (request := peer.read_request()):
                self.handle(peer, request)
        except ConnectionError:
            pass  # the client gave up
        finally:
            connection.close()

    def handle(self, peer: Peer, request: Request) -> None:
        if control := self.controls.get(request.path):
            return control(peer, request)
        self.received.append(request._asdict() | {"body": request.body.decode("latin-1")})
        if self.options.mute:
            return peer.linger()
        if time.monotonic() < self.started_at + self.options.unavailable:
            return peer.answer(b"not yet", 503)
        in_base = request.path.startswith(f"{self.base_path}/")
        route = (request.method, request.path.removeprefix(self.base_path))
        handler = self.routes.get(route) if in_base else None
        return handler(peer, request) if handler else peer.answer(b"no such route", 404)

    def api_doc(self, peer: Peer, request: Request) -> None:
        DOC_FAULTS[self.options.doc](peer)

    def snapshot(self, peer: Peer, request: Request) -> None:
        token = setting("WORLD_OPERATOR_TOKEN")
        is_operator = bool(token) and request.headers.get("x-operator-token") == token
        if not is_operator and not self.options.ungated:
            return peer.answer(b"operators only", 401)
        document = snapshot_document(self.counter, self.options)
        return SNAPSHOT_FAULTS[self.options.snapshot](Call(peer, document, self.options))

    def join(self, peer: Peer, request: Request) -> None:
        old = request.headers.get("x-session", "")
        if self.options.join == "first-session":
            agent = next(iter(self.counter.sessions.values()))
        else:
            agent = self.counter.join(request.query.get("name", "agent"), old)
        if self.options.join:
            return JOIN_FAULTS[self.options.join](peer, agent)
        return peer.answer_json(agent)

    def leave(self, peer: Peer, request: Request) -> None:
        if session := self.session_of(peer, request):
            del self.counter.sessions[session]
            peer.answer_json({})

    def observe(self, peer: Peer, request: Request) -> None:
        if session := self.session_of(peer, request):
            self.show(peer, session)

    def show(self, peer: Peer, session: str) -> None:
        seen = json.dumps(self.counter.observe(session)).encode()
        ACTING_FAULTS[self.options.acting or "none"](peer, seen)

    def act(self, peer: Peer, request: Request) -> None:
        session = self.session_of(peer, request)
        if not session:
            return
        if self.counter.act(json.loads(request.body)):
            self.record(request)
            self.show(peer, session)
        else:
            peer.answer(b"unknown type of input", 400)

    def record(self, request: Request) -> None:
        if setting("WORLD_RECORD") == "1":
            path = os.path.join(setting("WORLD_RECORD_DIR", "recordings"), "counter.jsonl")
            with open(path, "ab") as file:
                file.write(request.body + b"\n")

    def chat(self, peer: Peer, request: Request) -> None:
        if session := self.session_of(peer, request):
            name = self.counter.sessions[session]["name"]
            content = json.loads(request.body)["content"]
            number = len(self.counter.chat) + 1
            self.counter.chat.append({"id": number, "name": name, "content": content})
            peer.answer_json(self.counter.chat[-1])

    def chat_messages(self, peer: Peer, request: Request) -> None:
        after, limit = (int(request.query.get(*pair)) for pair in (("after", "0"), ("limit", "50")))
        peer.answer_json(self.counter.chat[after:][:limit])

    def session_of(self, peer: Peer, request: Request) -> str:
        session = request.headers.get("x-session", "")
        if session in self.counter.sessions:
            return session
        peer.answer(b"join first", 401)
        return ""

    def change_options(self, peer: Peer, request: Request) -> None:
        flags = [
            f"--{name}={value}" if value else f"--{name}" for name, value in request.query.items()
        ]
        build_parser().parse_args(flags, self.options)
        peer.answer_json({})

    def die(self, peer: Peer, request: Request) -> None:
        self.options.mute = True  # requests after this answer find a dead world
        peer.answer_json({})
        if name := request.query.get("signal"):
            os.kill(os.getpid(), signal.Signals[name])
        else:
            os._exit(int(request.query["status"]))

    def grow(self, peer: Peer, request: Request) -> None:
        begin(fork, partial(use_memory, int(request.query["mb"])), "greedy-child")
        peer.answer_json({})

    def close_listener(self, peer: Peer, request: Request) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)  # `close` alone does not wake `accept`
        self.listener.close()
        peer.answer_json({})

    def list_requests(self, peer: Peer, request: Request) -> None:
        peer.answer_json(self.received)


# ------------------------------------------------------------------------------ processes


def fork(body: Callable[[], None]) -> int:
    if pid := os.fork():
        return pid
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.alarm(LIFETIME_S)  # an alarm is not inherited
    try:
        body()
    finally:
        os._exit(0)


def write_file(path: str, text: str) -> None:
    """Write a file atomically; worlds may share its directory."""
    part = f"{path}.{os.getpid()}.part"
    with open(part, "w") as file:
        file.write(text)
    os.replace(part, path)


def live_on(pid_file: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    write_file(pid_file, str(os.getpid()))
    while True:
        signal.pause()


def daemonise(body: Callable[[], None]) -> None:
    def detach() -> None:
        os.setsid()
        fork(body)

    os.waitpid(fork(detach), 0)


def begin(
    make: Callable[[Callable[[], None]], object], body: Callable[[str], None], name: str
) -> None:
    """Start a related process, and wait until it is set up, when it writes its pid."""
    pid_file = os.path.abspath(f"{name}.pid")
    if os.path.exists(pid_file):
        os.unlink(pid_file)
    make(lambda: body(pid_file))
    while not os.path.exists(pid_file):
        time.sleep(0.001)


def become_bare_daemon(pid_file: str) -> None:
    flags = ["--sidecar", "--ignore-sigterm", "--pid-file", pid_file]
    os.execve(sys.executable, [sys.executable, "-I", "-S", sys.argv[0], *flags], {})


def tidy_up_gracefully(seconds: float, pid_file: str) -> None:
    def tidy_up(number: int, frame: object) -> NoReturn:
        time.sleep(seconds)
        write_file("graceful-child.tidied", "")
        os._exit(0)

    signal.signal(signal.SIGTERM, tidy_up)
    write_file(pid_file, str(os.getpid()))
    while True:
        signal.pause()


def use_memory(megabytes: int, pid_file: str) -> None:
    used = b"x" * (megabytes * 1_000_000)
    write_file(pid_file, str(os.getpid()))
    while used:
        time.sleep(LIFETIME_S)


def fork_relatives(options: argparse.Namespace) -> None:
    """Fork the processes that survive this process; called before threads exist."""
    if options.daemon:
        begin(daemonise, live_on, "daemon")
    if options.bare_daemon:
        begin(daemonise, become_bare_daemon, "bare-daemon")
    if options.stubborn_child:
        begin(fork, live_on, "stubborn-child")
    if options.greedy_child is not None:
        begin(fork, partial(use_memory, options.greedy_child), "greedy-child")
    if options.graceful_child is not None:
        begin(fork, partial(tidy_up_gracefully, options.graceful_child), "graceful-child")


def obey_sigterm(options: argparse.Namespace) -> None:
    def stop(number: int, frame: object) -> NoReturn:
        time.sleep(options.slow_stop)
        say("stopped")
        sys.exit(0)

    signal.signal(signal.SIGTERM, signal.SIG_IGN if options.ignore_sigterm else stop)


def note_signals() -> None:
    """Let signals wake `wait_for_signal`, even a signal just before it blocks."""
    global noted_signals, signals_to_note
    noted_signals, signals_to_note = socket.socketpair()
    signals_to_note.setblocking(False)
    signal.set_wakeup_fd(signals_to_note.fileno(), warn_on_full_buffer=False)


def wait_for_signal(*sockets: socket.socket) -> None:
    """Wait for a signal, or until one of the sockets can be read."""
    while not set(select.select([noted_signals, *sockets], [], [])[0]).intersection(sockets):
        noted_signals.recv(64)


def dump_process(path: str) -> None:
    """Write the properties of this process that the launcher controls."""
    names = (
        name for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")
    )
    facts = {
        "pid": os.getpid(),
        "sid": os.getsid(0),
        "pgid": os.getpgrp(),
        "argv": [sys.executable, *sys.argv],
        "cwd": os.getcwd(),
        "env": dict(os.environ),
        "fds": {name: os.readlink(f"/proc/self/fd/{name}") for name in names},
        "ignored_signals": [
            s.name for s in signal.Signals if signal.getsignal(s) is signal.SIG_IGN
        ],
    }
    write_file(path, json.dumps(facts))


# ----------------------------------------------------------------------- output, manifest


def flood(options: argparse.Namespace) -> None:
    filler = "x" * 80
    os.write(1, "".join(f"flood {n} {filler}\n" for n in range(options.flood_lines)).encode())
    os.write(1, b"y" * options.long_line)
    if options.raw_bytes:
        os.write(1, b"caf\xe9 \xff\xfe \x00 end\n")
    if options.tell_token:
        say(f"my token is {setting('WORLD_OPERATOR_TOKEN')}")


def keep_flooding(rate: int) -> None:
    batch = b"steady " + b"z" * 80 + b"\n"
    while True:
        os.write(1, batch * max(1, rate // 100))
        time.sleep(max(0.01, 1 / rate))


def append_to_manifest(count: int, interval: float) -> None:
    """Register recordings like worlds: without a lock, and with separate temporary names."""
    path = setting("CLAWBLOX_MANIFEST_PATH")
    for number in range(count):
        append_recording(path, f"recordings/{os.getpid()}-{number}.jsonl")
        time.sleep(interval)
    say(f"registered {count} recordings")


def append_recording(path: str, recording: str) -> None:
    try:
        with open(path, "rb") as file:
            manifest = json.loads(file.read())
    except FileNotFoundError:
        manifest = {"schema_version": 1}
    except ValueError:
        return say("the manifest is torn")
    recordings = manifest.setdefault("recordings", [])
    if all(entry["path"] != recording for entry in recordings):
        recordings.append({"path": recording, "events": None, "format": "counter-events"})
    with open(f"{path}.tmp", "w") as file:
        json.dump(manifest, file)
    os.replace(f"{path}.tmp", path)
    return None


# ----------------------------------------------------------------------------------- main


def end_early(options: argparse.Namespace) -> None:
    if options.exit_at_once is not None:
        say(f"cannot go on, exiting with {options.exit_at_once}")
        os._exit(options.exit_at_once)
    if options.die_at_once:
        os.kill(os.getpid(), signal.Signals[options.die_at_once])


def restore(counter: Counter, path: str) -> None:
    try:
        with open(path, "rb") as file:
            counter.restore(file.read())
    except (OSError, Foreign) as error:
        say(f"cannot restore {path}: {error}")
        sys.exit(REFUSED_STATUS)
    say(f"restored {path} at time {counter.time}")


def inherited_listener() -> socket.socket | None:
    """Return the socket that the launcher opened for exactly this process; see sd_listen_fds(3)."""
    if setting("LISTEN_PID") != str(os.getpid()) or setting("LISTEN_FDS") != "1":
        return None
    listener = socket.socket(fileno=3)
    listener.set_inheritable(False)
    listener.setblocking(True)  # this flag belongs to the socket, which the launcher shares
    return listener


def listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    listener.listen(128)
    return listener


def in_background(body: Callable[..., None], *args: object) -> None:
    threading.Thread(target=body, args=args, daemon=True).start()


def after(seconds: float, body: Callable[[], None]) -> None:
    def wait() -> None:
        time.sleep(seconds)
        body()

    in_background(wait)


def start_background(options: argparse.Namespace) -> None:
    if options.exit_after is not None:
        after(options.exit_after, lambda: os._exit(9))
    if options.say_ready is not None:
        after(options.say_ready, lambda: say("READY to serve"))
    if options.flood_rate:
        in_background(keep_flooding, options.flood_rate)
    if options.append_manifest:
        in_background(append_to_manifest, options.append_manifest, options.append_interval)


def wait_forever(options: argparse.Namespace) -> NoReturn:
    start_background(options)
    while True:
        wait_for_signal()


def serve(options: argparse.Namespace) -> NoReturn:
    counter = Counter(options.scene)
    if options.resume:
        restore(counter, options.resume)
    if options.reseed is not None:
        counter.reseed = options.reseed
    time.sleep(options.slow_boot)
    if options.never_listen:
        wait_forever(options)
    inherited = inherited_listener() if options.listen == "inherit" else None
    host, port = options.bind or options.host, options.bind_port or options.port
    listener = inherited or listen(host, port)
    host, port = listener.getsockname()[:2]
    fork_relatives(options)
    start_background(options)
    say(f"Spectator frontend: http://{host}:{port}{options.base_path}/")
    Server(options, counter, listener).serve()


def main() -> NoReturn:
    signal.alarm(LIFETIME_S)
    options = build_parser().parse_args()
    obey_sigterm(options)
    if options.dump:
        dump_process(options.dump)
    note_signals()  # after the list of inherited descriptors
    if options.pid_file:
        write_file(options.pid_file, str(os.getpid()))
    say(f"counter world, process {os.getpid()}")
    flood(options)
    end_early(options)
    if options.sidecar:
        wait_forever(options)
    serve(options)
