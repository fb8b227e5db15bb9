"""Rotations: nine numbers, row by row; the columns are the right, up and back vectors.

The functions use double precision on plain tuples; callers round the results that they store.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

Triple = tuple[float, float, float]
Rotation = tuple[float, float, float, float, float, float, float, float, float]
Quaternion = tuple[float, float, float, float]
"""x, y, z, w."""

IDENTITY: Rotation = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)
_PARALLEL = 1e-6  # below this sine of the angle, two directions count as parallel
_GIMBAL = 1.0 - 1e-7  # above this sine, the outer two of three angles are ambiguous
_NEAR = 1.0 - 1e-6  # above this cosine, a slerp is a straight line


def multiply(a: Rotation, b: Rotation) -> Rotation:
    """Return the rotation that turns by `b` and then by `a`."""
    a0, a1, a2, a3, a4, a5, a6, a7, a8 = a
    b0, b1, b2, b3, b4, b5, b6, b7, b8 = b
    return (
        a0 * b0 + a1 * b3 + a2 * b6, a0 * b1 + a1 * b4 + a2 * b7, a0 * b2 + a1 * b5 + a2 * b8,
        a3 * b0 + a4 * b3 + a5 * b6, a3 * b1 + a4 * b4 + a5 * b7, a3 * b2 + a4 * b5 + a5 * b8,
        a6 * b0 + a7 * b3 + a8 * b6, a6 * b1 + a7 * b4 + a8 * b7, a6 * b2 + a7 * b5 + a8 * b8,
    )  # fmt: skip


def invert(a: Rotation) -> Rotation:
    """Return the opposite rotation: the transposed matrix."""
    return a[0], a[3], a[6], a[1], a[4], a[7], a[2], a[5], a[8]


def apply(a: Rotation, x: float, y: float, z: float) -> Triple:
    """Return a rotated vector."""
    return (
        a[0] * x + a[1] * y + a[2] * z,
        a[3] * x + a[4] * y + a[5] * z,
        a[6] * x + a[7] * y + a[8] * z,
    )


def apply_inverse(a: Rotation, x: float, y: float, z: float) -> Triple:
    """Return a vector rotated by the inverse."""
    return (
        a[0] * x + a[3] * y + a[6] * z,
        a[1] * x + a[4] * y + a[7] * z,
        a[2] * x + a[5] * y + a[8] * z,
    )


def from_columns(right: Triple, up: Triple, back: Triple) -> Rotation:
    """Return the rotation with these columns."""
    return (
        right[0], up[0], back[0],
        right[1], up[1], back[1],
        right[2], up[2], back[2],
    )  # fmt: skip


def about_axis(axis: int, angle: float) -> Rotation:
    """Return the rotation about an axis.

    Args:
        axis: 0, 1 or 2 for x, y or z.
        angle: The angle in radians.
    """
    c, s = cosine(angle), sine(angle)
    if axis == 0:
        return 1.0, 0.0, 0.0, 0.0, c, -s, 0.0, s, c
    if axis == 1:
        return c, 0.0, s, 0.0, 1.0, 0.0, -s, 0.0, c
    return c, -s, 0.0, s, c, 0.0, 0.0, 0.0, 1.0


def from_euler(order: str, angles: Triple) -> Rotation:
    """Return the product of three rotations about axes.

    Args:
        order: The axes of the factors from left to right, such as ``XYZ``.
        angles: The angles about x, y and z in radians.
    """
    if order == "XYZ":
        return _from_xyz(*angles)
    first, second, third = (about_axis(axis, angles[axis]) for axis in _axes(order))
    return multiply(multiply(first, second), third)


def _from_xyz(x: float, y: float, z: float) -> Rotation:
    """Return the rotation for the usual order, in expanded form."""
    cx, sx, cy, sy, cz, sz = cosine(x), sine(x), cosine(y), sine(y), cosine(z), sine(z)
    return (
        cy * cz, -cy * sz, sy,
        cx * sz + sx * sy * cz, cx * cz - sx * sy * sz, -sx * cy,
        sx * sz - cx * sy * cz, sx * cz + cx * sy * sz, cx * cy,
    )  # fmt: skip


def to_euler(order: str, rotation: Rotation) -> Triple:
    """Return the angles of a rotation about x, y and z, in radians; inverse of `from_euler`."""
    i, j, k = _axes(order)
    sign = 1.0 if (j - i) % 3 == 1 else -1.0
    tilt = sign * rotation[3 * i + k]
    angles = [0.0, 0.0, 0.0]
    angles[j] = math.asin(max(-1.0, min(1.0, tilt)))
    if abs(tilt) < _GIMBAL:
        angles[i] = math.atan2(-sign * rotation[3 * j + k], rotation[4 * k])
        angles[k] = math.atan2(-sign * rotation[3 * i + j], rotation[4 * i])
    else:
        angles[i] = math.atan2(sign * rotation[3 * k + j], rotation[4 * j])
    return angles[0], angles[1], angles[2]


def _axes(order: str) -> Iterable[int]:
    return map("XYZ".index, order)


def from_quaternion(x: float, y: float, z: float, w: float) -> Rotation:
    """Return the rotation of a quaternion of any length; the identity for zero."""
    size = x * x + y * y + z * z + w * w
    if size == 0.0:
        return IDENTITY
    s = 2.0 / size
    return (
        1.0 - s * (y * y + z * z), s * (x * y - w * z), s * (x * z + w * y),
        s * (x * y + w * z), 1.0 - s * (x * x + z * z), s * (y * z - w * x),
        s * (x * z - w * y), s * (y * z + w * x), 1.0 - s * (x * x + y * y),
    )  # fmt: skip


def to_quaternion(rotation: Rotation) -> Quaternion:
    """Return the unit quaternion of a rotation (K. Shoemake, "Quaternions", 1991)."""
    r00, r01, r02, r10, r11, r12, r20, r21, r22 = rotation
    if r00 + r11 + r22 > 0.0:
        root = math.sqrt(1.0 + r00 + r11 + r22)
        s = 0.5 / root
        return (r21 - r12) * s, (r02 - r20) * s, (r10 - r01) * s, 0.5 * root
    if r00 >= r11 and r00 >= r22:
        root = math.sqrt(max(0.0, 1.0 + r00 - r11 - r22)) or 1.0
        s = 0.5 / root
        return 0.5 * root, (r01 + r10) * s, (r02 + r20) * s, (r21 - r12) * s
    if r11 >= r22:
        root = math.sqrt(max(0.0, 1.0 + r11 - r00 - r22)) or 1.0
        s = 0.5 / root
        return (r01 + r10) * s, 0.5 * root, (r12 + r21) * s, (r02 - r20) * s
    root = math.sqrt(max(0.0, 1.0 + r22 - r00 - r11)) or 1.0
    s = 0.5 / root
    return (r02 + r20) * s, (r12 + r21) * s, 0.5 * root, (r10 - r01) * s


def from_axis_angle(axis: Triple, angle: float) -> Rotation:
    """Return the rotation in radians about an axis of any length; the identity for a zero axis."""
    unit = normalize(axis)
    if unit is None:
        return IDENTITY
    s = sine(angle / 2.0)
    return from_quaternion(unit[0] * s, unit[1] * s, unit[2] * s, cosine(angle / 2.0))


def to_axis_angle(rotation: Rotation) -> tuple[Triple, float]:
    """Return the unit axis of a rotation and its angle from 0 to pi; x and 0 for the identity."""
    x, y, z, w = to_quaternion(rotation)
    if w < 0.0:
        x, y, z, w = -x, -y, -z, -w
    half = math.sqrt(x * x + y * y + z * z)
    if half < 1e-9:
        return (1.0, 0.0, 0.0), 0.0
    return (x / half, y / half, z / half), 2.0 * math.atan2(half, w)


def slerp(a: Rotation, b: Rotation, alpha: float) -> Rotation:
    """Return the rotation at a fraction of the shortest path between two rotations."""
    start, goal = to_quaternion(a), to_quaternion(b)
    nearness = sum(p * q for p, q in zip(start, goal, strict=True))
    if nearness < 0.0:
        nearness, goal = -nearness, (-goal[0], -goal[1], -goal[2], -goal[3])
    if nearness > _NEAR:
        left, right = 1.0 - alpha, alpha
    else:
        angle = math.acos(nearness)
        left, right = sine((1.0 - alpha) * angle), sine(alpha * angle)
    x, y, z, w = (left * p + right * q for p, q in zip(start, goal, strict=True))
    return from_quaternion(x, y, z, w)


def between(start: Triple, goal: Triple) -> Rotation:
    """Return the smallest rotation that maps one direction to another."""
    a, b = normalize(start), normalize(goal)
    if a is None or b is None:
        return IDENTITY
    nearness = dot(a, b)
    if nearness < -_NEAR:  # opposite: half a turn about any perpendicular axis
        across = cross(a, (1.0, 0.0, 0.0) if abs(a[0]) < 0.9 else (0.0, 1.0, 0.0))
        return from_axis_angle(across, math.pi)
    x, y, z = cross(a, b)
    return from_quaternion(x, y, z, 1.0 + nearness)


def facing(direction: Triple, up: Triple) -> Rotation:
    """Return the rotation with -z along a direction and y as close to `up` as possible.

    It is the identity if the direction is zero or parallel to `up`.
    """
    look, above = normalize(direction), normalize(up)
    if look is None or above is None:
        return IDENTITY
    side = cross(look, above)
    if dot(side, side) < _PARALLEL * _PARALLEL:
        return IDENTITY
    right = normalize(side) or side
    return from_columns(right, cross(right, look), (-look[0], -look[1], -look[2]))


def orthonormalize(rotation: Rotation) -> Rotation:
    """Return the orthonormal form of a drifted matrix; its x axis keeps its direction."""
    right = normalize((rotation[0], rotation[3], rotation[6]))
    up = (rotation[1], rotation[4], rotation[7])
    if right is None or (back := normalize(cross(right, up))) is None:
        return IDENTITY
    return from_columns(right, cross(back, right), back)


def sine(angle: float) -> float:
    """Return a sine; NaN for an angle that is not finite."""
    return math.sin(angle) if math.isfinite(angle) else math.nan


def cosine(angle: float) -> float:
    """Return a cosine; NaN for an angle that is not finite."""
    return math.cos(angle) if math.isfinite(angle) else math.nan


def dot(a: Triple, b: Triple) -> float:
    """Return the dot product of two vectors."""
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def cross(a: Triple, b: Triple) -> Triple:
    """Return the cross product of two vectors."""
    return a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]


def normalize(vector: Triple) -> Triple | None:
    """Return the unit vector in a vector's direction, or None."""
    size = math.sqrt(dot(vector, vector))
    if size == 0.0 or not math.isfinite(size):
        return None
    return vector[0] / size, vector[1] / size, vector[2] / size
