"""`Space`: the bodies of a world, their motion, and the step."""

from __future__ import annotations

from collections.abc import Iterable, KeysView, Mapping
from typing import Any, ClassVar, Final, cast

from rapier3d import (
    ChannelEventCollector,
    ColliderHandle,
    EventHandler,
    PhysicsWorld,
    RigidBodyHandle,
    RigidBodyType,
    Vec3,
)

from clawblox.engine import shapes
from clawblox.engine.physics.bodies import (
    ANCHORED,
    CHARACTER,
    DYNAMIC,
    Bodies,
    Body,
    Forces,
    Motion,
    Pose,
    Traits,
    body_shape,
    interaction,
    put,
    rapier_type,
)
from clawblox.engine.physics.colliders import Shape
from clawblox.engine.physics.numbers import NO_TURN, checked, shift, to_matrix, to_quaternion
from clawblox.engine.physics.overlaps import Overlaps, check_crowding
from clawblox.engine.physics.queries import Queries
from clawblox.engine.physics.walking import Movement, Walking
from clawblox.engine.saved_state import Layouts, SavedState, entries, keys
from clawblox.engine.slots import Slots
from clawblox.engine.values.rotations import Rotation, Triple
from clawblox.engine.values.value import singles

Json = Any
Admission = tuple[int, Traits, RigidBodyHandle, ColliderHandle, int]
"""A restored body: number, traits, rapier handles, and the body that it is fixed to."""


POINT: Final = (shapes.number,) * 3
TURN: Final = (shapes.number,) * 4
_NUMBERS: Final = keys(shapes.integer)
_POSES: Final = entries(shapes.integer, POINT, TURN)


