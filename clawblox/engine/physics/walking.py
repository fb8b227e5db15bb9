"""The controller that moves characters among solid bodies."""

from __future__ import annotations

import math
from typing import NamedTuple, TypeAlias

from rapier3d import (
    CharacterAutostep,
    CharacterCollision,
    ColliderSet,
    EffectiveCharacterMovement,
    Isometry3,
    KinematicCharacterController,
    QueryFilter,
    QueryFilterFlags,
    QueryPipeline,
    RigidBodySet,
    SharedShape,
)

from clawblox.engine.physics.bodies import Bodies, Body, interaction
from clawblox.engine.physics.colliders import (
    CAPSULE_HALF_HEIGHT,
    CAPSULE_RADIUS,
    HALF_HEIGHT,
    capsule,
)
from clawblox.engine.physics.numbers import checked
from clawblox.engine.scheduler import TICK_S
from clawblox.engine.values.rotations import Triple

GAP = 0.05
"""The gap between a character and its floor, in studs."""
STEP_HEIGHT = 1.0 + GAP
STEP_WIDTH = 0.8
"""Distance ahead at which the floor of a step is searched for, in studs. With a smaller distance
the round end of the capsule would hit the edge of the step like a steep slope."""
CLIMB_ANGLE = math.radians(45.0)
SLIDE_ANGLE = math.radians(30.0)
SNAP = 0.2
LIFT = 1e-3
"""Height by which a blocked character is raised for a second try, in studs, because within the
gap the controller may mistake the floor for a wall."""
MASS = math.pi * (2.0 * CAPSULE_HALF_HEIGHT + 4.0 / 3.0)
"""Mass with which a character pushes dynamic bodies: its capsule with radius and density 1."""

_BESIDE = 2.0 * CAPSULE_RADIUS + STEP_WIDTH + 0.5
_ABOVE = 2.0 * HALF_HEIGHT + STEP_HEIGHT + 0.5
"""Characters further apart than this plus their wish cannot collide in a step, in studs."""


_Placed: TypeAlias = tuple[float, RigidBodySet, ColliderSet, QueryPipeline, SharedShape, Isometry3]


class Movement(NamedTuple):
    """The outcome of a move request: the shift in studs along each axis, and whether on a floor."""

    x: float
    y: float
    z: float
    grounded: bool


class Walking:
    """Moves the characters of a space; they pass through each other and through sensors.

    Attributes:
        pushes: Whether characters push the dynamic bodies in their way.
    """

    def __init__(self, bodies: Bodies) -> None:
        self.pushes = True
        self._bodies = bodies
        self._controller = KinematicCharacterController(
            up=(0.0, 1.0, 0.0),
            offset=GAP,
            slide=True,
            autostep=CharacterAutostep(STEP_HEIGHT, STEP_WIDTH, include_dynamic_bodies=True),
            max_slope_climb_angle=CLIMB_ANGLE,
            min_slope_slide_angle=SLIDE_ANGLE,
            snap_to_ground=SNAP,
        )

    def move(self, number: int, wish: Triple) -> Movement:
        """Move a character; see `Space.move_character`."""
        checked("A movement", wish)
        body = self._bodies.characters[number]
        at = body.rigid.translation.to_tuple()  # rapier reads a tuple five times as fast
        pose = Isometry3(at)
        what = self._filter(body, at, wish)
        moved, met = self._try(pose, wish, what)
        if (wish[0] or wish[2]) and not (moved.translation.x or moved.translation.z):
            lifted = (wish[0], max(wish[1], 0.0) + LIFT, wish[2])
            freed, met_then = self._try(pose, lifted, what)
            if freed.translation.x or freed.translation.z:
                moved, met = freed, met_then
        if self.pushes and any(map(self._is_dynamic, met)):
            self._controller.solve_character_collision_impulses(
                *self._capsule_at(pose), MASS, met, what
            )
        x, y, z = moved.translation.to_tuple()
        body.rigid.set_next_kinematic_translation((at[0] + x, at[1] + y, at[2] + z))
        return Movement(x, y, z, moved.grounded)

    def _try(
        self, pose: Isometry3, wish: Triple, what: QueryFilter
    ) -> tuple[EffectiveCharacterMovement, list[CharacterCollision]]:
        """Return the motion of a capsule, and its collisions."""
        met: list[CharacterCollision] = []
        moved = self._controller.move_shape(*self._capsule_at(pose), wish, what, met.append)
        return moved, met

    def _capsule_at(self, pose: Isometry3) -> _Placed:
        """Return the leading arguments of the controller's methods."""
        world = self._bodies.world
        return (
            TICK_S,
            world.rigid_bodies,
            world.colliders,
            world.query_pipeline,
            capsule(),
            pose,
        )

    def _filter(self, body: Body, at: Triple, wish: Triple) -> QueryFilter:
        """Return a filter for solid bodies in groups that collide with the character."""
        is_near = self._is_near_another(body, at, wish)
        return QueryFilter(
            flags=QueryFilterFlags.EXCLUDE_SENSORS,
            groups=interaction(body.traits),
            exclude_rigid_body=body.body_handle,
            predicate=self._bodies.is_no_character if is_near else None,
        )

    def _is_near_another(self, body: Body, at: Triple, wish: Triple) -> bool:
        """Return whether the costly test of single bodies is needed."""
        bodies = self._bodies
        if any(fixture.fixed_to in bodies.characters for fixture in bodies.fixed.values()):
            return True
        far = abs(wish[0]) + abs(wish[1]) + abs(wish[2])
        beside, above = _BESIDE + far, _ABOVE + far
        for other in bodies.characters.values():
            if other is not body:
                x, y, z = other.rigid.translation.to_tuple()
                if abs(x - at[0]) < beside and abs(z - at[2]) < beside and abs(y - at[1]) < above:
                    return True
        return False

    def _is_dynamic(self, collision: CharacterCollision) -> bool:
        bodies = self._bodies
        body = bodies.by_number[bodies.numbers[collision.handle.index]]
        return (body.fixed_to or body.number) in bodies.dynamic
