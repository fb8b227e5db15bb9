"""What is kept about each body beside rapier, and how a body is built."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from rapier3d import (
    ActiveEvents,
    Collider,
    ColliderBuilder,
    ColliderHandle,
    Group,
    InteractionGroups,
    PhysicsWorld,
    RigidBody,
    RigidBodyBuilder,
    RigidBodyHandle,
    RigidBodyType,
    SharedShape,
)

from clawblox.engine.physics.numbers import Triple
from clawblox.engine.physics.rotations import Quaternion
from clawblox.engine.physics.shapes import Shape, capsule, collider_shape

Pose = tuple[Triple, Quaternion]


class Motion(StrEnum):
    """How a body moves."""

    ANCHORED = "anchored"
    """Only when it is placed; what it meets is pushed."""
    DYNAMIC = "dynamic"
    """By forces and contacts."""
    CHARACTER = "character"
    """By `Space.move_character`: an upright capsule, whatever its shape."""
    FIXED = "fixed"
    """With the body that it is fixed to, as one rigid body."""


ANCHORED = Motion.ANCHORED
CHARACTER = Motion.CHARACTER
DYNAMIC = Motion.DYNAMIC
FIXED = Motion.FIXED

FIRST_GROUP = 1
ALL_GROUPS = 0xFFFFFFFF
"""Groups are bits of a number: a body has that of its group, and those that it collides with."""

DENSITY = 1.0
FRICTION = 0.5
RESTITUTION = 0.0
"""What rapier takes for a collider that says nothing."""


@dataclass(slots=True)
class Traits:
    """What a body is, apart from where it is; plain data that a document can hold."""

    motion: Motion
    shape: Shape
    solid: bool = True
    group: int = FIRST_GROUP
    mask: int = ALL_GROUPS
    density: float = DENSITY
    friction: float = FRICTION
    restitution: float = RESTITUTION


@dataclass(slots=True)
class Body:
    """A body in rapier: views of its rigid body and its collider, and its traits."""

    number: int
    traits: Traits
    body_handle: RigidBodyHandle
    collider_handle: ColliderHandle
    rigid: RigidBody
    collider: Collider
    fixed_to: int = 0
    """The body whose rigid body it shares; 0 when it has its own."""


def put(rigid: RigidBody, pose: Pose) -> None:
    """Let a rigid body be somewhere; rapier reads tuples in half the time of its own types."""
    rigid.position = pose  # type: ignore[assignment]


def rapier_type(motion: Motion, *, moved: bool = False) -> RigidBodyType:
    """Return the type of a rigid body; one that was never moved costs rapier less."""
    if motion is DYNAMIC:
        return RigidBodyType.DYNAMIC
    if motion is CHARACTER or moved:
        return RigidBodyType.KINEMATIC_POSITION_BASED
    return RigidBodyType.FIXED


def body_shape(traits: Traits) -> SharedShape:
    """Return the shape that collides for a body with these traits."""
    return capsule() if traits.motion is CHARACTER else collider_shape(traits.shape)


def interaction(traits: Traits) -> InteractionGroups:
    """Return what rapier tests for a body."""
    return _interaction(traits.group, traits.mask)


@lru_cache(maxsize=1024)
def _interaction(group: int, mask: int) -> InteractionGroups:
    return InteractionGroups(Group.from_bits(group), Group.from_bits(mask))


def collider_builder(traits: Traits) -> ColliderBuilder:
    """Return a collider to be."""
    return (
        Collider.new(body_shape(traits))
        .density(traits.density)
        .friction(traits.friction)
        .restitution(traits.restitution)
        .sensor(not traits.solid)
        .collision_groups(interaction(traits))
        .active_events(ActiveEvents.COLLISION_EVENTS)
    )


def groups_collide(first: Traits, second: Traits) -> bool:
    """Return whether bodies of two groups collide."""
    return bool(first.group & second.mask and second.group & first.mask)


class Bodies:
    """The bodies of a space, and rapier's world that they are in."""

    def __init__(self, world: PhysicsWorld) -> None:
        self.world = world
        self.by_number: dict[int, Body] = {}
        self.characters: dict[int, Body] = {}
        self.dynamic: dict[int, Body] = {}
        self.fixed: dict[int, Body] = {}
        """The bodies that are fixed to others."""
        self.numbers: dict[int, int] = {}
        """Which body a collider is, by the collider's index."""

    def add(self, number: int, traits: Traits, at: Triple, turn: Quaternion) -> Body:
        """Add a body with a rigid body of its own."""
        rigid = RigidBodyBuilder(rapier_type(traits.motion)).position((at, turn))
        handle = self.world.add_body(rigid)
        collider = collider_builder(traits)
        return self.admit(number, traits, handle, self.world.add_collider(collider, handle))

    def fix(self, number: int, to: int, traits: Traits, at: Triple, turn: Quaternion) -> Body:
        """Add a body that is part of another's rigid body, at a place in its space."""
        root = self.by_number[to]
        builder = collider_builder(traits)
        handle = self.world.add_collider(builder.position((at, turn)), root.body_handle)
        return self.admit(number, traits, root.body_handle, handle, to)

    def admit(
        self,
        number: int,
        traits: Traits,
        body_handle: RigidBodyHandle,
        collider_handle: ColliderHandle,
        fixed_to: int = 0,
    ) -> Body:
        """Take in a body that rapier has."""
        rigid, collider = (
            self.world.rigid_bodies[body_handle],
            self.world.colliders[collider_handle],
        )
        body = Body(number, traits, body_handle, collider_handle, rigid, collider, fixed_to)
        self.by_number[number] = body
        self.numbers[collider_handle.index] = number
        self.sort(body)
        return body

    def sort(self, body: Body) -> None:
        """List a body among those that move as it does."""
        lists = {CHARACTER: self.characters, DYNAMIC: self.dynamic, FIXED: self.fixed}
        for motion, bodies in lists.items():
            if motion is body.traits.motion:
                bodies[body.number] = body
            else:
                bodies.pop(body.number, None)

    def remove(self, number: int) -> list[int]:
        """Remove a body and those fixed to it; return their numbers."""
        body = self.by_number[number]
        removed = [number]
        if body.traits.motion is FIXED:
            self.world.remove_collider(body.collider_handle)
        else:
            removed += [each.number for each in self.fixed.values() if each.fixed_to == number]
            self.world.remove_body(body.body_handle)
        for each in removed:
            gone = self.by_number.pop(each)
            del self.numbers[gone.collider_handle.index]
            for bodies in (self.characters, self.dynamic, self.fixed):
                bodies.pop(each, None)
        return removed

    def number(self, handle: ColliderHandle) -> int | None:
        """Return the body of a collider; None when it was removed, its index perhaps taken."""
        number = self.numbers.get(handle.index)
        if number is None or self.by_number[number].collider_handle != handle:
            return None
        return number

    def check_known(self, numbers: Iterable[int]) -> None:
        """Check that there are bodies with some numbers.

        Raises:
            ValueError: One is missing.
        """
        for number in numbers:
            if number not in self.by_number:
                raise ValueError(f"the snapshot has no body {number}")

    def goes_with_character(self, number: int) -> bool:
        """Return whether a body is a character, or fixed to one."""
        body = self.by_number[number]
        return (body.fixed_to or number) in self.characters

    def is_no_character(self, handle: ColliderHandle, _collider: Collider) -> bool:
        """Return the opposite of its body; rapier asks it of the colliders that a query finds."""
        return not self.goes_with_character(self.numbers[handle.index])
