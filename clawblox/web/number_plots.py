"""The numbers that agents saw, over simulated time, as SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from clawblox.columns import shorten
from clawblox.differences import add_key
from clawblox.foreign_values import finite_number
from clawblox.recording.blocks import Track
from clawblox.recording.reader import Record, RecordingReader
from clawblox.views import svg
from clawblox.views.observations import format_inline
from clawblox.views.svg import Picture

MAX_POINTS: Final = 1400
"""Points of a line."""
MAX_LINES: Final = 12
_MAX_BLOCKS: Final = 140
"""Blocks of observations that are read; of more, evenly spread ones."""
_MAX_NUMBERS: Final = 200
_MAX_DEPTH: Final = 3
_OWN_TIME: Final = ("tick", "time")
_ROW: Final = 56.0
_HEIGHT: Final = 40.0
_MAX_NAME: Final = 18

Points = list[tuple[float, float]]


def read_numbers(reader: RecordingReader) -> Mapping[tuple[str, str], Points]:
    """Return numbers of observations that vary, by agent id and path. Blocks.

    Raises:
        OSError: The file cannot be read.
        RecordingError: A block is damaged.
    """
    numbers: dict[tuple[str, str], Points] = {}
    for record in _sample(reader):
        agent = str(record.fields.get("agent_id"))
        for path, number in _find_numbers(record.fields.get("observation"), "", 0):
            key = agent, path
            if key in numbers or len(numbers) < _MAX_NUMBERS:
                numbers.setdefault(key, []).append((record.moment.time, number))
    varying = [key for key, points in numbers.items() if len({value for _, value in points}) > 1]
    return {key: numbers[key] for key in varying[:MAX_LINES]}


def _sample(reader: RecordingReader) -> Iterator[Record]:
    entries = [entry for entry in reader.index if entry.header.track is Track.OBSERVATIONS]
    every = math.ceil(len(entries) / _MAX_BLOCKS) or 1
    chosen = entries[::every]
    left = MAX_POINTS // max(len(chosen), 1)
    for entry in chosen:
        lines = reader.read_lines(entry)
        step = math.ceil(len(lines) / left)
        for place in range(0, len(lines), step):
            yield reader.parse_line(entry, entry.number + place, lines[place])


def _find_numbers(value: Any, path: str, depth: int) -> Iterator[tuple[str, float]]:  # noqa: ANN401
    if isinstance(value, Mapping) and depth <= _MAX_DEPTH:
        for key, member in value.items():
            if depth or key not in _OWN_TIME:
                yield from _find_numbers(member, add_key(path, key), depth + 1)
    elif not isinstance(value, bool) and (number := finite_number(value)) is not None:
        yield path, number


def draw_numbers(
    numbers: Mapping[tuple[str, str], Points],
    names: Mapping[str, str],
    span: tuple[float, float],
    edges: tuple[float, float],
) -> Picture:
    """Return a row for each number.

    Args:
        numbers: The numbers, by agent id and path.
        names: The names of agents, by their ids.
        span: The times at both edges, in seconds of simulation time.
        edges: The edges, in pixels.
    """
    shapes = []
    for row, ((agent, path), points) in enumerate(numbers.items()):
        top, values = row * _ROW + 6, [value for _, value in points]
        least, most = min(values), max(values)
        name = f"{names.get(agent, agent)} {path}"
        line = draw_line(points, (least, most), span, edges, top)
        words = [f"{name}: {format_inline(least)} to {format_inline(most)}"]
        label = shorten(path, _MAX_NAME, "middle")
        shapes += [
            svg.text(svg.MARGIN, top + 14, label, "ink small"),
            svg.text(
                svg.MARGIN, top + 30, shorten(names.get(agent, agent), _MAX_NAME), "muted small"
            ),
            svg.path("grid-line hair", f"M{edges[0]:g},{top + _HEIGHT:g}H{edges[1]:g}"),
            svg.group("number", words, svg.path(f"{svg.line_colour(row)}-line line thin", line)),
            svg.text(edges[1] + 6, top + 12, _short(most), "muted small"),
            svg.text(edges[1] + 6, top + _HEIGHT, _short(least), "muted small"),
        ]
    name = f"Numbers that agents saw, from {span[0]:g} to {span[1]:g} s of simulated time"
    return Picture(_ROW * len(numbers) + 8, name, shapes)


def _short(value: float) -> str:
    return f"{value:.4g}"


def draw_line(
    points: Sequence[tuple[float, float]],
    values: tuple[float, float],
    span: tuple[float, float],
    edges: tuple[float, float],
    top: float,
) -> str:
    """Return the ``d`` of a line that keeps each value until the next.

    Args:
        points: Times and values, in order.
        values: The least and the greatest value.
        span: The first and the last time.
        edges: Where these times are, in pixels.
        top: Where the greatest value is, in pixels.
    """
    # Quarters, because a recording may name the largest and the least number there is.
    wide = (edges[1] - edges[0]) / ((span[1] / 4 - span[0] / 4) or 1.0)
    high = _HEIGHT / ((values[1] / 4 - values[0] / 4) or 1.0)
    line: list[str] = []
    at = 0.0
    for time, value in points:
        x = edges[0] + (time / 4 - span[0] / 4) * wide
        y = top + _HEIGHT - (value / 4 - values[0] / 4) * high
        line.append(f"H{x:.1f}V{y:.1f}" if line else f"M{x:.1f},{y:.1f}")
        at = x
    return "".join(line) + f"H{max(at, edges[0]):.1f}"
