"""Position and rotation of a part.

They are the properties ``Position`` and, unless it is the identity, `ROTATION`. A ``CFrame`` is
created only when a script reads it.
"""

from __future__ import annotations

import math

from clawblox.engine.instances.instance import ROTATION, Instance
from clawblox.engine.values.cframe import CFrame
from clawblox.engine.values.rotations import IDENTITY, Rotation
from clawblox.luau import RuntimeFault, Vector


def rotation(part: Instance) -> Rotation | None:
    """Return the rotation of a part; None for the identity."""
    found: Rotation | None = part.props.get(ROTATION)
    return found


def write_pose(part: Instance, position: Vector, turn: Rotation | None) -> None:
    """Set position and rotation of a part, without effect or event."""
    part.props["Position"] = position
    if turn is None or turn == IDENTITY:
        part.props.pop(ROTATION, None)
    else:
        part.props[ROTATION] = turn


def read_cframe(part: Instance) -> CFrame:
    """Return the pose of a part."""
    return CFrame(part.read("Position"), part.props.get(ROTATION, IDENTITY))


def refuse_infinite(frame: CFrame) -> None:
    """Refuse a pose that is not finite.

    Raises:
        RuntimeFault: A number is NaN or infinite.
    """
    if not all(map(math.isfinite, frame.parts())):
        raise RuntimeFault("property 'CFrame' must be finite")


def write_cframe(part: Instance, frame: CFrame) -> None:
    """Set the pose of a part as a script does.

    Raises:
        RuntimeFault: A number is not finite.
        WorldHalted: The error of a handler halts the world.
    """
    refuse_infinite(frame)
    has_moved = part.read("Position") != frame.position
    has_changed = has_moved or (rotation(part) or IDENTITY) != frame.rotation
    write_pose(part, frame.position, frame.rotation)
    part.model.effects["pose"](part, "CFrame")
    if has_changed and part.signals:
        part.tell_changed("CFrame")
        if has_moved:
            part.tell_changed("Position")
