"""An orchard world that keeps the whole world contract, with a defect on demand.

Without ``--defect`` it conforms, with either clock: ``--clock lockstep`` advances time with each
accepted input, ``--clock realtime`` ticks by the wall clock and applies waiting inputs at the next
tick. ``--defect NAME`` switches on one mistake in its answers, saves or restores; the table in
``defects.py`` lists the defects with the checks that must find them. ``misbehaving.py`` has the
defects of the lifecycle.

The world uses only light modules of the standard library, so that ``python -I -S provable.py``
serves within 100 ms, and writes every byte of its answers itself. One thread does everything:
requests and ticks never overlap. Its processes end by themselves after ten minutes.
"""

from __future__ import annotations

import argparse
import binascii
import json
import math
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, NoReturn
from urllib.parse import parse_qsl, unquote, urlsplit

LIFETIME_S = 600
REFUSED_STATUS = 65
"""Exit status of a world that cannot restore its snapshot: EX_DATAERR of sysexits.h."""

FORMAT = "orchard-v1"
VERSION = 1
IDENTITY = ("format", "version", "scene_hash", "digest")
"""Keys of a snapshot that the digest does not cover."""

RATES_HZ = {"lockstep": 10, "realtime": 200}
"""Ticks per second of simulated time, by clock."""

MAX_PLAYERS = 8
MAX_BODY_BYTES = 64 * 1024
MAX_READ_BYTES = 8 * 1024 * 1024
"""Larger bodies are refused unread; between the two limits they are read, so that no answer is
lost in a reset connection."""

MAX_CONTENT = 2000
SEED = 1

defect = ""


def has(name: str) -> bool:
    """Return whether this defect is switched on."""
    return defect == name


# ----------------------------------------------------------------------------- simulation


