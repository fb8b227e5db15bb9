"""``Vector2``, a point or size on the screen, and ``Rect``, a rectangle between two points."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import attrs

from clawblox.engine.values.value import (
    Check,
    Getters,
    Record,
    Value,
    add_arithmetic,
    add_component_methods,
    any_value,
    attributes,
    checked,
    instance_check,
    members,
    number,
    operator,
    optional,
    singles,
)
from clawblox.engine.values.vector3 import FUZZ
from clawblox.luau import RuntimeFault
from clawblox.luau.core.numbers import divide, single
from clawblox.luau.core.operators import shown_type
from clawblox.luau.lib.support import arguments as arg


@attrs.define(eq=False, repr=False)
class Vector2(Value):
    """Two numbers, already 32-bit floats."""

    x: float
    y: float

    type_name = "Vector2"
    kinds = (float, float)
    getters: ClassVar[Getters] = {
        **attributes(X="x", Y="y"),
        "Magnitude": lambda value: single(math.sqrt(value.x * value.x + value.y * value.y)),
        "Unit": lambda value: _unit(value),
    }
    for _name in tuple(getters):
        getters[_name.lower()] = getters[_name]
    del _name


_vector2: Check = instance_check(Vector2, "Vector2")
_part = optional(number, 0.0)


@checked(Vector2.constructors, "new", _part, _part)
def make_vector2(x: float, y: float) -> Vector2:
    """Return a vector of two unrounded numbers."""
    return Vector2(*singles(x, y))


def _unit(value: Vector2) -> Vector2:
    size = math.sqrt(value.x * value.x + value.y * value.y)
    return make_vector2(value.x / size, value.y / size) if size else value


@checked(Vector2.methods, "Dot", _vector2, _vector2)
def _dot(a: Vector2, b: Vector2) -> float:
    return single(a.x * b.x + a.y * b.y)


@checked(Vector2.methods, "Cross", _vector2, _vector2)
def _cross(a: Vector2, b: Vector2) -> float:
    return single(a.x * b.y - a.y * b.x)


@checked(Vector2.methods, "Lerp", _vector2, _vector2, number)
def _lerp(start: Vector2, goal: Vector2, alpha: float) -> Vector2:
    return make_vector2(start.x + (goal.x - start.x) * alpha, start.y + (goal.y - start.y) * alpha)


@checked(Vector2.methods, "FuzzyEq", _vector2, _vector2, optional(number, FUZZ))
def _fuzzy_equal(a: Vector2, b: Vector2, epsilon: float) -> bool:
    return math.fabs(a.x - b.x) <= epsilon and math.fabs(a.y - b.y) <= epsilon


@checked(Vector2.methods, "Angle", _vector2, _vector2, any_value)
def _angle(a: Vector2, b: Vector2, is_signed: Any) -> float:
    angle = math.atan2(a.x * b.y - a.y * b.x, a.x * b.x + a.y * b.y)
    return single(math.fabs(angle) if is_signed in (None, False) else angle)


add_arithmetic(Vector2, make_vector2, Vector2.contents)
add_component_methods(Vector2.methods, _vector2, make_vector2, Vector2.contents)


def _add_scaling(event: str, word: str, compute: Callable[[float, float], float]) -> None:
    @operator(Vector2, event, any_value, any_value)
    def scale(left: Any, right: Any) -> Vector2:
        (a, b), (c, d) = _pair(left), _pair(right)
        if a is None or c is None:
            kinds = f"{shown_type(left)} and {shown_type(right)}"
            raise RuntimeFault(f"attempt to perform arithmetic ({word}) on {kinds}")
        return make_vector2(compute(a, c), compute(b, d))


def _pair(value: Any) -> tuple[Any, Any]:
    if isinstance(value, Vector2):
        return value.contents()
    return (value, value) if value.__class__ is float else (None, None)


_add_scaling("__mul", "mul", float.__mul__)
_add_scaling("__div", "div", divide)


Vector2.constants.update(
    zero=Vector2(0.0, 0.0),
    one=Vector2(1.0, 1.0),
    xAxis=Vector2(1.0, 0.0),
    yAxis=Vector2(0.0, 1.0),
)


class Rect(Record):
    """A rectangle, given by its smallest and largest corner."""

    __slots__ = ()

    type_name = "Rect"
    kinds = (Vector2, Vector2)
    getters: ClassVar[Getters] = {
        **members("Min", "Max"),
        "Width": lambda rect: single(rect["Max"].x - rect["Min"].x),
        "Height": lambda rect: single(rect["Max"].y - rect["Min"].y),
    }


def make_rect(left: float, top: float, right: float, bottom: float) -> Rect:
    """Return the rectangle between two points in any order."""
    low = make_vector2(min(left, right), min(top, bottom))
    return Rect(low, make_vector2(max(left, right), max(top, bottom)))


def _new(*args: Any) -> Rect:
    if len(args) > 1 and isinstance(args[0], Vector2) and isinstance(args[1], Vector2):
        return make_rect(*args[0].contents(), *args[1].contents())
    return make_rect(*[arg.optional_number(args, at, "new", 0.0) for at in range(4)])


Rect.constructors["new"] = _new
