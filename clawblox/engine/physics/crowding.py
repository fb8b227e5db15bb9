"""A limit on how many bodies may overlap: each such pair costs memory and time in every step."""

from __future__ import annotations

from collections.abc import Iterable

from rapier3d import Aabb, ColliderHandle

from clawblox.engine.physics.bodies import DYNAMIC, Bodies

MOST_CONTACTS = 20_000
"""Pairs with a dynamic body; each costs about 1 kB and 4 µs a step."""
MOST_NEIGHBOURS = 1_000_000
"""Other pairs whose bounds overlap; each costs about 20 bytes."""


class TooCrowdedError(ValueError):
    """Too many bodies are in one place; nothing has been stepped.

    Attributes:
        number: One of the bodies.
    """

    def __init__(self, number: int, most: int) -> None:
        super().__init__(f"more than {most} pairs of bodies overlap")
        self.number = number


def check_crowding(bodies: Bodies, changed: Iterable[int], contacts: int) -> None:
    """Check that the next step finds no more pairs of bodies than it can bear.

    Args:
        bodies: The bodies.
        changed: Those that were added, placed or changed since the last step.
        contacts: How many pairs with a dynamic body overlapped after the last step.

    Raises:
        TooCrowdedError: There are more.
    """
    dynamic, total = len(bodies.dynamic), len(bodies.by_number)
    if dynamic * total <= MOST_CONTACTS and total * total <= MOST_NEIGHBOURS:
        return
    neighbours = 0
    for number in changed:
        body = bodies.by_number[number]
        found = _count(bodies, body.collider.compute_aabb(), MOST_NEIGHBOURS - neighbours)
        neighbours += found
        if body.traits.motion is DYNAMIC:
            contacts += found
        if contacts > MOST_CONTACTS:
            raise TooCrowdedError(number, MOST_CONTACTS)
        if neighbours >= MOST_NEIGHBOURS:
            raise TooCrowdedError(number, MOST_NEIGHBOURS)


def _count(bodies: Bodies, bounds: Aabb, most: int) -> int:
    """Return how many bodies' bounds meet some bounds, up to a number."""
    found = -1  # itself

    def count(_handle: ColliderHandle) -> bool:
        nonlocal found
        found += 1
        return found < most

    bodies.world.query_pipeline.colliders_with_aabb_intersecting_aabb(bounds, count)
    return max(found, 0)
