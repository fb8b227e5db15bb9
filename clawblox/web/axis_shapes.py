"""The strip of an axis of time as SVG: its line, lost lives, folds, points and lanes. Pure.

Colours are classes. A strip has the width of every picture, and scrolls where there is less room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from clawblox.columns import shorten
from clawblox.views import html, svg
from clawblox.views.formatting import count_words, round_ticks
from clawblox.views.html import Address, Markup
from clawblox.views.svg import Picture
from clawblox.web.axis import Axis, LanePoint, Piece, Point

LEFT: Final = 160.0
"""Where an axis begins, in pixels; its positions are spread evenly up to ``RIGHT``."""
RIGHT: Final = 840.0
MAX_POINTS: Final = 1400
"""The most points of a lane that are drawn one by one; more become columns."""
_COLUMN: Final = 2
"""Width of a column, in pixels."""
_TOP: Final = 22.0
_ROW: Final = 18.0
_LANE: Final = 24.0
_TICK: Final = 10.0
_MAX_TICKS: Final = 8
_MAX_NAME: Final = 18
_SAME: Final = 2.0
"""Saves that are closer than this share a ring, in pixels."""
_MAX_WORDS: Final = 8

_X = Callable[[float], float]


def draw_axis(
    axis: Axis,
    lanes: Mapping[str, Sequence[LanePoint]],
    span: tuple[float, float] | None = None,
) -> Picture:
    """Return the strip of an axis.

    Args:
        axis: The axis.
        lanes: What is drawn below it, by the name of each lane.
        span: The positions at both ends, for strips that are compared; None means its own.
    """
    begin, end = span or (axis.begin, axis.end)
    # Quarters, because a recording may name the largest and the least number there is.
    scale = (RIGHT - LEFT) / ((end / 4 - begin / 4) or 1.0)

    def x(position: float) -> float:
        return LEFT + (position / 4 - begin / 4) * scale

    lost = [piece for piece in axis.pieces if piece.is_lost]
    rows = _stack(lost, x)
    y = _TOP + _ROW * (max(rows, default=0) + 1)
    heights = {piece: y - _ROW * row for piece, row in zip(lost, rows, strict=True)}
    lanes_top = y + 58
    bottom = lanes_top + _LANE * len(lanes)
    shapes = [
        *_draw_ticks(axis, (begin, end), x, y, bottom),
        *_draw_folds(axis, x, y),
        *(_draw_piece(axis, piece, x, y, heights.get(piece, y)) for piece in axis.pieces),
        *_draw_points(axis, x, y, heights),
        *_draw_lanes(lanes, x, lanes_top),
    ]
    if axis.note:
        shapes.append(svg.text(LEFT, 12, axis.note, "muted small"))
    whose = axis.lives[-1].instance.name if axis.lives else "nothing"
    return Picture(bottom + 8, f"Axis of time of {whose}. {axis.note}".rstrip(), shapes)


def _stack(lost: Sequence[Piece], x: _X) -> list[int]:
    """Return how far above the line each lost part is, so that none of a height overlap."""
    ends: list[float] = []
    rows: list[int] = []
    for piece in lost:
        row = next((n for n, end in enumerate(ends) if end < x(piece.begin) - 8), len(ends))
        ends[row : row + 1] = [x(piece.end) + 16]
        rows.append(row + 1)
    return rows


def _draw_ticks(
    axis: Axis, span: tuple[float, float], x: _X, y: float, bottom: float
) -> Iterator[Markup]:
    names = ("simulated, s", "host, UTC") if axis.is_simulated else ("", "host, UTC")
    for row, name in enumerate(names):
        yield svg.text(svg.MARGIN, y + 26 + 16 * row, name, "muted small")
    day = ""
    for position, label in round_ticks(*span, _MAX_TICKS):
        place = axis.place_time(position)
        if place is None or place.position != position:  # where no life was
            continue
        at = x(position)
        yield svg.path("grid-line hair", f"M{at:.1f},{y:.1f}V{bottom:.1f}")
        if axis.is_simulated:
            yield svg.text(at, y + 26, label, "muted small", anchor="middle")
        date, time = place.utc[5:10], place.utc[11:19]
        words = time if date == day else f"{date} {time}"
        yield svg.text(at, y + 42, words, "muted small", anchor="middle")
        day = date


def _draw_folds(axis: Axis, x: _X, y: float) -> Iterator[Markup]:
    free = LEFT
    for fold in axis.folds:
        at, width = x(fold.position), svg.text_width(fold.label, svg.SMALL)
        shapes = [svg.path("muted-line hair stub", f"M{at:.1f},{_TOP:g}V{y + _TICK:.1f}")]
        shapes.append(
            svg.path("page muted-line hair", f"M{at - 4:.1f},{y + 6:.1f}l4,-12l4,0l-4,12z")
        )
        if at - width / 2 > free:
            shapes.append(svg.text(at, _TOP - 6, fold.label, "ink small", anchor="middle"))
            free = at + width / 2 + 6
        yield svg.group("fold", [f"{fold.label} in which nothing ran"], html.join(shapes))


def _draw_piece(axis: Axis, piece: Piece, x: _X, y: float, height: float) -> Markup:
    begin, end = x(piece.begin), x(piece.end)
    name = axis.lives[piece.life].name
    if height == y:
        return svg.group(
            "kept", [name], svg.path("lane0-line line", f"M{begin:.1f},{y:g}H{end:.1f}")
        )
    bend = f"{begin + 4:.1f},{y:g} {begin:.1f},{height:g} {begin + 8:.1f},{height:g}"
    line = f"M{begin:.1f},{y:g}C{bend}"
    line += f"H{max(end, begin + 8):.1f}"
    return svg.group("lost", [f"{name}: lost"], svg.path("muted-line line thin", line))


def _draw_points(axis: Axis, x: _X, y: float, heights: Mapping[Piece, float]) -> Iterator[Markup]:
    by_life = {piece.life: height for piece, height in heights.items()}
    groups: dict[tuple[str, float, float], list[Point]] = {}
    for point in axis.points:
        at = x(point.place.position)
        height = by_life.get(point.place.life, y) if point.place.is_lost else y
        near = (key for key in groups if key[0] == point.kind and key[2] == height)
        key = next((key for key in near if abs(key[1] - at) < _SAME), (point.kind, at, height))
        groups.setdefault(key, []).append(point)
    for (kind, at, height), points in groups.items():
        words = [f"{point.label}, {point.place.utc}" for point in points[:_MAX_WORDS]]
        words += [f"and {len(points) - _MAX_WORDS} more"] if len(points) > _MAX_WORDS else []
        address = Address(points[0].place.address)
        yield svg.group(kind, words, _sign(kind, at, height), to=address)


def _sign(kind: str, x: float, y: float) -> Markup:
    if kind == "save":
        return svg.circle("page lane0-line ring", x, y, 4.6)
    if kind == "start":
        return svg.circle("lane0", x, y, 3.5)
    lines = {
        "crash": f"M{x:.1f},{y - 4:g}l8,8m0,-8l-8,8",
        "end": f"M{x:.1f},{y - 6:g}v12",
        "restart": f"M{x + 6:.1f},{y - 5:g}l5,5l-5,5",
        "resume": f"M{x + 6:.1f},{y - 5:g}l5,5l-5,5m5,-10l5,5l-5,5",
        "fork": f"M{x:.1f},{y + 14:g}v-8m0,2l8,6",
    }
    return svg.path(f"{'bad' if kind == 'crash' else 'ink'}-line mark line", lines[kind])


def _draw_lanes(lanes: Mapping[str, Sequence[LanePoint]], x: _X, top: float) -> Iterator[Markup]:
    for number, (name, points) in enumerate(lanes.items()):
        y = top + _LANE * number
        yield svg.text(svg.MARGIN, y + 15, shorten(name, _MAX_NAME, "middle"), "ink small")
        messages = [point for point in points if point.is_message]
        others = [point for point in points if not point.is_message]
        lost = sum(point.is_lost for point in points)
        words = [name, count_words(len(others), "input"), count_words(len(messages), "message")]
        words += [f"{lost} of them lost"] if lost else []
        shapes = [
            _draw_marks([p for p in others if not p.is_lost], x, y + 20, "lane0-line hair", 11),
            _draw_marks([p for p in points if p.is_lost], x, y + 7, "muted-line hair", 4),
            _draw_marks([p for p in messages if not p.is_lost], x, y + 20, "lane1-line mark", 5),
        ]
        yield svg.group("lane", words, html.join(shapes))


def _draw_marks(
    points: Sequence[LanePoint], x: _X, y: float, names: str, size: float
) -> Markup | None:
    """Return strokes as one path: one for each point, or columns whose height is their number."""
    if len(points) <= MAX_POINTS:
        strokes = [(x(point.position), 1.0) for point in points]
    else:
        counts = Counter(int(x(point.position) / _COLUMN) * _COLUMN for point in points)
        most = max(counts.values())
        strokes = [(column, count / most) for column, count in sorted(counts.items())]
    line = "".join(f"M{at:.1f},{y:g}v-{max(size * part, 1):.1f}" for at, part in strokes)
    return svg.path(names, line) if line else None