class Refusal(Exception):
    """A request is answered with a status and a text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Unusable(Exception):
    """The snapshot cannot be restored."""


class Chance:
    """The SplitMix64 generator, whose whole state is a single number."""

    def __init__(self, state: int) -> None:
        self.state = state

    def draw(self) -> float:
        """Return a number from 0 to 1, with 53 random bits."""
        self.state = (self.state + 0x9E3779B97F4A7C15) % 2**64
        mixed = self.state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) % 2**64
        mixed ^= mixed >> 31
        return (mixed >> 11) / 2**53


def from_entropy() -> float:
    """Return a number from 0 to 1 that no snapshot can repeat."""
    return int.from_bytes(os.urandom(4), "big") / 2**32


class Orchard:
    """Agents with baskets on a windy line, independent of clock and connections."""

    def __init__(self, clock: str) -> None:
        self.rate_hz = RATES_HZ[clock]
        self.scene_hash = f"{binascii.crc32(f'apples/{clock}'.encode()):08x}"
        self.chance = Chance(int.from_bytes(os.urandom(8), "big"))
        self.tick = 0
        self.wind = 0.0
        self.harvest = 0
        self.agents: dict[str, dict[str, Any]] = {}
        self.sessions: dict[str, str] = {}
        self.dormant: set[str] = set()
        self.chat: list[dict[str, Any]] = []
        self.next_agent = self.next_message = 1
        self.pending: list[dict[str, Any]] = []
        self.history: list[dict[str, Any]] = []
        self.loaded: dict[str, Any] = {}
        self.session_key = int.from_bytes(os.urandom(8), "big")
        self.launch_id = os.urandom(16).hex()

    @property
    def time(self) -> float:
        return self.tick / self.rate_hz

    def join(self, name: str) -> str:
        """Add an agent; return its session."""
        if len(self.sessions) >= MAX_PLAYERS and not has("no-max-players"):
            raise Refusal(400, "the orchard is full")
        if has("join-shares-session") and self.sessions:
            return next(iter(self.sessions))
        place = from_entropy() if has("joiner-by-entropy") else self.chance.draw()
        agent_id = f"agent-{self.next_agent}"
        self.next_agent += 1
        self.agents[agent_id] = {
            "agent_id": agent_id,
            "name": name,
            "position": place * 100,
            "velocity": 0.0,
            "impulse": 0.0,
            "carrying": None,
            "fatigue": 0,
            "streak": 0,
            "score": 0.0,
        }
        session = os.urandom(16).hex()
        if has("sessions-from-saved-key"):
            session = f"{int(Chance(self.session_key + self.next_agent).draw() * 2**64):032x}"
        if has("sessions-count"):
            session = f"{self.next_agent:032d}"
        self.sessions[session] = agent_id
        return session

    def leave(self, session: str) -> None:
        agent_id = self.sessions[session]
        if has("leave-keeps-session"):
            return
        del self.sessions[session]
        self.agents.pop(agent_id, None)  # colliding ids give two sessions the same id
        self.pending = [one for one in self.pending if one["agent_id"] != agent_id]

    def say(self, agent_id: str, content: str) -> dict[str, Any]:
        message = {
            "id": self.next_message,
            "agent_id": agent_id,
            "name": self.agents[agent_id]["name"],
            "content": content,
            "created_at": time.time() if has("chat-host-time") else self.time,
        }
        self.next_message += 1
        self.chat.append(message)
        return message

    def run_tick(self) -> None:
        """Apply the waiting inputs, then move everything by one tick."""
        for entry in self.pending:
            self.apply(self.agents[entry["agent_id"]], entry["type"], entry["data"])
        self.pending.clear()
        self.step()
        self.tick += 1

    def apply(self, agent: dict[str, Any], action: str, data: Any) -> None:
        self.harvest += 1
        if has("snapshot-keeps-history"):
            self.history.append({"agent": agent["agent_id"], "type": action, "data": data})
        luck = from_entropy() if has("luck-by-entropy") else self.chance.draw()
        agent["fatigue"] += 1
        if action == "push":
            weight = 1 + (agent["carrying"] or 0.0) + 0.01 * agent["fatigue"]
            agent["impulse"] += (data["force"] + luck) / weight
        elif action == "pick":
            agent["carrying"] = agent["carrying"] or 0.5 + luck
        else:
            agent["score"] += agent["carrying"] or 0.0
            agent["carrying"] = None
        agent["streak"] = (agent["streak"] + 1) % 3
        if agent["streak"] == 0:
            agent["score"] += self.chance.draw()

    def step(self) -> None:
        seconds = 1 / self.rate_hz
        self.wind = 0.9 * self.wind + self.chance.draw() - 0.5
        for agent in self.agents.values():
            given = agent["impulse"] * 2.5 * seconds
            agent["impulse"] -= given
            agent["velocity"] += given + (self.wind - 0.1 * agent["velocity"]) * seconds
            agent["position"] += agent["velocity"] * seconds

    def observe(self, agent_id: str) -> dict[str, Any]:
        agent = self.agents[agent_id]
        shown = ("agent_id", "name", "position", "velocity", "carrying", "score")
        seen = {
            "tick": self.tick,
            "time": self.time,
            "you": {key: agent[key] for key in shown},
            "others": [
                {key: other[key] for key in ("agent_id", "name", "position")}
                for other in self.agents.values()
                if other is not agent
            ],
            "wind": self.wind,
            "harvest": self.harvest,
        }
        if has("observation-without-time"):
            del seen["tick"], seen["time"]
        return {**seen, **self.slips()}

    def slips(self) -> dict[str, Any]:
        """Return forbidden members for an observation; empty without a defect."""
        if has("observation-nan"):
            return {"drift": math.nan}
        if has("observation-host-time"):
            return {"server_time_ms": int(time.time() * 1000)}
        if has("observation-host-date"):
            return {"as_of": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        if has("observation-pid"):
            return {"server": os.getpid()}
        if has("observation-launch-id"):
            return {"world_id": self.launch_id}
        if has("observation-path"):
            return {"log": os.path.abspath("orchard.log")}
        if has("observation-token"):
            return {"debug": {"operator": setting("WORLD_OPERATOR_TOKEN")}}
        if has("observation-too-large"):
            return {"padding": "x" * (5 << 20)}
        return {}


# ------------------------------------------------------------------------------ snapshots


def save(orchard: Orchard) -> dict[str, Any]:
    """Return the snapshot. The orchard itself must not change."""
    if has("save-draws"):
        orchard.chance.draw()
    if has("save-ticks"):
        orchard.run_tick()
    if has("save-steps"):
        orchard.step()
    document: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "time": orchard.time,
        "tick": orchard.tick,
        "scene_hash": orchard.scene_hash,
        "sessions": [
            {"session": session, "agent_id": agent_id}
            for session, agent_id in orchard.sessions.items()
        ],
        "agents": [dict(agent) for agent in orchard.agents.values()],
        "chat": orchard.chat,
        "next_agent": orchard.next_agent,
        "next_message": orchard.next_message,
        "chance": f"{orchard.chance.state:016x}",
        "wind": orchard.wind,
        "harvest": orchard.harvest,
        "pending": list(orchard.pending),
    }
    if has("save-clears-pending"):
        orchard.pending.clear()
    spoil(document, orchard)
    document["digest"] = digest(document)
    return document


def spoil(document: dict[str, Any], orchard: Orchard) -> None:
    """Add forbidden members to a snapshot, or remove required ones."""
    if has("snapshot-without-format"):
        del document["format"]
    if has("snapshot-without-time"):
        del document["time"]
    if has("snapshot-without-identity"):
        del document["scene_hash"]
    if has("snapshot-has-nan"):
        document["record"] = float("nan")
    if has("rounds-floats"):
        document["wind"] = round(document["wind"], 6)
        for agent in document["agents"]:
            agent.update({k: round(v, 6) for k, v in agent.items() if isinstance(v, float)})
    if has("unsaved-fatigue"):
        for agent in document["agents"]:
            del agent["fatigue"]
    if has("sessions-from-saved-key"):
        document["session_key"] = orchard.session_key
    if has("doubles-count"):
        document["harvest"] += orchard.loaded.get("harvest", 0)
    if has("stale-agents"):
        document["agents"] = orchard.loaded.get("agents", document["agents"])
    if has("snapshot-keeps-history"):
        document["history"] = orchard.history
    if has("snapshot-has-token"):
        document["operator"] = setting("WORLD_OPERATOR_TOKEN")
    if has("snapshot-has-environment"):
        document["environment"] = dict(os.environ)
    if has("snapshot-has-path"):
        document["assets"] = os.path.abspath("assets")


def digest(document: dict[str, Any]) -> str:
    """Return the checksum of a snapshot's state, independent of the layout of its JSON."""
    state = {key: value for key, value in document.items() if key not in IDENTITY}
    return f"{binascii.crc32(json.dumps(state, sort_keys=True).encode()):08x}"


