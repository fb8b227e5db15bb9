"""``Model:ScaleTo``: a model grows or shrinks around its pivot."""

from __future__ import annotations

from typing import Any, Final

from clawblox.engine.instances.instance import MODEL_SCALE, Instance
from clawblox.engine.instances.kinds import refuse_value
from clawblox.engine.instances.spec import ClassTable, methods_in
from clawblox.engine.instances.tree_changes import walk
from clawblox.engine.parts.pivots import WORLD_PIVOT, get_pivot
from clawblox.engine.parts.poses import rotation, write_cframe
from clawblox.engine.parts.welds import FRAME_JOINTS
from clawblox.engine.values.cframe import CFrame
from clawblox.engine.values.rotations import IDENTITY
from clawblox.engine.values.vector3 import ZERO
from clawblox.luau import RuntimeFault, Vector, make_vector

_SMALLEST: Final = 1e-4
_LARGEST: Final = 1e4
_SCALE_STEPS: Final = 20  # scaling a part or a joint


def get_scale(model: Instance) -> float:
    """``GetScale()``: 1 at first."""
    scale: float = model.props.get(MODEL_SCALE, 1.0)
    return scale


def scale_to(model: Instance, scale: Any) -> Any:
    """``ScaleTo(scale)``: parts, attachments and joints below it; its pivot stays."""
    if scale.__class__ is not float:
        raise refuse_value("ScaleTo", "number", scale)
    if not _SMALLEST <= scale <= _LARGEST:
        raise RuntimeFault(f"ScaleTo: the scale must be from {_SMALLEST:g} to {_LARGEST:g}")
    factor, pivot = scale / get_scale(model), get_pivot(model).position
    members = walk(model)
    model.model.scheduler.charge(len(members) * _SCALE_STEPS)
    for member in (model, *members):
        if "Model" in member.spec.lineage:
            scaled = get_scale(member) * factor
            member.props[MODEL_SCALE] = max(_SMALLEST, min(scaled, _LARGEST))
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
        member.model.effects["joint"](member, "Part0")  # it keeps the offset from now on
    elif WORLD_PIVOT in member.props:
        kept: CFrame = member.props[WORLD_PIVOT]
        place = CFrame(_away(kept.position, factor, pivot), kept.rotation)
        member.props[WORLD_PIVOT] = place


def _away(at: Vector, factor: float, centre: Vector) -> Vector:
    """Return where a point comes whose distance from a centre is multiplied."""
    x = centre.x + (at.x - centre.x) * factor
    y = centre.y + (at.y - centre.y) * factor
    z = centre.z + (at.z - centre.z) * factor
    return make_vector(x, y, z)


def add_scaling(classes: ClassTable) -> None:
    """Give models the methods that scale them."""
    classes.add("Model", methods=methods_in(globals(), "model"))
