"""``TweenInfo``: how a tween runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, Final

from clawblox.engine.values.enums import EnumItem, enum_check, enum_item
from clawblox.engine.values.functions import (
    Functions,
    any_value,
    checked,
    instance_check,
    number,
    optional,
)
from clawblox.engine.values.value import Value, expect_contents, operator
from clawblox.luau.core.operators import to_text

CONSTRUCTORS: Functions = {}

_LONGEST_S: Final = 1e9
_SHORTEST_S: Final = 1e-9
_MOST_REPEATS: Final = 2.0**31 - 1.0


class TweenInfo(Value):
    """The time of a tween in seconds, its easing, how often it repeats, and its delay."""

    __slots__ = ("_contents",)

    _contents: tuple[Any, ...]

    type_name = "TweenInfo"
    getters: ClassVar[dict[str, Callable[[TweenInfo], Any]]] = {
        "Time": lambda info: info.contents()[0],
        "EasingStyle": lambda info: info.contents()[1],
        "EasingDirection": lambda info: info.contents()[2],
        "RepeatCount": lambda info: info.contents()[3],
        "Reverses": lambda info: info.contents()[4],
        "DelayTime": lambda info: info.contents()[5],
    }

    def contents(self) -> tuple[Any, ...]:
        """Return time, style, direction, repeats, whether it reverses, and the delay."""
        return self._contents

    def fill(self, *values: Any) -> None:
        """Restore contents."""
        expect_contents(values, float, EnumItem, EnumItem, float, bool, float)
        time, style, direction, repeats, reverses, delay = values
        if style.enum.name != "EasingStyle" or direction.enum.name != "EasingDirection":
            raise TypeError("expected an EasingStyle and an EasingDirection")
        self._contents = (
            _seconds(time),
            style,
            direction,
            _whole(repeats),
            reverses,
            _seconds(delay),
        )


def _seconds(value: float) -> float:
    return min(value, _LONGEST_S) if value >= _SHORTEST_S else 0.0  # NaN too


def _whole(value: float) -> float:
    if value != value:
        return 0.0
    return float(math.trunc(max(-1.0, min(value, _MOST_REPEATS))))


def _flag(args: tuple[Any, ...], at: int, name: str) -> bool:
    return any_value(args, at, name) not in (None, False)


@checked(
    CONSTRUCTORS,
    "new",
    optional(number, 1.0),
    optional(enum_check("EasingStyle"), enum_item("EasingStyle", "Quad")),
    optional(enum_check("EasingDirection"), enum_item("EasingDirection", "Out")),
    optional(number, 0.0),
    _flag,
    optional(number, 0.0),
)
def make_tween_info(*values: Any) -> TweenInfo:
    """Return the TweenInfo of six values of the right types."""
    info = TweenInfo.empty()
    info.fill(*values)
    return info


@operator(TweenInfo, "__tostring", instance_check(TweenInfo, "TweenInfo"))
def _text(info: TweenInfo) -> str:
    return ", ".join(to_text(value) for value in info.contents())
