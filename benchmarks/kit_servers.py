"""The compared servers: the kit of `clawblox.server`, Starlette on uvicorn, bare asyncio.

    python -m benchmarks.kit_servers {kit,starlette,asyncio} --port PORT [FLAG ...]

The kit serves a small world like the marbles example, and takes its own flags. The floors always
answer with the same bytes: the first observation of that world.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
from collections.abc import Sequence
from typing import Any, Final

from benchmarks.worlds import HOST
from clawblox.server import Clock, Json, Simulation, serve

__all__ = ["PROGRAMS", "Table"]

_MOST_AGENTS: Final = 256
_MARBLES: Final = 7
_SIZE: Final = (24.0, 14.0)
_THRUST: Final = 0.01
_LENGTH: Final = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


class Table(Simulation):
    """Marbles that roll and bounce off the walls of a table; agents steer the first marbles.

    Ticks and observations are cheap, and an observation has the size of one in the example
    `marbles`, regardless of the number of agents.
    """

    format = "bench-table-v1"
    api_doc = None
    clock = Clock.LOCKSTEP
    max_agents = _MOST_AGENTS

    def __init__(self) -> None:
        self._ticks = 0
        self._names: dict[str, str] = {}
        self._marbles = [[3.1 * number, 1.7 * number, 0.05, 0.03] for number in range(_MARBLES)]

    @property
    def time(self) -> float:
        return self._ticks / self.tick_rate

    def content_hash(self) -> str:
        return "bench table, rules 1"

    def begin(self) -> None:
        for _ in range(1000):  # until the numbers have all their digits
            self.step()

    def join(self, agent_id: str, name: str) -> None:
        self._names[agent_id] = name

    def leave(self, agent_id: str) -> None:
        del self._names[agent_id]

    def act(self, agent_id: str, action: str, data: Json) -> None:
        x, y = data["direction"]
        self._marbles[0][2] = _THRUST * x
        self._marbles[0][3] = _THRUST * y

    def step(self) -> None:
        for marble in self._marbles:
            for axis in (0, 1):
                marble[axis] += marble[axis + 2]
                if not 0.0 <= marble[axis] <= _SIZE[axis]:
                    marble[axis + 2] = -marble[axis + 2]
        self._ticks += 1

    def observe(self, agent_id: str) -> dict[str, Json]:
        return {
            "player": {"id": agent_id, "name": self._names[agent_id], "score": 0},
            "world": {
                "size": list(_SIZE),
                "entities": [
                    {
                        "id": f"marble-{number}",
                        "entity_type": "marble",
                        "position": marble[:2],
                        "velocity": marble[2:],
                        "radius": 0.5,
                        "last_touched_by": None,
                    }
                    for number, marble in enumerate(self._marbles, 1)
                ],
            },
        }

    def snapshot(self) -> Json:
        marbles = [list(marble) for marble in self._marbles]
        return {"ticks": self._ticks, "names": dict(self._names), "marbles": marbles}

    def restore(self, state: Json) -> None:
        self._ticks, self._names = state["ticks"], state["names"]
        self._marbles = state["marbles"]


def _constant_answers() -> dict[str, bytes]:
    """Return the answers of the floors, by path."""
    table = Table()
    table.begin()
    table.join("0" * 36, "agent")
    seen = {"tick": 0, "time": table.time, "game_status": "active", **table.observe("0" * 36)}
    observation = json.dumps(seen, separators=(",", ":")).encode()
    session = json.dumps({"session": "0" * 36, "agent_id": "0" * 36}).encode()
    return {"/join": session, "/observe": observation, "/input": observation}


def _serve_kit(port: int, flags: Sequence[str]) -> None:
    serve(Table(), ["--port", str(port), *flags])


def _serve_starlette(port: int, flags: Sequence[str]) -> None:
    """Serve only with the parser and the event loop that the kit uses."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    def make_route(path: str, answer: bytes) -> Route:
        async def handle(request: Request) -> Response:
            await request.body()
            return Response(answer, media_type="application/json")

        return Route(path, handle, methods=["GET" if path == "/observe" else "POST"])

    app = Starlette(routes=[make_route(*item) for item in _constant_answers().items()])
    uvicorn.run(
        app,
        host=HOST,
        port=port,
        loop="asyncio",
        http="h11",
        lifespan="off",
        log_level="error",
        access_log=False,
        server_header=False,
        date_header=False,
    )


class _Protocol(asyncio.Protocol):
    """A connection of the floor, which reads path and length without checks."""

    def __init__(self, answers: dict[bytes, bytes]) -> None:
        self._answers = answers
        self._received = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            head = self._received[:end]
            length = _LENGTH.search(head)
            size = end + 4 + (int(length[1]) if length else 0)
            if len(self._received) < size:
                return
            self._received = self._received[size:]
            path = head.split(b" ", 2)[1].partition(b"?")[0]
            self._transport.write(self._answers[path])


def _serve_asyncio(port: int, flags: Sequence[str]) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\ncontent-type: application/json\r\n\r\n"
    answers = {path.encode(): head % len(body) + body for path, body in _constant_answers().items()}

    async def run() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Protocol(answers), HOST, port, backlog=256)
        await server.serve_forever()

    asyncio.run(run())


_SERVERS: Final = {"kit": _serve_kit, "starlette": _serve_starlette, "asyncio": _serve_asyncio}
_PROGRAM: Final = [sys.executable, "-m", "benchmarks.kit_servers"]
PROGRAMS: Final = {
    "kit": [*_PROGRAM, "kit"],
    "kit, real time": [*_PROGRAM, "kit", "--clock", "realtime"],
    "starlette": [*_PROGRAM, "starlette"],
    "asyncio": [*_PROGRAM, "asyncio"],
}
"""The commands of the servers, by title; they take `--port`."""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=_SERVERS)
    parser.add_argument("--port", type=int, required=True)
    known, others = parser.parse_known_args()
    _SERVERS[known.kind](known.port, others)
