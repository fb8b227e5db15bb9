"""A score over the generations of an experiment, as an SVG picture.

Each point is a generation of a chain; a line joins the means of the chains with the same value of a
column.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import attrs

from clawblox.columns import distinct_width, shorten
from clawblox.experiment.tables.results import Results
from clawblox.printable import printable
from clawblox.views import svg
from clawblox.views.formatting import count_words, round_ticks

_TOP: Final = 76.0
_BOTTOM: Final = 376.0
_LEFT: Final = 84.0
_MAX_NAME: Final = 28
_MAX_TICKS: Final = 7
_MAX_GENERATIONS: Final = 12

Points = Mapping[int, Sequence[float]]
"""Scores by generation."""


def draw_scores(results: Results, score: str, *, by: str = "chain", title: str) -> str:
    """Return a score over generations as an SVG document.

    Args:
        results: The results.
        score: Name of the score, or of another column of numbers.
        by: The column or label whose values are the lines.
        title: The heading, for example the name of the experiment.

    Raises:
        ConfigError: There is no such column.
    """
    lines = results.series(score, by=by)
    texts = _shorten([by, *lines])
    frame = _Frame.of(lines, texts)
    shapes = [
        svg.text(svg.MARGIN, 32, shorten(printable(title), 80, "middle"), "ink title"),
        svg.text(svg.MARGIN, 54, _describe(results, score, by), "muted"),
        *_draw_axes(frame),
        *_draw_legend(texts, frame),
    ]
    for number, (name, points) in enumerate(lines.items()):
        shapes += _draw_line(name, points, number, frame)
    height = max(_BOTTOM + 52, _TOP + 22 * len(lines) + 20)
    summary = f"{score} over generations, {count_words(len(lines), 'line')} by {by}"
    return svg.document(height, f"{title}: {summary}", shapes)


def _describe(results: Results, score: str, by: str) -> str:
    versions = ", some of another version of the score function" if results.has_kept(score) else ""
    return f"{score} by {by}{versions}"


@attrs.frozen
class _Frame:
    """Where values are in the picture.

    Attributes:
        last: The last generation.
        low: The lowest value.
        high: The highest value.
        right: The right edge of the axes, in pixels.
    """

    last: int
    low: float
    high: float
    right: float

    @classmethod
    def of(cls, lines: Mapping[str, Points], legend: Sequence[str]) -> _Frame:
        values = [value for points in lines.values() for at in points.values() for value in at]
        low, high = min([0.0, *values]), max([0.0, *values])
        names = max(svg.text_width(text, svg.SMALL) for text in legend)
        last = max((number for points in lines.values() for number in points), default=1)
        return cls(last, low, high if high > low else low + 1.0, svg.WIDTH - 60 - names)

    def x(self, generation: float) -> float:
        return _LEFT + (generation - 1) / max(1, self.last - 1) * (self.right - _LEFT)

    def y(self, value: float) -> float:
        return _BOTTOM - (value - self.low) / (self.high - self.low) * (_BOTTOM - _TOP)


def _draw_axes(frame: _Frame) -> Iterator[str]:
    for value, label in round_ticks(frame.low, frame.high, _MAX_TICKS):
        y = frame.y(value)
        yield svg.path("grid-line hair", f"M{_LEFT - 8:g},{y:.1f}H{frame.right + 8:.1f}")
        yield svg.text(_LEFT - 16, y + 4, label, "muted small", anchor="end")
    step = -(-frame.last // _MAX_GENERATIONS)
    for generation in range(1, frame.last + 1, step):
        x = frame.x(generation)
        yield svg.text(x, _BOTTOM + 20, str(generation), "muted small", anchor="middle")
    middle = (_LEFT + frame.right) / 2
    yield svg.text(middle, _BOTTOM + 38, "generation", "muted small", anchor="middle")


def _draw_line(name: str, points: Points, number: int, frame: _Frame) -> Iterator[str]:
    """Yield the points of a line, and the line of their means."""
    means = [(frame.x(at), frame.y(statistics.fmean(points[at]))) for at in sorted(points)]
    joined = "L".join(f"{x:.1f},{y:.1f}" for x, y in means)
    yield svg.path(_line_classes(number), f"M{joined}")
    for generation, values in points.items():
        for value in values:
            place = f'cx="{frame.x(generation):.1f}" cy="{frame.y(value):.1f}"'
            words = [f"{name}, generation {generation}: {value:.4g}"]
            circle = f'<circle class="{svg.line_colour(number)}" {place} r="3"/>'
            yield svg.group("point", words, circle)


def _draw_legend(texts: Sequence[str], frame: _Frame) -> Iterator[str]:
    """Yield the name of the column at the right, and below it its value for each line."""
    column, *names = texts
    yield svg.text(frame.right + 18, _TOP - 22, column, "muted small")
    for number, name in enumerate(names):
        y = _TOP + 22 * number
        yield svg.path(_line_classes(number), f"M{frame.right + 18:.1f},{y - 4:.1f}h14")
        yield svg.text(frame.right + 38, y, name, "ink small")


def _line_classes(number: int) -> str:
    return f"{svg.line_colour(number)}-line line {svg.line_dashes(number)}".rstrip()


def _shorten(names: Sequence[str]) -> list[str]:
    """Return names as the legend shows them: different names stay different."""
    texts = [printable(name) for name in names]
    width = distinct_width(texts, _MAX_NAME)
    return [shorten(text, width, "middle") for text in texts]
