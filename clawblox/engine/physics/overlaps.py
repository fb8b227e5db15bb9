"""Finds the pairs of bodies that overlap after a step, up to a limit.

rapier reports the start and end of each pair with a dynamic body. It does not report pairs of
anchored bodies and characters, so a query is made for each character and the bodies fixed to it.
Two anchored bodies are never a pair.
"""

from __future__ import annotations

from collections.abc import Iterable

from rapier3d import Aabb, ColliderHandle, CollisionEvent

from clawblox.engine.physics.bodies import DYNAMIC, Bodies, groups_collide
from clawblox.engine.physics.queries import Queries

Pair = tuple[int, int]

CHARACTER_MARGIN = 0.1
"""Margin added to a character for touches, since it floats 0.05 above its floor, in studs."""


class Overlaps:
    """The overlapping pairs of a space, each with the smaller number first."""

    def __init__(self, bodies: Bodies, queries: Queries) -> None:
        self._bodies = bodies
        self._queries = queries
        self.reported: dict[Pair, None] = {}
        """The pairs reported by rapier."""

    def current(self) -> list[Pair]:
        """Return the pairs that overlap after the last step, in order."""
        bodies = self._bodies
        pairs = dict(self.reported)
        carried = [n for n, body in bodies.fixed.items() if body.fixed_to in bodies.characters]
        for number in (*bodies.characters, *carried):
            traits = bodies.by_number[number].traits
            for other in self._queries.overlapping_body(number, CHARACTER_MARGIN):
                if groups_collide(traits, bodies.by_number[other].traits):
                    pairs[_in_order(number, other)] = None
        return sorted(pairs)

    def take(self, events: Iterable[CollisionEvent]) -> None:
        """Read the events of a step from rapier."""
        number = self._bodies.number
        for event in events:
            first, second = number(event.collider1), number(event.collider2)
            if first is None or second is None:
                continue
            if event.started:
                self.reported[_in_order(first, second)] = None
            else:
                self.reported.pop(_in_order(first, second), None)

    def forget(self, number: int) -> None:
        """Drop the pairs of a removed body."""
        for pair in [pair for pair in self.reported if number in pair]:
            del self.reported[pair]


def _in_order(first: int, second: int) -> Pair:
    return (first, second) if first < second else (second, first)


MOST_CONTACTS = 20_000
"""Maximum number of pairs with a dynamic body; each costs about 1 kB, and 4 µs per step."""
MOST_NEIGHBOURS = 1_000_000
"""Maximum number of other pairs whose bounds overlap; each costs about 20 bytes."""


class TooCrowdedError(ValueError):
    """Too many bodies are in one place; the step was not made.

    Attributes:
        number: One of the bodies.
    """

    def __init__(self, number: int, most: int) -> None:
        super().__init__(f"more than {most} pairs of bodies overlap")
        self.number = number


def check_crowding(bodies: Bodies, changed: Iterable[int], contacts: int) -> None:
    """Check that the next step does not exceed the maximum numbers of pairs.

    Args:
        bodies: The bodies.
        changed: The bodies added, placed or changed since the last step.
        contacts: Number of pairs with a dynamic body that overlapped after the last step.

    Raises:
        TooCrowdedError: There are too many pairs.
    """
    dynamic, total = len(bodies.dynamic), len(bodies.by_number)
    if dynamic * total <= MOST_CONTACTS and total * total <= MOST_NEIGHBOURS:
        return
    neighbours = 0
    for number in changed:
        body = bodies.by_number[number]
        nearby = _count(bodies, body.collider.compute_aabb(), MOST_NEIGHBOURS - neighbours)
        neighbours += nearby
        if body.traits.motion is DYNAMIC:
            contacts += nearby
        if contacts > MOST_CONTACTS:
            raise TooCrowdedError(number, MOST_CONTACTS)
        if neighbours >= MOST_NEIGHBOURS:
            raise TooCrowdedError(number, MOST_NEIGHBOURS)


def _count(bodies: Bodies, bounds: Aabb, most: int) -> int:
    """Return the number of bodies whose bounds overlap some bounds, up to a limit."""
    met = -1  # the body itself

    def count(_handle: ColliderHandle) -> bool:
        nonlocal met
        met += 1
        return met < most

    bodies.world.query_pipeline.colliders_with_aabb_intersecting_aabb(bounds, count)
    return max(met, 0)
