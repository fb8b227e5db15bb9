"""Parts and models that move or scale as a whole, around their pivot."""

from __future__ import annotations

import math
from typing import Any, Final

from clawblox.engine.instances.instance import MODEL_SCALE, Instance
from clawblox.engine.instances.kinds import refuse_value
from clawblox.engine.instances.spec import ClassTable, bind_methods, methods_in
from clawblox.engine.instances.tree_changes import walk
from clawblox.engine.parts.poses import Box, read_cframe, rotation, write_cframe
from clawblox.engine.parts.syncing import Marks
from clawblox.engine.parts.welds import FRAME_JOINTS
from clawblox.engine.physics.colliders import BLOCK, Shape
from clawblox.engine.values.cframe import CFrame, invert, make_cframe, multiply
from clawblox.engine.values.rotations import IDENTITY, apply, dot
from clawblox.engine.values.vector3 import ZERO, triple
from clawblox.luau import RuntimeFault, Vector, make_vector

WORLD_PIVOT: Final = "WorldPivot"
"""Key of `Instance.props`: the pivot that was set for a model without a primary part."""
_MOVE_STEPS: Final = 15  # moving a part with its model


def part_box(part: Instance) -> Box:
    """Return the bounding box of a part."""
    turn = rotation(part) or IDENTITY
    return Box(triple(part.read("Position")), triple(part.read("Size")), turn)


def add_pivots(classes: ClassTable, marks: Marks) -> None:
    """Add the methods that move parts and models as a whole."""
    classes.add("BasePart", methods={"GetPivot": read_cframe, "PivotTo": _move_part})
    classes.add(
        "Model",
        methods={
            **methods_in(globals(), "model"),
            **bind_methods(ModelPlacing(marks), "model"),
            "GetPrimaryPartCFrame": _primary_cframe,
            "SetPrimaryPartCFrame": _move_by_primary,
        },
    )


def _frame(value: Any, name: str) -> CFrame:
    if not isinstance(value, CFrame):
        raise refuse_value(name, "CFrame", value)
    return value


def _move_part(part: Instance, target: Any) -> Any:
    """``PivotTo(cframe)`` of a part."""
    write_cframe(part, _frame(target, "PivotTo"))
    return ()


def _parts_below(model: Instance) -> list[Instance]:
    """Return the parts below a model, in tree order, and charge steps."""
    instances = walk(model)
    model.model.scheduler.charge(len(instances) * _MOVE_STEPS)
    return [instance for instance in instances if "Part" in instance.spec.lineage]


def get_pivot(model: Instance) -> CFrame:
    """``GetPivot()``: the primary part's pose, the pose set by `PivotTo`, or the centre."""
    primary = model.read("PrimaryPart")
    if primary is not None:
        return read_cframe(primary)
    kept: CFrame | None = model.props.get(WORLD_PIVOT)
    if kept is not None:
        return kept
    return make_cframe(*_box_around(model, _parts_below(model)).centre, IDENTITY)


def _box_around(model: Instance, parts: list[Instance]) -> Box:
    """Return the bounding box of a model's parts, with the rotation of its primary part.

    Args:
        model: The model.
        parts: The result of `_parts_below`; without parts, the box has size 0.
    """
    primary = model.read("PrimaryPart")
    turn = IDENTITY if primary is None else rotation(primary) or IDENTITY
    boxes = [part_box(part) for part in parts]
    spans = [_span(boxes, axis) for axis in (turn[0::3], turn[1::3], turn[2::3])]
    x, y, z = ((low + high) / 2.0 for low, high in spans)
    width, height, depth = (high - low for low, high in spans)
    return Box(apply(turn, x, y, z), (width, height, depth), turn)


def _span(boxes: list[Box], axis: Any) -> tuple[float, float]:
    """Return the minimum and maximum of some boxes along an axis; 0 without boxes."""
    ends = [(dot(box.centre, axis), box.extent(axis)) for box in boxes]
    low = min((at - extent for at, extent in ends), default=0.0)
    return low, max((at + extent for at, extent in ends), default=0.0)


