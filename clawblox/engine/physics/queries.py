"""Rays and overlaps. Call `Space.refresh` first to include bodies placed since the last step."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from rapier3d import (
    Aabb,
    ColliderHandle,
    QueryFilter,
    QueryFilterFlags,
    Ray,
    RayIntersection,
    SharedShape,
)

from clawblox.engine.physics.bodies import CHARACTER, Bodies, interaction
from clawblox.engine.physics.colliders import Shape, capsule, collider_shape
from clawblox.engine.physics.numbers import NO_TURN, is_finite, to_quaternion
from clawblox.engine.values.rotations import Quaternion, Rotation, Triple

_BESIDE = 1.5
_ABOVE = 3.0
_BELOW = 4.5
"""Maximum distance of a body that can move a standing character in a tick, in studs."""


class Hit(NamedTuple):
    """A hit of a ray on a body: the distance in studs and the body's outward normal."""

    number: int
    distance: float
    position: Triple
    normal: Triple


class Queries:
    """Queries about the positions of bodies; they do not change the space."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies

    def ray(self, origin: Triple, direction: Triple, length: float) -> list[Hit]:
        """Return all hits of a ray, nearest first, ties sorted by number.

        If the ray starts inside a body, it hits the far side of that body.

        Args:
            origin: Start of the ray.
            direction: Direction of the ray, of any length.
            length: Length of the ray, in studs.
        """
        norm = math.sqrt(direction[0] ** 2 + direction[1] ** 2 + direction[2] ** 2)
        if not is_finite(origin) or not 0.0 < norm < math.inf or not length >= 0.0:
            return []
        x, y, z = direction[0] / norm, direction[1] / norm, direction[2] / norm
        met: list[tuple[float, int, RayIntersection]] = []
        numbers = self._bodies.numbers

        def collect(handle: ColliderHandle, hit: RayIntersection) -> bool:
            met.append((hit.toi, numbers[handle.index], hit))
            return True

        pipeline = self._bodies.world.query_pipeline
        pipeline.intersect_ray(Ray(origin, (x, y, z)), length, False, collect)
        if not met:
            return []
        inside = self.at_point(origin)
        hits = []
        for distance, number, hit in sorted(met, key=lambda entry: entry[:2]):
            a, b, c = hit.normal.to_tuple()
            if number in inside and a * x + b * y + c * z < 0.0:
                a, b, c = -a, -b, -c
            at = (origin[0] + x * distance, origin[1] + y * distance, origin[2] + z * distance)
            hits.append(Hit(number, distance, at, (a + 0.0, b + 0.0, c + 0.0)))
        return hits

    def at_point(self, point: Triple) -> list[int]:
        """Return the bodies that contain a point."""
        found, collect = self._collector()
        self._bodies.world.query_pipeline.intersect_point(point, collect)
        return found

    def _collector(self) -> tuple[list[int], Callable[[ColliderHandle], bool]]:
        """Return a list, and a callback that appends the number of each body."""
        found: list[int] = []
        numbers = self._bodies.numbers

        def collect(handle: ColliderHandle) -> bool:
            found.append(numbers[handle.index])
            return True

        return found, collect

    def overlapping(
        self, shape: Shape, position: Triple, rotation: Rotation | None = None
    ) -> list[int]:
        """Return the numbers of the bodies that a shape would overlap, in order."""
        return self._overlapping(collider_shape(shape), position, to_quaternion(rotation))

    def overlapping_body(self, number: int, margin: float = 0.0) -> list[int]:
        """Return the numbers of the bodies that a body overlaps, in order.

        Args:
            number: The body.
            margin: Margin added to a character, in studs; not added to other bodies.
        """
        body = self._bodies.by_number[number]
        traits = body.traits
        shape = capsule(margin) if traits.motion is CHARACTER else collider_shape(traits.shape)
        at, turn = body.collider.translation.to_tuple(), body.collider.rotation.to_tuple()
        return [other for other in self._overlapping(shape, at, turn) if other != number]

    def has_mover_near(self, number: int) -> bool:
        """Return whether a character is near a body that can move, or that has moved before.

        A body is near if it could push or carry the character within a tick, or be its floor.
        """
        body = self._bodies.by_number[number]
        x, y, z = body.rigid.translation.to_tuple()
        box = Aabb((x - _BESIDE, y - _BELOW, z - _BESIDE), (x + _BESIDE, y + _ABOVE, z + _BESIDE))
        what = QueryFilter(
            flags=QueryFilterFlags.EXCLUDE_SENSORS | QueryFilterFlags.EXCLUDE_FIXED,
            exclude_rigid_body=body.body_handle,
        )
        return self._bodies.world.query_pipeline.test_aabb(box, what)

    def anchored_within(self, number: int) -> list[int]:
        """Return the numbers of the solid anchored bodies that a character overlaps, in order."""
        body = self._bodies.by_number[number]
        what = QueryFilter(
            flags=QueryFilterFlags.EXCLUDE_SENSORS | QueryFilterFlags.EXCLUDE_DYNAMIC,
            groups=interaction(body.traits),
        )
        at = body.rigid.translation.to_tuple()
        numbers = self._overlapping(capsule(), at, NO_TURN, what)
        return [other for other in numbers if not self._bodies.goes_with_character(other)]

    def support(self, number: int, reach: float) -> tuple[int, float] | None:
        """Return the nearest solid body straight below a character's centre, and its distance.

        Other characters are ignored.

        Args:
            number: The character.
            reach: Search distance below its centre, in studs.
        """
        body = self._bodies.by_number[number]
        solids = QueryFilter(
            flags=QueryFilterFlags.EXCLUDE_SENSORS,
            groups=interaction(body.traits),
            predicate=self._bodies.is_no_character,
        )
        ray = Ray(body.rigid.translation.to_tuple(), (0.0, -1.0, 0.0))
        hit = self._bodies.world.query_pipeline.cast_ray(ray, reach, True, solids)
        return None if hit is None else (self._bodies.numbers[hit[0].index], hit[1])

    def _overlapping(
        self, shape: SharedShape, at: Triple, turn: Quaternion, what: QueryFilter | None = None
    ) -> list[int]:
        if not is_finite(at):
            return []
        found, collect = self._collector()
        self._bodies.world.query_pipeline.intersect_shape((at, turn), shape, collect, what)
        return sorted(found)
