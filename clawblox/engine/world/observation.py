"""The observation of an agent.

Observations are computed from the state on request. An agent sees the parts within its radius,
measured from the centre of its root part to the nearest point of a part's box, and the players
within the radius and in its line of sight.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from clawblox.engine.characters.character import find_humanoid
from clawblox.engine.characters.tools import observe_tools
from clawblox.engine.errors import to_text
from clawblox.engine.gui import numbers_json
from clawblox.engine.instances.attributes import (
    PLAIN,
    attribute_json,
    attributes_json,
    hundredths,
    hundredths_of_vector,
    shortest,
)
from clawblox.engine.instances.instance import ROTATION, Instance
from clawblox.engine.parts.parts import EYE_HEIGHT
from clawblox.engine.parts.reach import find_root
from clawblox.engine.services.prompts import describe_uses
from clawblox.engine.values.rotations import IDENTITY
from clawblox.luau import Vector
from clawblox.luau.core.operators import shown_type

_FIELD_OF_VIEW_DEG: Final = 105.0
_NO_CHARACTER: Final = Vector(0.0, 3.0, 0.0)
_FULL_HEALTH: Final = 100
_MOST_HEALTH: Final = 1 << 53
"""Maximum health shown, also for infinite health."""
_HIDDEN_TAG: Final = "Static"
_ASSET: Final = "asset://"

Json = Any
Sight = Callable[[Instance, Instance], bool]
"""Returns whether one root part is in the line of sight of another."""


def player_position(player: Instance) -> Vector:
    """Return the position of a player's root part."""
    root = find_root(player)
    position: Vector = _NO_CHARACTER if root is None else root.read("Position")
    return position


def shown_health(player: Instance) -> int:
    """Return the health of a player, truncated to an integer."""
    humanoid = find_humanoid(player)
    return _FULL_HEALTH if humanoid is None else int(min(humanoid.read("Health"), _MOST_HEALTH))


def view_radius(player: Instance, radius: float) -> float:
    """Return a player's view radius: the world's, reduced by the attribute if that is set."""
    wanted = player.attributes.get("ObservationRadius")
    if wanted.__class__ is not float or wanted != wanted:
        return radius
    return min(max(wanted, 0.0), radius)


def view_attributes(player: Instance) -> dict[str, Json]:
    """Return the origin and direction of a player's view."""
    root = find_root(player)
    position = _NO_CHARACTER if root is None else root.read("Position")
    rotation = IDENTITY if root is None else root.props.get(ROTATION, IDENTITY)
    x, z = -rotation[2], -rotation[8]
    length = math.hypot(x, z)
    x, z = (x / length, z / length) if length > 1e-6 else (0.0, -1.0)
    return {
        "ViewOriginX": hundredths(position.x),
        "ViewOriginY": hundredths(position.y + EYE_HEIGHT),
        "ViewOriginZ": hundredths(position.z),
        "ViewForwardX": hundredths(x),
        "ViewForwardY": 0.0,
        "ViewForwardZ": hundredths(z),
        "ViewFovDeg": _FIELD_OF_VIEW_DEG,
    }


def leaderstats(player: Instance) -> dict[str, Json]:
    """Return the key with a player's scores; empty if the player has no ``leaderstats``.

    The scores are the value objects below ``leaderstats``, in order.
    """
    board = player.find_child("leaderstats")
    if board is None:
        return {}
    scores: dict[str, Json] = {}
    for child in board.children:
        value = child.read("Value") if child.is_a("ValueBase") else None
        if shown_type(value) in PLAIN:
            scores.setdefault(to_text(child.name), attribute_json(value))
    return {"leaderstats": scores}


def observe_player(player: Instance, agent_id: str) -> dict[str, Json]:
    """Return an agent's view of its own player."""
    attributes = {**attributes_json(player.attributes), **view_attributes(player)}
    return {
        "id": agent_id,
        "position": hundredths_of_vector(player_position(player)),
        "health": shown_health(player),
        "attributes": dict(sorted(attributes.items())),
        **leaderstats(player),
        **observe_tools(player),
    }


