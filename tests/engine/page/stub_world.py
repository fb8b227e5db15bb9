"""A server with the routes that the page uses, which plays a recorded world without an engine.

``python -m tests.engine.page.stub_world PORT [RENDERER_DIR]``. ``GET /posted`` returns the posted
inputs. ``POST /orders/halt`` halts the world, ``/orders/drop`` closes the sockets and refuses new
sockets, ``/orders/resume`` undoes both.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.websockets import WebSocket, WebSocketDisconnect

from clawblox.engine.page import PAGE_DIR

HALTED = "Game halted: End frame error: main:7: oops. See logs for full stack trace: world.log"
Json = dict[str, Any]


def part(
    number: int,
    position: tuple[float, float, float],
    size: tuple[float, float, float],
    color: tuple[float, float, float],
    material: str = "Plastic",
    shape: str = "block",
    **more: Any,
) -> Json:
    render = {
        "kind": "primitive",
        "role": "unspecified",
        "primitive": shape,
        "material": material,
        "color": color,
        "static": True,
        "casts_shadow": True,
        "receives_shadow": True,
        "visible": True,
        "double_sided": False,
    }
    entity = {"id": number, "type": "part", "position": position, "size": size}
    return {**entity, "render": {**render, **more.pop("render", {})}, **more}


def turned(angle: float) -> list[list[float]]:
    cos, sin = math.cos(angle), math.sin(angle)
    return [[cos, 0, sin], [0, 1, 0], [-sin, 0, cos]]


def billboard(text: str) -> Json:
    label = {"text": text, "color": [1, 0.92, 0.6], "size": 20}
    return {"studs_offset": [0, 4, 0], "always_on_top": False, "labels": [label]}


def island(seconds: float) -> list[Json]:
    """Return the parts of an island with a tower, moving platforms and coins."""
    scene = [
        part(1, (0, -1, 0), (72, 2, 72), (0.35, 0.62, 0.3), "Grass"),
        part(2, (0, -3.5, 0), (66, 3, 66), (0.55, 0.45, 0.35), "Slate"),
        part(3, (0, -1.6, 0), (200, 1, 200), (0.25, 0.55, 0.85), "Glass"),
        part(4, (-16, 4, -14), (10, 8, 10), (0.72, 0.4, 0.32), "Brick"),
        part(5, (-16, 9, -14), (12, 2, 12), (0.45, 0.3, 0.2), "Wood"),
        part(6, (14, 3, 12), (8, 6, 12), (0.9, 0.8, 0.4), "Sand", "wedge"),
        part(7, (18, 1.5, -16), (3, 3, 3), (0.8, 0.82, 0.86), "Metal", "ball"),
        part(8, (10, 2, -18), (4, 4, 4), (0.95, 0.95, 0.97), "Marble", "cylinder"),
        part(9, (24, 2, -10), (4, 4, 4), (0.6, 0.8, 1), "Ice"),
        part(10, (0, 8, -26), (2, 16, 2), (0.7, 0.7, 0.7), "Concrete"),
        part(11, (0, 17, -26), (3, 3, 3), (1, 0.55, 0.2), "Neon", "ball"),
    ]
    scene[10]["billboard_gui"] = billboard("Lighthouse")
    for k in range(4):
        angle = k * math.pi / 2 + seconds * 0.5
        at = (22 * math.cos(angle), 4 + 2 * math.sin(seconds + k), 22 * math.sin(angle))
        scene.append(
            part(20 + k, at, (7, 1, 7), (0.35, 0.4, 0.85), rotation=turned(angle), anchored=True)
        )
    for k in range(8):
        at = (-20 + 6 * k, 1.6, 20 - 2 * (k % 3))
        coin = part(30 + k, at, (2, 0.4, 2), (1, 0.82, 0.2), "Neon", "ring")
        tilt = seconds * 2 + k
        coin["rotation"] = [
            [math.cos(tilt), 0, math.sin(tilt)],
            [math.sin(tilt), 0, -math.cos(tilt)],
            [0, 1, 0],
        ]
        scene.append(coin)
    return scene


def gui(clicks: int) -> list[Json]:
    def udim(x: float, px: int, y: float, py: int) -> Json:
        return {"x_scale": x, "x_offset": px, "y_scale": y, "y_offset": py}

    label = {
        "id": 72,
        "type": "TextLabel",
        "name": "Score",
        "position": udim(0, 12, 0, 8),
        "size": udim(1, -24, 0, 24),
        "background_transparency": 1,
        "text": f"Coins: {clicks}",
        "text_color": [1, 1, 1],
        "text_size": 18,
        "text_x_alignment": "Left",
    }
    button = {
        "id": 73,
        "type": "TextButton",
        "name": "Buy",
        "position": udim(0, 12, 0, 38),
        "size": udim(1, -24, 0, 30),
        "background_color": [1, 0.7, 0.2],
        "background_transparency": 0,
        "text": "Buy wings",
        "text_color": [0.2, 0.1, 0],
        "text_size": 15,
    }
    frame = {
        "id": 71,
        "type": "Frame",
        "name": "Panel",
        "position": udim(0.5, 0, 0, 12),
        "size": udim(0, 190, 0, 80),
        "anchor_point": {"x": 0.5, "y": 0},
        "background_color": [0.08, 0.1, 0.16],
        "background_transparency": 0.25,
        "children": [label, button],
    }
    screen = {"id": 70, "type": "ScreenGui", "name": "Hud", "enabled": True, "children": [frame]}
    return [screen]


class Stub:
    def __init__(self, renderer: Path | None) -> None:
        self.renderer = renderer
        self.tick = 0
        self.players: dict[str, str] = {}
        self.posted: list[Json] = []
        self.messages: list[Json] = []
        self.halted = False
        self.dropping = False
        self.sockets: set[WebSocket] = set()

    def state(self) -> Json:
        seconds = self.tick / 60
        names = {"agent-1": "Rocky", "agent-2": "Shelly", **self.players}
        entities, players = island(seconds), []
        for k, (agent, name) in enumerate(names.items()):
            angle = k * 2.1 + (0 if agent in self.players else seconds * 0.8)
            at = (9 * math.cos(angle), 2.55, 9 * math.sin(angle))
            root = part(100 + k, at, (2, 5, 2), (0.9, 0.45, 0.3), shape="cylinder")
            root |= {"rotation": turned(-angle - math.pi), "model_url": "/assets/player.glb"}
            entities.append(root)
            players.append(
                {
                    "id": agent,
                    "name": name,
                    "position": at,
                    "root_part_id": 100 + k,
                    "health": 60 if k == 1 else 100,
                    "humanoid_state": "Running",
                    "attributes": {"Coins": k},
                    "gui": gui(sum(p.get("type") == "GuiClick" for p in self.posted)),
                }
            )
        return {
            "instance_id": "stub",
            "tick": self.tick,
            "server_time_ms": self.tick * 1000 // 60,
            "game_status": "failed" if self.halted else "playing",
            "players": players,
            "entities": entities,
            "sounds": [{"id": 90, "name": "Waves", "sound_id": "asset://waves.ogg", "volume": 0.5}],
            "recent_events": [
                {"id": 1, "tick": 5, "name": "CoinTaken", "reliable": True, "payload": {}}
            ],
        }

    async def run(self) -> None:
        while True:
            self.tick += 0 if self.halted else 2
            await asyncio.sleep(1 / 30)

    async def watch(self, socket: WebSocket) -> None:
        if self.dropping:
            await socket.close()
            return
        await socket.accept()
        self.sockets.add(socket)
        try:
            while True:
                await socket.send_json(self.state())
                await asyncio.sleep(1 / 30)
        except (WebSocketDisconnect, RuntimeError):
            self.sockets.discard(socket)

    async def spectate(self, request: Request) -> Response:
        if self.halted:
            return PlainTextResponse(HALTED, 503)
        return JSONResponse(self.state())

    async def manifest(self, request: Request) -> Response:
        found = self.renderer is not None
        return JSONResponse(
            {
                "schema_version": 1,
                "api_version": 1,
                "name": "Coin Island",
                "mode": "module" if found else "default",
                "entry_url": "/renderer-files/index.js" if found else None,
                "capabilities": [],
            }
        )

    async def join(self, request: Request) -> Response:
        agent = f"agent-{len(self.players) + 3}"
        self.players[agent] = request.query_params["name"]
        return JSONResponse({"session": f"session of {agent}", "agent_id": agent})

    async def leave(self, request: Request) -> Response:
        self.players.pop(self.agent(request), None)
        self.posted.append({"type": "/leave"})
        return JSONResponse({"success": True})

    def agent(self, request: Request) -> str:
        return request.headers["x-session"].removeprefix("session of ")

    async def observe(self, request: Request) -> Response:
        return JSONResponse({"tick": self.tick, "player": {"id": self.agent(request)}})

    async def input(self, request: Request) -> Response:
        assert request.headers["content-type"] == "application/json"
        self.posted.append(await request.json())
        return await self.observe(request)

    async def say(self, request: Request) -> Response:
        content = (await request.json())["content"]
        agent = self.agent(request)
        number = len(self.messages) + 1
        message = {
            "id": f"m{number}",
            "agent_id": agent,
            "agent_name": self.players[agent],
            "content": content,
            "created_at": self.tick / 60,
        }
        self.messages.append(message)
        return JSONResponse({"id": message["id"], "created_at": message["created_at"]})

    async def read(self, request: Request) -> Response:
        after = int(request.query_params.get("after", "m0")[1:])
        return JSONResponse({"messages": self.messages[after:]})

    async def show_posted(self, request: Request) -> Response:
        return JSONResponse(self.posted)

    async def order(self, request: Request) -> Response:
        word = request.path_params["word"]
        self.halted, self.dropping = word == "halt", word == "drop"
        if self.dropping:
            for socket in [*self.sockets]:
                await socket.close()
        return JSONResponse({})

    async def model(self, request: Request) -> Response:
        return FileResponse(PAGE_DIR / "player.glb")

    async def page(self, request: Request) -> Response:
        return FileResponse(PAGE_DIR / "index.html")

    def app(self) -> Starlette:
        @asynccontextmanager
        async def lifespan(app: Starlette) -> AsyncIterator[None]:
            task = asyncio.create_task(self.run())
            yield
            task.cancel()

        routes: list[Any] = [
            Route("/", self.page),
            WebSocketRoute("/spectate/ws", self.watch),
            Route("/spectate", self.spectate),
            Route("/renderer/manifest", self.manifest),
            Route("/join", self.join, methods=["POST"]),
            Route("/leave", self.leave, methods=["POST"]),
            Route("/observe", self.observe),
            Route("/input", self.input, methods=["POST"]),
            Route("/chat", self.say, methods=["POST"]),
            Route("/chat/messages", self.read),
            Route("/assets/player.glb", self.model),
            Route("/posted", self.show_posted),
            Route("/orders/{word}", self.order, methods=["POST"]),
            Mount("/ui", StaticFiles(directory=PAGE_DIR)),
        ]
        if self.renderer is not None:
            routes.append(Mount("/renderer-files", StaticFiles(directory=self.renderer)))
        return Starlette(routes=routes, lifespan=lifespan)


if __name__ == "__main__":
    directory = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    uvicorn.run(Stub(directory).app(), port=int(sys.argv[1]), log_level="warning", ws="wsproto")
