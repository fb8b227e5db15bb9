"""``Ray``, a half-line, and ``Region3``, an axis-aligned box."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import attrs

from clawblox.engine.values.cframe import CFrame
from clawblox.engine.values.rotations import Triple, dot, normalize
from clawblox.engine.values.value import (
    Getters,
    Value,
    attributes,
    checked,
    instance_check,
    number,
    vector,
)
from clawblox.engine.values.vector3 import triple
from clawblox.luau import RuntimeFault, Vector, make_vector
from clawblox.luau.core.numbers import single
from clawblox.luau.core.operators import to_text


@attrs.define(eq=False, repr=False)
class Ray(Value):
    """A half-line: its origin, and its direction, whose length `FindPartOnRay` uses."""

    origin: Vector
    direction: Vector

    type_name = "Ray"
    kinds = (Vector, Vector)
    getters: ClassVar[Getters] = {
        **attributes(Origin="origin", Direction="direction"),
        "Unit": lambda ray: _unit(ray),
    }

    def text(self) -> str:
        """Return the origin and the direction in braces."""
        return f"{{{to_text(self.origin)}}}, {{{to_text(self.direction)}}}"


def make_ray(origin: Triple, direction: Triple) -> Ray:
    """Return the half-line of plain numbers."""
    return Ray(make_vector(*origin), make_vector(*direction))


_ray = instance_check(Ray, "Ray")


@checked(Ray.constructors, "new", vector, vector)
def _new_ray(origin: Vector, direction: Vector) -> Ray:
    return Ray(origin, direction)


def _unit(ray: Ray) -> Ray:
    direction = normalize(triple(ray.direction))
    return ray if direction is None else Ray(ray.origin, make_vector(*direction))


@checked(Ray.methods, "ClosestPoint", _ray, vector)
def _closest_point(ray: Ray, point: Vector) -> Vector:
    a, b, way = triple(ray.origin), triple(point), triple(ray.direction)
    along = dot((b[0] - a[0], b[1] - a[1], b[2] - a[2]), way)
    if not along > 0.0:
        return ray.origin
    return make_vector(*(at + part * along for at, part in zip(a, way, strict=True)))


@checked(Ray.methods, "Distance", _ray, vector)
def _distance(ray: Ray, point: Vector) -> float:
    closest, at = triple(_closest_point(ray, point)), triple(point)
    pairs = zip(closest, at, strict=True)
    return single(math.sqrt(sum((a - b) * (a - b) for a, b in pairs)))


@attrs.define(eq=False, repr=False)
class Region3(Value):
    """An axis-aligned box, given by its smallest and largest corner."""

    low: Vector
    high: Vector

    type_name = "Region3"
    kinds = (Vector, Vector)
    getters: ClassVar[dict[str, Callable[[Region3], Any]]] = {
        "CFrame": lambda box: CFrame(box.center()),
        "Size": lambda box: box.size(),
    }

    def center(self) -> Vector:
        """Return the centre of the box."""
        a, b = self.low, self.high
        return make_vector((a.x + b.x) / 2.0, (a.y + b.y) / 2.0, (a.z + b.z) / 2.0)

    def size(self) -> Vector:
        """Return the lengths of its sides."""
        a, b = self.low, self.high
        return make_vector(b.x - a.x, b.y - a.y, b.z - a.z)

    def text(self) -> str:
        """Return the frame of the centre and the size."""
        return f"{to_text(CFrame(self.center()))}; {to_text(self.size())}"


@checked(Region3.constructors, "new", vector, vector)
def _new(a: Vector, b: Vector) -> Region3:
    low = Vector(min(a.x, b.x), min(a.y, b.y), min(a.z, b.z))
    return Region3(low, Vector(max(a.x, b.x), max(a.y, b.y), max(a.z, b.z)))


@checked(Region3.methods, "ExpandToGrid", instance_check(Region3, "Region3"), number)
def _expand_to_grid(box: Region3, step: float) -> Region3:
    if not (step > 0.0 and math.isfinite(step)):
        raise RuntimeFault("Region3:ExpandToGrid() needs a resolution above 0")
    a, b = box.low, box.high
    low = make_vector(*(_on_grid(math.floor, part, step) for part in (a.x, a.y, a.z)))
    high = make_vector(*(_on_grid(math.ceil, part, step) for part in (b.x, b.y, b.z)))
    return Region3(low, high)


def _on_grid(to_whole: Callable[[float], int], value: float, step: float) -> float:
    lines = value / step
    return to_whole(lines) * step if math.isfinite(lines) else value
