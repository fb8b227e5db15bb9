"""``TweenInfo``: the parameters of a tween.

The curves are from R. Penner ("Programming Macromedia Flash MX", 2002), with exact end points.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from clawblox.engine.values.enums import EnumItem, enum_check, enum_item
from clawblox.engine.values.rotations import cosine, sine
from clawblox.engine.values.value import (
    Record,
    any_value,
    checked,
    expect_contents,
    members,
    number,
    optional,
)
from clawblox.luau.core.numbers import raise_to

_LONGEST_S: Final = 1e9
_SHORTEST_S: Final = 1e-9
_MOST_REPEATS: Final = 2.0**31 - 1.0


class TweenInfo(Record):
    """The time of a tween in seconds, its easing, its number of repeats, and its delay."""

    __slots__ = ()

    type_name = "TweenInfo"
    getters = members(
        "Time", "EasingStyle", "EasingDirection", "RepeatCount", "Reverses", "DelayTime"
    )

    def fill(self, *values: Any) -> None:
        """Restore the contents."""
        expect_contents(values, float, EnumItem, EnumItem, float, bool, float)
        time, style, direction, repeats, reverses, delay = values
        if style.enum.name != "EasingStyle" or direction.enum.name != "EasingDirection":
            raise TypeError("expected an EasingStyle and an EasingDirection")
        time, delay = _seconds(time), _seconds(delay)
        self._contents = (time, style, direction, _whole(repeats), reverses, delay)


def _seconds(value: float) -> float:
    return min(value, _LONGEST_S) if value >= _SHORTEST_S else 0.0  # NaN too


def _whole(value: float) -> float:
    if value != value:
        return 0.0
    return float(math.trunc(max(-1.0, min(value, _MOST_REPEATS))))


def _flag(args: tuple[Any, ...], at: int, name: str) -> bool:
    return any_value(args, at, name) not in (None, False)


@checked(
    TweenInfo.constructors,
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


_OVERSHOOT: Final = 1.70158  # a tenth of the distance
_PERIOD: Final = 0.3  # of Elastic, as a share of the time
_PERIOD_IN_OUT: Final = 0.45

Curve = Callable[[float], float]


def _bounce_out(share: float) -> float:
    if share < 1.0 / 2.75:
        return 7.5625 * share * share
    if share < 2.0 / 2.75:
        share -= 1.5 / 2.75
        return 7.5625 * share * share + 0.75
    if share < 2.5 / 2.75:
        share -= 2.25 / 2.75
        return 7.5625 * share * share + 0.9375
    share -= 2.625 / 2.75
    return 7.5625 * share * share + 0.984375


def _elastic(share: float, period: float = _PERIOD) -> float:
    back = share - 1.0
    return -raise_to(2.0, 10.0 * back) * sine((back - period / 4.0) * 2.0 * math.pi / period)


_CURVES: Final[dict[str, Curve]] = {
    "Linear": lambda share: share,
    "Sine": lambda share: 1.0 - cosine(share * math.pi / 2.0),
    "Quad": lambda share: share * share,
    "Cubic": lambda share: share * share * share,
    "Quart": lambda share: share * share * share * share,
    "Quint": lambda share: share * share * share * share * share,
    "Exponential": lambda share: raise_to(2.0, 10.0 * (share - 1.0)),
    "Circular": lambda share: 1.0 - math.sqrt(1.0 - share * share),
    "Back": lambda share: share * share * ((_OVERSHOOT + 1.0) * share - _OVERSHOOT),
    "Bounce": lambda share: 1.0 - _bounce_out(1.0 - share),
    "Elastic": _elastic,
}
"""The curves that start slowly, by style; each takes a share between 0 and 1."""


def ease(share: float, style: str, direction: str) -> float:
    """Return the progress of a tween after a share of its time.

    Args:
        share: The share, clamped to the range from 0 to 1.
        style: The name of an item of ``Enum.EasingStyle``.
        direction: The name of an item of ``Enum.EasingDirection``.
    """
    if not share > 0.0:
        return 0.0  # NaN too
    if share >= 1.0:
        return 1.0
    curve = _CURVES[style]
    if direction == "In":
        return curve(share)
    if direction == "Out":
        return 1.0 - curve(1.0 - share)
    if style == "Elastic":
        curve = partial(_elastic, period=_PERIOD_IN_OUT)
    if share < 0.5:  # noqa: PLR2004, RUF100
        return curve(2.0 * share) / 2.0
    return 1.0 - curve(2.0 - 2.0 * share) / 2.0
