"""``Vector2``: a point or size on the screen."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

from clawblox.engine.values.value import (
    Check,
    Functions,
    Value,
    any_value,
    checked,
    expect_contents,
    instance_check,
    number,
    numbers_text,
    operator,
    optional,
    singles,
)
from clawblox.luau import RuntimeFault
from clawblox.luau.core.numbers import divide, single
from clawblox.luau.core.operators import shown_type

METHODS: Functions = {}
CONSTRUCTORS: Functions = {}


class Vector2(Value):
    """Two numbers, which are 32-bit floats already."""

    __slots__ = ("x", "y")

    x: float
    y: float

    type_name = "Vector2"
    methods = METHODS
    getters: ClassVar[dict[str, Callable[[Vector2], Any]]] = {
        "X": lambda value: value.x,
        "Y": lambda value: value.y,
        "Magnitude": lambda value: single(math.sqrt(value.x * value.x + value.y * value.y)),
        "Unit": lambda value: _unit(value),
    }

    def __init__(self, x: float, y: float) -> None:
        self.x = x
        self.y = y

    def contents(self) -> tuple[float, float]:
        """Return the components."""
        return self.x, self.y

    def fill(self, *values: Any) -> None:
        """Restore contents."""
        expect_contents(values, float, float)
        self.x, self.y = values


_vector2: Check = instance_check(Vector2, "Vector2")
_part = optional(number, 0.0)


@checked(CONSTRUCTORS, "new", _part, _part)
def make_vector2(x: float, y: float) -> Vector2:
    """Return a vector of two numbers that are not rounded yet."""
    return Vector2(*singles(x, y))


def _unit(value: Vector2) -> Vector2:
    size = math.sqrt(value.x * value.x + value.y * value.y)
    return make_vector2(value.x / size, value.y / size) if size else value


@checked(METHODS, "Dot", _vector2, _vector2)
def _dot(a: Vector2, b: Vector2) -> float:
    return single(a.x * b.x + a.y * b.y)


@checked(METHODS, "Cross", _vector2, _vector2)
def _cross(a: Vector2, b: Vector2) -> float:
    return single(a.x * b.y - a.y * b.x)


@checked(METHODS, "Lerp", _vector2, _vector2, number)
def _lerp(start: Vector2, goal: Vector2, alpha: float) -> Vector2:
    return make_vector2(start.x + (goal.x - start.x) * alpha, start.y + (goal.y - start.y) * alpha)


@operator(Vector2, "__add", _vector2, _vector2)
def _add(a: Vector2, b: Vector2) -> Vector2:
    return make_vector2(a.x + b.x, a.y + b.y)


@operator(Vector2, "__sub", _vector2, _vector2)
def _subtract(a: Vector2, b: Vector2) -> Vector2:
    return make_vector2(a.x - b.x, a.y - b.y)


@operator(Vector2, "__unm", _vector2)
def _negate(a: Vector2) -> Vector2:
    return Vector2(-a.x, -a.y)


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


@operator(Vector2, "__tostring", _vector2)
def _text(value: Vector2) -> str:
    return numbers_text(*value.contents())


CONSTANTS = {
    "zero": Vector2(0.0, 0.0),
    "one": Vector2(1.0, 1.0),
    "xAxis": Vector2(1.0, 0.0),
    "yAxis": Vector2(0.0, 1.0),
}
