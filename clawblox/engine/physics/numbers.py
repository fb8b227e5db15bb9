"""Tuples of finite floats, as every value that enters rapier must be."""

from __future__ import annotations

import struct

Triple = tuple[float, float, float]
Rotation = tuple[float, float, float, float, float, float, float, float, float]
"""A rotation as a matrix, row by row."""

LIMIT = 1e9
"""No coordinate, size or speed beyond this enters rapier, in studs."""

IDENTITY: Rotation = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)

_NINE = struct.Struct("9f")


def is_plain(values: Triple | Rotation) -> bool:
    """Return whether every number is finite and within the limit."""
    return all(-LIMIT <= value <= LIMIT for value in values)


def checked(what: str, values: Triple) -> Triple:
    """Return three numbers that rapier can calculate with.

    Raises:
        ValueError: One is not finite, or beyond the limit.
    """
    x, y, z = values
    if -LIMIT <= x <= LIMIT and -LIMIT <= y <= LIMIT and -LIMIT <= z <= LIMIT:
        return values
    raise ValueError(f"{what} must be finite and below {LIMIT:g}, got ({x:g}, {y:g}, {z:g})")


def single(values: Rotation) -> Rotation:
    """Return a matrix rounded to 32-bit floats, the precision scripts see."""
    a, b, c, d, e, f, g, h, i = _NINE.unpack(_NINE.pack(*values))
    return (a, b, c, d, e, f, g, h, i)
