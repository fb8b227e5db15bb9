"""Parts and models that move as a whole."""

from __future__ import annotations

from typing import Any, Final

from clawblox.engine.instances.instance import Instance
from clawblox.engine.instances.kinds import refuse_value
from clawblox.engine.instances.spec import ClassTable
from clawblox.engine.parts.boxes import Box
from clawblox.engine.parts.poses import read_cframe, rotation, triple, write_cframe
from clawblox.engine.values.cframe import CFrame, invert, make_cframe, multiply
from clawblox.engine.values.rotations import IDENTITY, Triple, dot

__all__ = ["add_pivots", "part_box"]

_PIVOT = "WorldPivot"
_MOVE_STEPS: Final = 15  # moving a part with its model


def part_box(part: Instance) -> Box:
    """Return the box of a part's size."""
    turn = rotation(part) or IDENTITY
    return Box(triple(part.read("Position")), triple(part.read("Size")), turn)


def add_pivots(classes: ClassTable) -> None:
    """Give parts and models the methods that move them as a whole."""
    classes.add("BasePart", methods={"GetPivot": read_cframe, "PivotTo": _move_part})
    classes.add(
        "Model",
        methods={
            "GetPivot": _pivot,
            "PivotTo": _move_model,
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


def _parts(model: Instance) -> list[Instance]:
    found = model.model.walk(model)
    model.model.scheduler.charge(len(found) * _MOVE_STEPS)
    return [each for each in found if "Part" in each.spec.lineage]


def _pivot(model: Instance) -> CFrame:
    """``GetPivot()``: the primary part, or where `PivotTo` put it, or the middle of the parts."""
    primary = model.read("PrimaryPart")
    if primary is not None:
        return read_cframe(primary)
    kept: CFrame | None = model.props.get(_PIVOT)
    if kept is not None:
        return kept
    boxes = [part_box(part) for part in _parts(model)]
    x, y, z = (_middle(boxes, axis) for axis in ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)))
    return make_cframe(x, y, z, IDENTITY)


def _middle(boxes: list[Box], axis: Triple) -> float:
    """Return the middle of some boxes along an axis; 0 without boxes."""
    ends = [(dot(box.centre, axis), box.extent(axis)) for box in boxes]
    low = min((at - extent for at, extent in ends), default=0.0)
    high = max((at + extent for at, extent in ends), default=0.0)
    return (low + high) / 2.0


def _move_model(model: Instance, target: Any) -> Any:
    """``PivotTo(cframe)`` of a model: all its parts move as one."""
    goal = _frame(target, "PivotTo")
    _move_rigidly(model, _pivot(model), goal)
    if model.read("PrimaryPart") is None:
        model.props[_PIVOT] = goal
    return ()


def _move_rigidly(model: Instance, start: CFrame, goal: CFrame) -> None:
    back = invert(start)
    primary = model.read("PrimaryPart")
    for part in _parts(model):
        if part is primary:
            write_cframe(part, goal)
        else:
            write_cframe(part, multiply(goal, multiply(back, read_cframe(part))))


def _primary_cframe(model: Instance) -> CFrame | None:
    """``GetPrimaryPartCFrame()``; nil without a primary part."""
    primary = model.read("PrimaryPart")
    return None if primary is None else read_cframe(primary)


def _move_by_primary(model: Instance, target: Any) -> Any:
    """``SetPrimaryPartCFrame(cframe)``; without a primary part nothing happens."""
    goal = _frame(target, "SetPrimaryPartCFrame")
    primary = model.read("PrimaryPart")
    if primary is not None:
        _move_rigidly(model, read_cframe(primary), goal)
    return ()
