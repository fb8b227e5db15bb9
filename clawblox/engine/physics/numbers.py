"""Tuples of floats within rapier's range: vectors, matrices and quaternions."""

from __future__ import annotations

import math

from clawblox.engine.values import rotations
from clawblox.engine.values.rotations import Quaternion, Rotation, Triple
from clawblox.engine.values.value import singles

LIMIT = 1e9
"""Maximum distance; larger values are clamped, in studs."""


def is_finite(values: Triple) -> bool:
    """Return whether three numbers are finite."""
    return math.isfinite(values[0]) and math.isfinite(values[1]) and math.isfinite(values[2])


FASTEST_TURN = 1e4
"""Maximum angular velocity; larger values are clamped when set, in rad/s."""


def checked(what: str, values: Triple, limit: float = LIMIT) -> Triple:
    """Return three numbers within a limit.

    Raises:
        ValueError: A number is not finite.
    """
    x, y, z = values
    if -limit <= x <= limit and -limit <= y <= limit and -limit <= z <= limit:
        return values
    if not is_finite(values):
        raise ValueError(f"{what} must be finite, not ({x:g}, {y:g}, {z:g})")
    return _within(x, limit), _within(y, limit), _within(z, limit)


def _within(value: float, limit: float) -> float:
    return min(max(value, -limit), limit)


NO_TURN: Quaternion = (0.0, 0.0, 0.0, 1.0)
"""The identity; all quaternions have unit length, as in rapier."""


def to_quaternion(matrix: Rotation | None) -> Quaternion:
    """Return the rotation of a matrix; None for no rotation.

    Raises:
        ValueError: The matrix has a number that is not finite.
    """
    if matrix is None:
        return NO_TURN
    if not all(map(math.isfinite, matrix)):
        raise ValueError("A rotation must consist of finite numbers")
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
    """Return the shift of a point on a body that moves from one pose to another."""
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
