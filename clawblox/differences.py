"""Differences between two JSON values, by path. Pure.

A path has the form ``player.position[0]``; the objects of a list are named by their ids if each has
an id: ``world.entities[marble-1]``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Final, Literal

import attrs

from clawblox.printable import printable_json, printable_name

_MAX_DEPTH = 50
_NAME = re.compile(r"[^\W\d]\w*")
_BARE_ID = re.compile(r"[\w:.-]*[^\W\d][\w:.-]*")


class _Absent(Enum):
    ABSENT = "absent"


ABSENT: Final = _Absent.ABSENT
"""Placeholder for a missing value."""


@attrs.frozen
class ValueDifference:
    """A difference between two observations.

    Attributes:
        path: Path of the value; empty for the whole observation.
        before: The earlier value, or :data:`ABSENT`.
        after: The later value, or :data:`ABSENT`.
        is_order: Whether only the order of a list of objects differs; the values are then the ids.
    """

    path: str
    before: Any | Literal[_Absent.ABSENT]
    after: Any | Literal[_Absent.ABSENT]
    is_order: bool = False


def find_differences(before: Any, after: Any) -> list[ValueDifference]:  # noqa: ANN401 - JSON
    """Return the differences between two values; empty only if they are equal as JSON.

    Members of objects are compared by key. Objects in a list are compared by their ``id`` if each
    has a unique one; the items of other lists of the same length are compared by index. Lists of
    different lengths, and lists of numbers, texts or literals, are compared as a whole, unless
    items were only added or removed at the end.
    """
    return list(_compare(before, after, "", 0))


def common_length(before: Sequence[Any], after: Sequence[Any]) -> int:
    """Return the length of the common prefix of two sequences."""
    pairs = enumerate(zip(before, after, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(before), len(after)))


def add_key(path: str, key: str) -> str:
    """Return the path of a member of the object at ``path``."""
    if not _is_bare(_NAME, key):
        return add_id(path, key)
    return f"{path}.{key}" if path else key


def add_index(path: str, index: int) -> str:
    """Return the path of an item of the list at ``path``."""
    return f"{path}[{index}]"


def add_id(path: str, name: str) -> str:
    """Return the path of the object with this id in the list at ``path``."""
    if _is_bare(_BARE_ID, name):
        return f"{path}[{name}]"
    return f"{path}[{printable_json(json.dumps(name, ensure_ascii=False))}]"


def _is_bare(pattern: re.Pattern[str], name: str) -> bool:
    """Return whether a name needs no quotes in paths."""
    return bool(pattern.fullmatch(name)) and (name.isascii() or printable_name(name) == name)


def _compare(before: Any, after: Any, path: str, depth: int) -> Iterator[ValueDifference]:  # noqa: ANN401
    if depth <= _MAX_DEPTH and isinstance(before, Mapping) and isinstance(after, Mapping):
        yield from _compare_members(before, after, path, depth, add_key)
    elif depth <= _MAX_DEPTH and isinstance(before, list) and isinstance(after, list):
        yield from _compare_lists(before, after, path, depth)
    elif not is_equal(before, after):
        yield ValueDifference(path, before, after)


def _compare_members(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    path: str,
    depth: int,
    add: Callable[[str, str], str],
) -> Iterator[ValueDifference]:
    """Compare by name: the members of objects, or the objects of a list by their ids."""
    for name, value in before.items():
        place = add(path, name)
        if name in after:
            yield from _compare(value, after[name], place, depth + 1)
        else:
            yield ValueDifference(place, value, ABSENT)
    for name, value in after.items():
        if name not in before:
            yield ValueDifference(add(path, name), ABSENT, value)


def _compare_lists(
    before: Sequence[Any], after: Sequence[Any], path: str, depth: int
) -> Iterator[ValueDifference]:
    named_before, named_after = objects_by_id(before), objects_by_id(after)
    if named_before is not None and named_after is not None:
        yield from _compare_members(named_before, named_after, path, depth, add_id)
        # The order that the differences above imply: old items as before, new items last.
        expected = [name for name in named_before if name in named_after]
        expected += [name for name in named_after if name not in named_before]
        if expected != list(named_after):
            yield ValueDifference(path, expected, list(named_after), is_order=True)
        return
    if not any(isinstance(item, Mapping | list) for item in (*before, *after)):
        if not is_equal(before, after):
            yield ValueDifference(path, before, after)
        return
    common = min(len(before), len(after))
    if len(before) != len(after) and not is_equal(before[:common], after[:common]):
        yield ValueDifference(path, before, after)
        return
    for index in range(common):
        yield from _compare(before[index], after[index], add_index(path, index), depth + 1)
    for index in range(common, len(after)):
        yield ValueDifference(add_index(path, index), ABSENT, after[index])
    for index in reversed(range(common, len(before))):
        yield ValueDifference(add_index(path, index), before[index], ABSENT)


def objects_by_id(items: Sequence[Any]) -> dict[str, Mapping[str, Any]] | None:
    """Return the objects of a list by id; None unless every item is an object with a unique id."""
    objects = {}
    for item in items:
        name = item.get("id") if isinstance(item, Mapping) else None
        if not isinstance(name, str):
            return None
        objects[name] = item
    return objects if len(objects) == len(items) else None


def is_equal(before: Any, after: Any) -> bool:  # noqa: ANN401 - JSON
    """Return whether two values are equal as JSON: ``true`` is not 1, and NaN is NaN."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return before.keys() == after.keys() and all(
            is_equal(value, after[key]) for key, value in before.items()
        )
    if isinstance(before, list) and isinstance(after, list):
        return len(before) == len(after) and all(map(is_equal, before, after))
    if isinstance(before, bool) or isinstance(after, bool):
        return before is after
    is_nan = before != before and after != after
    return bool(before == after or is_nan)