def get_bounding_box(model: Instance) -> tuple[CFrame, Vector]:
    """``GetBoundingBox()``: its centre, with the rotation of the primary part, and its size."""
    parts = _parts_below(model)
    if not parts:
        return get_pivot(model), make_vector(0.0, 0.0, 0.0)
    box = _box_around(model, parts)
    return make_cframe(*box.centre, box.rotation), make_vector(*box.size)


def get_extents_size(model: Instance) -> Vector:
    """``GetExtentsSize()``: the size of the bounding box."""
    return get_bounding_box(model)[1]


def pivot_to(model: Instance, target: Any) -> Any:
    """``PivotTo(cframe)`` of a model: move all its parts together."""
    goal = _frame(target, "PivotTo")
    _move_rigidly(model, get_pivot(model), goal)
    if model.read("PrimaryPart") is None:
        model.props[WORLD_PIVOT] = goal
    return ()


def translate_by(model: Instance, offset: Any) -> Any:
    """``TranslateBy(offset)``: move all parts together."""
    if offset.__class__ is not Vector:
        raise refuse_value("TranslateBy", "Vector3", offset)
    pivot = get_pivot(model)
    x, y, z = (at + by for at, by in zip(triple(pivot.position), triple(offset), strict=True))
    return pivot_to(model, CFrame(make_vector(x, y, z), pivot.rotation))


def _move_parts(model: Instance, start: CFrame, goal: CFrame) -> None:
    """Move a model as a whole, by the transform from `start` to `goal`.

    Raises:
        RuntimeFault: The new pose of a part would not be finite.
        WorldHalted: The error of a handler halts the world.
    """
    pivot = multiply(goal, multiply(invert(start), get_pivot(model)))
    _move_rigidly(model, start, goal)
    if model.read("PrimaryPart") is None:
        model.props[WORLD_PIVOT] = pivot


def _move_rigidly(model: Instance, start: CFrame, goal: CFrame) -> None:
    back = invert(start)
    primary = model.read("PrimaryPart")
    for part in _parts_below(model):
        if part is primary:
            write_cframe(part, goal)
        else:
            write_cframe(part, multiply(goal, multiply(back, read_cframe(part))))


def _primary_cframe(model: Instance) -> CFrame | None:
    """``GetPrimaryPartCFrame()``: return nil without a primary part."""
    primary = model.read("PrimaryPart")
    return None if primary is None else read_cframe(primary)


def _move_by_primary(model: Instance, target: Any) -> Any:
    """``SetPrimaryPartCFrame(cframe)``, without effect if there is no primary part."""
    goal = _frame(target, "SetPrimaryPartCFrame")
    primary = model.read("PrimaryPart")
    if primary is not None:
        _move_rigidly(model, read_cframe(primary), goal)
    return ()


_SEARCH_STEPS: Final = 100
_PART_STEPS: Final = 10  # of a part that may be in the way
_SLACK: Final = 0.01
"""Depth of overlap that does not count as an obstacle, in studs."""
_SMALLEST: Final = 0.001
_UP: Final = (0.0, 1.0, 0.0)


