"""Rotations as matrices (what scripts see) and as quaternions (what rapier keeps)."""

from __future__ import annotations

import math

from clawblox.engine.physics.numbers import Rotation, Triple
from clawblox.engine.values import rotations
from clawblox.engine.values.singles import singles

Quaternion = tuple[float, float, float, float]
"""x, y, z, w, as rapier takes and gives them; of unit length."""

NO_TURN: Quaternion = (0.0, 0.0, 0.0, 1.0)


def to_quaternion(matrix: Rotation | None) -> Quaternion:
    """Return the rotation of a matrix; None is no rotation.

    Raises:
        ValueError: The matrix holds a number that is not finite.
    """
    if matrix is None:
        return NO_TURN
    if not all(map(math.isfinite, matrix)):
        raise ValueError("A rotation must hold finite numbers only")
    x, y, z, w = rotations.to_quaternion(matrix)
    length = math.sqrt(w * w + x * x + y * y + z * z)
    if length < 1e-6:
        return NO_TURN
    return (x / length, y / length, z / length, w / length)


def to_matrix(quaternion: Quaternion) -> Rotation | None:
    """Return the matrix of a rotation in 32-bit floats; None for no rotation."""
    x, y, z, w = quaternion
    if x == 0.0 and y == 0.0 and z == 0.0:
        return None
    a, b, c, d, e, f, g, h, i = singles(*rotations.from_quaternion(x, y, z, w))
    return (a, b, c, d, e, f, g, h, i)


def shift(point: Triple, at: Triple, turn: Quaternion, to: Triple, to_turn: Quaternion) -> Triple:
    """Return how far a point moves with a body that goes from one pose to another."""
    if turn == to_turn:
        return (to[0] - at[0], to[1] - at[1], to[2] - at[2])
    x, y, z, w = turn
    arm = (point[0] - at[0], point[1] - at[1], point[2] - at[2])
    ex, ey, ez = _rotate(to_turn, _rotate((-x, -y, -z, w), arm))
    return (to[0] + ex - point[0], to[1] + ey - point[1], to[2] + ez - point[2])


def _rotate(turn: Quaternion, vector: Triple) -> Triple:
    x, y, z, w = turn
    a, b, c = vector
    tx, ty, tz = 2.0 * (y * c - z * b), 2.0 * (z * a - x * c), 2.0 * (x * b - y * a)
    return (
        a + w * tx + y * tz - z * ty,
        b + w * ty + z * tx - x * tz,
        c + w * tz + x * ty - y * tx,
    )
