"""Forces that instances exert on unanchored parts.

A mover with a goal computes the force that its part needs to reach it, including against gravity,
and applies that force up to its maximum in each tick. ``P`` has no effect.
"""

from __future__ import annotations

import math
from typing import Any

from clawblox.engine.instances.instance import Instance
from clawblox.engine.parts.part_members import world_cframe
from clawblox.engine.physics.space import Space
from clawblox.engine.scheduler import TICK_RATE, TICK_S
from clawblox.engine.values import rotations
from clawblox.engine.values.cframe import CFrame, invert, multiply
from clawblox.engine.values.rotations import Triple
from clawblox.engine.values.vector3 import triple


def is_mover(instance: Instance) -> bool:
    """Return whether an instance exerts forces on a part."""
    return instance.spec.name in _PUSHES


class Movers:
    """The movers below Workspace."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._movers: dict[int, Instance] = {}

    def follow(self, mover: Instance) -> None:
        """Add a mover that has entered Workspace, or remove it after it has left."""
        mover.list_in(self._movers)

    def push(self) -> None:
        """Apply the forces of a tick to the bodies, in the order of the movers' numbers."""
        for number in sorted(self._movers):
            mover = self._movers[number]
            root = _find_root(self._space, mover)
            if root is not None and self._space.forces.is_dynamic(root):
                _PUSHES[mover.spec.name](self._space, root, mover)


def _find_root(space: Space, mover: Instance) -> int | None:
    """Return the body of a mover's parent, or of its first attachment's part."""
    holder: Instance | None = mover
    if mover.is_a("Constraint"):
        holder = mover.read("Attachment0") if mover.read("Enabled") else None
    part = None if holder is None else holder.parent
    return None if part is None else space.forces.root(part.number)


def _push_to_velocity(space: Space, number: int, goal: Triple, most: Triple | float) -> None:
    """Push a body toward a velocity; the force is limited per axis or in total."""
    mass = space.bodies[number].rigid.mass  # including everything fixed to it
    now, _ = space.forces.velocity(number)
    lift = (0.0, space.gravity, 0.0)
    force = [mass * ((g - v) / TICK_S + up) for g, v, up in zip(goal, now, lift, strict=True)]
    space.forces.push(number, _limited(force, most))


def _turn_to_velocity(space: Space, number: int, goal: Triple, most: Triple | float) -> None:
    """Turn a body toward an angular velocity; the torque is limited per axis or in total."""
    _, now = space.forces.velocity(number)
    faster = ((goal[0] - now[0]) / TICK_S, (goal[1] - now[1]) / TICK_S, (goal[2] - now[2]) / TICK_S)
    space.forces.twist(number, _limited(space.forces.inertia_times(number, faster), most))


def _limited(force: Any, most: Triple | float) -> Triple:
    """Return a force reduced to a limit per axis or in total."""
    x, y, z = force
    if isinstance(most, tuple):
        a, b, c = map(abs, most)
        return (min(max(x, -a), a), min(max(y, -b), b), min(max(z, -c), c))
    size, allowed = math.hypot(x, y, z), max(most, 0.0)
    if size <= allowed:
        return (x, y, z)
    return (x * allowed / size, y * allowed / size, z * allowed / size)


def _body_velocity(space: Space, number: int, mover: Instance) -> None:
    goal, most = triple(mover.read("Velocity")), triple(mover.read("MaxForce"))
    _push_to_velocity(space, number, goal, most)


def _body_force(space: Space, number: int, mover: Instance) -> None:
    space.forces.push(number, triple(mover.read("Force")))


def _body_angular_velocity(space: Space, number: int, mover: Instance) -> None:
    goal, most = triple(mover.read("AngularVelocity")), triple(mover.read("MaxTorque"))
    _turn_to_velocity(space, number, goal, most)


def _vector_force(space: Space, number: int, mover: Instance) -> None:
    attachment: Instance = mover.read("Attachment0")
    force = triple(mover.read("Force"))
    frame = _force_frame(mover, attachment)
    if frame is not None:
        force = rotations.apply(frame.rotation, *force)
    at = None
    if not mover.read("ApplyAtCenterOfMass"):
        at = triple(world_cframe(attachment).position)
    space.forces.push(number, force, at)


def _force_frame(mover: Instance, attachment: Instance) -> CFrame | None:
    """Return the frame of a ``VectorForce``; None for the world."""
    relative = getattr(mover.read("RelativeTo"), "name", mover.read("RelativeTo"))
    if relative == "World":
        return None
    other = mover.read("Attachment1") if relative == "Attachment1" else attachment
    return None if other is None else world_cframe(other)


def _align_position(space: Space, number: int, mover: Instance) -> None:
    attachment: Instance = mover.read("Attachment0")
    other = mover.read("Attachment1")
    goal = mover.read("Position") if other is None else world_cframe(other).position
    at = world_cframe(attachment).position
    way = (goal.x - at.x, goal.y - at.y, goal.z - at.z)
    speed, most = _effort(mover, "MaxForce")
    _push_to_velocity(space, number, _towards(way, speed, mover.read("MaxVelocity")), most)


def _align_orientation(space: Space, number: int, mover: Instance) -> None:
    attachment: Instance = mover.read("Attachment0")
    other = mover.read("Attachment1")
    goal = mover.read("CFrame") if other is None else world_cframe(other)
    here = world_cframe(attachment)
    axis, angle = rotations.to_axis_angle(multiply(goal, invert(here)).rotation)
    way = (axis[0] * angle, axis[1] * angle, axis[2] * angle)
    speed, most = _effort(mover, "MaxTorque")
    _turn_to_velocity(space, number, _towards(way, speed, mover.read("MaxAngularVelocity")), most)


def _effort(mover: Instance, force: str) -> tuple[float, float]:
    """Return the share of the distance to cover per second, and the maximum force."""
    if mover.read("RigidityEnabled"):
        return TICK_RATE, math.inf
    return min(max(mover.read("Responsiveness"), 0.0), TICK_RATE), mover.read(force)


def _towards(way: Triple, speed: float, most: float) -> Triple:
    return _limited((way[0] * speed, way[1] * speed, way[2] * speed), most)


_PUSHES = {
    "BodyVelocity": _body_velocity,
    "BodyForce": _body_force,
    "BodyAngularVelocity": _body_angular_velocity,
    "VectorForce": _vector_force,
    "AlignPosition": _align_position,
    "AlignOrientation": _align_orientation,
}
