"""Rotations as matrices (what scripts see) and as quaternions (what rapier keeps)."""

from __future__ import annotations

import math

from clawblox.engine.physics.numbers import IDENTITY, Rotation, is_plain, single

Quaternion = tuple[float, float, float, float]
"""w, x, y, z."""

NO_TURN: Quaternion = (1.0, 0.0, 0.0, 0.0)


def to_quaternion(matrix: Rotation | None) -> Quaternion:
    """Return the rotation nearest to a matrix; None is the identity.

    Raises:
        ValueError: The matrix holds a number that is not finite.
    """
    if matrix is None or matrix == IDENTITY:
        return NO_TURN
    if not is_plain(matrix):
        raise ValueError("A rotation must hold finite numbers only")
    a, b, c, d, e, f, g, h, i = matrix
    trace = a + e + i
    if trace > 0.0:
        s = math.sqrt(trace + 1.0) * 2.0
        w, x, y, z = 0.25 * s, (h - f) / s, (c - g) / s, (d - b) / s
    elif a > e and a > i:
        s = math.sqrt(max(1.0 + a - e - i, 1e-12)) * 2.0
        w, x, y, z = (h - f) / s, 0.25 * s, (b + d) / s, (c + g) / s
    elif e > i:
        s = math.sqrt(max(1.0 + e - a - i, 1e-12)) * 2.0
        w, x, y, z = (c - g) / s, (b + d) / s, 0.25 * s, (f + h) / s
    else:
        s = math.sqrt(max(1.0 + i - a - e, 1e-12)) * 2.0
        w, x, y, z = (d - b) / s, (c + g) / s, (f + h) / s, 0.25 * s
    length = math.sqrt(w * w + x * x + y * y + z * z)
    if length < 1e-6:
        return NO_TURN
    return (w / length, x / length, y / length, z / length)


def to_matrix(quaternion: Quaternion) -> Rotation | None:
    """Return the matrix of a unit quaternion in 32-bit floats; the identity is None."""
    w, x, y, z = quaternion
    if x == 0.0 and y == 0.0 and z == 0.0:
        return None
    xx, yy, zz = x * x, y * y, z * z
    xy, xz, yz = x * y, x * z, y * z
    wx, wy, wz = w * x, w * y, w * z
    return single(
        (
            1.0 - 2.0 * (yy + zz),
            2.0 * (xy - wz),
            2.0 * (xz + wy),
            2.0 * (xy + wz),
            1.0 - 2.0 * (xx + zz),
            2.0 * (yz - wx),
            2.0 * (xz - wy),
            2.0 * (yz + wx),
            1.0 - 2.0 * (xx + yy),
        )
    )
