"""`Parts`: the bodies of parts, and the phases of a tick that concern bodies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

import attrs

from clawblox.engine import shapes
from clawblox.engine.errors import WorldHalted, to_text
from clawblox.engine.instances.instance import DataModel, Instance
from clawblox.engine.instances.spec import bind_methods
from clawblox.engine.instances.tree_changes import destroy
from clawblox.engine.parts.movers import Movers, is_mover
from clawblox.engine.parts.part_members import add_part_members
from clawblox.engine.parts.pivots import add_pivots
from clawblox.engine.parts.poses import write_pose
from clawblox.engine.parts.searches import Searches
from clawblox.engine.parts.syncing import COLLIDE, POSE, Groups, Marks
from clawblox.engine.parts.welds import JOINTS
from clawblox.engine.physics.overlaps import TooCrowdedError
from clawblox.engine.physics.saved import LIBRARY, SPACE_SHAPE, restore_space, space_document
from clawblox.engine.physics.space import Space
from clawblox.engine.saved_state import SavedState
from clawblox.engine.slots import Slots
from clawblox.engine.values.vector3 import triple
from clawblox.luau import Vector

Pair = tuple[int, int]
PartPair = tuple[Instance, Instance]


TOUCHES_SHAPE: Final = [(shapes.whole, shapes.whole)]


@attrs.define(eq=False)
class Touches:
    """The pairs of parts that touch.

    Args:
        model: The data model.
        members: The parts below Workspace, by number.
        characters: The root parts of characters.
    """

    _model: DataModel
    _members: Mapping[int, Instance]
    _characters: Mapping[int, None]
    _touching: dict[Pair, PartPair] = attrs.field(init=False, factory=dict)

    def report(self, overlapping: Iterable[Pair]) -> None:
        """Fire the events of new touches, then of ended touches.

        Args:
            overlapping: The pairs that overlap after a step, in order.

        Raises:
            WorldHalted: The error of a handler halts the world.
        """
        before, self._touching = self._touching, {}
        for pair in overlapping:
            parts = self._find_parts(pair)
            if parts is not None:
                self._touching[pair] = parts
        began = [parts for pair, parts in self._touching.items() if pair not in before]
        ended = [parts for pair, parts in before.items() if pair not in self._touching]
        if not began and not ended:
            return
        with self._model.scheduler.phase("Touch event"):
            for parts in began:
                _tell(*parts, "Touched")
            for parts in ended:
                _tell(*parts, "TouchEnded")

    def _find_parts(self, pair: Pair) -> PartPair | None:
        """Return the parts of a pair; None if they cannot touch."""
        first, second = self._members.get(pair[0]), self._members.get(pair[1])
        if first is None or second is None:
            return None
        if not (first.read("CanTouch") and second.read("CanTouch")):
            return None
        return None if self._is_anchored(first) and self._is_anchored(second) else (first, second)

    def _is_anchored(self, part: Instance) -> bool:
        return bool(part.read("Anchored")) and part.number not in self._characters

    def document(self, slots: Slots) -> list[Any]:
        """Return the pairs for a snapshot; some parts may have left the tree."""
        return [[*map(slots.put, parts)] for parts in self._touching.values()]

    def restore(self, document: list[Any], slots: Slots) -> None:
        """Restore the pairs that `document` returned.

        Raises:
            ValueError: The snapshot is damaged.
        """
        for numbers in document:
            first, second = (slots.take_as(number, Instance) for number in numbers)
            self._touching[first.number, second.number] = (first, second)


def _tell(first: Instance, second: Instance, event: str) -> None:
    for part, other in ((first, second), (second, first)):
        if not first.is_destroyed and not second.is_destroyed:
            part.fire(event, other)


EYE_HEIGHT: Final = 2.0
"""Height of the eyes above the centre of the root part, in studs."""


class Parts(SavedState):
    """The parts below Workspace and their bodies.

    A tick calls `sync`, moves the characters, and then calls `step`, `report_touches`,
    `write_back` and `apply_welds` in this order.

    Args:
        model: The data model; hooks and methods of parts are added to it.
        groups: The collision groups; call `update_groups` after changing them.
        solver_iterations: Number of rapier's solver iterations per step, 1 to 32.
        logical_restore: Whether a restore rebuilds the bodies from poses, velocities and
            shapes if it cannot restore their exact state. The motion then differs slightly.

    Attributes:
        space: The bodies, by the numbers of the parts.
        is_rebuilt: Whether a restore had to rebuild the bodies.
        written: The changes by scripts to each character, as bits `POSE` and `VELOCITY`; cleared
            when characters move.
    """

    shape: ClassVar[shapes.Shape] = {
        "space": SPACE_SHAPE,
        "marks": Marks.shape,
        "touching": TOUCHES_SHAPE,
    }

    def __init__(
        self,
        model: DataModel,
        groups: Groups,
        *,
        solver_iterations: int = 4,
        logical_restore: bool = False,
    ) -> None:
        self.space = Space(solver_iterations=solver_iterations)
        self._model = model
        self.is_rebuilt = False
        self._logical_restore = logical_restore
        self._marks = Marks(self.space, groups, lambda: model.workspace)
        self._members = self._marks.members
        self.written = self._marks.written
        self._movers = Movers(self.space)
        self._touches = Touches(model, self._members, self._marks.characters)
        model.effects.update(self._marks.effects())
        model.effects["joint"] = self._marks.change_joint
        model.moved.append(self._move)
        add_part_members(model.classes, self._marks)
        add_pivots(model.classes, self._marks)
        model.classes.add("Workspace", methods=bind_methods(Searches(self._marks), "workspace"))

    def _move(self, instance: Instance) -> None:
        """Add an instance that has entered Workspace, or remove it after it has left."""
        spec = instance.spec
        if "Part" in spec.lineage:
            self._marks.move(instance)
        elif spec.name in JOINTS:
            self._marks.welds.follow(instance)
            self._marks.welds_changed = True
        elif is_mover(instance):
            self._movers.follow(instance)

    # characters

    def make_character(self, part: Instance) -> None:
        """Make a part the root of a character, moved by `Space.move_character`."""
        self._marks.characters[part.number] = None
        self._marks.mark_motion(part)

    def forget_character(self, part: Instance) -> None:
        """Turn the root of a character into an ordinary part."""
        self._marks.characters.pop(part.number, None)
        self.written.pop(part.number, None)
        self._marks.mark_motion(part)

    def is_placed(self, part: Instance) -> bool:
        """Return whether a script has placed a part since the last `sync`."""
        return bool(self._marks.marks(part.number) & POSE)

    def sees(self, root: Instance, target: Instance) -> bool:
        """Return whether the line between two characters' eyes was free after the last step."""
        start, end = triple(root.read("Position")), triple(target.read("Position"))
        origin = (start[0], start[1] + EYE_HEIGHT, start[2])
        way = (end[0] - start[0], end[1] - start[1], end[2] - start[2])
        length = (way[0] ** 2 + way[1] ** 2 + way[2] ** 2) ** 0.5
        for hit in self.space.queries.ray(origin, way, length):
            if hit.number != root.number and hit.number in self._members:
                return hit.number == target.number
        return True

    # groups

    def update_groups(self) -> None:
        """Apply changed collision groups to the bodies."""
        for number in sorted(self._members):  # a restored tree has another order
            self._marks.mark(self._members[number], COLLIDE)

    # phases of a tick

    def sync(self) -> None:
        """Apply the changes of scripts to the bodies, before characters move among them."""
        if self._marks.welds.turn():
            self._marks.welds_changed = True
        self._marks.bring()
        self.space.prepare()

    def step(self) -> None:
        """Apply the forces of movers to the bodies, and advance them by a tick.

        Raises:
            WorldHalted: A body is no longer at a finite position, or too many bodies
                are in one place.
        """
        space = self.space
        space.gravity = self._model.workspace.read("Gravity")
        self._movers.push()
        try:
            lost = space.step()
        except TooCrowdedError as error:
            reason = f"{error}, among them {self._name(error.number)}"
            raise WorldHalted("Physics", reason) from None
        if lost:
            reason = f"the pose or velocity of {self._name(lost[0])} is no longer finite"
            raise WorldHalted("Physics", reason)

    def _name(self, number: int) -> str:
        part = self._members.get(number)
        return "the ground" if part is None else f"part '{to_text(part.name)}'"

    def report_touches(self) -> None:
        """Fire ``Touched`` and ``TouchEnded``.

        Raises:
            WorldHalted: The error of a handler halts the world.
        """
        self._touches.report(self.space.overlaps.current())

    def write_back(self) -> None:
        """Give unanchored parts the poses of their bodies; destroy parts that fell too far.

        Values that a script has written since the step are kept.

        Raises:
            WorldHalted: The error of a handler of a destroyed part halts the world.
        """
        lowest = self._model.workspace.read("FallenPartsDestroyHeight")
        fallen = []
        marks = self._marks
        for number, position, turn in self.space.moved_bodies():
            part = self._members.get(number)
            if part is None or marks.marks(number) & POSE:
                continue
            write_pose(part, Vector(*position), turn)
            if position[1] < lowest:
                fallen.append(part)
        for number in marks.characters:
            part = self._members.get(number)
            if part is not None and number in self.space and not marks.marks(number) & POSE:
                part.props["Position"] = Vector(*self.space.position(number))
        for part in fallen:
            destroy(part)

    def apply_welds(self) -> None:
        """Move welded parts along with the parts that they follow."""
        self._marks.welds.apply()

    # snapshots

    def document(self, slots: Slots) -> Any:
        """Return the state of parts and bodies for a snapshot."""
        return {
            "space": space_document(self.space),
            "marks": self._marks.document(slots),
            "touching": self._touches.document(slots),
        }

    def restore(self, document: Any, slots: Slots) -> None:
        """Restore parts and bodies from a snapshot, after the tree.

        Raises:
            ValueError: Another version of the physics library wrote the snapshot, and
                `logical_restore` is not set; or the snapshot is damaged.
        """
        space = document["space"]
        self.is_rebuilt = self._logical_restore and space["library"] != LIBRARY
        restore_space(self.space, space, logical=self.is_rebuilt)
        for instance in self._model.workspace.descendants():
            self._move(instance)
        self._marks.restore(document["marks"], slots)
        for number in self.space.bodies:
            if number > 0 and number not in self._members and not self._marks.marks(number):
                raise ValueError(f"body {number} has no part in Workspace")
        self._touches.restore(document["touching"], slots)
