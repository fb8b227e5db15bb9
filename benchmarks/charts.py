"""Two kinds of charts: bars in panels with separate units, and lines on logarithmic axes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from docs.pictures.svg import Canvas, Colour, text_width

__all__ = ["Bar", "Panel", "draw_bars", "draw_lines", "format_number"]

_WIDTH: Final = 760.0
_SMALL: Final = 12.0
_BAR_HEIGHT: Final = 20.0
_PANEL_HEAD: Final = 30.0
_PANEL_FOOT: Final = 44.0
_LABEL_ROOM: Final = 170.0
"""Pixels to the right of the longest bar, for its value."""

_LINE_COLOURS: Final[tuple[Colour, ...]] = ("muted", "first", "fourth", "second", "third")


@attrs.frozen
class Bar:
    """A bar.

    Attributes:
        label: Its label.
        value: Its length, in the unit of its panel.
        text: Text at its end.
        colour: Its colour.
        goal: A value that it should not exceed, or None.
    """

    label: str
    value: float
    text: str
    colour: Colour = "first"
    goal: float | None = None


@attrs.frozen
class Panel:
    """Bars that share an axis.

    Attributes:
        title: Title of the comparison.
        axis: Name of the axis, with its unit.
        bars: The bars, from the top down.
        reference: Position and meaning of a line through all bars.
        is_log: Whether the axis is logarithmic; dots are drawn instead of bars, which need a zero.
    """

    title: str
    axis: str
    bars: Sequence[Bar]
    reference: tuple[float, str] | None = None
    is_log: bool = False


@attrs.frozen
class Scale:
    """Maps values of an axis to pixels."""

    low: float
    high: float
    begin: float
    end: float
    is_log: bool = False

    def __call__(self, value: float) -> float:
        """Return the pixel of a value."""
        low, high, value = (
            (math.log(self.low), math.log(self.high), math.log(max(value, self.low)))
            if self.is_log
            else (self.low, self.high, value)
        )
        return self.begin + (value - low) / (high - low) * (self.end - self.begin)

    def ticks(self) -> list[float]:
        """Return round values along the axis."""
        if self.is_log:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            marks = [mark * 10.0**power for power in powers for mark in (1, 2, 5)]
            if self.high / self.low > 50:
                marks = [10.0**power for power in powers]
            return [mark for mark in marks if self.low <= mark * 1.0001 and mark <= self.high]
        step = _round_step((self.high - self.low) / 5)
        return [number * step for number in range(int(self.high / step + 1e-9) + 1)]


def format_number(value: float) -> str:
    """Return a number with three significant digits, without an exponent."""
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def draw_bars(title: str, panels: Sequence[Panel]) -> Canvas:
    """Draw panels of bars below each other."""
    heights = [_PANEL_HEAD + _BAR_HEIGHT * len(panel.bars) + _PANEL_FOOT for panel in panels]
    labels = [bar.label for panel in panels for bar in panel.bars]
    left = 20 + max(text_width(label, _SMALL) for label in labels)
    canvas = Canvas(_WIDTH, sum(heights), title)
    top = 0.0
    for panel, height in zip(panels, heights, strict=True):
        _draw_panel(canvas, panel, left, top)
        top += height
    return canvas


def _draw_panel(canvas: Canvas, panel: Panel, left: float, top: float) -> None:
    scale = _panel_scale(panel, left)
    first, last = top + _PANEL_HEAD, top + _PANEL_HEAD + _BAR_HEIGHT * len(panel.bars)
    canvas.text(8, top + 17, panel.title, bold=True)
    for tick in scale.ticks():
        canvas.path((scale(tick), first), (scale(tick), last + 4), colour="line")
        canvas.text(scale(tick), last + 17, format_number(tick), anchor="middle", colour="muted",
                    size=11)  # fmt: skip
    canvas.text(left, last + 32, panel.axis, colour="muted", size=11)
    for number, bar in enumerate(panel.bars):
        _draw_bar(canvas, bar, panel, scale, first + number * _BAR_HEIGHT)
    if panel.reference:
        value, meaning = panel.reference
        canvas.path((scale(value), first - 4), (scale(value), last), colour="ink", width=1.5)
        canvas.text(scale(value), first - 7, meaning, anchor="middle", size=11)


def _draw_bar(canvas: Canvas, bar: Bar, panel: Panel, scale: Scale, y: float) -> None:
    middle, end = y + _BAR_HEIGHT / 2, scale(bar.value)
    canvas.text(scale.begin - 8, middle + 4, bar.label, anchor="end", size=_SMALL)
    if panel.is_log:
        canvas.path((scale.begin, middle), (end, middle), colour="line")
        canvas.dot(end, middle, colour=bar.colour, radius=5)
    else:
        canvas.rectangle(scale.begin, y + 3, end - scale.begin, _BAR_HEIGHT - 6, fill=bar.colour)
    if bar.goal is not None:
        goal = scale(bar.goal)
        canvas.path((goal, y + 1), (goal, y + _BAR_HEIGHT - 1), colour="second", width=2.5)
    canvas.text(_text_begin(bar, panel, scale), middle + 4, bar.text, size=_SMALL)


def _text_begin(bar: Bar, panel: Panel, scale: Scale) -> float:
    """Return the start of a bar's text, beyond the marks that it would cross."""
    begin = scale(bar.value) + 8
    marks = [bar.goal, panel.reference[0] if panel.reference else None]
    for mark in sorted(scale(mark) for mark in marks if mark is not None):
        if begin - 6 < mark < begin + text_width(bar.text, _SMALL):
            begin = mark + 8
    return begin


