"""The routes of an engine world: its map, and for people what a spectator sees, the page, files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute

from clawblox.engine.page import PAGE_DIR
from clawblox.engine.settings import RENDERER_FILES, EngineSettings
from clawblox.server import Feed, Halted, Json, StaticDirectory, WorldState
from clawblox.server.payload import encode_json

_FIGURE: Final = "player.glb"
"""What characters look like, `asset://player.glb`: the world's own file, or the page's."""
_MANIFEST_VERSION: Final = 1
_FILES: Final = {"/assets": "assets", "/renderer-files": RENDERER_FILES, "/static": "static"}
"""The directories of a world whose files are served, by route."""


def make_routes(
    settings: EngineSettings,
    world: WorldState,
    spectate: Callable[[], dict[str, Json]],
    read_map: Callable[[], dict[str, Json]],
) -> list[BaseRoute]:
    """Return the routes.

    Args:
        settings: The world's settings.
        world: What the kit knows of the world.
        spectate: Returns what a spectator sees now.
        read_map: Returns the map as it is now.
    """
    page = StaticDirectory(PAGE_DIR)
    assets = StaticDirectory(settings.directory / _FILES["/assets"])
    manifest = encode_json(renderer_manifest(settings))

    def state() -> dict[str, Json]:
        failed = {} if world.failure is None else {"game_status": "failed"}
        return {**spectate(), **failed}

    feed, world_map = Feed(world, state), Feed(world, read_map)

    async def show_manifest(request: Request) -> Response:
        return Response(manifest, media_type="application/json")

    def answer(state: Feed) -> Response:
        if world.failure is not None:
            raise Halted(world.failure)
        return Response(state.encoded(), media_type="application/json")

    async def show_state(request: Request) -> Response:
        return answer(feed)

    async def show_map(request: Request) -> Response:
        return answer(world_map)

    async def show_page(request: Request) -> Response:
        return await page.get_response("index.html", request.scope)

    async def show_figure(request: Request) -> Response:
        try:
            return await assets.get_response(_FIGURE, request.scope)
        except HTTPException:
            return await page.get_response(_FIGURE, request.scope)

    return [
        Route("/renderer/manifest", show_manifest),
        Route("/map", show_map),
        Route("/spectate", show_state),
        WebSocketRoute("/spectate/ws", feed.serve),
        Route("/", show_page),
        Route("/ui", show_page),
        Mount("/ui", page),
        Route(f"/assets/{_FIGURE}", show_figure),
        *(
            Mount(route, StaticDirectory(settings.directory / name))
            for route, name in _FILES.items()
        ),
    ]


def renderer_manifest(settings: EngineSettings) -> dict[str, Json]:
    """Return what a page must know to show the world."""
    renderer = settings.renderer
    entry = None if renderer.entry is None else f"/renderer-files/{renderer.entry}"
    return {
        "schema_version": _MANIFEST_VERSION,
        "api_version": renderer.api_version,
        "name": renderer.name,
        "mode": renderer.mode,
        "entry_url": entry,
        "capabilities": list(renderer.capabilities),
    }