def load(orchard: Orchard, path: str) -> None:
    """Restore a snapshot from its file.

    Raises:
        Unusable: The snapshot is missing, damaged, or from another world or version.
    """
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        if has("missing-starts-fresh"):
            return
        raise Unusable(f"it cannot be read: {error.strerror}") from error
    if has("empty-starts-fresh") and not data:
        return
    try:
        document = parse(data)
        check_identity(document, orchard)
        restore(orchard, document)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        is_cut = data.count(b"{") != data.count(b"}")
        if has("corrupt-starts-fresh") or (has("truncated-starts-fresh") and is_cut):
            return
        raise Unusable(f"it is damaged: {type(error).__name__}: {error}") from error


def parse(data: bytes) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(data)
    if document["digest"] != digest(document):
        raise ValueError("the digest does not match the state")
    return document


def check_identity(document: dict[str, Any], orchard: Orchard) -> None:
    if document.get("format") != FORMAT and not has("snapshot-without-format"):
        raise Unusable(f"its format is {document.get('format')!r}, not {FORMAT!r}")
    if document["version"] != VERSION and not has("newer-accepted"):
        raise Unusable(f"its version is {document['version']!r}, not {VERSION}")
    is_foreign = document.get("scene_hash") != orchard.scene_hash
    if is_foreign and not (has("foreign-accepted") or has("snapshot-without-identity")):
        raise Unusable(f"its scene is not {orchard.scene_hash!r}")


def restore(orchard: Orchard, document: dict[str, Any]) -> None:
    sessions = {one["session"]: one["agent_id"] for one in document["sessions"]}
    agents = {one["agent_id"]: dict(one) for one in document["agents"]}
    if has("loses-last-session") and sessions:
        sessions.popitem()
    if has("reverses-sessions"):
        sessions = dict(reversed(sessions.items()))
    for agent in agents.values():
        if has("unsaved-fatigue"):
            agent["fatigue"] = 0
        if has("loses-impulse"):
            agent["impulse"] = 0.0
        if has("loses-carried"):
            agent["carrying"] = None
        if has("loses-streak"):
            agent["streak"] = 0
    orchard.loaded = document
    orchard.sessions, orchard.agents = sessions, agents
    orchard.dormant = set(sessions) if has("needs-rejoin") else set()
    orchard.tick = document["tick"] + (1 if has("restores-late") else 0)
    orchard.wind, orchard.harvest = document["wind"], document["harvest"]
    orchard.chat = [] if has("loses-chat") else document["chat"]
    orchard.next_message = 1 if has("restarts-chat-ids") else document["next_message"]
    orchard.next_agent = 1 if has("restarts-agent-ids") else document["next_agent"]
    orchard.pending = [] if has("loses-pending") else document["pending"]
    orchard.history = document.get("history", [])
    orchard.session_key = document.get("session_key", orchard.session_key)
    if not has("reseeds-on-restore"):  # a new world takes its random state from the host
        orchard.chance = Chance(SEED if has("loses-chance") else int(document["chance"], 16))