def _panel_scale(panel: Panel, left: float) -> Scale:
    values = [bar.value for bar in panel.bars] + [bar.goal for bar in panel.bars if bar.goal]
    if panel.reference:
        values.append(panel.reference[0])
    right = _WIDTH - _LABEL_ROOM
    if panel.is_log:
        low = 10.0 ** math.floor(math.log10(min(value for value in values if value > 0)))
        return Scale(low, 1.05 * max(values), left, right, is_log=True)
    return Scale(0.0, max(*values, 1e-9) * 1.02, left, right)


def draw_lines(
    title: str,
    series: Mapping[str, Sequence[tuple[float, float]]],
    *,
    x_axis: str,
    y_axis: str,
    is_log: bool = True,
) -> Canvas:
    """Draw a line for each series, labelled at its end, on two axes that are logarithmic or not."""
    points = [point for line in series.values() for point in line]
    xs, ys = sorted({x for x, _ in points}), [y for _, y in points]
    height, right = 400.0, _WIDTH - 30 - max(text_width(name, _SMALL) for name in series)
    across = Scale(xs[0] * 0.9 if is_log else 0.0, xs[-1], 70, right, is_log=is_log)
    lowest = min(ys) / 1.3 if is_log else 0.0
    upward = Scale(lowest, max(ys) * 1.15, height - 52, 34, is_log=is_log)
    canvas = Canvas(_WIDTH, height, title)
    for tick in upward.ticks():
        canvas.path((across.begin, upward(tick)), (right, upward(tick)), colour="line")
        canvas.text(across.begin - 8, upward(tick) + 4, format_number(tick), anchor="end",
                    colour="muted", size=11)  # fmt: skip
    for x in xs if is_log else across.ticks():
        canvas.path((across(x), upward.begin), (across(x), upward.begin + 5), colour="muted")
        canvas.text(across(x), upward.begin + 19, format_number(x), anchor="middle",
                    colour="muted", size=11)  # fmt: skip
    canvas.text((across.begin + right) / 2, height - 12, x_axis, anchor="middle", colour="muted")
    canvas.text(8, 18, y_axis, colour="muted")
    ends = _spread({name: upward(line[-1][1]) for name, line in series.items()}, 17)
    for colour, (name, line) in zip(_LINE_COLOURS, series.items(), strict=False):
        places = [(across(x), upward(y)) for x, y in line]
        canvas.path(*places, colour=colour, width=2)
        for place in places:
            canvas.dot(*place, colour=colour)
        canvas.text(right + 12, ends[name] + 4, name, size=_SMALL, colour=colour)
    return canvas


def _spread(heights: Mapping[str, float], least: float) -> dict[str, float]:
    """Move overlapping labels apart."""
    spread: dict[str, float] = {}
    above = -math.inf
    for name, height in sorted(heights.items(), key=lambda pair: pair[1]):
        above = spread[name] = max(height, above + least)
    return spread


def _round_step(step: float) -> float:
    power = 10.0 ** math.floor(math.log10(step))
    return next(mark * power for mark in (1, 2, 5, 10) if mark * power >= step)
