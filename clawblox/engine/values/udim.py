"""``UDim`` and ``UDim2``: a fraction of the parent's size plus a number of pixels."""

from __future__ import annotations

import math
from typing import Any

import attrs

from clawblox.engine.values.value import (
    Check,
    Value,
    add_arithmetic,
    attributes,
    checked,
    expect_contents,
    instance_check,
    number,
    optional,
)
from clawblox.luau.core.numbers import single
from clawblox.luau.core.operators import to_text
from clawblox.luau.lib.support import arguments as arg

_MAX_OFFSET = float(2**31 - 1)


@attrs.define(eq=False, repr=False)
class UDim(Value):
    """A length: a fraction of the parent's length, plus pixels.

    Args:
        scale: The fraction, a 32-bit float.
        offset: The pixels, a whole number.
    """

    scale: float
    offset: float

    type_name = "UDim"
    getters = attributes(Scale="scale", Offset="offset")

    def fill(self, *values: Any) -> None:
        """Restore the contents."""
        expect_contents(values, float, float)
        self.scale, self.offset = values[0], _whole(values[1])


@attrs.define(eq=False, repr=False)
class UDim2(Value):
    """A position or size of two lengths."""

    x: UDim
    y: UDim

    type_name = "UDim2"
    kinds = (UDim, UDim)
    getters = attributes(X="x", Y="y", Width="x", Height="y")

    def text(self) -> str:
        """Return both lengths in braces."""
        return f"{{{to_text(self.x)}}}, {{{to_text(self.y)}}}"


udim: Check = instance_check(UDim, "UDim")
udim2: Check = instance_check(UDim2, "UDim2")
_part = optional(number, 0.0)


@checked(UDim.constructors, "new", _part, _part)
def make_udim(scale: float, offset: float) -> UDim:
    """Return a length, with the offset truncated to an integer."""
    return UDim(single(scale), _whole(offset))


def _whole(value: float) -> float:
    if value != value:
        return 0.0
    return float(math.trunc(max(-_MAX_OFFSET, min(_MAX_OFFSET, value))))


add_arithmetic(UDim, make_udim, UDim.contents)


def make_udim2(x_scale: float, x_offset: float, y_scale: float, y_offset: float) -> UDim2:
    """Return a pair of lengths, with the offsets truncated to integers."""
    return UDim2(make_udim(x_scale, x_offset), make_udim(y_scale, y_offset))


def _new(*args: Any) -> UDim2:
    if args and isinstance(args[0], UDim):
        return UDim2(args[0], optional(udim, UDim(0.0, 0.0))(args, 1, "new"))
    return make_udim2(*(arg.optional_number(args, at, "new", 0.0) for at in range(4)))


UDim2.constructors["new"] = _new


@checked(UDim2.constructors, "fromScale", _part, _part)
def _from_scale(x: float, y: float) -> UDim2:
    return make_udim2(x, 0.0, y, 0.0)


@checked(UDim2.constructors, "fromOffset", _part, _part)
def _from_offset(x: float, y: float) -> UDim2:
    return make_udim2(0.0, x, 0.0, y)


@checked(UDim2.methods, "Lerp", udim2, udim2, number)
def _lerp(start: UDim2, goal: UDim2, alpha: float) -> UDim2:
    return UDim2(mix_udims(start.x, goal.x, alpha), mix_udims(start.y, goal.y, alpha))


def mix_udims(a: UDim, b: UDim, alpha: float) -> UDim:
    """Return the interpolated length at a fraction."""
    scale = a.scale + (b.scale - a.scale) * alpha
    return make_udim(scale, a.offset + (b.offset - a.offset) * alpha)


def _numbers(pair: UDim2) -> tuple[float, ...]:
    return (*pair.x.contents(), *pair.y.contents())


add_arithmetic(UDim2, make_udim2, _numbers)