class Space(SavedState):
    """The bodies of one world, by number.

    `place` moves dynamic bodies and characters immediately; an anchored body moves during the next
    step and pushes the bodies in its way. Queries see all new positions after `refresh`.

    Lengths are in studs, angles in radians; numbers must be finite and below 1e9.

    Args:
        solver_iterations: Number of rapier's solver iterations per step, 1 to 32.

    Attributes:
        walking: Moves the characters.
        changes: A counter that grows when a body is added, removed or changed, but not when a body
            visible to `Queries.has_mover_near` moves.
    """

    layouts: ClassVar[Layouts] = {
        "_awake": _NUMBERS,
        "_fresh": _NUMBERS,
        "_changed": _NUMBERS,
        "_targets": _POSES,
        "_before": _POSES,
        "_unseen": shapes.flag,
        "changes": shapes.whole,
        "_untold": shapes.flag,
    }

    def __init__(self, *, solver_iterations: int = 4) -> None:
        world = PhysicsWorld()
        world.integration_parameters.num_solver_iterations = solver_iterations
        self.gravity = 196.2
        self._bodies = Bodies(world)
        self._awake: dict[int, None] = {}
        self._fresh: dict[int, None] = {}
        self._changed: dict[int, None] = {}
        self._targets: dict[int, Pose] = {}
        self._before: dict[int, Pose] = {}
        self._unseen = False
        self._untold = False
        self.changes = 0
        self.queries = Queries(self._bodies)
        self.overlaps = Overlaps(self._bodies, self.queries)
        self.forces = Forces(self._bodies)
        self.walking = Walking(self._bodies)
        self._use(world)

    def _use(self, world: PhysicsWorld) -> None:
        if world.num_threads > 1:
            world.set_num_threads(1)
        self._bodies.world = world
        self._events = ChannelEventCollector()
        world.event_handler = cast("EventHandler", self._events)

    def document(self, slots: Slots) -> Json:
        """Return the state outside rapier's bytes."""
        return {"dynamic": list(self._bodies.dynamic), **super().document(slots)}

    def snapshot(self) -> bytes:
        """Return the whole state of rapier as bytes."""
        return self._bodies.world.snapshot()

    def adopt(self, world: PhysicsWorld, bodies: Iterable[Admission], document: Json) -> None:
        """Continue with a restored rapier world, its bodies and the result of `document`.

        Raises:
            ValueError: The arguments contradict each other.
        """
        self._use(world)
        own = self._bodies
        for body in bodies:
            own.admit(*body)
        if len(own.by_number) != len(world.colliders) or len(own.numbers) != len(own.by_number):
            raise ValueError("the snapshot's bodies do not match the physics data")
        self.restore(document, Slots())
        if set(document["dynamic"]) != set(own.dynamic):
            raise ValueError("the snapshot's list of dynamic bodies does not match its bodies")
        own.dynamic = {number: own.by_number[number] for number in document["dynamic"]}
        for kept in (self._awake, self._fresh, self._changed, self._targets, self._before):
            own.check_known(kept)

    def _note_change(self) -> None:
        self._unseen = True
        self.changes += 1

    # bodies

    def add(
        self, number: int, traits: Traits, position: Triple, rotation: Rotation | None = None
    ) -> None:
        """Add a body.

        Args:
            number: Its number, not 0.
            traits: Its shape, motion, groups and material.
            position: The position of its centre.
            rotation: Its rotation; None for none. Ignored for a character.

        Raises:
            ValueError: A number is not finite, or the shape is unknown.
        """
        at = checked("A position", position)
        turn = NO_TURN if traits.motion is CHARACTER else to_quaternion(rotation)
        self._bodies.add(number, traits, at, turn)
        self._fresh[number] = self._changed[number] = None
        if traits.motion is DYNAMIC:
            self._awake[number] = None
        self._note_change()

    def fix(
        self,
        number: int,
        to: int,
        traits: Traits,
        position: Triple,
        rotation: Rotation | None = None,
    ) -> None:
        """Fix a new body to another: both form a single rigid body, and are removed together.

        Args:
            number: The new body.
            to: The other body, with its own rigid body.
            traits: Its shape, groups and material, and the motion `FIXED`; a density of 0 adds no
                mass.
            position: Its position relative to the other body.
            rotation: Its rotation relative to the other body.

        Raises:
            ValueError: A number is not finite, or the shape is unknown.
        """
        at, turn = checked("A position", position), to_quaternion(rotation)
        self._bodies.fix(number, to, traits, at, turn)
        self._note_change()

    def move_fixed(self, number: int, position: Triple, rotation: Rotation | None = None) -> None:
        """Change the pose of a fixed body relative to the body that it is fixed to.

        Raises:
            ValueError: A number is not finite.
        """
        pose = checked("A position", position), to_quaternion(rotation)
        self._bodies.by_number[number].collider.position_wrt_parent = pose
        self._note_change()

    def remove(self, number: int) -> None:
        """Remove a body and those fixed to it; drop their overlaps without reporting an end."""
        self._note_change()
        for gone in self._bodies.remove(number):
            self.overlaps.forget(gone)
            for kept in (self._awake, self._fresh, self._changed, self._targets, self._before):
                kept.pop(gone, None)

    @property
    def bodies(self) -> Mapping[int, Body]:
        """The bodies by number."""
        return self._bodies.by_number

    def __contains__(self, number: int) -> bool:
        return number in self._bodies.by_number

    # where bodies are

    def place(self, number: int, position: Triple, rotation: Rotation | None = None) -> None:
        """Place a body. The rotation of a character is ignored.

        Raises:
            ValueError: A number is not finite.
        """
        body = self._bodies.by_number[number]
        at = checked("A position", position)
        self._changed[number] = None
        motion = body.traits.motion
        turn = NO_TURN if motion is CHARACTER else to_quaternion(rotation)
        if motion is ANCHORED and number not in self._fresh:
            self._targets[number] = (at, turn)
            self._untold = True
            if body.rigid.body_type == RigidBodyType.FIXED:
                body.rigid.body_type = RigidBodyType.KINEMATIC_POSITION_BASED
                self.changes += 1
            return
        put(body.rigid, (at, turn))
        self._note_change()
        if motion is DYNAMIC:
            self._awake[number] = None

    def position(self, number: int) -> Triple:
        """Return the position of an unfixed body after the last step or placement."""
        return self._bodies.by_number[number].rigid.translation.to_tuple()

    def moved_bodies(self) -> list[tuple[int, Triple, Rotation | None]]:
        """Return number and pose of each dynamic body that the last step may have moved."""
        moved = []
        for number, body in self._bodies.dynamic.items():
            rigid = body.rigid
            if rigid.is_sleeping:
                if number not in self._awake:
                    continue
                del self._awake[number]
            else:
                self._awake[number] = None
            turn = to_matrix(rigid.rotation.to_tuple())
            moved.append((number, rigid.translation.to_tuple(), turn))
        return moved

    def shift(self, number: int, point: Triple) -> Triple:
        """Return the shift of a point on an anchored body in the next step.

        Args:
            number: The body.
            point: A point in the world that moves with the body.
        """
        body = self._bodies.by_number[number]
        root = body.fixed_to or number
        target = self._targets.get(root)
        if target is None:
            return (0.0, 0.0, 0.0)
        at, turn = self._before.get(root) or self._rapier_pose(body)
        return shift(point, at, turn, *target)

    @property
    def moving(self) -> KeysView[int]:
        """The anchored bodies that the next step moves, in the order in which they were placed."""
        return self._targets.keys()

    # traits

    def set_motion(self, number: int, motion: Motion) -> None:
        """Anchor or unanchor a body."""
        body = self._bodies.by_number[number]
        if body.traits.motion is motion:
            return
        self._land(number)
        body.traits.motion = motion
        body.rigid.body_type = rapier_type(motion, moved=True)
        body.collider.shape = body_shape(body.traits)
        if motion is CHARACTER:
            put(body.rigid, (body.rigid.translation.to_tuple(), NO_TURN))
        self._bodies.sort(body)
        self._changed[number] = None
        self._note_change()
        if motion is DYNAMIC:
            self._awake[number] = None
        body.rigid.wake_up()

    def _land(self, number: int) -> None:
        """Move an anchored body to its target immediately."""
        self._before.pop(number, None)
        target = self._targets.pop(number, None)
        if target is not None:
            put(self._bodies.by_number[number].rigid, target)

    def set_shape(self, number: int, shape: Shape) -> None:
        """Give a body another shape or size.

        Raises:
            ValueError: The shape is unknown, or a side is not a number.
        """
        body = self._bodies.by_number[number]
        before, body.traits.shape = body.traits.shape, shape
        try:
            body.collider.shape = body_shape(body.traits)
        except ValueError:
            body.traits.shape = before
            raise
        self._changed[number] = None
        self._note_change()

    def set_solid(self, number: int, solid: bool) -> None:
        """Make a body solid, or let everything pass through it."""
        self._note_change()
        body = self._bodies.by_number[number]
        body.traits.solid = solid
        body.collider.is_sensor = not solid

    def set_group(self, number: int, group: int, mask: int) -> None:
        """Put a body into a collision group.

        Args:
            number: The body.
            group: The bit of the group.
            mask: The bits of the groups that it collides with.
        """
        self._note_change()
        body = self._bodies.by_number[number]
        traits = body.traits
        if (traits.group, traits.mask) != (group, mask):
            traits.group, traits.mask = group, mask
            body.collider.collision_groups = interaction(traits)
            self._bodies.world.wake_up_all()

    def set_material(
        self, number: int, *, density: float, friction: float, restitution: float
    ) -> None:
        """Set the material of a body."""
        body = self._bodies.by_number[number]
        traits = body.traits
        traits.density, traits.friction, traits.restitution = density, friction, restitution
        body.collider.density = density
        body.collider.friction = friction
        body.collider.restitution = restitution

    # time

    def refresh(self) -> None:
        """Let queries see every body at its target after the next step."""
        if self._untold:
            for number, target in self._targets.items():
                body = self._bodies.by_number[number]
                if number not in self._before:
                    self._before[number] = self._rapier_pose(body)
                put(body.rigid, target)
            self._untold = False
            self._unseen = True
        self._update_queries()

    def prepare(self) -> None:
        """Let queries see anchored bodies at their positions before the next step.

        Characters move among bodies at these positions, because the bodies' motion is added to the
        wish.
        """
        if self._before:
            for number, pose in self._before.items():
                put(self._bodies.by_number[number].rigid, pose)
            self._before.clear()
            self._untold = self._unseen = True
        self._update_queries()

    def _update_queries(self) -> None:
        if self._unseen:
            self._bodies.world.update_query_pipeline()
            self._unseen = False

    def move_character(self, number: int, wish: Triple) -> Movement:
        """Move a character until solid bodies block it; the motion takes effect with the step.

        Other characters do not block it.

        Args:
            number: The character.
            wish: The desired shift in this step, in studs.

        Raises:
            ValueError: The wish is not finite.
        """
        self.prepare()
        return self.walking.move(number, wish)

    def step(self) -> list[int]:
        """Advance by 1/60 s.

        Returns:
            The bodies whose state is not finite. rapier has disabled them; the caller must remove
            them.

        Raises:
            TooCrowdedError: Too many bodies are in one place.
        """
        self.prepare()
        check_crowding(self._bodies, self._changed, len(self.overlaps.reported))
        for number, (at, turn) in self._targets.items():
            rigid = self._bodies.by_number[number].rigid
            rigid.set_next_kinematic_translation(at)
            if rigid.rotation.to_tuple() != turn:
                rigid.set_next_kinematic_rotation(turn)
        world = self._bodies.world
        gravity = singles(0.0, -self.gravity, 0.0)
        if world.gravity.to_tuple() != gravity:
            world.gravity = Vec3(*gravity)
            world.wake_up_all()
        world.step()
        self.forces.end()
        self._targets.clear()
        self._fresh.clear()
        self._changed.clear()
        self._untold = False
        self.overlaps.take(self._events.drain_collision_events())
        return self._quarantined()

    def _quarantined(self) -> list[int]:
        quarantine = self._bodies.world.quarantine
        if quarantine.is_empty():
            return []
        lost = {handle.index for handle in quarantine.bodies}
        return [n for n, body in self._bodies.by_number.items() if body.body_handle.index in lost]

    @staticmethod
    def _rapier_pose(body: Body) -> Pose:
        return body.rigid.translation.to_tuple(), body.rigid.rotation.to_tuple()
