"""A world of the kit with routes of its own, served by a thread of its own."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from clawblox.server import (
    Feed,
    Halted,
    StaticDirectory,
    StopSignals,
    WorldState,
    read_settings,
    serve_with,
)
from tests.server.tally import Tally

FRAMED = {
    "Content-Security-Policy": "sandbox allow-scripts",
    "Cross-Origin-Resource-Policy": "cross-origin",
}
"""Headers of files for sandboxed frames."""


class Gallery(Tally):
    """Adds routes, ends sessions, halts in its own words and limits who hears whom."""

    format = "gallery-v1"
    max_agents = 8
    has_observation_header = False

    def __init__(self, files: Path) -> None:
        super().__init__()
        self.files = files
        self.kicked: list[str] = []
        self.reads = 0
        self.fails_to_show = False
        self.is_whispering = False
        self.heard: list[tuple[str, str]] = []

    def act(self, agent_id, action, data):
        if action == "Kick":
            self.kicked.append(data or agent_id)
        elif action == "Halt":
            raise Halted("Begin frame error: main.lua:3: boom")
        else:
            super().act(agent_id, action, data)

    def step(self):
        super().step()
        for agent_id in self.kicked:
            self.sums.pop(agent_id, None)

    def removed(self) -> Sequence[str]:
        kicked, self.kicked = self.kicked, []
        return kicked

    def audience(self, agent_id: str) -> Sequence[str] | None:
        return (
            [other for other, total in self.sums.items() if total] if self.is_whispering else None
        )

    def chatted(self, agent_id: str, content: str) -> None:
        if content == "Halt":
            raise Halted("Chatted: main.lua:3: boom")
        self.heard.append((agent_id, content))

    def routes(self, world: WorldState) -> Sequence[BaseRoute]:
        async def show(request: Request) -> Response:
            return PlainTextResponse(f"{world.tick} {world.failure}")

        return [
            Route("/show", show),
            Mount("/files", StaticDirectory(self.files)),
            Mount("/frames", StaticDirectory(self.files, FRAMED)),
            WebSocketRoute("/watch", Feed(world, self.read).serve),
            WebSocketRoute("/talk", listen),
        ]

    def read(self) -> dict[str, int]:
        if self.fails_to_show:
            raise KeyError("nothing to show")
        self.reads += 1
        return {"ticks": self.ticks}


async def listen(websocket: WebSocket) -> None:
    """Answer each message with the number of its characters."""
    await websocket.accept()
    with suppress(WebSocketDisconnect):
        while True:
            await websocket.send_json(len(await websocket.receive_text()))


def main() -> None:
    settings = read_settings(None, os.environ)
    with StopSignals() as signals:
        world = Gallery(Path(os.environ.get("GALLERY_FILES", ".")))
        thread = threading.Thread(target=serve_with, args=(settings, world, signals))
        thread.start()
        thread.join()


if __name__ == "__main__":
    main()
