"""An agent that gathers, crafts and builds in the workshop, following its document."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

Json = Any
Action = tuple[str, Json]

NEAR = 8.0
"""Safe distance in studs; sources and the bench are within reach at 12 studs."""
NEEDED = {"Wood": 3, "Stone": 3, "Sand": 3}
CRAFTS = ("Lamp", "Window", "Plank", "Brick")
PLACES = {"Lamp": [2, 2, 2], "Window": [6, 2, 2], "Plank": [2, 6, 2], "Brick": [6, 6, 2]}
"""Position of each block on the plot, with upper blocks on lower blocks."""
STAND = [4, 0, -6]
"""A position from which all these places are within reach."""
POINTS = 5 + 3 + 1 + 2


class Builder:
    """Gathers material, crafts blocks of each kind and places one of each."""

    def __init__(self) -> None:
        self.to_gather = [kind for kind, count in NEEDED.items() for _ in range(count)]
        self.to_craft = list(CRAFTS)
        self.to_place = list(PLACES)
        self._asked: str | None = None

    def choose(self, seen: Mapping[str, Json]) -> Action | None:
        """Return the next action, or None when everything is built."""
        self._take_note(seen["player"]["attributes"]["Message"])
        at, entities = seen["player"]["position"], seen["world"]["entities"]
        if self.to_gather:
            source = nearest_source(entities, at, self.to_gather[0])
            return walk(at, source, NEAR) or self._ask("Gather", None)
        if self.to_craft:
            bench = next(each["position"] for each in entities if each["name"] == "Bench")
            return walk(at, bench, NEAR) or self._ask("Craft", {"item": self.to_craft[0]})
        if self.to_place:
            block = self.to_place[0]
            place = {"position": PLACES[block], "block": block}
            return walk(at, STAND, 1.5) or self._ask("Place", place)
        return None

    def _ask(self, action: str, data: Json) -> Action:
        self._asked = action
        return action, data

    def _take_note(self, message: str) -> None:
        """Remove the step that the last action has completed, according to its message."""
        asked, self._asked = self._asked, None
        if asked == "Gather" and message == f"1 {self.to_gather[0]}":
            del self.to_gather[0]
        elif asked == "Craft" and message.endswith(f" {self.to_craft[0]}"):
            del self.to_craft[0]
        elif asked == "Place" and message == f"placed {self.to_place[0]}":
            del self.to_place[0]


def walk(at: Json, place: Json, reach: float) -> Action | None:
    """Return a walk to a place, unless it is within reach."""
    if math.dist((at[0], at[2]), (place[0], place[2])) <= reach:
        return None
    return "MoveTo", {"position": place}


def nearest_source(entities: Json, at: Json, kind: str) -> Json:
    found = [
        each["position"]
        for each in entities
        if each.get("attributes", {}).get("Gives") == kind and each["attributes"]["Stock"] > 0
    ]
    return min(found, key=lambda place: math.dist((at[0], at[2]), (place[0], place[2])))
