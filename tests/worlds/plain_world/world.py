"""A world written only from the public description of the world interface.

The world uses only the standard library, and has only the routes that the description names: a join
always makes a new player, and players cannot leave. A restore keeps the sessions, so that a
restored session works without a join.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import secrets
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

FORMAT = "plain-world-v1"
TICK_S = 0.1
STEP = 1.0
SCENE = {"size": [100, 100], "lamp": {"name": "Lamp", "position": [3, 0, 4]}}
SCENE_HASH = hashlib.sha256(json.dumps(SCENE, sort_keys=True).encode()).hexdigest()
MAX_EVENTS = 20


def parse_options() -> argparse.Namespace:
    """Use the environment for defaults; flags override it."""
    env = os.environ.get
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default=env("WORLD_HOST") or "127.0.0.1")
    parser.add_argument("--port", type=int, default=int(env("WORLD_PORT") or 8080))
    parser.add_argument("--base-path", default=env("WORLD_BASE_PATH") or "")
    parser.add_argument("--record", action="store_true", default=env("WORLD_RECORD") == "1")
    parser.add_argument("--record-dir", default=env("WORLD_RECORD_DIR") or "recordings")
    parser.add_argument("--resume", default=env("WORLD_RESUME_PATH") or "")
    return parser.parse_args()


class Refused(Exception):
    """A request that an agent may correct."""


class Floor:
    """The simulation. A tick passes with each input."""

    def __init__(self) -> None:
        self.tick = 0
        self.players: dict[str, dict[str, Any]] = {}
        self.chat: list[dict[str, Any]] = []

    def join(self, name: str) -> dict[str, str]:
        session, agent_id = secrets.token_hex(16), str(uuid.uuid4())
        place = [float(len(self.players)), 0.0, 0.0]
        player = {"agent_id": agent_id, "name": name, "position": place, "target": place}
        self.players[session] = player
        return {"session": session, "agent_id": agent_id}

    def act(self, session: str, kind: object, data: object) -> None:
        player, values = self.players[session], data if isinstance(data, dict) else {}
        if kind == "MoveTo":
            player["target"] = read_vector(values.get("position"))
        elif kind == "Speak":
            self.chat.append({"tick": self.tick, "from": player["name"], "text": values["text"]})
        elif kind != "Wait":
            raise Refused(f"unknown input type {kind!r}: use MoveTo, Speak or Wait")
        self.tick += 1
        for one in self.players.values():
            one["position"] = step_towards(one["position"], one["target"])

    def observe(self, session: str) -> dict[str, Any]:
        player = self.players[session]
        others = [one for one in self.players.values() if one is not player]
        return {
            "tick": self.tick,
            "game_status": "active",
            "player": show(player),
            "other_players": [show(one) for one in others],
            "world": {"entities": [SCENE["lamp"]]},
            "events": [],
            "recent_events": self.chat[-MAX_EVENTS:],
        }

    def snapshot(self) -> dict[str, Any]:
        head = {"format": FORMAT, "time": round(self.tick * TICK_S, 6), "scene_hash": SCENE_HASH}
        return {**head, "tick": self.tick, "players": self.players, "chat": self.chat}

    def restore(self, path: str) -> None:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        if (document.get("format"), document.get("scene_hash")) != (FORMAT, SCENE_HASH):
            raise SystemExit(f"{path} is not a snapshot of this floor")
        self.tick, self.players = document["tick"], document["players"]
        self.chat = document["chat"]


def show(player: dict[str, Any]) -> dict[str, Any]:
    return {key: player[key] for key in ("agent_id", "name", "position")}


def read_object(body: bytes) -> dict[str, Any]:
    try:
        message = json.loads(body)
    except ValueError:
        raise Refused("the body must be JSON") from None
    if not isinstance(message, dict):
        raise Refused("the body must be a JSON object")
    return message


def read_vector(value: object) -> list[float]:
    is_vector = isinstance(value, list) and len(value) == 3
    if not is_vector or not all(isinstance(x, int | float) and math.isfinite(x) for x in value):
        raise Refused("data.position must be a finite [x, y, z] vector")
    return [float(x) for x in value]


def step_towards(position: list[float], target: list[float]) -> list[float]:
    distance = math.dist(position, target)
    if distance <= STEP:
        return target
    pairs = zip(position, target, strict=True)
    return [x + (goal - x) * STEP / distance for x, goal in pairs]


class Handler(BaseHTTPRequestHandler):
    """Answers the requests of one connection."""

    protocol_version = "HTTP/1.1"
    options: argparse.Namespace
    floor: Floor
    lock: threading.Lock
    api: bytes

    def do_GET(self) -> None:
        self.route({"/api.md": self.show_api, "/observe": self.observe, "/snapshot": self.save})

    def do_POST(self) -> None:
        self.route({"/join": self.join, "/input": self.act})

    def route(self, routes: dict[str, Any]) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.url = urlsplit(self.path)
        handler = routes.get(self.url.path.removeprefix(self.options.base_path))
        if handler is None:
            return self.answer(404, b"no such route")
        with self.lock:
            try:
                handler()
            except Refused as error:
                self.answer(400, str(error).encode())

    def answer(self, status: int, body: bytes, kind: str = "text/plain") -> None:
        self.send_response_only(status)  # agents must not see the host's Date
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def answer_json(self, value: object) -> None:
        self.answer(200, json.dumps(value).encode(), "application/json")

    def find_session(self) -> str | None:
        session = self.headers.get("X-Session") or ""
        if session in self.floor.players:
            return session
        self.answer(401, b"unknown session")
        return None

    def show_api(self) -> None:
        self.answer(200, self.api, "text/markdown")

    def join(self) -> None:
        self.answer_json(self.floor.join(parse_qs(self.url.query).get("name", ["agent"])[0]))

    def observe(self) -> None:
        if (session := self.find_session()) is not None:
            self.answer_json(self.floor.observe(session))

    def act(self) -> None:
        if (session := self.find_session()) is None:
            return
        message = read_object(self.body)
        self.floor.act(session, message.get("type"), message.get("data"))
        if self.options.record:
            self.record(message)
        self.answer_json(self.floor.observe(session))

    def record(self, message: dict[str, Any]) -> None:
        os.makedirs(self.options.record_dir, exist_ok=True)
        with open(os.path.join(self.options.record_dir, "inputs.jsonl"), "a") as file:
            file.write(json.dumps({"tick": self.floor.tick, "input": message}) + "\n")

    def save(self) -> None:
        token = os.environ.get("WORLD_OPERATOR_TOKEN")
        if token and self.headers.get("X-Operator-Token") == token:
            self.answer_json(self.floor.snapshot())
        else:
            self.answer(401, b"operators only")

    def log_message(self, *_: object) -> None:
        """Log nothing, since log lines of requests would hide other lines."""


def main() -> None:
    options, floor = parse_options(), Floor()
    if options.resume:
        floor.restore(options.resume)
    Handler.options, Handler.floor, Handler.lock = options, floor, threading.Lock()
    with open("API.md", "rb") as file:
        Handler.api = file.read()
    server = ThreadingHTTPServer((options.host, options.port), Handler)
    print(f"the floor is at http://{options.host}:{options.port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
