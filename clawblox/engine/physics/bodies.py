"""What is kept about each body beside rapier, and how a body is built."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

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


class Motion(StrEnum):
    """How a body moves."""

    ANCHORED = "anchored"
    """Only when it is placed; what it meets is pushed."""
    DYNAMIC = "dynamic"
    """By forces and contacts."""
    CHARACTER = "character"
    """By `Space.move_character`: an upright capsule, whatever its shape."""


ANCHORED = Motion.ANCHORED
CHARACTER = Motion.CHARACTER
DYNAMIC = Motion.DYNAMIC

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
    group: int = 0
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


def rapier_type(motion: Motion, *, moved: bool = False) -> RigidBodyType:
    """Return the type of a rigid body; one that was never moved costs rapier less."""
    if motion is DYNAMIC:
        return RigidBodyType.DYNAMIC
    if motion is CHARACTER or moved:
        return RigidBodyType.KINEMATIC_POSITION_BASED
    return RigidBodyType.FIXED


def rigid_builder(motion: Motion, at: Triple, turn: Quaternion) -> RigidBodyBuilder:
    """Return a rigid body to be, at a place."""
    return RigidBodyBuilder(rapier_type(motion)).position((at, turn))


def body_shape(traits: Traits) -> SharedShape:
    """Return the shape that collides for a body with these traits."""
    return capsule() if traits.motion is CHARACTER else collider_shape(traits.shape)


def collider_builder(traits: Traits, groups: InteractionGroups) -> ColliderBuilder:
    """Return a collider to be."""
    return (
        Collider.new(body_shape(traits))
        .density(traits.density)
        .friction(traits.friction)
        .restitution(traits.restitution)
        .sensor(not traits.solid)
        .collision_groups(groups)
        .active_events(ActiveEvents.COLLISION_EVENTS)
    )


def view(
    world: PhysicsWorld,
    number: int,
    traits: Traits,
    body_handle: RigidBodyHandle,
    collider_handle: ColliderHandle,
    fixed_to: int = 0,
) -> Body:
    """Return the body of these handles."""
    return Body(
        number,
        traits,
        body_handle,
        collider_handle,
        world.rigid_bodies[body_handle],
        world.colliders[collider_handle],
        fixed_to,
    )


class GroupTable:
    """Which of the 32 collision groups collide with which."""

    def __init__(self, masks: list[int] | None = None) -> None:
        self.masks = masks or [0xFFFFFFFF] * 32

    def interaction(self, group: int) -> InteractionGroups:
        """Return what rapier tests for a member of a group."""
        return InteractionGroups(
            Group.from_bits(1 << group), Group.from_bits(self.masks[group] & 0xFFFFFFFF)
        )

    def collide(self, first: int, second: int) -> bool:
        """Return whether members of two groups collide."""
        return bool(self.masks[first] >> second & 1)


class Bodies:
    """The bodies of a space, and rapier's world that they are in."""

    def __init__(self, world: PhysicsWorld) -> None:
        self.world = world
        self.groups = GroupTable()
        self.by_number: dict[int, Body] = {}
        self.characters: dict[int, Body] = {}
        self.numbers: dict[int, int] = {}
        """Which body a collider is, by the collider's index."""

    def number(self, handle: ColliderHandle) -> int | None:
        """Return the body of a collider; None when it was removed, its index perhaps taken."""
        number = self.numbers.get(handle.index)
        if number is None or self.by_number[number].collider_handle != handle:
            return None
        return number