# ---------------------------------------------------------------------------------------- HTTP


class Request(NamedTuple):
    method: str
    path: str
    query: dict[str, str]
    headers: list[tuple[str, str]]
    body: bytes

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]

    def first(self, name: str) -> str:
        return next(iter(self.all(name)), "")


class Answer(NamedTuple):
    body: bytes
    status: int = 200
    kind: str = "text/plain; charset=utf-8"


class Landing(NamedTuple):
    """The answer to an input is sent with the next tick."""

    agent_id: str


def as_json(value: object) -> Answer:
    return Answer(json.dumps(value).encode(), kind="application/json")


class Connection:
    """One client and its received data."""

    def __init__(self, client: socket.socket) -> None:
        self.client = client
        self.is_open = True
        self.is_waiting = False
        """Whether an input waits for a tick, which delays further answers."""
        self._received = b""

    def receive(self) -> None:
        try:
            data = self.client.recv(65536)
        except OSError:
            data = b""
        self._received += data
        self.is_open = self.is_open and bool(data)

    def next_request(self) -> Request | None:
        """Return the next complete request; None if it has not arrived yet.

        Raises:
            Refusal: The data is not HTTP, or is too long; the connection must end.
        """
        head, end, rest = self._received.partition(b"\r\n\r\n")
        if not end:
            if len(head) > MAX_BODY_BYTES:
                raise Refusal(431, "the head is too long")
            return None
        request = parse_head(head)
        size = self._body_size(request)
        if len(rest) < size:
            return None
        self._received = rest[size:]
        return request._replace(body=rest[:size])

    def _body_size(self, request: Request) -> int:
        if request.all("transfer-encoding"):
            raise Refusal(411, "send a Content-Length")
        text = request.first("content-length") or "0"
        if not text.isdecimal() or not text.isascii():
            raise Refusal(400, "malformed Content-Length")
        if int(text) > MAX_READ_BYTES:
            raise Refusal(413, f"the body has more than {MAX_BODY_BYTES} bytes")
        return int(text)

    def put_back(self, body: bytes) -> None:
        self._received = body + self._received

    def send(self, answer: Answer, headers: dict[str, str]) -> None:
        lines = [
            f"HTTP/1.1 {answer.status} -",
            f"Content-Type: {answer.kind}",
            f"Content-Length: {len(answer.body)}",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        try:
            self.client.sendall("".join(f"{line}\r\n" for line in [*lines, ""]).encode())
            self.client.sendall(answer.body)
        except OSError:
            self.is_open = False


def parse_head(head: bytes) -> Request:
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise Refusal(400, "malformed request")
    pairs = [line.partition(":") for line in lines]
    headers = [(name.lower(), value.strip()) for name, _, value in pairs]
    url = urlsplit(words[1])
    query = dict(parse_qsl(url.query, keep_blank_values=True))
    return Request(words[0], unquote(url.path), query, headers, b"")


def read_object(request: Request) -> dict[str, Any]:
    """Parse the body of a request as a JSON object."""
    try:
        value = json.loads(request.body)
    except (ValueError, RecursionError) as error:
        if has("malformed-ends-world"):
            sys.exit(1)
        if has("malformed-is-500"):
            raise Refusal(500, "Traceback (most recent call last): ...") from error
        raise Refusal(400, "the body is not JSON") from error
    if not isinstance(value, dict):
        raise Refusal(400, "the body must be a JSON object")
    return value


def read_action(request: Request) -> tuple[str, Any]:
    """Return the type and data of an input."""
    body = read_object(request)
    action, data = body.get("type"), body.get("data")
    if action not in ("push", "pick", "drop"):
        raise Refusal(400, "`type` must be push, pick or drop")
    force = data.get("force") if isinstance(data, dict) else None
    is_number = isinstance(force, int | float) and not isinstance(force, bool)
    if action == "push" and not (is_number and -10 <= force <= 10):
        raise Refusal(400, "`data.force` of a push must be a number from -10 to 10")
    return action, {"force": force} if action == "push" else None


def read_number(request: Request, name: str, default: int) -> int:
    text = request.query.get(name, str(default))
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise Refusal(400, f"`{name}` must be a number")
    return int(text)


# -------------------------------------------------------------------------------------- server


class Server:
    """The routes of an orchard, and the loop that serves and ticks."""

    def __init__(self, orchard: Orchard, options: argparse.Namespace) -> None:
        self.orchard = orchard
        self.options = options
        self.listener = listen(options.host, options.port)
        self.port = self.listener.getsockname()[1]
        self.requests = 0
        self.is_loaded = not has("refuses-late")
        self.waiting: list[tuple[Connection, Landing]] = []
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ, self.accept)
        parts = [part for part in options.base_path.split("/") if part]
        self.base_path = "" if has("ignores-base-path") else "".join(f"/{part}" for part in parts)
        self.routes: dict[tuple[str, str], Callable[[Request], Answer | Landing]] = {
            ("GET", "/api.md"): self.api_doc,
            **({} if has("alias-missing") else {("GET", "/skill.md"): self.api_doc}),
            ("POST", "/join"): self.join,
            ("POST", "/leave"): self.leave,
            ("GET", "/observe"): self.observe,
            ("POST", "/input"): self.input,
            ("POST", "/chat"): self.chat,
            ("GET", "/chat/messages"): self.chat_messages,
            ("GET", "/snapshot"): self.snapshot,
            **({("GET", "/health"): self.health} if has("script-errors") else {}),
        }

    def run(self) -> NoReturn:
        is_realtime = self.options.clock == "realtime"
        rate_hz = self.orchard.rate_hz
        begun, ticks = time.monotonic(), 0
        while True:
            due_in = begun + (ticks + 1) / rate_hz - time.monotonic() if is_realtime else None
            for key, _ in self.selector.select(None if due_in is None else max(0.0, due_in)):
                key.data()
            while is_realtime and time.monotonic() >= begun + (ticks + 1) / rate_hz:
                self.run_tick()
                ticks += 1

    def run_tick(self) -> None:
        self.orchard.run_tick()
        waiting, self.waiting = self.waiting, []
        for connection, landing in waiting:
            connection.is_waiting = False
            if landing.agent_id in self.orchard.agents:
                self.send(connection, self.answer_input(landing.agent_id))
            else:
                self.send(connection, Answer(b"you have left", 401))
            self.serve(connection)

    def accept(self) -> None:
        try:
            client, _ = self.listener.accept()
        except OSError:
            return  # the client has hung up already
        client.settimeout(10)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = Connection(client)
        self.selector.register(client, selectors.EVENT_READ, partial(self.receive, connection))

    def receive(self, connection: Connection) -> None:
        connection.receive()
        self.serve(connection)

    def serve(self, connection: Connection) -> None:
        """Answer the complete requests of a connection."""
        try:
            while connection.is_open and not connection.is_waiting:
                if not self.serve_next(connection):
                    break
        except Refusal as refusal:
            self.send(connection, refused(refusal), {"Connection": "close"})
            connection.is_open = False
        if not connection.is_open and connection.client.fileno() >= 0:
            self.selector.unregister(connection.client)
            connection.client.close()

    def serve_next(self, connection: Connection) -> bool:
        request = connection.next_request()
        if request is None:
            return False
        try:
            answer: Answer | Landing = self.answer(request)
        except Refusal as refusal:
            answer = refused(refusal)
        if isinstance(answer, Landing):
            connection.is_waiting = True
            self.waiting.append((connection, answer))
            return False
        closes = request.first("connection").lower() == "close"
        self.send(connection, answer, {"Connection": "close"} if closes else {})
        connection.is_open = connection.is_open and not closes
        if self.leaves_body(request, answer):
            connection.put_back(request.body)
        if not self.is_loaded:
            self.is_loaded = True
            time.sleep(0.2)  # a slow restore, with an open port
            load_or_exit(self.orchard, self.options.resume)
        return True

    def leaves_body(self, request: Request, answer: Answer) -> bool:
        """Return whether the body of a request is left unread before the next request."""
        is_refused = has("refused-body-unread") and answer.status == 401
        return is_refused or (has("join-body-unread") and request.path.endswith("/join"))

    def send(
        self, connection: Connection, answer: Answer, headers: dict[str, str] | None = None
    ) -> None:
        named = dict(headers or {})
        self.requests += 1
        if has("date-header"):
            named["Date"] = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())
        if has("request-counter"):
            named["X-Request-Id"] = str(self.requests)
        connection.send(answer, named)

    def answer(self, request: Request) -> Answer | Landing:
        self.check_origin(request)
        if len(request.body) > MAX_BODY_BYTES and not has("unbounded-body"):
            raise Refusal(413, f"the body has more than {MAX_BODY_BYTES} bytes")
        route = (request.method, request.path.removeprefix(self.base_path))
        handler = self.routes.get(route) if request.path.startswith(f"{self.base_path}/") else None
        if handler is None:
            raise Refusal(404, "no such route")
        return handler(request)

    def check_origin(self, request: Request) -> None:
        """Refuse requests that a foreign web page made a browser send."""
        names = ("127.0.0.1", "localhost", "[::1]", self.options.host)
        own = {f"{name}:{self.port}" for name in names}
        hosts = [host.lower() for host in request.all("host")]
        if not (len(hosts) == 1 and hosts[0] in own) and not has("foreign-host-accepted"):
            raise Refusal(421, "unknown Host")
        origins = {origin.lower() for origin in request.all("origin")}
        is_foreign = bool(origins - {f"http://{name}" for name in own})
        is_foreign = is_foreign or "cross-site" in request.all("sec-fetch-site")
        if is_foreign and not has("foreign-origin-accepted"):
            raise Refusal(403, "foreign Origin")

    # ------------------------------------------------------------------------------ routes

    def api_doc(self, request: Request) -> Answer:
        with open("API.md", "rb") as file:
            return Answer(file.read(), kind="text/markdown; charset=utf-8")

    def health(self, request: Request) -> Answer:
        errors = {"errors": 1, "last_error": "trees.lua:3: no apple"}
        return as_json({"status": "ok", **(errors if self.is_operator(request) else {})})

    def join(self, request: Request) -> Answer:
        session = request.first("x-session")
        if session and not has("rejoin-is-new"):
            if has("unknown-joins") and session not in self.orchard.sessions:
                self.orchard.sessions[session] = self.orchard.sessions.pop(self.newcomer(request))
            self.orchard.dormant.discard(session)
            self.find_session(request)
        else:
            session = self.newcomer(request)
        agent = self.orchard.agents[self.orchard.sessions[session]]
        shown = {"agent_id": agent["agent_id"], "name": agent["name"]}
        return as_json({"session": session, **shown})

    def newcomer(self, request: Request) -> str:
        name = request.query.get("name", "").strip()
        if not (1 <= len(name) <= 100 and name.isprintable()):
            raise Refusal(400, "`name` must have 1 to 100 printable characters")
        return self.orchard.join(name)

    def leave(self, request: Request) -> Answer:
        self.orchard.leave(self.find_session(request))
        return as_json({"left": True})

    def observe(self, request: Request) -> Answer:
        orchard, session = self.orchard, request.first("x-session")
        is_lenient = has("observe-unknown-session") if session else has("observe-without-session")
        if is_lenient and session not in orchard.sessions and orchard.agents:
            return as_json(orchard.observe(next(iter(orchard.agents))))
        return as_json(orchard.observe(orchard.sessions[self.find_session(request)]))

    def input(self, request: Request) -> Answer | Landing:
        orchard, session = self.orchard, request.first("x-session")
        if has("input-unknown-session") and session not in orchard.sessions and orchard.agents:
            agent_id = next(iter(orchard.agents))
        else:
            agent_id = orchard.sessions[self.find_session(request)]
        action, data = read_action(request)
        orchard.pending.append({"agent_id": agent_id, "type": action, "data": data})
        if self.options.clock == "realtime":
            return Landing(agent_id)
        orchard.run_tick()
        return self.answer_input(agent_id)

    def answer_input(self, agent_id: str) -> Answer:
        if has("input-answers-text"):
            return Answer(b"ok")
        return as_json(self.orchard.observe(agent_id))

    def chat(self, request: Request) -> Answer:
        agent_id = self.orchard.sessions[self.find_session(request)]
        content = read_object(request).get("content")
        if not isinstance(content, str) or not 1 <= len(content.strip()) <= MAX_CONTENT:
            raise Refusal(400, f"`content` must be a text of 1 to {MAX_CONTENT} characters")
        return as_json(self.orchard.say(agent_id, content))

    def chat_messages(self, request: Request) -> Answer:
        agent_id = self.orchard.sessions[self.find_session(request)]
        after, limit = read_number(request, "after", 0), read_number(request, "limit", 50)
        messages = [message for message in self.orchard.chat if message["id"] > after]
        if has("chat-is-private"):
            messages = [message for message in messages if message["agent_id"] == agent_id]
        return as_json({"messages": messages[: min(limit, 100)]})

    def snapshot(self, request: Request) -> Answer:
        if not self.is_operator(request):
            raise Refusal(401, "operators only")
        return as_json(save(self.orchard))

    def is_operator(self, request: Request) -> bool:
        token, given = setting("WORLD_OPERATOR_TOKEN"), request.all("x-operator-token")
        if has("snapshot-open") or (has("any-token-accepted") and given):
            return True
        if has("token-in-query") and request.query.get("token", "") == token:
            return True
        if has("token-as-bearer") and request.first("authorization") == f"Bearer {token}":
            return True
        return bool(token) and given == [token]

    def find_session(self, request: Request) -> str:
        session = request.first("x-session")
        is_known = self.orchard.sessions.get(session) in self.orchard.agents
        if not is_known or session in self.orchard.dormant:
            raise Refusal(401, "join first")
        return session


