"""The shapes of parts: their colliders, volumes and sizes."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

from rapier3d import SharedShape

BALL = "Ball"
BLOCK = "Block"
CYLINDER = "Cylinder"
RING = "Ring"
WEDGE = "Wedge"

SMALLEST = 0.001
"""Minimum side length of a body, in studs."""
LARGEST = 1e5

CAPSULE_RADIUS = 1.0
CAPSULE_HALF_HEIGHT = 1.5
"""Half the height of a character's capsule, without its round ends."""
HALF_HEIGHT = CAPSULE_HALF_HEIGHT + CAPSULE_RADIUS
"""Distance from the centre of a character to its lowest point, in studs."""


class Shape(NamedTuple):
    """The shape of a part: its name and its size in studs."""

    name: str
    x: float
    y: float
    z: float


@lru_cache(maxsize=4096)
def collider_shape(shape: Shape) -> SharedShape:
    """Return the rapier shape.

    Raises:
        ValueError: The name is unknown, or a side is NaN.
    """
    x, y, z = (_half_side(side) for side in shape[1:])
    if shape.name == BLOCK:
        return SharedShape.cuboid(x, y, z)
    if shape.name == BALL:
        return SharedShape.ball(x)
    if shape.name in (CYLINDER, RING):  # rapier does not save shapes with holes byte for byte
        return SharedShape.cylinder(y, x)
    if shape.name == WEDGE:
        return SharedShape.convex_hull(  # full height at -X, zero height at +X
            [(-x, -y, -z), (-x, -y, z), (x, -y, -z), (x, -y, z), (-x, y, -z), (-x, y, z)]
        )
    raise ValueError(f"Unknown shape {shape.name!r}")


@lru_cache(maxsize=16)
def capsule(margin: float = 0.0) -> SharedShape:
    """Return the capsule of a character, enlarged by a margin on all sides."""
    return SharedShape.capsule_y(CAPSULE_HALF_HEIGHT, CAPSULE_RADIUS + margin)


@lru_cache(maxsize=4096)
def volume(shape: Shape) -> float:
    """Return the volume in cubic studs."""
    return collider_shape(shape).mass_properties(1.0).mass


def _half_side(side: float) -> float:
    if math.isnan(side):
        raise ValueError("A size must be a number on each axis, not nan")
    return min(max(side, SMALLEST), LARGEST) / 2.0
