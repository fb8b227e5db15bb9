"""``Rect``: a rectangle of the screen or of an image."""

from __future__ import annotations

from typing import Any, ClassVar

import attrs

from clawblox.engine.values.value import Getters, Value, attributes
from clawblox.engine.values.vector2 import Vector2, make_vector2
from clawblox.luau.core.numbers import single
from clawblox.luau.lib.support import arguments as arg


@attrs.define(eq=False, repr=False)
class Rect(Value):
    """A rectangle, by the corner with the smallest and the one with the largest numbers."""

    low: Vector2
    high: Vector2

    type_name = "Rect"
    kinds = (Vector2, Vector2)
    getters: ClassVar[Getters] = {
        **attributes(Min="low", Max="high"),
        "Width": lambda rect: single(rect.high.x - rect.low.x),
        "Height": lambda rect: single(rect.high.y - rect.low.y),
    }


def make_rect(left: float, top: float, right: float, bottom: float) -> Rect:
    """Return the rectangle between two points in any order."""
    low = make_vector2(min(left, right), min(top, bottom))
    return Rect(low, make_vector2(max(left, right), max(top, bottom)))


def _new(*args: Any) -> Rect:
    if len(args) > 1 and isinstance(args[0], Vector2) and isinstance(args[1], Vector2):
        return make_rect(*args[0].contents(), *args[1].contents())
    return make_rect(*[arg.optional_number(args, at, "new", 0.0) for at in range(4)])


Rect.constructors["new"] = _new
