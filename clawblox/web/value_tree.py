"""A JSON value as a tree of folds, with what has changed since an earlier value marked. Pure."""

from __future__ import annotations

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
from clawblox.printable import printable_name
from clawblox.views.formatting import count_words
from clawblox.views.html import Child, Markup, element
from clawblox.views.observations import format_inline

_MAX_NODES: Final = 600
"""Nodes of a tree; further members are counted."""
_MAX_MEMBERS: Final = 100
_MAX_CHARS: Final = 200
_MAX_DEPTH: Final = 20
_OPEN_DEPTH: Final = 2


def draw_tree(name: str, value: Any, before: Any = None) -> Markup:  # noqa: ANN401 - JSON
    """Return a value as a tree.

    Args:
        name: What distinguishes it from other trees of the page; folds keep their state by it.
        value: The value.
        before: An earlier value; None if there is none.
    """
    changes = [] if before is None else find_differences(before, value)
    return _Tree(name, changes).draw(value)


class _Tree:
    def __init__(self, name: str, changes: Sequence[Difference]) -> None:
        self._name = name
        self._changes = {change.path: change for change in changes}
        self._inside: dict[str, int] = {}
        self._left = _MAX_NODES

    def draw(self, value: Any) -> Markup:  # noqa: ANN401 - JSON
        gone = [change for change in self._changes.values() if change.after is ABSENT]
        lost = [self._line(change.path, "gone", change.before) for change in gone[:_MAX_MEMBERS]]
        body = self._members(value, "", 0) if isinstance(value, Mapping | list) else None
        leaf = self._leaf("", "", value) if body is None else None
        return element("div", leaf, *(body or ()), *lost, class_="tree")

    def _members(self, value: Any, path: str, depth: int) -> Iterator[Markup]:  # noqa: ANN401
        members = list(_name_members(value, path))
        for number, (name, place, member) in enumerate(members):
            if number >= _MAX_MEMBERS or self._left <= 0:
                yield element("div", f"and {len(members) - number} more", class_="muted")
                return
            self._left -= 1
            yield self._node(name, place, member, depth)

    def _node(self, name: str, path: str, value: Any, depth: int) -> Markup:  # noqa: ANN401
        is_plain = not isinstance(value, Mapping | list) or not value
        if is_plain or depth >= _MAX_DEPTH or not _has_containers(value):
            return self._leaf(name, path, value)
        changed = self._count(path)
        is_open = "" if changed or depth < _OPEN_DEPTH else None
        note: Child = None
        if path in self._changes and self._changes[path].before is ABSENT:
            note = element("mark", "new")
        elif changed:
            note = element("mark", f"{changed} changed")
        size = count_words(len(value), "item" if isinstance(value, list) else "key")
        summary = element(
            "summary",
            element("b", printable_name(name)),
            " ",
            element("span", size, class_="muted"),
            " ",
            note,
        )
        ident = f"{self._name}.{path}"
        return element(
            "details", summary, *self._members(value, path, depth + 1), open=is_open, id=ident
        )

    def _leaf(self, name: str, path: str, value: Any) -> Markup:  # noqa: ANN401 - JSON
        change, shown = self._changes.get(path), format_inline(value, max_chars=_MAX_CHARS)
        if change is None or change.after is ABSENT:
            changed = self._count(path)
            note = element("mark", f"{changed} changed") if changed else None
            return element("div", element("b", printable_name(name)), ": ", shown, " ", note)
        was = "new" if change.before is ABSENT else f"was {_short(change.before)}"
        return element(
            "div",
            element("b", printable_name(name)),
            ": ",
            element("mark", shown),
            " ",
            element("span", was, class_="muted"),
        )

    def _line(self, path: str, what: str, value: Any) -> Markup:  # noqa: ANN401 - JSON
        return element("div", element("mark", what), " ", path, f", was {_short(value)}")

    def _count(self, path: str) -> int:
        """Return how many places below a path differ."""
        if not self._inside:
            for changed in self._changes:
                for end, sign in enumerate(changed):
                    if sign in ".[" and end:
                        self._inside[changed[:end]] = self._inside.get(changed[:end], 0) + 1
        return self._inside.get(path, 0)


def _short(value: Any) -> str:  # noqa: ANN401 - JSON
    return format_inline(value, max_chars=_MAX_CHARS // 2)


def _has_containers(value: Any) -> bool:  # noqa: ANN401 - JSON
    """Return whether a value deserves a fold: it is an object, or has objects or lists."""
    if isinstance(value, Mapping):
        return True
    return any(isinstance(item, Mapping | list) for item in value)


def _name_members(value: Any, path: str) -> Iterator[tuple[str, str, Any]]:  # noqa: ANN401
    """Yield name, path and value of each member, with the paths of ``find_differences``."""
    if isinstance(value, Mapping):
        for key, member in value.items():
            yield key, add_key(path, key), member
        return
    named = objects_by_id(value) if value else None
    for index, item in enumerate(value):
        if named is not None:
            yield item["id"], add_id(path, item["id"]), item
        else:
            yield str(index), add_index(path, index), item
