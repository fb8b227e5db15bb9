"""``NumberRange``, ``NumberSequence`` and ``ColorSequence``, used by effects and gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, ClassVar

from clawblox.engine.values.color3 import Color3, color3, make_color3
from clawblox.engine.values.value import (
    Check,
    Getters,
    Record,
    Value,
    as_list,
    checked,
    expect_contents,
    instance_check,
    members,
    number,
    optional,
    singles,
)
from clawblox.luau import LuaTable, RuntimeFault
from clawblox.luau.core.numbers import single
from clawblox.luau.core.operators import to_text
from clawblox.luau.core.tables import border

MOST_KEYPOINTS = 20
_FEWEST = 2


def _spaced(numbers: Sequence[float]) -> str:
    """Return numbers in the format of Roblox, with a space after each."""
    return "".join(f"{to_text(part)} " for part in numbers)


class NumberRange(Record):
    """A minimum and a maximum, already 32-bit floats."""

    __slots__ = ()

    type_name = "NumberRange"
    getters = members("Min", "Max")

    def fill(self, *values: Any) -> None:
        """Restore the contents."""
        expect_contents(values, float, float)
        low, high = self._contents = singles(*values)
        if not low <= high:
            raise ValueError(f"there is no NumberRange from {values[0]} to {values[1]}")

    def text(self) -> str:
        """Return both numbers."""
        return _spaced(self.contents())


@checked(NumberRange.constructors, "new", number, optional(number, None))
def make_number_range(low: float, high: float | None = None) -> NumberRange:
    """Return the range between two numbers, or of a single number.

    Raises:
        RuntimeFault: The numbers are in the wrong order, or NaN.
    """
    low, high = singles(low, low if high is None else high)
    if not low <= high:
        raise RuntimeFault("NumberRange: invalid range")
    return NumberRange(low, high)


class NumberSequenceKeypoint(Record):
    """A number at a time, and its envelope, already 32-bit floats."""

    __slots__ = ()

    type_name = "NumberSequenceKeypoint"
    kinds = (float, float, float)
    getters = members("Time", "Value", "Envelope")

    def numbers(self) -> tuple[float, ...]:
        """Return its form in a sequence."""
        return self.contents()

    def text(self) -> str:
        """Return the three numbers."""
        return _spaced(self.contents())


@checked(NumberSequenceKeypoint.constructors, "new", number, number, optional(number, 0.0))
def _number_keypoint(time: float, value: float, envelope: float = 0.0) -> NumberSequenceKeypoint:
    return NumberSequenceKeypoint(*singles(time, value, envelope))


class ColorSequenceKeypoint(Record):
    """A colour at a time; the time is already a 32-bit float."""

    __slots__ = ()

    type_name = "ColorSequenceKeypoint"
    kinds = (float, Color3)
    getters = members("Time", "Value")

    def numbers(self) -> tuple[float, ...]:
        """Return its form in a sequence."""
        time, color = self.contents()
        return (time, *color.contents())

    def text(self) -> str:
        """Return the time, the colour and an envelope of 0."""
        return _spaced((*self.numbers(), 0.0))


@checked(ColorSequenceKeypoint.constructors, "new", number, color3)
def _color_keypoint(time: float, color: Color3) -> ColorSequenceKeypoint:
    return ColorSequenceKeypoint(single(time), color)


class _Sequence(Record):
    """Keypoints from time 0 to time 1; its contents are their numbers, one after the other.

    Attributes:
        make: Creates a keypoint from a time and the numbers of its value.
        width: Number of numbers in a keypoint.
    """

    __slots__ = ()

    getters: ClassVar[Getters] = {"Keypoints": lambda sequence: as_list(sequence.keypoints())}
    make: ClassVar[Callable[..., Any]]
    width: ClassVar[int]

    def keypoints(self) -> list[Any]:
        """Return the keypoints as new values."""
        parts, width = self.contents(), self.width
        return [self.make(*parts[at : at + width]) for at in range(0, len(parts), width)]

    def fill(self, *values: Any) -> None:
        """Restore the contents."""
        expect_contents(values, *[float] * (len(values) + -len(values) % self.width))
        self._contents = values
        keypoints = self.keypoints()
        if problem := _find_problem(keypoints):
            raise ValueError(f"{self.type_name}: {problem}")
        self._contents = _numbers(keypoints)

    def text(self) -> str:
        """Return the texts of the keypoints."""
        return "".join(map(to_text, self.keypoints()))


class NumberSequence(_Sequence):
    """Numbers over time."""

    __slots__ = ()

    type_name = "NumberSequence"
    make = staticmethod(_number_keypoint)
    width = 3


class ColorSequence(_Sequence):
    """Colours over time."""

    __slots__ = ()

    type_name = "ColorSequence"
    make = staticmethod(lambda time, *parts: _color_keypoint(time, make_color3(*parts)))
    width = 4


def _numbers(keypoints: list[Any]) -> tuple[float, ...]:
    return tuple([part for keypoint in keypoints for part in keypoint.numbers()])


def _find_problem(keypoints: list[Any]) -> str | None:
    """Return the reason why keypoints do not form a sequence, or None."""
    times = [keypoint.contents()[0] for keypoint in keypoints]
    if len(times) < _FEWEST:
        return f"requires at least {_FEWEST} keypoints"
    if len(times) > MOST_KEYPOINTS:
        return f"can have at most {MOST_KEYPOINTS} keypoints"
    if times[0] != 0.0 or times[-1] != 1.0:
        return "must start at time 0 and end at time 1"
    if not all(a <= b for a, b in pairwise(times)):
        return "all keypoints must be ordered by time"
    return "cannot have NaN" if any(part != part for part in _numbers(keypoints)) else None


def _add_constructor(
    cls: type[_Sequence], keypoint: type[Value], part: Check, make: Callable[..., Any]
) -> None:
    """Register ``new`` for a value, for a first and a last value, or for a table of keypoints.

    Args:
        cls: The type of the sequence.
        keypoint: The type of its keypoints.
        part: Checks a value.
        make: Creates a keypoint from a time and a value.
    """
    check = instance_check(keypoint, keypoint.type_name)

    def new(*args: Any) -> _Sequence:
        if args and isinstance(args[0], LuaTable):
            count = min(int(border(args[0])), MOST_KEYPOINTS + 1)
            listed = tuple([args[0].get(float(at)) for at in range(1, count + 1)])
            keypoints = [check(listed, at, "new") for at in range(count)]
        else:
            first = part(args, 0, "new")
            last = optional(part, first)(args, 1, "new")
            keypoints = [make(0.0, first), make(1.0, last)]
        if problem := _find_problem(keypoints):
            raise RuntimeFault(f"{cls.type_name}: {problem}")
        return cls(*_numbers(keypoints))

    cls.constructors["new"] = new


_add_constructor(NumberSequence, NumberSequenceKeypoint, number, _number_keypoint)
_add_constructor(ColorSequence, ColorSequenceKeypoint, color3, _color_keypoint)