def refused(refusal: Refusal) -> Answer:
    return Answer(str(refusal).encode(), refusal.status)


# ----------------------------------------------------------------------------------- main


def setting(name: str, default: str = "") -> str:
    """Read a variable of the environment contract; a blank value counts as unset."""
    return os.environ.get(name) or default


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--clock", choices=sorted(RATES_HZ), default="lockstep")
    add("--defect", default="", metavar="NAME")
    add("--host", default=setting("WORLD_HOST", "127.0.0.1"))
    add("--port", type=int, default=int(setting("WORLD_PORT", "8080")))
    add("--base-path", default=setting("WORLD_BASE_PATH"))
    add("--resume", metavar="FILE", default=setting("WORLD_RESUME_PATH"))
    return parser


def listen(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    listener.listen(128)
    listener.setblocking(False)
    return listener


def load_or_exit(orchard: Orchard, path: str) -> None:
    if not path:
        return
    try:
        load(orchard, path)
    except Unusable as error:
        print(f"cannot restore {path}: {error}", flush=True)
        sys.exit(0 if has("refuses-without-error") else REFUSED_STATUS)


def leave_daemon() -> None:
    """Leave a process in its own session that ignores SIGTERM."""
    if child := os.fork():
        os.waitpid(child, 0)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.alarm(LIFETIME_S)  # an alarm is not inherited
    while True:
        signal.pause()


def stop(number: int, frame: object) -> NoReturn:
    sys.exit(0)


def main() -> NoReturn:
    global defect
    signal.alarm(LIFETIME_S)
    options = build_parser().parse_args()
    defect = options.defect
    signal.signal(signal.SIGTERM, signal.SIG_IGN if has("ignores-sigterm") else stop)
    if has("exits-at-start"):
        sys.exit("ORCHARD_HOME is not set")
    if has("ignores-port-flag"):
        options.port = int(setting("WORLD_PORT", str(options.port)))
    if has("leaves-daemon"):
        leave_daemon()
    if has("leaves-file"):
        with open("orchard.lock", "w") as file:
            file.write("locked\n")
    if has("file-had-token"):
        is_first = not os.path.exists("orchard.cache")
        with open("orchard.cache", "w") as file:
            file.write(setting("WORLD_OPERATOR_TOKEN") if is_first else "not for long")
    if has("listens-everywhere"):
        options.host = "0.0.0.0"
    if has("log-has-token"):
        print(f"operator: {setting('WORLD_OPERATOR_TOKEN')}", flush=True)
    orchard = Orchard(options.clock)
    if not has("refuses-late"):
        load_or_exit(orchard, options.resume)
    server = Server(orchard, options)
    print(f"serving http://{options.host}:{server.port}{server.base_path}/", flush=True)
    server.run()


if __name__ == "__main__":
    main()
