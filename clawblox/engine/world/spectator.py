"""The view of a spectator, and the routes for people: state, map, page and files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute

from clawblox.engine.animations import Animations
from clawblox.engine.characters.character import find_humanoid
from clawblox.engine.errors import to_text
from clawblox.engine.gui import billboard_json, gui_json, numbers_json
from clawblox.engine.instances.attributes import (
    attribute_json,
    attributes_json,
    hundredths_of_vector,
    shortest,
)
from clawblox.engine.instances.instance import ROTATION, Instance
from clawblox.engine.page import PAGE_DIR
from clawblox.engine.parts.reach import find_root
from clawblox.engine.settings import RENDERER_FILES, EngineSettings
from clawblox.engine.world.observation import (
    is_identity,
    is_part,
    leaderstats,
    player_position,
    resolve_asset,
    rotation_rows,
    shown_health,
    view_attributes,
)
from clawblox.luau import Vector
from clawblox.luau.core.operators import shown_type
from clawblox.server import Feed, Halted, Json, StaticDirectory, WorldState
from clawblox.server.payload import encode_json

_TOLERANCE: Final = 0.001  # a rotation this close to the identity is omitted


def spectate_player(player: Instance, agent_id: str, animations: Animations) -> dict[str, Json]:
    """Return a spectator's view of a player."""
    root = find_root(player)
    seen: dict[str, Json] = {
        "id": agent_id,
        "name": to_text(player.name),
        "position": hundredths_of_vector(player_position(player)),
    }
    if root is not None:
        seen["root_part_id"] = root.number
    seen["health"] = shown_health(player)
    humanoid = find_humanoid(player)
    if humanoid is not None and humanoid.extra is not None:
        seen["humanoid_state"] = humanoid.extra.state
    attributes = {**attributes_json(player.attributes), **view_attributes(player)}
    seen["attributes"] = dict(sorted(attributes.items()))
    seen |= leaderstats(player)
    player_gui = player.read("PlayerGui")
    gui = [] if player_gui is None else gui_json(player_gui)
    if gui:
        seen["gui"] = gui
    tracks = [] if humanoid is None else animations.spectate(humanoid)
    if tracks:
        seen["active_animations"] = tracks
    return seen


def spectate_entities(workspace: Instance) -> list[dict[str, Json]]:
    """Return all parts, in tree order."""
    return [_part(part) for part in workspace.descendants() if is_part(part)]


def _part(part: Instance) -> dict[str, Json]:
    entity: dict[str, Json] = {
        "id": part.number,
        "type": "part",
        "position": hundredths_of_vector(part.read("Position")),
    }
    rotation = part.props.get(ROTATION)
    if rotation is not None and not is_identity(rotation, _TOLERANCE):
        entity["rotation"] = rotation_rows(rotation)
    entity["size"] = hundredths_of_vector(part.read("Size"))
    entity["render"] = _render(part)
    url = _text(part, "ModelUrl") or _text(part, "model_url")
    if url is not None and url.strip():
        entity["model_url"] = resolve_asset(url.strip())
    yaws = map(part.attributes.get, ("ModelYawOffsetDeg", "model_yaw_offset_deg"))
    yaw = next((candidate for candidate in yaws if candidate.__class__ is float), None)
    if yaw is not None:
        entity["model_yaw_offset_deg"] = attribute_json(yaw)
    billboard = billboard_json(part)
    if billboard is not None:
        entity["billboard_gui"] = billboard
    return entity


def _render(part: Instance) -> dict[str, Json]:
    preset = _text(part, "RenderPresetId")
    shape = part.read("Shape")
    transparency = part.read("Transparency")
    seen: dict[str, Json] = {
        "kind": "primitive" if preset is None else "preset",
        "role": _text(part, "RenderRole") or "unspecified",
    }
    if preset is not None:
        seen["preset_id"] = preset
    seen |= {
        "primitive": _text(part, "RenderPrimitive") or _shape_name(shape),
        "material": _text(part, "RenderMaterial") or part.read("Material")["Name"],
        "color": _color(part),
        "static": _flag(part, "RenderStatic", "Static" in part.tags or part.read("Anchored")),
        "casts_shadow": _flag(part, "RenderCastsShadow", True),
        "receives_shadow": _flag(part, "RenderReceivesShadow", True),
        "visible": _flag(part, "RenderVisible", transparency < 1.0),
        "double_sided": False,
    }
    if transparency:
        seen["transparency"] = shortest(transparency)
    return seen


def _shape_name(shape: Any) -> str:
    return "block" if shape is None else str(shape["Name"]).lower()


def _text(part: Instance, name: str) -> str | None:
    value = part.attributes.get(name)
    return to_text(value) if value.__class__ is str else None


def _flag(part: Instance, name: str, otherwise: bool) -> bool:
    value = part.attributes.get(name)
    return bool(value) if value.__class__ is bool else otherwise


def _color(part: Instance) -> list[float]:
    value = part.attributes.get("RenderColor")
    if isinstance(value, Vector):
        return [shortest(value.x), shortest(value.y), shortest(value.z)]
    shown = value if value is not None and shown_type(value) == "Color3" else part.read("Color")
    return numbers_json(shown)


_FIGURE: Final = "player.glb"
"""Model of characters, `asset://player.glb`: the world's own file, or that of the page."""
_FILES: Final = {"/assets": "assets", "/renderer-files": RENDERER_FILES, "/static": "static"}
"""The directories of a world that are served, by route."""


def make_routes(
    settings: EngineSettings,
    world: WorldState,
    spectate: Callable[[], dict[str, Json]],
    read_map: Callable[[], dict[str, Json]],
) -> list[BaseRoute]:
    """Return the routes.

    Args:
        settings: The world's settings.
        world: The server's view of the world.
        spectate: Returns the current view of a spectator.
        read_map: Returns the current map.
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

    def showing(shown: Feed) -> Callable[[Request], Awaitable[Response]]:
        async def show(request: Request) -> Response:
            if world.failure is not None:
                raise Halted(world.failure)
            return Response(shown.encoded(), media_type="application/json")

        return show

    async def show_page(request: Request) -> Response:
        return await page.get_response("index.html", request.scope)

    async def show_figure(request: Request) -> Response:
        try:
            return await assets.get_response(_FIGURE, request.scope)
        except HTTPException:
            return await page.get_response(_FIGURE, request.scope)

    return [
        Route("/renderer/manifest", show_manifest),
        Route("/map", showing(world_map)),
        Route("/spectate", showing(feed)),
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
    """Return the data that a page needs to show the world."""
    renderer = settings.renderer
    entry = None if renderer.entry is None else f"/renderer-files/{renderer.entry}"
    return {
        "schema_version": 1,
        "api_version": renderer.api_version,
        "name": renderer.name,
        "mode": renderer.mode,
        "entry_url": entry,
        "capabilities": list(renderer.capabilities),
    }
