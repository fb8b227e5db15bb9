"""The shapes of parts: their colliders, volumes and sizes."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

from rapier3d import Isometry3, SharedShape

from clawblox.engine.physics.rotations import Quaternion

BALL = "Ball"
BLOCK = "Block"
CYLINDER = "Cylinder"
RING = "Ring"
WEDGE = "Wedge"

SMALLEST = 0.001
"""No side of a body is shorter than this, in studs."""
LARGEST = 1e6

CAPSULE_RADIUS = 1.0
CAPSULE_HALF_HEIGHT = 1.5
"""Half the height of a character's capsule, without its round ends."""

RING_HOLE = 0.7
"""The radius of a ring's hole as a share of its outer radius."""
_RING_BLOCKS = 12


class Shape(NamedTuple):
    """The shape of a part: its name and its size in studs."""

    name: str
    x: float
    y: float
    z: float


@lru_cache(maxsize=4096)
def collider_shape(shape: Shape) -> SharedShape:
    """Return the shape as rapier knows it.

    Raises:
        ValueError: The name is unknown, or a side is not a number.
    """
    x, y, z = (_half_side(side) for side in shape[1:])
    if shape.name == BLOCK:
        return SharedShape.cuboid(x, y, z)
    if shape.name == BALL:
        return SharedShape.ball(x)
    if shape.name == CYLINDER:
        return SharedShape.cylinder(y, x)
    if shape.name == WEDGE:
        return _wedge(x, y, z)
    if shape.name == RING:
        return _ring(x, y)
    raise ValueError(f"Unknown shape {shape.name!r}")


@lru_cache(maxsize=16)
def capsule(margin: float = 0.0) -> SharedShape:
    """Return the capsule of a character, larger by a margin on all sides."""
    return SharedShape.capsule_y(CAPSULE_HALF_HEIGHT, CAPSULE_RADIUS + margin)


@lru_cache(maxsize=4096)
def volume(shape: Shape) -> float:
    """Return the volume in cubic studs."""
    return collider_shape(shape).mass_properties(1.0).mass


def _half_side(side: float) -> float:
    if math.isnan(side):
        raise ValueError("A size must hold numbers only, got nan")
    return min(max(side, SMALLEST), LARGEST) / 2.0


def _wedge(x: float, y: float, z: float) -> SharedShape:
    """Build a prism that is as high as its size at -X and has no height at +X."""
    return SharedShape.convex_hull(
        [(-x, -y, -z), (-x, -y, z), (x, -y, -z), (x, -y, z), (-x, y, -z), (-x, y, z)]
    )


def _ring(radius: float, half_height: float) -> SharedShape:
    """Build a ring around the Y axis from blocks that lie side by side."""
    hole = radius * RING_HOLE
    half_width = (radius - hole) / 2.0
    half_length = radius * math.tan(math.pi / _RING_BLOCKS)
    block = SharedShape.cuboid(half_width, half_height, half_length)
    blocks: list[Any] = []
    for index in range(_RING_BLOCKS):
        angle = 2.0 * math.pi * index / _RING_BLOCKS
        turn: Quaternion = (math.cos(angle / 2.0), 0.0, math.sin(angle / 2.0), 0.0)
        middle = hole + half_width
        at = (middle * math.cos(angle), 0.0, -middle * math.sin(angle))
        blocks.append((Isometry3(at, turn), block))
    return SharedShape.compound(blocks)
