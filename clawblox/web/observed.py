"""What agents saw, as HTML and SVG: a value as a tree of folds, and numbers over simulated time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from clawblox.differences import (
    ABSENT,
    Difference,
    add_id,
    add_index,
    add_key,
    find_differences,
    objects_by_id,
)
from clawblox.foreign_values import finite_number
from clawblox.printable import printable_name
from clawblox.recording.blocks import Track
from clawblox.recording.reader import Record, RecordingReader
from clawblox.views.formatting import count_words
from clawblox.views.html import Child, Markup, element
from clawblox.views.observations import format_inline

MAX_POINTS: Final = 1400
"""Points of a line."""
_MAX_LINES: Final = 12
_MAX_BLOCKS: Final = 140
"""Blocks of observations that are read; of more, evenly spread ones."""
_MAX_NUMBERS: Final = 200
_NUMBERS_DEPTH: Final = 3
_OWN_TIME: Final = ("tick", "time")
_HEIGHT: Final = 40.0
_MAX_NODES: Final = 600
"""Nodes of a tree; further members are counted."""
_MAX_MEMBERS: Final = 100
_MAX_CHARS: Final = 200
_MAX_DEPTH: Final = 20
_OPEN_DEPTH: Final = 2

Points = list[tuple[float, float]]


# -- numbers -------------------------------------------------------------------------------------


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
    return {key: numbers[key] for key in varying[:_MAX_LINES]}


def _sample(reader: RecordingReader) -> Iterator[Record]:
    entries = [entry for entry in reader.index if entry.header.track is Track.OBSERVATIONS]
    chosen = entries[:: math.ceil(len(entries) / _MAX_BLOCKS) or 1]
    left = MAX_POINTS // max(len(chosen), 1)
    for entry in chosen:
        lines = reader.read_lines(entry)
        for place in range(0, len(lines), math.ceil(len(lines) / left)):
            yield reader.parse_line(entry, entry.number + place, lines[place])


def _find_numbers(value: Any, path: str, depth: int) -> Iterator[tuple[str, float]]:  # noqa: ANN401
    if isinstance(value, Mapping) and depth <= _NUMBERS_DEPTH:
        for key, member in value.items():
            if depth or key not in _OWN_TIME:
                yield from _find_numbers(member, add_key(path, key), depth + 1)
    elif not isinstance(value, bool) and (number := finite_number(value)) is not None:
        yield path, number


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
    at = edges[0]
    for time, value in points:
        at = edges[0] + (time / 4 - span[0] / 4) * wide
        y = top + _HEIGHT - (value / 4 - values[0] / 4) * high
        line.append(f"H{at:.1f}V{y:.1f}" if line else f"M{at:.1f},{y:.1f}")
    return "".join(line) + f"H{max(at, edges[0]):.1f}"


# -- a value -------------------------------------------------------------------------------------


def draw_tree(name: str, value: Any, before: Any = None) -> Markup:  # noqa: ANN401 - JSON
    """Return a value as a tree, with what has changed since an earlier value marked.

    Args:
        name: What distinguishes it from other trees of the page; folds keep their state by it.
        value: The value.
        before: An earlier value; None if there is none.
    """
    changes = [] if before is None else find_differences(before, value)
    tree = _Tree(name, changes)
    is_leaf = not isinstance(value, Mapping | list)
    body = [tree.draw_leaf("", "", value)] if is_leaf else tree.draw_members(value, "", 0)
    gone = [change for change in changes if change.after is ABSENT][:_MAX_MEMBERS]
    lost = [
        element("div", element("mark", "gone"), f" {change.path}, was {_short(change.before)}")
        for change in gone
    ]
    return element("div", *body, *lost, class_="tree")


class _Tree:
    """Draws members, up to a number of nodes."""

    def __init__(self, name: str, changes: Sequence[Difference]) -> None:
        self._name = name
        self._changes = {change.path: change for change in changes}
        self._inside: Counter[str] = Counter(
            path[:end] for path in self._changes for end, sign in enumerate(path) if sign in ".["
        )
        self._left = _MAX_NODES

    def draw_members(self, value: Any, path: str, depth: int) -> Iterator[Markup]:  # noqa: ANN401
        members = list(_name_members(value, path))
        for number, (name, place, member) in enumerate(members):
            if number >= _MAX_MEMBERS or self._left <= 0:
                yield element("div", f"and {len(members) - number} more", class_="muted")
                return
            self._left -= 1
            is_folded = depth < _MAX_DEPTH and _has_containers(member)
            yield (self._draw_node if is_folded else self.draw_leaf)(name, place, member, depth)

    def _draw_node(self, name: str, path: str, value: Any, depth: int) -> Markup:  # noqa: ANN401
        size = count_words(len(value), "item" if isinstance(value, list) else "key")
        words = (element("b", printable_name(name)), " ", _muted(size))
        return element(
            "details",
            element("summary", *words, " ", self._note(path)),
            *self.draw_members(value, path, depth + 1),
            open="" if self._inside[path] or depth < _OPEN_DEPTH else None,
            id=f"{self._name}.{path}",
        )

    def draw_leaf(self, name: str, path: str, value: Any, _depth: int = 0) -> Markup:  # noqa: ANN401
        change, shown = self._changes.get(path), format_inline(value, max_chars=_MAX_CHARS)
        is_same = change is None or change.after is ABSENT
        content = shown if is_same else element("mark", shown)
        words = (element("b", printable_name(name)), ": ", content, " ", self._note(path))
        return element("div", *words)

    def _note(self, path: str) -> Child:
        """Return how a place has changed, or how many have changed below it."""
        change, changed = self._changes.get(path), self._inside[path]
        if change is None or change.after is ABSENT:
            return element("mark", f"{changed} changed") if changed else None
        is_new = change.before is ABSENT
        return element("mark", "new") if is_new else _muted(f"was {_short(change.before)}")


def _muted(words: str) -> Markup:
    return element("span", words, class_="muted")


def _short(value: Any) -> str:  # noqa: ANN401 - JSON
    return format_inline(value, max_chars=_MAX_CHARS // 2)


def _has_containers(value: Any) -> bool:  # noqa: ANN401 - JSON
    """Return whether a value deserves a fold: it has members, or has objects or lists as items."""
    if isinstance(value, Mapping):
        return bool(value)
    return isinstance(value, list) and any(isinstance(item, Mapping | list) for item in value)


def _name_members(value: Any, path: str) -> Iterator[tuple[str, str, Any]]:  # noqa: ANN401
    """Yield name, path and value of each member, with the paths of ``find_differences``."""
    if isinstance(value, Mapping):
        yield from ((key, add_key(path, key), member) for key, member in value.items())
    elif value and objects_by_id(value) is not None:
        yield from ((item["id"], add_id(path, item["id"]), item) for item in value)
    else:
        yield from ((str(n), add_index(path, n), item) for n, item in enumerate(value))
