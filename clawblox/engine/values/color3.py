"""``Color3``: a colour as red, green and blue from 0 to 1."""

from __future__ import annotations

import colorsys
import math
import re
from typing import Any

import attrs

from clawblox.engine.values.value import (
    Check,
    Value,
    attributes,
    checked,
    expect_contents,
    instance_check,
    number,
    optional,
    singles,
    string,
)
from clawblox.luau import RuntimeFault

_HEX = re.compile(r"#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})")


@attrs.define(eq=False, repr=False)
class Color3(Value):
    """A colour; its parts are already 32-bit floats from 0 to 1."""

    r: float
    g: float
    b: float

    type_name = "Color3"
    getters = attributes(R="r", G="g", B="b", r="r", g="g", b="b")

    def fill(self, *values: Any) -> None:
        """Restore the contents."""
        expect_contents(values, float, float, float)
        self.r, self.g, self.b = make_color3(*values).contents()


color3: Check = instance_check(Color3, "Color3")
_part = optional(number, 0.0)


@checked(Color3.constructors, "new", _part, _part, _part)
def make_color3(r: float, g: float, b: float) -> Color3:
    """Return the colour of three numbers, each clamped to 0 to 1."""
    return Color3(*singles(_clamp(r), _clamp(g), _clamp(b)))


def _clamp(value: float) -> float:
    if value > 0.0:
        return min(value, 1.0)
    return 0.0  # also for NaN


@checked(Color3.constructors, "fromRGB", _part, _part, _part)
def _from_rgb(r: float, g: float, b: float) -> Color3:
    return make_color3(r / 255.0, g / 255.0, b / 255.0)


@checked(Color3.constructors, "fromHSV", number, number, number)
def _from_hsv(hue: float, saturation: float, value: float) -> Color3:
    return make_color3(*colorsys.hsv_to_rgb(_clamp(hue), _clamp(saturation), _clamp(value)))


@checked(Color3.constructors, "fromHex", string)
def _from_hex(text: str) -> Color3:
    match = _HEX.fullmatch(text)
    if match is None:
        raise RuntimeFault("Invalid hex color")
    digits = match[1]
    if len(digits) == 3:
        digits = "".join(digit * 2 for digit in digits)
    return _from_rgb(*(float(int(digits[at : at + 2], 16)) for at in (0, 2, 4)))


@checked(Color3.methods, "Lerp", color3, color3, number)
def _lerp(start: Color3, goal: Color3, alpha: float) -> Color3:
    pairs = zip(start.contents(), goal.contents(), strict=True)
    return make_color3(*(a + (b - a) * alpha for a, b in pairs))


@checked(Color3.methods, "ToHSV", color3)
def _to_hsv(color: Color3) -> tuple[float, ...]:
    return singles(*colorsys.rgb_to_hsv(*color.contents()))


@checked(Color3.methods, "ToHex", color3)
def to_hex(color: Color3) -> str:
    """Return a colour as ``#RRGGBB``."""
    return "#" + "".join(f"{math.floor(part * 255.0 + 0.5):02X}" for part in color.contents())
