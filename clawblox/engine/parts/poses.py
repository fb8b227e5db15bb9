"""The position, rotation and bounding box of a part.

The first two are the properties ``Position`` and, unless it is the identity, `ROTATION`. A
``CFrame`` is created only when a script reads it.
"""

from __future__ import annotations

import math

from clawblox.engine.instances.instance import ROTATION, Instance
from clawblox.engine.values.cframe import CFrame
from clawblox.engine.values.rotations import IDENTITY, Rotation, Triple, apply_inverse, cross, dot
from clawblox.luau import RuntimeFault, Vector


def rotation(part: Instance) -> Rotation | None:
    """Return the rotation of a part; None for the identity."""
    found: Rotation | None = part.props.get(ROTATION)
    return found


def write_pose(part: Instance, position: Vector, turn: Rotation | None) -> None:
    """Set the position and rotation of a part, without effects or events."""
    part.props["Position"] = position
    if turn is None or turn == IDENTITY:
        part.props.pop(ROTATION, None)
    else:
        part.props[ROTATION] = turn


def read_cframe(part: Instance) -> CFrame:
    """Return the pose of a part."""
    return CFrame(part.read("Position"), part.props.get(ROTATION, IDENTITY))


def refuse_infinite(frame: CFrame) -> None:
    """Refuse a pose that is not finite.

    Raises:
        RuntimeFault: A number is NaN or infinite.
    """
    if not all(map(math.isfinite, frame.parts())):
        raise RuntimeFault("property 'CFrame' must be finite")


def write_cframe(part: Instance, frame: CFrame) -> None:
    """Set the pose of a part like an assignment by a script.

    Raises:
        RuntimeFault: A number is not finite.
        WorldHalted: The error of a handler halts the world.
    """
    refuse_infinite(frame)
    has_moved = part.read("Position") != frame.position
    has_changed = has_moved or (rotation(part) or IDENTITY) != frame.rotation
    write_pose(part, frame.position, frame.rotation)
    part.model.effects["pose"](part, "CFrame")
    if has_changed and part.signals:
        part.tell_changed("CFrame")
        if has_moved:
            part.tell_changed("Position")


_LEAST = 1e-4
"""Maximum overlap of adjacent boxes, in studs."""


class Box:
    """A box: its centre, size, half size and axes."""

    __slots__ = ("axes", "centre", "half", "reach", "rotation", "size")

    def __init__(self, centre: Triple, size: Triple, rotation: Rotation) -> None:
        self.centre = centre
        self.size = size
        self.half = (abs(size[0]) / 2.0, abs(size[1]) / 2.0, abs(size[2]) / 2.0)
        self.rotation = rotation
        self.axes: tuple[Triple, Triple, Triple] = (
            (rotation[0], rotation[3], rotation[6]),
            (rotation[1], rotation[4], rotation[7]),
            (rotation[2], rotation[5], rotation[8]),
        )
        self.reach = math.hypot(*self.half)

    def extent(self, axis: Triple) -> float:
        """Return the box's extent from its centre along a direction."""
        return sum(
            half * abs(dot(own, axis)) for half, own in zip(self.half, self.axes, strict=True)
        )


def boxes_overlap(first: Box, second: Box) -> bool:
    """Return whether two boxes overlap (separating axis test)."""
    a, b = first.centre, second.centre
    between = (b[0] - a[0], b[1] - a[1], b[2] - a[2])
    if math.hypot(*between) > first.reach + second.reach:
        return False
    crossed = (cross(a, b) for a in first.axes for b in second.axes)
    for axis in (*first.axes, *second.axes, *crossed):
        length = math.hypot(*axis)
        if length < 1e-6:
            continue
        room = (first.extent(axis) + second.extent(axis) - abs(dot(between, axis))) / length
        if room < _LEAST:
            return False
    return True


def ball_overlaps(centre: Triple, radius: float, box: Box) -> bool:
    """Return whether a ball overlaps a box."""
    at = box.centre
    offset = (centre[0] - at[0], centre[1] - at[1], centre[2] - at[2])
    local = apply_inverse(box.rotation, *offset)
    apart = [max(abs(x) - half, 0.0) for x, half in zip(local, box.half, strict=True)]
    return math.hypot(*apart) <= radius