def observe_others(
    player: Instance, others: Iterable[tuple[str, Instance]], radius: float, sees: Sight
) -> list[dict[str, Json]]:
    """Return a player's view of other players.

    Args:
        player: The player.
        others: Ids and players, in the order of joining.
        radius: Distance that the player can see, in studs.
        sees: Returns whether a root part is in the line of sight of another.
    """
    root = find_root(player)
    if root is None:
        return []
    eye = root.read("Position")
    seen = []
    for agent_id, other in others:
        target = None if other is player else find_root(other)
        if target is None:
            continue
        at = target.read("Position")
        distance = math.dist((eye.x, eye.y, eye.z), (at.x, at.y, at.z))
        if distance <= radius and sees(root, target):
            seen.append(
                {
                    "id": agent_id,
                    "name": to_text(other.name),
                    "position": hundredths_of_vector(at),
                    "distance": hundredths(distance),
                    "health": shown_health(other),
                    "attributes": attributes_json(other.attributes),
                    **leaderstats(other),
                }
            )
    return seen


def observe_map(workspace: Instance) -> list[dict[str, Json]]:
    """Return the parts that `observe_entities` omits, in tree order."""
    return [
        _part(part)
        for part in workspace.descendants()
        if is_part(part) and _HIDDEN_TAG in part.tags
    ]


def is_part(instance: Instance) -> bool:
    """Return whether an instance is shown as a part, unlike the ground."""
    return "BasePart" in instance.spec.lineage and instance.spec.name != "Terrain"


def observe_entities(workspace: Instance, eye: Vector, radius: float) -> Iterator[dict[str, Json]]:
    """Return the parts and folders visible from a position, in tree order."""
    reach = radius * radius
    for instance in workspace.descendants():
        if instance.spec.name == "Folder":
            if instance.attributes:
                yield _folder(instance)
        elif (
            is_part(instance)
            and _HIDDEN_TAG not in instance.tags
            and _squared_distance(instance, eye) <= reach
        ):
            yield _part(instance)


def _squared_distance(part: Instance, eye: Vector) -> float:
    """Return the squared distance from a point to the box of a part; 0 inside the box."""
    centre, size = part.read("Position"), part.read("Size")
    x, y, z = eye.x - centre.x, eye.y - centre.y, eye.z - centre.z
    turned = part.props.get(ROTATION)
    if turned is not None:
        a, b, c, d, e, f, g, h, i = turned
        x, y, z = a * x + d * y + g * z, b * x + e * y + h * z, c * x + f * y + i * z
    x = max(abs(x) - size.x / 2, 0.0)
    y = max(abs(y) - size.y / 2, 0.0)
    z = max(abs(z) - size.z / 2, 0.0)
    return float(x * x + y * y + z * z)


def _folder(folder: Instance) -> dict[str, Json]:
    return {
        "id": folder.number,
        "name": to_text(folder.name),
        "entity_type": "folder",
        "position": [0.0, 0.0, 0.0],
        "size": [0.0, 0.0, 0.0],
        "anchored": True,
        "attributes": _attributes(folder),
    }


def _part(part: Instance) -> dict[str, Json]:
    entity = {
        "id": part.number,
        "name": to_text(part.name),
        "entity_type": "part",
        "position": hundredths_of_vector(part.read("Position")),
        "size": hundredths_of_vector(part.read("Size")),
    }
    rotation = part.props.get(ROTATION)
    if rotation is not None and rotation != IDENTITY:
        entity["rotation"] = rotation_rows(rotation)
    entity["color"] = numbers_json(part.read("Color"))
    entity["material"] = part.read("Material")["Name"]
    shape = part.read("Shape")
    if shape is not None:
        entity["shape"] = shape["Name"]
    transparency = part.read("Transparency")
    if transparency:
        entity["transparency"] = shortest(transparency)
    entity["anchored"] = part.read("Anchored")
    if part.attributes:
        entity["attributes"] = _attributes(part)
    entity.update(describe_uses(part))
    return entity


def _attributes(instance: Instance) -> dict[str, Json]:
    shown = attributes_json(instance.attributes)
    url = shown.get("ModelUrl")
    if isinstance(url, str):
        shown["ModelUrl"] = resolve_asset(url)
    return shown


def resolve_asset(url: str) -> str:
    """Return the server's path for an ``asset://`` address, and other addresses unchanged."""
    return f"/assets/{url.removeprefix(_ASSET)}" if url.startswith(_ASSET) else url


def rotation_rows(rotation: tuple[float, ...]) -> list[list[float]]:
    """Return a rotation as three rows."""
    numbers = [shortest(value) for value in rotation]
    return [numbers[0:3], numbers[3:6], numbers[6:9]]


def is_identity(rotation: tuple[float, ...], tolerance: float) -> bool:
    """Return whether a rotation is the identity, within a tolerance in each number."""
    return all(abs(a - b) < tolerance for a, b in zip(rotation, IDENTITY, strict=True))
