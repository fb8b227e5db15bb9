"""Tuples of floats that rapier can calculate with."""

from __future__ import annotations

import math

Triple = tuple[float, float, float]
Rotation = tuple[float, float, float, float, float, float, float, float, float]
"""A rotation as a matrix, row by row."""

LIMIT = 1e9
"""What is further from zero than this is taken for this, in studs."""


def is_finite(values: Triple) -> bool:
    """Return whether three numbers are finite."""
    return math.isfinite(values[0]) and math.isfinite(values[1]) and math.isfinite(values[2])


FASTEST_TURN = 1e4
"""No angular velocity that is set goes beyond this, in rad/s."""


def checked(what: str, values: Triple, limit: float = LIMIT) -> Triple:
    """Return three numbers within a limit.

    Raises:
        ValueError: One is not finite.
    """
    x, y, z = values
    if -limit <= x <= limit and -limit <= y <= limit and -limit <= z <= limit:
        return values
    if not is_finite(values):
        raise ValueError(f"{what} must be finite, got ({x:g}, {y:g}, {z:g})")
    return _within(x, limit), _within(y, limit), _within(z, limit)


def _within(value: float, limit: float) -> float:
    return min(max(value, -limit), limit)
