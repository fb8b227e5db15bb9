"""``Model:MoveTo``: models that come to a place where nothing is in their way."""

from __future__ import annotations

import math
from typing import Any, Final

from clawblox.engine.instances.instance import Instance
from clawblox.engine.instances.kinds import refuse_value
from clawblox.engine.instances.spec import ClassTable
from clawblox.engine.parts.boxes import Box
from clawblox.engine.parts.pivots import bounding_box, move_parts, part_box, parts_below
from clawblox.engine.parts.poses import read_cframe, triple
from clawblox.engine.parts.syncing import Marks
from clawblox.engine.physics import BLOCK, Shape
from clawblox.engine.values.cframe import CFrame
from clawblox.luau import Vector, make_vector

_SEARCH_STEPS: Final = 100
_PART_STEPS: Final = 10  # of a part that may be in the way
_SLACK: Final = 0.01
"""How deep a model may be in something that is not in its way, in studs."""
_SMALLEST: Final = 0.001
_UP: Final = (0.0, 1.0, 0.0)


class Placing:
    """Moves models to free places."""

    def __init__(self, marks: Marks) -> None:
        self._marks = marks

    def add_to(self, classes: ClassTable) -> None:
        """Give models their method."""
        classes.add("Model", methods={"MoveTo": self.move_to})

    def move_to(self, model: Instance, position: Any) -> Any:
        """``MoveTo(position)``: up from there, until no solid part and no ground is in the way.

        The primary part, or else the first part, comes there; the model is not turned.
        """
        if position.__class__ is not Vector or not all(map(math.isfinite, triple(position))):
            raise refuse_value("position", "finite Vector3", position)
        parts = parts_below(model)
        if not parts:
            return ()
        start = read_cframe(model.read("PrimaryPart") or parts[0])
        goal = CFrame(position, start.rotation)
        if model.in_workspace:
            box = bounding_box(model, parts)
            way = zip(box.centre, triple(position), triple(start.position), strict=True)
            x, y, z = (centre + to - at for centre, to, at in way)
            lift = self._lift(model, parts, Box((x, y, z), box.size, box.rotation))
            above = make_vector(position.x, position.y + lift, position.z)
            goal = CFrame(above, start.rotation)
        move_parts(model, start, goal)
        return ()

    def _lift(self, model: Instance, parts: list[Instance], box: Box) -> float:
        """Return how far a box must go up until nothing is in its way."""
        charge = model.model.scheduler.charge
        own = {part.number for part in parts}
        self._marks.bring()
        self._marks.space.refresh()
        size = (max(side - 2 * _SLACK, _SMALLEST) for side in box.size)
        shape = Shape(BLOCK, *size)
        bottom = box.centre[1] - box.extent(_UP)
        lift = 0.0
        while True:
            x, y, z = box.centre
            found = self._marks.space.queries.overlapping(shape, (x, y + lift, z), box.rotation)
            charge(_SEARCH_STEPS + len(found) * _PART_STEPS)
            tops = [self._top(number) for number in found if self._is_in_way(number, own)]
            higher = max(tops, default=-math.inf) - bottom
            if higher <= lift:
                return lift
            lift = higher

    def _is_in_way(self, number: int, own: set[int]) -> bool:
        return number not in own and self._marks.space.bodies[number].traits.solid

    def _top(self, number: int) -> float:
        """Return the height up to which a part or a piece of the ground reaches."""
        space = self._marks.space
        if number < 0:
            return space.position(number)[1] + space.bodies[number].traits.shape.y / 2.0
        box = part_box(self._marks.find(number))
        return box.centre[1] + box.extent(_UP)
