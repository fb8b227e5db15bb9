"""``CFrame``: a position and a rotation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

from clawblox.engine.values import rotations
from clawblox.engine.values.enums import EnumItem, enum_check
from clawblox.engine.values.rotations import IDENTITY, Rotation
from clawblox.engine.values.value import (
    Check,
    Getters,
    Value,
    any_value,
    attributes,
    checked,
    expect_contents,
    instance_check,
    number,
    operator,
    optional,
    singles,
    vector,
)
from clawblox.engine.values.vector3 import FUZZ, ZERO, triple
from clawblox.luau import RuntimeFault, Vector, make_vector
from clawblox.luau.core.iteration import charge_work
from clawblox.luau.core.numbers import format_number, single
from clawblox.luau.core.operators import shown_type
from clawblox.luau.lib.support import arguments as arg

_Y_AXIS = Vector(0.0, 1.0, 0.0)
_STEPS = 8  # making a rotation


class CFrame(Value):
    """An immutable position and rotation.

    Args:
        position: The position, already rounded to 32-bit floats.
        rotation: The rotation, row by row, already rounded to 32-bit floats.
    """

    __slots__ = ("position", "rotation")

    position: Vector
    rotation: Rotation

    type_name = "CFrame"
    getters: ClassVar[Getters] = {
        **attributes(Position="position", p="position"),
        **attributes(X="position.x", Y="position.y", Z="position.z"),
        "Rotation": lambda frame: CFrame(ZERO, frame.rotation),
        "RightVector": lambda frame: Vector(*frame.rotation[0::3]),
        "UpVector": lambda frame: Vector(*frame.rotation[1::3]),
        "LookVector": lambda frame: Vector(*(-part for part in frame.rotation[2::3])),
        "XVector": lambda frame: Vector(*frame.rotation[0::3]),
        "YVector": lambda frame: Vector(*frame.rotation[1::3]),
        "ZVector": lambda frame: Vector(*frame.rotation[2::3]),
    }
    for _name in ("X", "Y", "Z", "RightVector", "UpVector", "LookVector"):
        getters[_name[0].lower() + _name[1:]] = getters[_name]
    del _name

    def __init__(self, position: Vector, rotation: Rotation = IDENTITY) -> None:
        self.position = position
        self.rotation = rotation

    def contents(self) -> tuple[Any, ...]:
        """Return the position and the nine numbers of the rotation."""
        return self.position, *self.rotation

    def fill(self, *values: Any) -> None:
        """Restore the contents."""
        expect_contents(values, Vector, *[float] * 9)
        self.position = values[0]
        self.rotation = values[1:]

    def text(self) -> str:
        """Return the numbers."""
        return ", ".join(map(format_number, self.parts()))

    def parts(self) -> tuple[float, ...]:
        """Return the twelve numbers: the position, then the rotation row by row."""
        at = self.position
        return at.x, at.y, at.z, *self.rotation


cframe: Check = instance_check(CFrame, "CFrame")


def make_cframe(x: float, y: float, z: float, rotation: Rotation) -> CFrame:
    """Return a CFrame of unrounded numbers."""
    return CFrame(make_vector(x, y, z), _rounded(rotation))


def _rounded(rotation: Rotation) -> Rotation:
    return singles(*rotation)  # type: ignore[return-value]


def multiply(a: CFrame, b: CFrame) -> CFrame:
    """Return the CFrame `b`, given in the space of `a`, in the space of the world."""
    position = move_point(a, b.position)
    if a.rotation == IDENTITY:
        return CFrame(position, b.rotation)
    if b.rotation == IDENTITY:
        return CFrame(position, a.rotation)
    return CFrame(position, _rounded(rotations.multiply(a.rotation, b.rotation)))


def invert(frame: CFrame) -> CFrame:
    """Return the inverse of a CFrame whose matrix is a pure rotation."""
    at = frame.position
    x, y, z = rotations.apply_inverse(frame.rotation, at.x, at.y, at.z)
    return make_cframe(-x, -y, -z, rotations.invert(frame.rotation))


def move_point(frame: CFrame, point: Vector) -> Vector:
    """Return a point, given in the space of a CFrame, in the space of the world."""
    x, y, z = point.x, point.y, point.z
    if frame.rotation != IDENTITY:
        x, y, z = rotations.apply(frame.rotation, x, y, z)
    at = frame.position
    return make_vector(at.x + x, at.y + y, at.z + z)


def look_at(at: Vector, target: Vector, up: Vector = _Y_AXIS) -> CFrame:
    """Return the CFrame at a position that faces a target; see `rotations.facing`."""
    direction = (target.x - at.x, target.y - at.y, target.z - at.z)
    return make_cframe(at.x, at.y, at.z, rotations.facing(direction, triple(up)))


# Constructors


def _new(*args: Any) -> CFrame:
    if len(args) == 3 and all(number.__class__ is float for number in args):
        return CFrame(make_vector(*args))
    if args and args[0].__class__ is Vector:
        if len(args) > 1 and args[1] is not None:
            return look_at(args[0], vector(args, 1, "new"))
        return CFrame(args[0])
    if not args:
        return CFrame(ZERO)
    if len(args) not in (3, 7, 12):
        raise RuntimeFault(f"invalid number of arguments to 'new': {len(args)}")
    numbers = [arg.number(args, at, "new") for at in range(len(args))]
    if len(numbers) == 3:
        return CFrame(make_vector(*numbers))
    x, y, z, *rest = numbers
    rotation = rotations.from_quaternion(*rest) if len(rest) == 4 else tuple(rest)
    return make_cframe(x, y, z, rotation)  # type: ignore[arg-type]


CFrame.constructors["new"] = _new
checked(CFrame.constructors, "lookAt", vector, vector, optional(vector, _Y_AXIS))(look_at)


@checked(CFrame.constructors, "lookAlong", vector, vector, optional(vector, _Y_AXIS))
def _look_along(at: Vector, direction: Vector, up: Vector) -> CFrame:
    turn = rotations.facing(triple(direction), triple(up))
    return make_cframe(at.x, at.y, at.z, turn)


def _turned(rotation: Rotation) -> CFrame:
    charge_work(_STEPS)
    return CFrame(ZERO, _rounded(rotation))


_angle = optional(number, 0.0)


def _from_angles(order: str) -> Callable[[float, float, float], CFrame]:
    return lambda x, y, z: _turned(rotations.from_euler(order, (x, y, z)))


for _name in ("Angles", "fromEulerAnglesXYZ"):
    checked(CFrame.constructors, _name, _angle, _angle, _angle)(_from_angles("XYZ"))
for _name in ("fromOrientation", "fromEulerAnglesYXZ"):
    checked(CFrame.constructors, _name, _angle, _angle, _angle)(_from_angles("YXZ"))

_order = optional(enum_check("RotationOrder"), None)


@checked(CFrame.constructors, "fromEulerAngles", _angle, _angle, _angle, _order)
def _from_euler_angles(x: float, y: float, z: float, order: EnumItem | None) -> CFrame:
    return _turned(rotations.from_euler(order.name if order else "XYZ", (x, y, z)))


@checked(CFrame.constructors, "fromAxisAngle", vector, number)
def _from_axis_angle(axis: Vector, angle: float) -> CFrame:
    return _turned(rotations.from_axis_angle(triple(axis), angle))


@checked(CFrame.constructors, "fromMatrix", vector, vector, vector, optional(vector, None))
def _from_matrix(at: Vector, right: Vector, up: Vector, back: Vector | None) -> CFrame:
    x, y = triple(right), triple(up)
    z = triple(back) if back else rotations.normalize(rotations.cross(x, y))
    return make_cframe(at.x, at.y, at.z, rotations.from_columns(x, y, z or (0.0, 0.0, 0.0)))


@checked(CFrame.constructors, "fromRotationBetweenVectors", vector, vector)
def _from_rotation_between(start: Vector, goal: Vector) -> CFrame:
    return _turned(rotations.between(triple(start), triple(goal)))


# Methods

checked(CFrame.methods, "Inverse", cframe)(invert)


@checked(CFrame.methods, "Lerp", cframe, cframe, number)
def lerp(start: CFrame, goal: CFrame, alpha: float) -> CFrame:
    """Return the CFrame at a fraction of the way, with uniform rotation."""
    a, b = start.position, goal.position
    place = (a.x + (b.x - a.x) * alpha, a.y + (b.y - a.y) * alpha, a.z + (b.z - a.z) * alpha)
    if start.rotation == goal.rotation:
        return make_cframe(*place, start.rotation)
    return make_cframe(*place, rotations.slerp(start.rotation, goal.rotation, alpha))


@checked(CFrame.methods, "Orthonormalize", cframe)
def _orthonormalize(frame: CFrame) -> CFrame:
    return make_cframe(*triple(frame.position), rotations.orthonormalize(frame.rotation))


def _add_mapping(name: str, check: Check, compute: Callable[[CFrame, Any], Any]) -> None:
    """Add a method that maps each of its arguments to a result."""

    def call(*args: Any) -> Any:
        frame = cframe(args, 0, name)
        if len(args) == 2:
            return compute(frame, check(args, 1, name))
        arg.charge(args)
        return tuple(compute(frame, check(args, at, name)) for at in range(1, len(args)))

    CFrame.methods[name] = call


def _unmove_point(frame: CFrame, point: Vector) -> Vector:
    at = frame.position
    away = (point.x - at.x, point.y - at.y, point.z - at.z)
    return make_vector(*rotations.apply_inverse(frame.rotation, *away))


_add_mapping("ToWorldSpace", cframe, multiply)
_add_mapping("ToObjectSpace", cframe, lambda frame, other: multiply(invert(frame), other))
_add_mapping("PointToWorldSpace", vector, move_point)
_add_mapping("PointToObjectSpace", vector, _unmove_point)
_add_mapping(
    "VectorToWorldSpace",
    vector,
    lambda frame, way: make_vector(*rotations.apply(frame.rotation, way.x, way.y, way.z)),
)
_add_mapping(
    "VectorToObjectSpace",
    vector,
    lambda frame, way: make_vector(*rotations.apply_inverse(frame.rotation, way.x, way.y, way.z)),
)


for _name in ("GetComponents", "components"):
    checked(CFrame.methods, _name, cframe)(CFrame.parts)


def _angles(order: str) -> Callable[[CFrame], tuple[float, ...]]:
    return lambda frame: singles(*rotations.to_euler(order, frame.rotation))


checked(CFrame.methods, "ToEulerAnglesXYZ", cframe)(_angles("XYZ"))
checked(CFrame.methods, "ToEulerAnglesYXZ", cframe)(_angles("YXZ"))
checked(CFrame.methods, "ToOrientation", cframe)(_angles("YXZ"))


@checked(CFrame.methods, "ToEulerAngles", cframe, _order)
def _to_euler_angles(frame: CFrame, order: EnumItem | None) -> tuple[float, ...]:
    return _angles(order.name if order else "XYZ")(frame)


@checked(CFrame.methods, "ToAxisAngle", cframe)
def _to_axis_angle(frame: CFrame) -> tuple[Vector, float]:
    axis, angle = rotations.to_axis_angle(frame.rotation)
    return make_vector(*axis), single(angle)


@checked(CFrame.methods, "AngleBetween", cframe, cframe)
def _angle_between(frame: CFrame, other: CFrame) -> float:
    turn = rotations.multiply(rotations.invert(frame.rotation), other.rotation)
    return single(rotations.to_axis_angle(turn)[1])


@checked(CFrame.methods, "FuzzyEq", cframe, cframe, optional(number, FUZZ))
def _fuzzy_equal(frame: CFrame, other: CFrame, epsilon: float) -> bool:
    pairs = zip(frame.parts(), other.parts(), strict=True)
    return all(math.fabs(a - b) <= epsilon for a, b in pairs)


# Operators


@operator(CFrame, "__mul", any_value, any_value)
def _multiply(left: Any, right: Any) -> CFrame | Vector:
    if isinstance(left, CFrame):
        if isinstance(right, CFrame):
            charge_work(_STEPS)
            return multiply(left, right)
        if right.__class__ is Vector:
            return move_point(left, right)
    raise _no_arithmetic("mul", left, right)


def _add_moving(event: str, word: str, compute: Callable[[float, float], float]) -> None:
    @operator(CFrame, event, any_value, any_value)
    def move(frame: Any, way: Any) -> CFrame:
        if not isinstance(frame, CFrame) or way.__class__ is not Vector:
            raise _no_arithmetic(word, frame, way)
        at = frame.position
        x, y, z = compute(at.x, way.x), compute(at.y, way.y), compute(at.z, way.z)
        return CFrame(make_vector(x, y, z), frame.rotation)


_add_moving("__add", "add", float.__add__)
_add_moving("__sub", "sub", float.__sub__)


def _no_arithmetic(word: str, left: Any, right: Any) -> RuntimeFault:
    kinds = f"{shown_type(left)} and {shown_type(right)}"
    return RuntimeFault(f"attempt to perform arithmetic ({word}) on {kinds}")


IDENTITY_CFRAME = CFrame.constants["identity"] = CFrame(ZERO)
