"""Applies the changes of scripts to bodies.

A write to a physical property only marks the part. The changes are applied to the bodies once per
tick, before characters move, and before each query of a script.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Protocol

from clawblox.engine import shapes
from clawblox.engine.instances.instance import Instance
from clawblox.engine.parts.ground import Ground
from clawblox.engine.parts.poses import rotation
from clawblox.engine.parts.welds import OFFSET, Fixture, Welds
from clawblox.engine.physics.bodies import ANCHORED, CHARACTER, DYNAMIC, FIXED, Motion, Traits
from clawblox.engine.physics.colliders import Shape
from clawblox.engine.physics.space import Space
from clawblox.engine.saved_state import Layouts, SavedState, entries, keys
from clawblox.engine.slots import Slots
from clawblox.engine.values.vector3 import triple
from clawblox.luau import HostValue, LuaTable, Vector

POSE, VELOCITY, SHAPE, MOTION, COLLIDE, MATERIAL = 1, 2, 4, 8, 16, 32
ALL = 63

LINEAR = "LinearVelocity"
ANGULAR = "AngularVelocity"
"""Key of `Instance.props`: the velocity written by a script but not yet applied to the body."""

_EFFECTS = {"pose": POSE, "shape": SHAPE, "anchored": MOTION, "collide": COLLIDE, "mass": MATERIAL}
_MATERIAL = (("Density", 1.0), ("Friction", 0.5), ("Elasticity", 0.0))
_MOST = 1e6


def part_shape(part: Instance) -> Shape:
    """Return the shape of the body for a part."""
    shape = part.read("Shape")  # Terrain has none
    return Shape("Block" if shape is None else shape.name, *triple(part.read("Size")))


def material(part: Instance) -> dict[str, Any]:
    """Return density, friction and restitution of a part."""
    given = part.read("CustomPhysicalProperties")
    values = []
    for name, default in _MATERIAL:
        value = given[name] if isinstance(given, (LuaTable, HostValue)) else default
        is_number = value.__class__ is float and value == value
        values.append(min(max(value, 0.0), _MOST) if is_number else default)
    density, friction, restitution = values
    return {"density": max(density, 1e-4), "friction": friction, "restitution": restitution}


class Groups(Protocol):
    """The collision groups of a world."""

    def bits(self, name: str) -> tuple[int, int]:
        """Return the bit of a group, and the bits of the groups that collide with it."""

    def finds(self, group: str, found: str) -> bool:
        """Return whether a query in one group finds parts of another group."""


class Marks(SavedState):
    """The changes by scripts that are not yet applied to the bodies.

    Attributes:
        space: The bodies.
        groups: The collision groups.
        members: The parts below Workspace, by number.
        characters: The root parts of characters, by number.
        written: The changes by scripts to each character, as bits `POSE` and `VELOCITY`; cleared
            when characters move.
        welds_changed: Whether the welds must be resolved again.
    """

    layouts: ClassVar[Layouts] = {
        "_marked": entries(shapes.whole, shapes.whole),
        "characters": keys(shapes.whole),
        "written": entries(shapes.whole, shapes.whole),
        "welds_changed": shapes.flag,
        "ground": Ground,
        "_fixed": entries(shapes.whole, shapes.whole, (shapes.number,) * 12),
    }

    def __init__(self, space: Space, groups: Groups, workspace: Callable[[], Instance]) -> None:
        self.space = space
        self.groups = groups
        self.members: dict[int, Instance] = {}
        self.characters: dict[int, None] = {}
        self.written: dict[int, int] = {}
        self.ground = Ground(space)
        self._workspace = workspace
        self.welds = Welds(self.members, self.characters)
        self.welds_changed = False
        self._marked: dict[int, int] = {}
        self._fixed: dict[int, tuple[int, tuple[float, ...]]] = {}

    def effects(self) -> dict[str, Any]:
        """Return the hooks of properties, by name."""
        return {name: self._marker(mark) for name, mark in _EFFECTS.items()}

    def _marker(self, mark: int) -> Any:
        marked, members, welds = self._marked, self.members, self.welds

        def tell(part: Instance, _name: str) -> None:
            number = part.number
            if number in members:
                marked[number] = marked.get(number, 0) | mark
                if mark == MOTION and welds.joints:
                    self.welds_changed = True

        return tell

    def mark(self, part: Instance, marks: int) -> None:
        """Mark a part as changed."""
        if part.number in self.members:
            self._marked[part.number] = self._marked.get(part.number, 0) | marks

    def mark_motion(self, part: Instance) -> None:
        """Mark a part that has become a character's root, or an ordinary part again."""
        self.mark(part, MOTION)
        if self.welds.joints:  # joints do not control the root of a character
            self.welds_changed = True

    def marks(self, number: int) -> int:
        """Return the marks of a part."""
        return self._marked.get(number, 0)

    def move(self, part: Instance) -> None:
        """Add a part that has entered Workspace, or remove it after it has left."""
        part.list_in(self.members)
        self._marked[part.number] = ALL
        if self.welds.joints:
            self.welds_changed = True

    def terrain(self) -> Instance:
        """Return the ground."""
        found: Instance = self._workspace().read("Terrain")
        return found

    def find(self, number: int) -> Instance:
        """Return the part of a body, or the ground."""
        return self.members[number] if number > 0 else self.terrain()

    def change_joint(self, joint: Instance, name: str) -> None:
        """Mark a joint whose property was assigned."""
        if name in ("Part0", "Part1", "Enabled"):
            joint.props.pop(OFFSET, None)
        if joint.number in self.welds.joints:
            self.welds_changed = True

    def bring(self) -> None:
        """Apply all marked changes to the bodies."""
        self.ground.bring(self.terrain())
        if self.welds_changed:
            self.welds_changed = False
            self.welds.resolve()
            self._unfix()
        if self._marked:
            marked = dict(self._marked)
            self._marked.clear()
            for number, marks in marked.items():
                part = self.members.get(number)
                if part is not None:
                    self._bring(part, marks)
                elif number in self.space:
                    self.space.remove(number)
        if self.welds.fixtures or self._fixed:
            self._fix()

    def _bring(self, part: Instance, marks: int) -> None:
        number, space = part.number, self.space
        fixture = self.welds.fixtures.get(number)
        if number not in space:
            if fixture is None:
                self._add(part)
            return
        if marks & SHAPE:
            space.set_shape(number, part_shape(part))
        if marks & COLLIDE:
            space.set_solid(number, bool(part.read("CanCollide")))
            space.set_group(number, *self.groups.bits(part.read("CollisionGroup")))
        if marks & MATERIAL:
            space.set_material(number, **self._material(part, fixture))
        if fixture is not None:
            return
        if marks & MOTION:
            space.set_motion(number, self._motion(part))
        if marks & POSE:
            space.place(number, triple(part.read("Position")), rotation(part))
        if marks & (VELOCITY | MOTION):
            self._bring_velocity(part)
        if number in self.characters:
            self.written[number] = self.written.get(number, 0) | (marks & (POSE | VELOCITY))

    def _add(self, part: Instance) -> None:
        number = part.number
        traits = Traits(
            part_shape(part), self._motion(part), **self._collision(part), **material(part)
        )
        self.space.add(number, traits, triple(part.read("Position")), rotation(part))
        self._bring_velocity(part)

    def _collision(self, part: Instance) -> dict[str, Any]:
        group, mask = self.groups.bits(part.read("CollisionGroup"))
        return {"solid": bool(part.read("CanCollide")), "group": group, "mask": mask}

    def _motion(self, part: Instance) -> Motion:
        if part.number in self.characters:
            return CHARACTER
        return ANCHORED if part.read("Anchored") else DYNAMIC

    def _bring_velocity(self, part: Instance) -> None:
        """Give a dynamic body the velocity written by a script."""
        if self._motion(part) is not DYNAMIC:
            return
        linear = part.props.pop(LINEAR, None)
        angular = part.props.pop(ANGULAR, None)
        if linear is not None or angular is not None:
            self.space.forces.set_velocity(part.number, _triple(linear), _triple(angular))

    def _material(self, part: Instance, fixture: Fixture | None) -> dict[str, Any]:
        properties = material(part)
        if fixture is not None and part.read("Massless"):
            properties["density"] = 0.0
        return properties

    def _unfix(self) -> None:
        """Remove the bodies whose root has changed, to be added again at their new root."""
        fixtures = self.welds.fixtures
        for number, (root, _) in tuple(self._fixed.items()):
            fixture = fixtures.get(number)
            if fixture is None or fixture.root.number != root:
                del self._fixed[number]
                self._remove(number)
        for number in fixtures:
            if number not in self._fixed and number in self.space:
                self._remove(number)

    def _remove(self, number: int) -> None:
        if number in self.space:
            self.space.remove(number)
        if number in self.members:
            self._marked[number] = ALL

    def _fix(self) -> None:
        """Place the bodies of welded parts where their joints require."""
        space, fixed = self.space, self._fixed
        for number, fixture in self.welds.fixtures.items():
            part, root, frame = fixture.part, fixture.root.number, fixture.in_root
            place = frame.parts()
            if number in space:
                if fixed[number][1] != place:
                    space.move_fixed(number, triple(frame.position), frame.rotation)
            else:
                traits = Traits(
                    part_shape(part),
                    FIXED,
                    **self._collision(part),
                    **self._material(part, fixture),
                )
                space.fix(number, root, traits, triple(frame.position), frame.rotation)
            fixed[number] = (root, place)

    def restore(self, document: dict[str, Any], slots: Slots) -> None:
        """Restore the result of `document`, after the tree, where every part is marked."""
        super().restore(document, slots)
        if not self.welds_changed:
            self.welds.resolve()


def _triple(vector: Vector | None) -> tuple[float, float, float] | None:
    return None if vector is None else triple(vector)
