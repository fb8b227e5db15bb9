"""``Ray``: a half-line, for ``FindPartOnRay``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

from clawblox.engine.values.functions import Functions, checked, instance_check, vector
from clawblox.engine.values.rotations import dot, normalize
from clawblox.engine.values.value import Value, expect_contents, operator
from clawblox.engine.values.vector3 import triple
from clawblox.luau import Vector, make_vector
from clawblox.luau.core.numbers import single
from clawblox.luau.core.operators import to_text

METHODS: Functions = {}
CONSTRUCTORS: Functions = {}


class Ray(Value):
    """A half-line: where it begins, and its direction, whose length `FindPartOnRay` uses."""

    __slots__ = ("direction", "origin")

    origin: Vector
    direction: Vector

    type_name = "Ray"
    methods = METHODS
    getters: ClassVar[dict[str, Callable[[Ray], Any]]] = {
        "Origin": lambda ray: ray.origin,
        "Direction": lambda ray: ray.direction,
        "Unit": lambda ray: _unit(ray),
    }

    def __init__(self, origin: Vector, direction: Vector) -> None:
        self.origin = origin
        self.direction = direction

    def contents(self) -> tuple[Vector, Vector]:
        """Return the origin and the direction."""
        return self.origin, self.direction

    def fill(self, *values: Any) -> None:
        """Restore contents."""
        expect_contents(values, Vector, Vector)
        self.origin, self.direction = values


_ray = instance_check(Ray, "Ray")


@checked(CONSTRUCTORS, "new", vector, vector)
def _new(origin: Vector, direction: Vector) -> Ray:
    return Ray(origin, direction)


def _unit(ray: Ray) -> Ray:
    direction = normalize(triple(ray.direction))
    return ray if direction is None else Ray(ray.origin, make_vector(*direction))


@checked(METHODS, "ClosestPoint", _ray, vector)
def _closest_point(ray: Ray, point: Vector) -> Vector:
    a, b, way = triple(ray.origin), triple(point), triple(ray.direction)
    along = dot((b[0] - a[0], b[1] - a[1], b[2] - a[2]), way)
    if not along > 0.0:
        return ray.origin
    return make_vector(*(at + part * along for at, part in zip(a, way, strict=True)))


@checked(METHODS, "Distance", _ray, vector)
def _distance(ray: Ray, point: Vector) -> float:
    closest, at = triple(_closest_point(ray, point)), triple(point)
    pairs = zip(closest, at, strict=True)
    return single(math.sqrt(sum((a - b) * (a - b) for a, b in pairs)))


@operator(Ray, "__tostring", _ray)
def _text(ray: Ray) -> str:
    return f"{{{to_text(ray.origin)}}}, {{{to_text(ray.direction)}}}"
