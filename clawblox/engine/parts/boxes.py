"""Whether oriented boxes overlap each other and balls."""

from __future__ import annotations

import math

from clawblox.engine.values.rotations import Rotation, Triple, apply_inverse, cross, dot

_LEAST = 1e-4
"""Boxes that share less than this, in studs, lie side by side."""


class Box:
    """A box: its centre, its size and half of it, and its axes."""

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
        """Return how far it reaches from its centre along a direction."""
        return sum(
            half * abs(dot(own, axis)) for half, own in zip(self.half, self.axes, strict=True)
        )


def boxes_overlap(first: Box, second: Box) -> bool:
    """Return whether two boxes share some space (the separating axis test)."""
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
    """Return whether a ball reaches a box."""
    at = box.centre
    offset = (centre[0] - at[0], centre[1] - at[1], centre[2] - at[2])
    local = apply_inverse(box.rotation, *offset)
    apart = [max(abs(x) - half, 0.0) for x, half in zip(local, box.half, strict=True)]
    return math.hypot(*apart) <= radius
