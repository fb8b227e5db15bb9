"""The ``vector`` library: three 32-bit floats as one value."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from clawblox.luau.core.numbers import divide, rounding, single
from clawblox.luau.core.values import Vector
from clawblox.luau.core.vectors import make_counted
from clawblox.luau.lib.support import arguments as arg
from clawblox.luau.lib.support.registry import install

CONSTANTS: dict[str, Any] = {
    "vector.zero": Vector(0.0, 0.0, 0.0),
    "vector.one": Vector(1.0, 1.0, 1.0),
}


def create(*args: Any) -> Vector:
    """Return a vector of two or three numbers.

    Raises:
        RuntimeFault: An argument is missing or of the wrong type.
    """
    x, y = arg.number(args, 0, "create"), arg.number(args, 1, "create")
    return make_counted(x, y, arg.optional_number(args, 2, "create", 0.0))


def _dot(a: Vector, b: Vector) -> float:
    return single(single(single(a.x * b.x) + single(a.y * b.y)) + single(a.z * b.z))


def _length(value: Vector) -> float:
    return single(math.sqrt(_dot(value, value)))


def _cross(a: Vector, b: Vector) -> Vector:
    return make_counted(
        single(a.y * b.z) - single(a.z * b.y),
        single(a.z * b.x) - single(a.x * b.z),
        single(a.x * b.y) - single(a.y * b.x),
    )


def magnitude(*args: Any) -> float:
    """Return the length of a vector.

    Raises:
        RuntimeFault: The argument is not a vector.
    """
    return _length(arg.vector(args, 0, "magnitude"))


def normalize(*args: Any) -> Vector:
    """Return a vector of length 1 in the same direction.

    Raises:
        RuntimeFault: The argument is not a vector.
    """
    value = arg.vector(args, 0, "normalize")
    scale = single(divide(1.0, _length(value)))
    return make_counted(value.x * scale, value.y * scale, value.z * scale)


def cross(*args: Any) -> Vector:
    """Return the cross product.

    Raises:
        RuntimeFault: An argument is not a vector.
    """
    return _cross(arg.vector(args, 0, "cross"), arg.vector(args, 1, "cross"))


def dot(*args: Any) -> float:
    """Return the dot product.

    Raises:
        RuntimeFault: An argument is not a vector.
    """
    return _dot(arg.vector(args, 0, "dot"), arg.vector(args, 1, "dot"))


def angle(*args: Any) -> float:
    """Return the angle between two vectors, with the sign given by an optional axis.

    Raises:
        RuntimeFault: An argument is missing or of the wrong type.
    """
    a, b = arg.vector(args, 0, "angle"), arg.vector(args, 1, "angle")
    crossed = _cross(a, b)
    radians = math.atan2(math.sqrt(_dot(crossed, crossed)), _dot(a, b))
    has_axis = len(args) > 2 and args[2] is not None
    return -radians if has_axis and _dot(crossed, arg.vector(args, 2, "angle")) < 0.0 else radians


def lerp(*args: Any) -> Vector:
    """Return a linear interpolation between two vectors.

    Raises:
        RuntimeFault: An argument is missing or of the wrong type.
    """
    a, b = arg.vector(args, 0, "lerp"), arg.vector(args, 1, "lerp")
    t = single(arg.number(args, 2, "lerp"))
    return make_counted(*(_mix(x, y, t) for x, y in zip(_parts(a), _parts(b), strict=True)))


def _mix(a: float, b: float, t: float) -> float:
    return b if t == 1.0 else single(a + single(single(b - a) * t))


def _parts(value: Vector) -> tuple[float, float, float]:
    return value.x, value.y, value.z


def _add_component_wise(name: str, compute: Callable[[float], float]) -> None:
    def apply(*args: Any) -> Vector:
        return make_counted(*map(compute, _parts(arg.vector(args, 0, name))))

    install(f"vector.{name}", apply)


_add_component_wise("floor", rounding(math.floor))
_add_component_wise("ceil", rounding(math.ceil))
_add_component_wise("abs", abs)
_add_component_wise("sign", lambda value: float((value > 0) - (value < 0)))


def _add_choice(name: str, choose: Callable[..., float]) -> None:
    def apply(*args: Any) -> Vector:
        arg.charge(args)
        vectors = [arg.vector(args, at, name) for at in range(max(len(args), 1))]
        return Vector(*map(choose, zip(*map(_parts, vectors), strict=True)))

    install(f"vector.{name}", apply)


_add_choice("min", min)
_add_choice("max", max)


def clamp(*args: Any) -> Vector:
    """Return a vector clamped to a box.

    Raises:
        RuntimeFault: An argument is not a vector, or a lower bound exceeds the upper bound.
    """
    value, low, high = (arg.vector(args, at, "clamp") for at in range(3))
    parts = []
    for axis, v, a, b in zip("xyz", _parts(value), _parts(low), _parts(high), strict=True):
        if a > b:
            arg.wrong(2, "clamp", f"max.{axis} must be greater than or equal to min.{axis}")
        parts.append(a if v < a else b if v > b else v)
    return Vector(*parts)
