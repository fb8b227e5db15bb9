"""The bodies that rapier simulates: their traits, their construction, and forces."""

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
    Vec3,
)

from clawblox.engine.physics.colliders import Shape, capsule, collider_shape
from clawblox.engine.physics.numbers import FASTEST_TURN, checked
from clawblox.engine.values.rotations import Quaternion, Triple

Pose = tuple[Triple, Quaternion]


class Motion(StrEnum):
    """The kind of motion of a body."""

    ANCHORED = "anchored"
    """Moves only when placed, and pushes the bodies in its way."""
    DYNAMIC = "dynamic"
    """Moves by forces and contacts."""
    CHARACTER = "character"
    """Moves by `Space.move_character`, as an upright capsule regardless of its shape."""
    FIXED = "fixed"
    """Moves with the body that it is fixed to, as a single rigid body."""


ANCHORED = Motion.ANCHORED
CHARACTER = Motion.CHARACTER
DYNAMIC = Motion.DYNAMIC
FIXED = Motion.FIXED

FIRST_GROUP = 1
ALL_GROUPS = 0xFFFFFFFF
"""Mask of all groups: a body has a bit for its group, and bits for the groups it collides with."""

DENSITY = 1.0
FRICTION = 0.5
RESTITUTION = 0.0
"""Default of rapier for a collider."""


@dataclass(slots=True)
class Traits:
    """The properties of a body apart from its pose, as plain data.

    Attributes:
        shape: Its shape, in studs.
        motion: Its kind of motion.
        solid: Whether it collides with others; overlaps are reported in any case.
        group: The bit of its collision group.
        mask: The bits of the groups that it collides with.
        density: Its mass per cubic stud.
        friction: Its coefficient of friction.
        restitution: Its elasticity.
    """

    shape: Shape
    motion: Motion = ANCHORED
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
    """The body whose rigid body it shares; 0 if it has its own."""


def put(rigid: RigidBody, pose: Pose) -> None:
    """Place a rigid body; rapier reads tuples in half the time of its own types."""
    rigid.position = pose  # type: ignore[assignment]


def rapier_type(motion: Motion, *, moved: bool = False) -> RigidBodyType:
    """Return the type of a rigid body; rapier handles bodies that never moved faster."""
    if motion is DYNAMIC:
        return RigidBodyType.DYNAMIC
    if motion is CHARACTER or moved:
        return RigidBodyType.KINEMATIC_POSITION_BASED
    return RigidBodyType.FIXED


def body_shape(traits: Traits) -> SharedShape:
    """Return the collision shape of a body with these traits."""
    return capsule() if traits.motion is CHARACTER else collider_shape(traits.shape)


def interaction(traits: Traits) -> InteractionGroups:
    """Return the interaction groups that rapier tests for a body."""
    return _interaction(traits.group, traits.mask)


@lru_cache(maxsize=1024)
def _interaction(group: int, mask: int) -> InteractionGroups:
    return InteractionGroups(Group.from_bits(group), Group.from_bits(mask))


def collider_builder(traits: Traits) -> ColliderBuilder:
    """Return a builder of the collider for these traits."""
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
    """Return whether the groups of two bodies collide."""
    return bool(first.group & second.mask and second.group & first.mask)


class Bodies:
    """The bodies of a space, and rapier's world that contains them."""

    def __init__(self, world: PhysicsWorld) -> None:
        self.world = world
        self.by_number: dict[int, Body] = {}
        self.characters: dict[int, Body] = {}
        self.dynamic: dict[int, Body] = {}
        self.fixed: dict[int, Body] = {}
        """The bodies that are fixed to others."""
        self.numbers: dict[int, int] = {}
        """The number of the body by index of its collider."""

    def add(self, number: int, traits: Traits, at: Triple, turn: Quaternion) -> Body:
        """Add a body with its own rigid body."""
        rigid = RigidBodyBuilder(rapier_type(traits.motion)).position((at, turn))
        handle = self.world.add_body(rigid)
        collider = collider_builder(traits)
        return self.admit(number, traits, handle, self.world.add_collider(collider, handle))

    def fix(self, number: int, to: int, traits: Traits, at: Triple, turn: Quaternion) -> Body:
        """Add a body to another's rigid body, with its pose relative to that."""
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
        """Register a body that rapier already has."""
        rigid = self.world.rigid_bodies[body_handle]
        collider = self.world.colliders[collider_handle]
        body = Body(number, traits, body_handle, collider_handle, rigid, collider, fixed_to)
        self.by_number[number] = body
        self.numbers[collider_handle.index] = number
        self.sort(body)
        return body

    def sort(self, body: Body) -> None:
        """List a body under its kind of motion."""
        lists = {CHARACTER: self.characters, DYNAMIC: self.dynamic, FIXED: self.fixed}
        for motion, bodies in lists.items():
            if motion is body.traits.motion:
                bodies[body.number] = body
            else:
                bodies.pop(body.number, None)

    def remove(self, number: int) -> list[int]:
        """Remove a body and all bodies fixed to it; return their numbers."""
        body = self.by_number[number]
        removed = [number]
        if body.traits.motion is FIXED:
            self.world.remove_collider(body.collider_handle)
        else:
            removed += [fixed.number for fixed in self.fixed.values() if fixed.fixed_to == number]
            self.world.remove_body(body.body_handle)
        for fixed in removed:
            gone = self.by_number.pop(fixed)
            del self.numbers[gone.collider_handle.index]
            for bodies in (self.characters, self.dynamic, self.fixed):
                bodies.pop(fixed, None)
        return removed

    def number(self, handle: ColliderHandle) -> int | None:
        """Return the body of a collider; None if it was removed, even if its index is reused."""
        number = self.numbers.get(handle.index)
        if number is None or self.by_number[number].collider_handle != handle:
            return None
        return number

    def check_known(self, numbers: Iterable[int]) -> None:
        """Check that bodies with these numbers exist.

        Raises:
            ValueError: A body is missing.
        """
        for number in numbers:
            if number not in self.by_number:
                raise ValueError(f"the snapshot has no body {number}")

    def goes_with_character(self, number: int) -> bool:
        """Return whether a body is a character, or fixed to one."""
        body = self.by_number[number]
        return (body.fixed_to or number) in self.characters

    def is_no_character(self, handle: ColliderHandle, _collider: Collider) -> bool:
        """Return whether a collider does not belong to a character; a query filter for rapier."""
        return not self.goes_with_character(self.numbers[handle.index])


