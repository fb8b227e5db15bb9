"""Methods of parts and attachments for scripts, and their computed values."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Final

from clawblox.engine.instances.instance import Instance
from clawblox.engine.instances.kinds import refuse_value
from clawblox.engine.instances.spec import ClassTable, bind_methods
from clawblox.engine.parts.poses import read_cframe, refuse_infinite, rotation, write_cframe
from clawblox.engine.parts.syncing import ANGULAR, LINEAR, VELOCITY, Marks, material, part_shape
from clawblox.engine.physics.colliders import volume
from clawblox.engine.values.brick_color import BrickColor, brick_color3, nearest_brick_color
from clawblox.engine.values.cframe import CFrame, make_cframe, multiply
from clawblox.engine.values.rotations import IDENTITY, Rotation, from_euler, to_euler
from clawblox.engine.values.value import as_list
from clawblox.engine.values.vector3 import ZERO, triple
from clawblox.luau import Vector, make_vector


def _vector_argument(value: Any, name: str) -> Vector:
    if value.__class__ is not Vector:
        raise refuse_value(name, "Vector3", value)
    if not all(map(math.isfinite, triple(value))):
        raise refuse_value(name, "finite Vector3", value)
    return value


_VELOCITIES: Final = {
    "Velocity": LINEAR,
    "AssemblyLinearVelocity": LINEAR,
    "RotVelocity": ANGULAR,
    "AssemblyAngularVelocity": ANGULAR,
}


def add_part_members(classes: ClassTable, marks: Marks) -> None:
    """Add the methods and computed values of parts and attachments."""
    members = _PartMembers(marks)
    classes.add(
        "BasePart",
        methods=bind_methods(members, "part"),
        getters={
            "CFrame": read_cframe,
            "Orientation": lambda part: _angles("YXZ", rotation(part) or IDENTITY),
            "Rotation": lambda part: _angles("XYZ", rotation(part) or IDENTITY),
            "BrickColor": lambda part: nearest_brick_color(part.read("Color")),
            "Mass": members.get_mass,
            "AssemblyMass": members.read_assembly_mass,
            **{name: members.velocity_getter(key) for name, key in _VELOCITIES.items()},
        },
        setters={
            "CFrame": write_cframe,
            "Orientation": partial(_set_angles, "YXZ"),
            "Rotation": partial(_set_angles, "XYZ"),
            "BrickColor": _set_brick_color,
            **{name: members.velocity_setter(name, key) for name, key in _VELOCITIES.items()},
        },
    )
    classes.add(
        "Attachment",
        getters={
            "Orientation": lambda attachment: _angles("YXZ", attachment.read("CFrame").rotation),
            "WorldCFrame": world_cframe,
            "WorldPosition": lambda attachment: world_cframe(attachment).position,
        },
        setters={
            "Position": _set_attachment_position,
            "CFrame": _set_attachment_cframe,
            "Orientation": lambda attachment, value: _set_attachment_cframe(
                attachment, _turned("YXZ", attachment, value)
            ),
        },
    )


class _PartMembers:
    """The members of parts that need the bodies."""

    def __init__(self, marks: Marks) -> None:
        self._marks = marks

    def get_mass(self, part: Instance) -> float:
        """``GetMass()``: return volume times density."""
        density: float = material(part)["density"]
        return volume(part_shape(part)) * density

    def read_assembly_mass(self, member: Instance) -> float:
        """Return ``AssemblyMass``: the mass of all welded parts except massless parts."""
        root, *fixed = self._assembly(member)
        heavy = (part for part in fixed if not part.read("Massless"))
        return sum(map(self.get_mass, (root, *heavy)))

    def get_connected_parts(self, part: Instance) -> Any:
        """``GetConnectedParts()``: return this part and the parts welded to it."""
        return as_list([part, *(member for member in self._assembly(part) if member is not part)])

    def _root(self, part: Instance) -> Instance:
        fixture = self._marks.welds.fixtures.get(part.number)
        return part if fixture is None else fixture.root

    def _assembly(self, part: Instance) -> list[Instance]:
        self._marks.bring()
        root = self._root(part)
        fixtures = self._marks.welds.fixtures.values()
        return [root, *(fixture.part for fixture in fixtures if fixture.root is root)]

    def _body(self, part: Instance) -> int:
        """Return the number of the body that moves a part; forces ignore unknown numbers."""
        self._marks.bring()
        return self._root(part).number

    def apply_impulse(self, part: Instance, impulse: Any) -> Any:
        """``ApplyImpulse(impulse)``: change the velocity immediately."""
        vector = _vector_argument(impulse, "impulse")
        self._marks.space.forces.apply_impulse(self._body(part), triple(vector))
        return ()

    def apply_impulse_at_position(self, part: Instance, impulse: Any, position: Any) -> Any:
        """``ApplyImpulseAtPosition(impulse, position)``: apply an impulse at a world position."""
        vector, at = _vector_argument(impulse, "impulse"), _vector_argument(position, "position")
        self._marks.space.forces.apply_impulse(self._body(part), triple(vector), triple(at))
        return ()

    def apply_angular_impulse(self, part: Instance, impulse: Any) -> Any:
        """``ApplyAngularImpulse(impulse)``: change the angular velocity immediately."""
        vector = _vector_argument(impulse, "impulse")
        self._marks.space.forces.apply_angular_impulse(self._body(part), triple(vector))
        return ()

    def set_network_owner(self, part: Instance, owner: Any) -> Any:
        """``SetNetworkOwner(player)``, without effect, since only the engine simulates."""
        return ()

    def set_network_ownership_auto(self, part: Instance) -> Any:
        """``SetNetworkOwnershipAuto()``, without effect."""
        return ()

    def get_network_owner(self, part: Instance) -> Any:
        """``GetNetworkOwner()``: return nil for the server."""
        return None

    def velocity_getter(self, key: str) -> Any:
        """Return the getter of a velocity: the value written by a script, else that of the body."""
        marks = self._marks

        def read(part: Instance) -> Vector:
            written: Vector | None = part.props.get(key)
            if written is not None:
                return written
            number = self._root(part).number
            if number not in marks.space:
                return ZERO
            linear, angular = marks.space.forces.velocity(number)
            return Vector(*(linear if key == LINEAR else angular))

        return read

    def velocity_setter(self, name: str, key: str) -> Any:
        """Return the setter of a velocity."""
        marks = self._marks

        def write(part: Instance, value: Vector) -> None:
            target = self._root(part)
            target.props[key] = value
            marks.mark(target, VELOCITY)
            if part.signals:
                part.tell_changed(name)

        return write


def _angles(order: str, turn: Rotation) -> Vector:
    """Return a rotation as Euler angles in degrees, for an order such as ``YXZ``."""
    return make_vector(*map(math.degrees, to_euler(order, turn)))


def _turned(order: str, instance: Instance, value: Vector) -> CFrame:
    """Return the pose of a part or an attachment with its rotation replaced."""
    x, y, z = map(math.radians, triple(value))
    at = instance.read("Position")
    return make_cframe(at.x, at.y, at.z, from_euler(order, (x, y, z)))


def _set_angles(order: str, part: Instance, value: Vector) -> None:
    write_cframe(part, _turned(order, part, value))


def _set_brick_color(part: Instance, value: BrickColor) -> None:
    if part.store("Color", brick_color3(value)):
        part.tell_changed("Color")
        part.tell_changed("BrickColor")


def world_cframe(attachment: Instance) -> CFrame:
    """Return the pose of an attachment in the world."""
    own: CFrame = attachment.read("CFrame")
    part = attachment.parent
    if part is None or "BasePart" not in part.spec.lineage:
        return own
    return multiply(read_cframe(part), own)


def _set_attachment_position(attachment: Instance, position: Vector) -> None:
    _set_attachment_cframe(attachment, CFrame(position, attachment.read("CFrame").rotation))


def _set_attachment_cframe(attachment: Instance, frame: CFrame) -> None:
    refuse_infinite(frame)
    attachment.store("Position", frame.position)
    attachment.change("CFrame", frame)
