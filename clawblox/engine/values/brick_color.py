"""``BrickColor``: a colour of a list, by number or name."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, ClassVar, Final

from clawblox.engine.values.brick_color_data import COLORS, PALETTE
from clawblox.engine.values.color3 import Color3, make_color3
from clawblox.engine.values.functions import Check, Functions, checked, instance_check, number
from clawblox.engine.values.value import Value, expect_contents, operator
from clawblox.luau import RuntimeFault
from clawblox.luau.core.iteration import charge_work
from clawblox.luau.core.machine import current
from clawblox.luau.lib.support import arguments as arg

CONSTRUCTORS: Functions = {}

_UNKNOWN: Final = 194  # Medium stone grey, which every unknown number and name stands for
_STEPS: Final = 40  # comparing a colour with all of them
_ALL_BITS: Final = 255
_COLORS: Final = {number: (bits >> 16, bits >> 8 & 255, bits & 255) for number, bits, _ in COLORS}
_NAMES: Final = {number: name for number, _, name in COLORS}
_NUMBERS: Final = {name: number for number, _, name in reversed(COLORS)}  # of equal names the first


class BrickColor(Value):
    """A colour of the list.

    Args:
        number: Its number there.
    """

    __slots__ = ("number",)

    number: float

    type_name = "BrickColor"
    getters: ClassVar[dict[str, Callable[[BrickColor], Any]]] = {
        "Number": lambda color: color.number,
        "Name": lambda color: _NAMES[int(color.number)],
        "Color": lambda color: brick_color3(color),
        "r": lambda color: brick_color3(color).r,
        "g": lambda color: brick_color3(color).g,
        "b": lambda color: brick_color3(color).b,
    }

    def __init__(self, number: float) -> None:
        self.number = number

    def contents(self) -> tuple[float]:
        """Return the number."""
        return (self.number,)

    def fill(self, *values: Any) -> None:
        """Restore contents."""
        expect_contents(values, float)
        if values[0] not in _COLORS:
            raise ValueError(f"there is no BrickColor {values[0]}")
        (self.number,) = values


brick_color: Check = instance_check(BrickColor, "BrickColor")


def brick_color3(color: BrickColor) -> Color3:
    """Return a colour of the list as a Color3."""
    return make_color3(*(part / _ALL_BITS for part in _COLORS[int(color.number)]))


def nearest_brick_color(color: Color3) -> BrickColor:
    """Return the nearest colour of the list; of several, the one with the lowest number.

    Raises:
        LuaError: The scripts have used up the steps of this tick.
    """
    charge_work(_STEPS)
    r, g, b = (round(part * _ALL_BITS) for part in color.contents())
    return BrickColor(_nearest(r, g, b))


@lru_cache(4096)
def _nearest(*color: int) -> float:
    def distance(number: int) -> float:
        return sum((a - b) ** 2 for a, b in zip(color, _COLORS[number], strict=True))

    return float(min(_COLORS, key=distance))


def _new(*args: Any) -> BrickColor:
    first = args[0] if args else None
    if isinstance(first, Color3):
        return nearest_brick_color(first)
    if first.__class__ is str:
        return BrickColor(float(_NUMBERS.get(first, _UNKNOWN)))
    if len(args) > 1:
        return nearest_brick_color(make_color3(*(arg.number(args, at, "new") for at in range(3))))
    value = arg.number(args, 0, "new")
    return BrickColor(value if value in _COLORS else float(_UNKNOWN))


CONSTRUCTORS["new"] = _new


@checked(CONSTRUCTORS, "palette", number)
def _palette(index: float) -> BrickColor:
    if not 0.0 <= index < len(PALETTE):
        last = len(PALETTE) - 1
        raise RuntimeFault(f"invalid argument #1 to 'palette' (must be from 0 to {last})")
    return BrickColor(float(PALETTE[math.floor(index)]))


def _random(*_: Any) -> BrickColor:
    return BrickColor(float(COLORS[current.vm.random.between(0, len(COLORS) - 1)][0]))


CONSTRUCTORS["random"] = _random


def _add_constant(function: str, name: str) -> None:
    def make(*_: Any) -> BrickColor:
        return BrickColor(float(_NUMBERS[name]))

    CONSTRUCTORS[function] = make


for _function, _name in (
    ("White", "White"),
    ("Gray", "Medium stone grey"),
    ("DarkGray", "Dark stone grey"),
    ("Black", "Black"),
    ("Red", "Bright red"),
    ("Yellow", "Bright yellow"),
    ("Green", "Dark green"),
    ("Blue", "Bright blue"),
):
    _add_constant(_function, _name)


@operator(BrickColor, "__tostring", brick_color)
def _text(color: BrickColor) -> str:
    return _NAMES[int(color.number)]
