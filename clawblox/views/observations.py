"""Observations and their differences as text for people: rounded numbers, shortened lists. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import attrs
from rich.cells import cell_len

from clawblox.differences import ABSENT, ValueDifference, add_index, add_key, is_equal
from clawblox.errors import UsageError
from clawblox.printable import printable

Kind: TypeAlias = Literal["plain", "key", "string", "literal", "note", "error"]
"""Kind of a piece of text; it decides the colour."""

Paint: TypeAlias = Callable[[Kind, str], str]
"""Returns a piece of text in its colour."""

_Pieces: TypeAlias = Iterator[tuple[Kind, str]]

_INDENT = "  "
_GAP = "  "
_MAX_ROWS = 8
_MAX_ITEMS = 3
_MAX_KEYS = 40
_MAX_COLUMNS = 12
_MAX_FILLED_LINES = 3
_MAX_CHARS = 200
_MAX_SIDE_CHARS = 60
_MAX_DEPTH = 50
_DECIMALS = 3
_MAX_FIXED = 1e15
_CUT = "…"
_WORD = re.compile(r"[A-Za-z][\w.:-]*", re.ASCII)
"""Strings that need no quotes in a table."""
_LITERALS = ("true", "false", "null", "nan", "inf")


def no_paint(_kind: Kind, text: str) -> str:
    """Return the text unchanged."""
    return text


def format_value(
    value: Any,  # noqa: ANN401 - JSON
    *,
    width: int,
    paint: Paint = no_paint,
    is_shortened: bool = True,
) -> list[str]:
    """Return a value as lines; each member of an object starts a line.

    Args:
        value: A value that JSON has.
        width: Columns of a line; a long string or number may be longer.
        paint: Colours pieces of text.
        is_shortened: Whether to shorten long lists, objects and strings; a note then names the path
            of the rest.
    """
    layout = _Layout(width, paint, is_shortened)
    is_broken = isinstance(value, Mapping) or not layout.fits(value, width)
    if value and isinstance(value, Mapping | list) and is_broken:
        return list(layout.children(value, "", ""))
    return list(layout.entry("", value, "", ""))


def format_inline(value: Any, *, max_chars: int | None = None) -> str:  # noqa: ANN401 - JSON
    """Return a value on one line, numbers rounded.

    Args:
        value: A value that JSON has.
        max_chars: Maximum length of the line; None for no limit.
    """
    text = ""
    for _, piece in _pieces(value, max_chars):
        text += piece
        if max_chars is not None and len(text) > max_chars:
            return f"{text[: max_chars - 1]}{_CUT}"
    return text


def _pieces(value: Any, max_chars: int | None, depth: int = 0) -> _Pieces:  # noqa: ANN401
    """Yield the pieces of a value on one line; strings longer than ``max_chars`` are cut."""
    if depth > _MAX_DEPTH:
        yield "note", _CUT
    elif isinstance(value, Mapping | list):
        is_object = isinstance(value, Mapping)
        begin, end = ("{", "}") if is_object else ("[", "]")
        separator = begin
        for item in value:
            yield "plain", separator
            separator = ", "
            if is_object:
                yield "key", printable(str(item))
                yield "plain", ": "
            yield from _pieces(value[item] if is_object else item, max_chars, depth + 1)
        yield "plain", end if value else f"{begin}{end}"
    else:
        yield from _scalar(value, max_chars)


def _scalar(value: Any, max_chars: int | None) -> _Pieces:  # noqa: ANN401 - JSON
    if isinstance(value, str):
        is_cut = max_chars is not None and len(value) > max_chars
        text = json.dumps(value[:max_chars] if is_cut else value, ensure_ascii=False)
        yield "string", f'{printable(text[:-1])}{_CUT}"' if is_cut else printable(text)
        if is_cut:
            yield "note", f" ({len(value)} characters)"
    elif isinstance(value, float):
        yield "plain", _rounded(value)
    elif type(value) is int:
        yield "plain", str(value)
    else:
        yield "literal", json.dumps(value)


def _rounded(number: float) -> str:
    if number and not 10**-_DECIMALS <= abs(number) < _MAX_FIXED:
        return f"{number:.{_DECIMALS}g}"
    text = f"{number:.{_DECIMALS}f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def is_flat(value: Any) -> bool:  # noqa: ANN401 - JSON
    """Return whether a value is a scalar or a list of scalars."""
    items = value if isinstance(value, list) else [value]
    return not any(isinstance(item, Mapping | list) for item in items)


@attrs.frozen
class _Layout:
    """The layout of a value in lines."""

    width: int
    paint: Paint
    is_shortened: bool

    def entry(self, label: str, value: Any, path: str, indent: str) -> Iterator[str]:  # noqa: ANN401
        """Yield the lines of a labelled value: one if it fits, else its parts below the label."""
        room = self.width - len(indent) - len(label)
        is_container = isinstance(value, Mapping | list) and len(value) > 0
        if not is_container or len(indent) >= _MAX_DEPTH or self.fits(value, room):
            yield f"{indent}{self.paint('key', label)}{self._painted(self._cell(value))}"
            return
        count = f" {len(value)} items" if isinstance(value, list) else ""
        yield f"{indent}{self.paint('key', label.rstrip())}{self.paint('note', count)}"
        yield from self.children(value, path, indent + _INDENT)

    def children(self, value: Any, path: str, indent: str) -> Iterator[str]:  # noqa: ANN401 - JSON
        """Yield the lines of the parts of an object or a list, and a note of omitted parts."""
        if isinstance(value, Mapping):
            shown = len(value) if not self.is_shortened else min(len(value), _MAX_KEYS)
            for key in list(value)[:shown]:
                label = f"{printable(str(key))}: "
                yield from self.entry(label, value[key], add_key(path, str(key)), indent)
        elif all(map(is_flat, value)):
            lines = list(self._fill(value, indent))
            if self.is_shortened:
                lines = lines[:_MAX_FILLED_LINES]
            shown = sum(count for count, _ in lines)
            yield from (line for _, line in lines)
        else:
            shown = len(value) if not self.is_shortened else min(len(value), _MAX_ROWS)
            table = self._table(value[:shown], indent)
            if not table and self.is_shortened:
                shown = min(shown, _MAX_ITEMS)
            yield from table or self._items(value[:shown], path, indent)
        if shown < len(value):
            where = f"show {path}".rstrip()
            yield f"{indent}{self.paint('note', f'{_CUT} and {len(value) - shown} more: {where}')}"

    def _items(self, items: Sequence[Any], path: str, indent: str) -> Iterator[str]:
        for index, item in enumerate(items):
            yield from self.entry(f"[{index}] ", item, add_index(path, index), indent)

    def _fill(self, items: Sequence[Any], indent: str) -> Iterator[tuple[int, str]]:
        """Yield lines full of items, each with the number of items on it."""
        line: list[tuple[Kind, str]] = []
        count = length = 0
        for item in items:
            cell = self._cell(item)
            if line and len(indent) + length + _length(cell) + 2 > self.width:
                yield count, f"{indent}{self._painted(line)},"
                line, count, length = [], 0, 0
            line += [("plain", ", "), *cell] if line else cell
            count += 1
            length = _length(line)
        yield count, f"{indent}{self._painted(line)}"

    def _table(self, items: Sequence[Any], indent: str) -> list[str]:
        """Return objects with the same keys as a table; empty if they do not fit into one."""
        first, room = items[0], self.width - len(indent)
        if not (
            isinstance(first, Mapping)
            and 0 < len(first) <= _MAX_COLUMNS
            and len(items) >= 2
            and all(isinstance(item, Mapping) and item.keys() == first.keys() for item in items)
            and all(self.fits(cell, room) for item in items for cell in item.values())
        ):
            return []
        rows = [[self._table_cell(item[key]) for key in first] for item in items]
        rows = [[[("key", printable(str(key)))] for key in first], *rows]
        widths = [max(map(_length, column)) for column in zip(*rows, strict=True)]
        if sum(widths) + len(_GAP) * (len(widths) - 1) > room:
            return []
        lines = []
        for row in rows:
            cells = zip(row, widths, strict=True)
            padded = (
                f"{self._painted(cell)}{' ' * (width - _length(cell))}" for cell, width in cells
            )
            lines.append(indent + _GAP.join(padded).rstrip())
        return lines

    def _table_cell(self, value: Any) -> list[tuple[Kind, str]]:  # noqa: ANN401 - JSON
        is_word = isinstance(value, str) and _WORD.fullmatch(value) and value not in _LITERALS
        return [("string", value)] if is_word else self._cell(value)

    def _cell(self, value: Any) -> list[tuple[Kind, str]]:  # noqa: ANN401 - JSON
        return list(_pieces(value, _MAX_CHARS if self.is_shortened else None))

    def fits(self, value: Any, room: int) -> bool:  # noqa: ANN401 - JSON
        """Return whether a value fits on one line with this many columns."""
        for _, text in _pieces(value, _MAX_CHARS if self.is_shortened else None):
            room -= cell_len(text)
            if room < 0:
                return False
        return True

    def _painted(self, pieces: Iterable[tuple[Kind, str]]) -> str:
        return "".join(self.paint(kind, text) for kind, text in pieces if text)


def _length(pieces: Iterable[tuple[Kind, str]]) -> int:
    return sum(cell_len(text) for _, text in pieces)


def format_difference(difference: ValueDifference, paint: Paint = no_paint) -> str:
    """Return a difference as one line."""
    path = paint("key", f"{difference.path or 'observation'}:")
    before, after = difference.before, difference.after
    if before is ABSENT:
        return f"{path} {paint('note', 'new')} {_format_side(after)}"
    if after is ABSENT:
        return f"{path} {paint('note', 'gone')}"
    if difference.is_order:
        return f"{path} {paint('note', 'order')} {_format_side(after)}"
    texts = _format_side(before), _format_side(after)
    if texts[0] == texts[1]:  # rounding or cutting hides the difference
        if isinstance(after, str | list | Mapping):
            return f"{path} {paint('note', _count_changes(before, after))}"
        texts = repr(before), repr(after)
    return f"{path} {texts[0]} {paint('note', '->')} {texts[1]}"


def _format_side(value: Any) -> str:  # noqa: ANN401 - JSON
    return format_inline(value, max_chars=_MAX_SIDE_CHARS)


def _count_changes(before: Any, after: Any) -> str:  # noqa: ANN401 - JSON
    """Describe a change that the texts of both values do not show."""
    if isinstance(after, list) and len(before) == len(after):
        changed = sum(not is_equal(*pair) for pair in zip(before, after, strict=True))
        return f"{changed} of {len(after)} items changed"
    return "changed"


_INDEX = re.compile(r"-?(0|[1-9]\d{0,8})")
_PART = re.compile(r'\.?([^\W\d]\w*)|\[\s*("(?:[^"\\]|\\.)*"|[^\]"]*?)\s*\]')


def find_value(value: Any, path: str) -> Any:  # noqa: ANN401 - JSON
    """Return the value at a path.

    Raises:
        UsageError: The path is malformed or does not exist; the message names the last existing
            part.
    """
    way = ""
    for text, part in _parse_path(path):
        try:
            value = _step(value, part)
        except (KeyError, IndexError):
            place = way or "the observation"
            name = text.lstrip(".")
            raise UsageError(f"{place} has no {name}", hint=_describe_parts(value)) from None
        way += text
    return value


def _parse_path(path: str) -> Iterator[tuple[str, str | int]]:
    """Yield the parts of a path, each as written and as a key or an index."""
    position = 0
    while position < len(path):
        match = _PART.match(path, position)
        try:
            if match is None:
                raise ValueError
            part = match[1] or match[2]
            meant = json.loads(part, strict=False) if part.startswith('"') else part
        except ValueError:
            text = f"{path!r} is not a path"
            raise UsageError(text, hint="a path looks like world.entities[0].position") from None
        yield match[0], int(part) if _INDEX.fullmatch(part) else meant
        position = match.end()


def _step(value: Any, part: str | int) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, dict):
        return value[str(part)]
    if not isinstance(value, list):
        raise KeyError(part)
    if isinstance(part, int):
        return value[part]
    for item in value:
        if isinstance(item, dict) and item.get("id") == part:
            return item
    raise KeyError(part)


def _describe_parts(value: Any) -> str | None:  # noqa: ANN401 - JSON
    if isinstance(value, dict):
        return f"it has: {', '.join(map(str, value)) or 'nothing'}"
    return f"it has {len(value)} items" if isinstance(value, list) else None