class Forces:
    """Velocities, forces and impulses of dynamic bodies."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self._pushed: dict[int, None] = {}

    def velocity(self, number: int) -> tuple[Triple, Triple]:
        """Return the linear (studs/s) and angular (rad/s) velocity of a body."""
        rigid = self._bodies.by_number[number].rigid
        return rigid.linvel.to_tuple(), rigid.angvel.to_tuple()

    def set_velocity(
        self, number: int, linear: Triple | None = None, angular: Triple | None = None
    ) -> None:
        """Set the given parts of the velocity of a dynamic body; other bodies have no velocity.

        Raises:
            ValueError: A number is not finite.
        """
        body = self._bodies.by_number[number]
        is_dynamic = body.traits.motion is DYNAMIC
        if linear is not None:
            linear = checked("A velocity", linear)
            if is_dynamic:
                body.rigid.linvel = Vec3(*linear)
        if angular is not None:
            angular = checked("An angular velocity", angular, FASTEST_TURN)
            if is_dynamic:
                body.rigid.angvel = Vec3(*angular)
        body.rigid.wake_up()

    def root(self, number: int) -> int | None:
        """Return the body that a body is fixed to, or itself if free; None if it does not exist."""
        body = self._bodies.by_number.get(number)
        return None if body is None else body.fixed_to or number

    def is_dynamic(self, number: int) -> bool:
        """Return whether forces move a body."""
        return number in self._bodies.dynamic

    def push(self, number: int, force: Triple, at: Triple | None = None) -> None:
        """Apply a force to a dynamic body during the next step.

        Args:
            number: The body.
            force: The force, in mass times studs per second squared.
            at: The point of application in the world; None for the centre of mass.

        Raises:
            ValueError: A number is not finite.
        """
        rigid = self._bodies.dynamic[number].rigid
        checked("A force", force)
        self._pushed[number] = None
        if at is None:
            rigid.add_force(force)
        else:
            rigid.add_force_at_point(force, checked("A position", at))

    def twist(self, number: int, torque: Triple) -> None:
        """Apply a torque to a dynamic body during the next step.

        Raises:
            ValueError: A number is not finite.
        """
        checked("A torque", torque)
        self._pushed[number] = None
        self._bodies.dynamic[number].rigid.add_torque(torque)

    def inertia_times(self, number: int, change: Triple) -> Triple:
        """Return a body's moment of inertia times a vector, such as an angular acceleration."""
        rigid = self._bodies.by_number[number].rigid
        properties = rigid.mass_properties
        frame = rigid.rotation * properties.principal_inertia_local_frame
        x, y, z = frame.inverse().transform_vector(change).to_tuple()
        a, b, c = properties.principal_inertia.to_tuple()
        impulse: Triple = frame.transform_vector((a * x, b * y, c * z)).to_tuple()
        return impulse

    def apply_impulse(self, number: int, impulse: Triple, at: Triple | None = None) -> None:
        """Change the velocity of a dynamic body immediately.

        Args:
            number: The body; no effect unless it is dynamic.
            impulse: The impulse, in mass times studs per second.
            at: The point of application in the world; None for the centre of mass.

        Raises:
            ValueError: A number is not finite.
        """
        body = self._bodies.dynamic.get(number)
        checked("An impulse", impulse)
        if body is None:
            return
        if at is None:
            body.rigid.apply_impulse(impulse)
        else:
            body.rigid.apply_impulse_at_point(impulse, checked("A position", at))

    def apply_angular_impulse(self, number: int, impulse: Triple) -> None:
        """Change the angular velocity of a dynamic body immediately.

        Raises:
            ValueError: A number is not finite.
        """
        body = self._bodies.dynamic.get(number)
        checked("An impulse", impulse)
        if body is not None:
            body.rigid.apply_torque_impulse(impulse)

    def end(self) -> None:
        """Remove the forces and torques of the finished step."""
        for number in self._pushed:
            rigid = self._bodies.dynamic[number].rigid
            rigid.reset_forces(False)
            rigid.reset_torques(False)
        self._pushed.clear()
