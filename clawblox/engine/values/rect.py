"""``Rect``: a rectangle of the screen or of an image."""

from __future__ import annotations

from typing import Any, ClassVar

from clawblox.engine.values.value import Getters, Record, members
from clawblox.engine.values.vector2 import Vector2, make_vector2
from clawblox.luau.core.numbers import single
from clawblox.luau.lib.support import arguments as arg


class Rect(Record):
    """A rectangle, by the corner with the smallest and the one with the largest numbers."""

    __slots__ = ()

    type_name = "Rect"
    kinds = (Vector2, Vector2)
    getters: ClassVar[Getters] = {
        **members("Min", "Max"),
        "Width": lambda rect: single(rect["Max"].x - rect["Min"].x),
        "Height": lambda rect: single(rect["Max"].y - rect["Min"].y),
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