class ModelPlacing:
    """Moves models to free positions."""

    def __init__(self, marks: Marks) -> None:
        self._marks = marks

    def move_to(self, model: Instance, position: Any) -> Any:
        """``MoveTo(position)``: move there, then up until the space is free of parts and ground.

        The position is that of the primary part, or else the first part. The model is not rotated.
        """
        if position.__class__ is not Vector or not all(map(math.isfinite, triple(position))):
            raise refuse_value("position", "finite Vector3", position)
        parts = _parts_below(model)
        if not parts:
            return ()
        start = read_cframe(model.read("PrimaryPart") or parts[0])
        goal = CFrame(position, start.rotation)
        if model.in_workspace:
            box = _box_around(model, parts)
            way = zip(box.centre, triple(position), triple(start.position), strict=True)
            x, y, z = (centre + to - at for centre, to, at in way)
            lift = self._lift(model, parts, Box((x, y, z), box.size, box.rotation))
            above = make_vector(position.x, position.y + lift, position.z)
            goal = CFrame(above, start.rotation)
        _move_parts(model, start, goal)
        return ()

    def _lift(self, model: Instance, parts: list[Instance], box: Box) -> float:
        """Return the distance that a box must move up until its space is free."""
        charge = model.model.scheduler.charge
        own = {part.number for part in parts}
        self._marks.bring()
        self._marks.space.refresh()
        size = (max(side - 2 * _SLACK, _SMALLEST) for side in box.size)
        shape = Shape(BLOCK, *size)
        bottom = box.centre[1] - box.extent(_UP)
        lift = 0.0
        while True:
            x, y, z = box.centre
            numbers = self._marks.space.queries.overlapping(shape, (x, y + lift, z), box.rotation)
            charge(_SEARCH_STEPS + len(numbers) * _PART_STEPS)
            tops = [self._top(number) for number in numbers if self._is_in_way(number, own)]
            higher = max(tops, default=-math.inf) - bottom
            if higher <= lift:
                return lift
            lift = higher

    def _is_in_way(self, number: int, own: set[int]) -> bool:
        return number not in own and self._marks.space.bodies[number].traits.solid

    def _top(self, number: int) -> float:
        """Return the height of the top of a part or of a piece of ground."""
        space = self._marks.space
        if number < 0:
            return space.position(number)[1] + space.bodies[number].traits.shape.y / 2.0
        box = part_box(self._marks.find(number))
        return box.centre[1] + box.extent(_UP)


# -- scaling --------------------------------------------------------------------------------

_LEAST_SCALE: Final = 1e-4
_MOST_SCALE: Final = 1e4
_SCALE_STEPS: Final = 20  # scaling a part or a joint


def get_scale(model: Instance) -> float:
    """``GetScale()``, initially 1."""
    scale: float = model.props.get(MODEL_SCALE, 1.0)
    return scale


def scale_to(model: Instance, scale: Any) -> Any:
    """``ScaleTo(scale)``: scale parts, attachments and joints around the pivot."""
    if scale.__class__ is not float:
        raise refuse_value("ScaleTo", "number", scale)
    if not _LEAST_SCALE <= scale <= _MOST_SCALE:
        raise RuntimeFault(f"ScaleTo: the scale must be from {_LEAST_SCALE:g} to {_MOST_SCALE:g}")
    factor, pivot = scale / get_scale(model), get_pivot(model).position
    members = walk(model)
    model.model.scheduler.charge(len(members) * _SCALE_STEPS)
    for member in (model, *members):
        if "Model" in member.spec.lineage:
            scaled = get_scale(member) * factor
            member.props[MODEL_SCALE] = max(_LEAST_SCALE, min(scaled, _MOST_SCALE))
        _scale(member, factor, pivot)
    model.props[MODEL_SCALE] = scale
    return ()


def _scale(member: Instance, factor: float, pivot: Vector) -> None:
    lineage, name = member.spec.lineage, member.spec.name
    if "Part" in lineage:
        member["Size"] = _away(member.read("Size"), factor, ZERO)
        position = _away(member.read("Position"), factor, pivot)
        write_cframe(member, CFrame(position, rotation(member) or IDENTITY))
    elif name == "Attachment":
        member["Position"] = _away(member.read("Position"), factor, ZERO)
    elif name in FRAME_JOINTS:
        for side in ("C0", "C1"):
            frame: CFrame = member.read(side)
            member[side] = CFrame(_away(frame.position, factor, ZERO), frame.rotation)
    elif name == "WeldConstraint":
        member.model.effects["joint"](member, "Part0")  # the joint keeps the offset from now on
    elif WORLD_PIVOT in member.props:
        kept: CFrame = member.props[WORLD_PIVOT]
        place = CFrame(_away(kept.position, factor, pivot), kept.rotation)
        member.props[WORLD_PIVOT] = place


def _away(at: Vector, factor: float, centre: Vector) -> Vector:
    """Return a point with its distance from a centre multiplied by a factor."""
    x = centre.x + (at.x - centre.x) * factor
    y = centre.y + (at.y - centre.y) * factor
    z = centre.z + (at.z - centre.z) * factor
    return make_vector(x, y, z)
