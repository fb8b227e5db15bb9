"""``Vector3``: its library, and the members of vectors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from clawblox.engine.values.enums import EnumItem, enum_check
from clawblox.engine.values.rotations import Triple, cross, dot
from clawblox.engine.values.value import (
    Functions,
    add_component_methods,
    checked,
    number,
    optional,
    vector,
)
from clawblox.luau import Vector, VectorType, make_vector
from clawblox.luau.core.numbers import single
from clawblox.luau.core.vectors import make_counted
from clawblox.luau.lib.support import arguments as arg

CONSTRUCTORS: Functions = {}
METHODS: Functions = {}
ZERO = Vector(0.0, 0.0, 0.0)
CONSTANTS = {
    "zero": ZERO,
    "one": Vector(1.0, 1.0, 1.0),
    "xAxis": Vector(1.0, 0.0, 0.0),
    "yAxis": Vector(0.0, 1.0, 0.0),
    "zAxis": Vector(0.0, 0.0, 1.0),
}
FUZZ = 1e-5
"""Default tolerance of `FuzzyEq`."""

_NORMALS = {
    "Right": Vector(1.0, 0.0, 0.0),
    "Top": Vector(0.0, 1.0, 0.0),
    "Back": Vector(0.0, 0.0, 1.0),
    "Left": Vector(-1.0, 0.0, 0.0),
    "Bottom": Vector(0.0, -1.0, 0.0),
    "Front": Vector(0.0, 0.0, -1.0),
}


def triple(value: Vector) -> Triple:
    """Return the components."""
    return value.x, value.y, value.z


def magnitude(value: Vector) -> float:
    """Return the length."""
    return single(math.sqrt(value.x * value.x + value.y * value.y + value.z * value.z))


def unit(value: Vector) -> Vector:
    """Return the vector of length 1 in the same direction; zero for zero."""
    x, y, z = value.x, value.y, value.z
    size = math.sqrt(x * x + y * y + z * z)
    return make_vector(x / size, y / size, z / size) if size else ZERO


PROPERTIES: dict[str, Callable[[Vector], Any]] = {
    "Magnitude": magnitude,
    "magnitude": magnitude,
    "Unit": unit,
    "unit": unit,
}


def _new(x: Any = None, y: Any = None, z: Any = None, *_: Any) -> Vector:
    if x.__class__ is float and y.__class__ is float and z.__class__ is float:
        return make_counted(x, y, z)
    return make_counted(*(arg.optional_number((x, y, z), at, "new", 0.0) for at in range(3)))


CONSTRUCTORS["new"] = _new


@checked(CONSTRUCTORS, "FromNormalId", enum_check("NormalId"))
def _from_normal(normal: EnumItem) -> Vector:
    return _NORMALS[normal.name]


@checked(CONSTRUCTORS, "FromAxis", enum_check("Axis"))
def _from_axis(axis: EnumItem) -> Vector:
    return CONSTANTS[f"{axis.name.lower()}Axis"]


checked(METHODS, "Unit", vector)(unit)


@checked(METHODS, "Dot", vector, vector)
def _dot(a: Vector, b: Vector) -> float:
    return single(a.x * b.x + a.y * b.y + a.z * b.z)


@checked(METHODS, "Cross", vector, vector)
def _cross(a: Vector, b: Vector) -> Vector:
    return make_vector(*cross(triple(a), triple(b)))


@checked(METHODS, "Lerp", vector, vector, number)
def _lerp(start: Vector, goal: Vector, alpha: float) -> Vector:
    x, y, z = start.x, start.y, start.z
    return make_vector(x + (goal.x - x) * alpha, y + (goal.y - y) * alpha, z + (goal.z - z) * alpha)


@checked(METHODS, "FuzzyEq", vector, vector, optional(number, FUZZ))
def _fuzzy_equal(a: Vector, b: Vector, epsilon: float) -> bool:
    pairs = zip(triple(a), triple(b), strict=True)
    return all(math.fabs(p - q) <= epsilon for p, q in pairs)


@checked(METHODS, "Angle", vector, vector, optional(vector, None))
def _angle(a: Vector, b: Vector, axis: Vector | None) -> float:
    across = cross(triple(a), triple(b))
    angle = math.atan2(math.sqrt(dot(across, across)), dot(triple(a), triple(b)))
    if axis is not None and dot(across, triple(axis)) < 0.0:
        return single(-angle)
    return single(angle)


add_component_methods(METHODS, vector, make_vector, triple)


VECTOR_TYPE = VectorType("Vector3", properties=PROPERTIES, methods=METHODS)
