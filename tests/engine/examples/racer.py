"""An agent that runs the platform race, following its document, from observations only."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

Json = Any
Action = tuple[str, Json]

BODY = 2.55
"""Height of the centre of a standing body above the ground, in studs."""
SAFE_GAP = 6.0
"""Gap in studs that ``Leap`` from the edge crosses safely, according to the document."""


def choose(seen: Mapping[str, Json]) -> Action | None:
    """Return the next action of a racer; None to continue as before."""
    x, y, z = seen["player"]["position"]
    ground = [each for each in seen["world"]["entities"] if is_ground(each)]
    under = next((each for each in ground if stands_on(each, x, y, z)), None)
    if under is None:
        return None
    ahead = [each for each in ground if left(each) > left(under)]
    if not ahead:
        return None
    goal = min(ahead, key=left)
    gap, edge = left(goal) - right(under), right(under) - x
    middle = goal["position"]
    bar = next((each for each in seen["world"]["entities"] if is_ahead(each, x)), None)
    if bar is not None and edge > 6.0:
        return pass_bar(bar, x)
    if gap < 0.5:
        return "MoveTo", {"position": middle}
    take_off = nearest(under, middle[2])
    if edge > 1.0:
        return "MoveTo", {"position": [right(under) - 0.5, 0, take_off]}
    if math.hypot(gap, nearest(goal, z) - z) <= SAFE_GAP:
        return "Leap", {"position": middle}
    return "Stop", None


def is_ground(entity: Json) -> bool:
    attributes = entity.get("attributes", {})
    return entity["name"].startswith("Platform") or "Checkpoint" in attributes


def stands_on(ground: Json, x: float, y: float, z: float) -> bool:
    at, size = ground["position"], ground["size"]
    height = y - BODY - (at[1] + size[1] / 2)
    return (
        abs(x - at[0]) <= size[0] / 2 + 0.5
        and abs(z - at[2]) <= size[2] / 2 + 0.5
        and abs(height) < 0.4
    )


def left(ground: Json) -> float:
    return ground["position"][0] - ground["size"][0] / 2


def right(ground: Json) -> float:
    return ground["position"][0] + ground["size"][0] / 2


def nearest(ground: Json, z: float) -> float:
    """Return the Z nearest to another, at least a stud from the edges of a platform."""
    reach = ground["size"][2] / 2 - 1.0
    middle: float = ground["position"][2]
    return max(middle - reach, min(middle + reach, z))


def is_ahead(entity: Json, x: float) -> bool:
    return bool(entity.get("attributes", {}).get("Hazard")) and -1 < entity["position"][0] - x < 12


def pass_bar(bar: Json, x: float) -> Action:
    """Run past a bar at the edge of its circle when it points along the path; else jump."""
    middle = bar["position"][0]
    behind = {"position": [middle + 8, 0, 2.5]}
    if middle - x > 7:
        return "MoveTo", {"position": [middle - 6.5, 0, 2.5]}
    if middle - x > 5.5:
        turned = abs(bar.get("rotation", [[1]])[0][0])
        return ("Leap", behind) if turned > 0.7 else ("Stop", None)
    return "MoveTo", behind
