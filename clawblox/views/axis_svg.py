"""The strip of a time axis as SVG: its line, lost lives, folds, points and lanes. Pure.

Colours are classes. A strip has the width of every picture, and scrolls on a narrower page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from clawblox.columns import shorten
from clawblox.views import html, svg
from clawblox.views.axis import Axis, Piece, Sent, format_position
from clawblox.views.formatting import count_words, round_ticks
from clawblox.views.html import Markup, PageAddress
from clawblox.views.svg import Picture, Sign

MAX_POINTS: Final = 1400
"""Maximum number of points of a line or a lane; more points are drawn as columns."""
LEFT: Final = 160.0
"""Left edge of an axis, in pixels; positions are spread evenly up to ``RIGHT``."""
RIGHT: Final = 840.0
_COLUMN: Final = 2
"""Width of a column, in pixels."""
_TOP: Final = 22.0
_ROW: Final = 18.0
_LANE: Final = 24.0
_HEIGHT: Final = 40.0
"""Height of a line of numbers."""
_TICK: Final = 10.0
_MAX_TICKS: Final = 8
_MAX_NAME: Final = 18
_SAME: Final = 2
"""Points of the same kind within this many pixels share a sign."""

_X = Callable[[float], float]


def draw_axis(
    axis: Axis, lanes: Mapping[str, Sequence[Sent]], span: tuple[float, float] | None = None
) -> Picture:
    """Return the strip of an axis.

    Args:
        axis: The axis.
        lanes: Inputs and messages to draw below the axis, by the name of their lane.
        span: The positions at both ends, for strips that are compared; None means the axis's own.
    """
    begin, end = span or (axis.begin, axis.end)
    x = _scale((begin, end), (LEFT, RIGHT))
    lost = [piece for piece in axis.pieces if piece.is_lost]
    rows = [*_stack(lost, x)]
    y = _TOP + _ROW * (max(rows, default=0) + 1)
    heights = {piece: y - _ROW * row for piece, row in zip(lost, rows, strict=True)}
    lanes_top = y + 58
    bottom = lanes_top + _LANE * len(lanes)
    pauses = (point for point in axis.points if point.kind == "pause")
    folds = ((x(pause.place.position), pause.label) for pause in pauses)
    shapes = [
        *_draw_ticks(axis, (begin, end), x, y, bottom),
        *svg.draw_folds(folds, "without a running world", _TOP, y + _TICK),
        *(_draw_piece(axis, piece, x, y, heights.get(piece, y)) for piece in axis.pieces),
        *svg.draw_signs(_list_points(axis, x, y, heights), _SAME),
        *_draw_lanes(lanes, x, lanes_top),
    ]
    if axis.note:
        shapes.append(svg.text(LEFT, 12, axis.note, "muted small"))
    whose = axis.lives[-1].instance.name if axis.lives else "nothing"
    return Picture(bottom + 8, f"Axis of time of {whose}. {axis.note}".rstrip(), shapes)


def _scale(values: tuple[float, float], pixels: tuple[float, float]) -> _X:
    """Return a scale from values to pixels; quarters avoid an overflow of the largest numbers."""
    (begin, end), (left, right) = values, pixels
    share = (right - left) / ((end / 4 - begin / 4) or 1.0)
    return lambda value: left + (value / 4 - begin / 4) * share


def _stack(lost: Sequence[Piece], x: _X) -> Iterator[int]:
    """Yield the height of each lost part above the line, so that no two parts overlap."""
    ends: list[float] = []
    for piece in lost:
        row = next((n for n, end in enumerate(ends) if end < x(piece.begin) - 8), len(ends))
        ends[row : row + 1] = [x(piece.end) + 16]
        yield row + 1


def _draw_ticks(
    axis: Axis, span: tuple[float, float], x: _X, y: float, bottom: float
) -> Iterator[Markup]:
    words, day = "muted small", ""
    if axis.is_simulated:
        yield svg.text(svg.MARGIN, y + 26, "simulated, s", words)
    yield svg.text(svg.MARGIN, y + 42, "host, UTC", words)
    for position, label in round_ticks(*span, _MAX_TICKS):
        at, place = x(position), axis.place_time(position)
        if place is None or place.position != position:  # no life covers this position
            continue
        yield svg.path("grid-line hair", f"M{at:.1f},{y:.1f}V{bottom:.1f}")
        if axis.is_simulated:
            yield svg.text(at, y + 26, label, words, anchor="middle")
        date, _, time = place.utc[5:19].partition("T")
        shown = time if date == day else f"{date} {time}"
        yield svg.text(at, y + 42, shown, words, anchor="middle")
        day = date


def _draw_piece(axis: Axis, piece: Piece, x: _X, y: float, height: float) -> Markup:
    begin, end, name = x(piece.begin), x(piece.end), axis.lives[piece.life].name
    if height == y:
        line = f"M{begin:.1f},{y:g}H{end:.1f}"
        return svg.group("kept", [name], svg.path("lane0-line line", line))
    bend = f"{begin + 4:.1f},{y:g} {begin:.1f},{height:g} {begin + 8:.1f},{height:g}"
    line = f"M{begin:.1f},{y:g}C{bend}H{max(end, begin + 8):.1f}"
    return svg.group("lost", [f"{name}: lost"], svg.path("muted-line line thin", line))


def _list_points(axis: Axis, x: _X, y: float, heights: Mapping[Piece, float]) -> Iterator[Sign]:
    by_life = {piece.life: height for piece, height in heights.items()}
    for point in (point for point in axis.points if point.kind != "pause"):
        place, words = point.place, f"{point.label}, {point.place.utc}"
        height = by_life.get(place.life, y) if place.is_lost else y
        to = PageAddress(f"#t={format_position(place.position)}")
        yield Sign(point.kind, x(place.position), height, words, to)


def _draw_lanes(lanes: Mapping[str, Sequence[Sent]], x: _X, top: float) -> Iterator[Markup]:
    for number, (name, sent) in enumerate(lanes.items()):
        y = top + _LANE * number
        yield svg.text(svg.MARGIN, y + 15, shorten(name, _MAX_NAME, "middle"), "ink small")
        kept = [one for one in sent if not one.is_lost]
        lost = [one for one in sent if one.is_lost]
        messages = sum(one.is_message for one in sent)
        words = [count_words(len(sent) - messages, "input"), count_words(messages, "message")]
        words += [f"{len(lost)} of them lost"] if lost else []
        rows = (
            ([one for one in kept if not one.is_message], 20, "lane0-line hair", 11),
            (lost, 7, "muted-line hair", 4),
            ([one for one in kept if one.is_message], 20, "lane1-line mark", 5),
        )
        shapes = (_draw_marks(own, x, y + at, names, size) for own, at, names, size in rows)
        yield svg.group("lane", [name, *words], html.join(shapes))


def _draw_marks(points: Sequence[Sent], x: _X, y: float, names: str, size: float) -> Markup | None:
    """Return a path with a stroke for each point, or columns as high as the number of points."""
    strokes = [(x(point.time), 1.0) for point in points]
    if len(points) > MAX_POINTS:
        counts = Counter(int(at / _COLUMN) * _COLUMN for at, _ in strokes)
        most = max(counts.values())
        strokes = [(column, count / most) for column, count in sorted(counts.items())]
    line = "".join(f"M{at:.1f},{y:g}v-{max(size * part, 1):.1f}" for at, part in strokes)
    return svg.path(names, line) if line else None


def draw_line(
    points: Sequence[tuple[float, float]],
    values: tuple[float, float],
    span: tuple[float, float],
    top: float,
) -> str:
    """Return the ``d`` of a line that keeps each value until the next.

    Args:
        points: Times and values, in order.
        values: The least and the greatest value.
        span: The first and the last time.
        top: Vertical position of the greatest value, in pixels.
    """
    x, y = _scale(span, (LEFT, RIGHT)), _scale(values, (top + _HEIGHT, top))
    places = [(x(time), y(value)) for time, value in points]
    steps = "".join(f"H{at:.1f}V{height:.1f}" for at, height in places[1:])
    return f"M{places[0][0]:.1f},{places[0][1]:.1f}{steps}H{max(places[-1][0], LEFT):.1f}"
