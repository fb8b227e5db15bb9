"""Differences between two observations, by path. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Final, Literal

import attrs

from clawblox.views.observations import Paint, add_id, add_index, add_key, format_inline, no_paint

_MAX_DEPTH = 50
_MAX_CHARS = 60


class _Absent(Enum):
    ABSENT = "absent"


ABSENT: Final = _Absent.ABSENT
"""In place of a value that is not there."""


@attrs.frozen
class Difference:
    """A place that differs between two observations.

    Attributes:
        path: The place; empty for the whole observation.
        before: The earlier value; :data:`ABSENT` if there was none.
        after: The later value; :data:`ABSENT` if there is none.
        is_order: Whether only the order of a list of objects differs: the values are their ids.
    """

    path: str
    before: Any | Literal[_Absent.ABSENT]
    after: Any | Literal[_Absent.ABSENT]
    is_order: bool = False


def find_differences(before: Any, after: Any) -> list[Difference]:  # noqa: ANN401 - JSON
    """Return where two values differ; nothing exactly if they are equal as JSON.

    Members of objects are compared by key. Objects in a list are compared by their ``id`` if each
    of them has one of its own, the items of other lists of the same length by their place. A list
    of another length, and a list of numbers, texts or literals, is one value, unless items were
    only added at its end or removed there.
    """
    return list(_compare(before, after, "", 0))


def format_difference(difference: Difference, paint: Paint = no_paint) -> str:
    """Return a difference as a line."""
    path = paint("key", f"{difference.path}:" if difference.path else "observation:")
    before, after = difference.before, difference.after
    if before is ABSENT:
        return f"{path} {paint('note', 'new')} {_format(after)}"
    if after is ABSENT:
        return f"{path} {paint('note', 'gone')}"
    if difference.is_order:
        return f"{path} {paint('note', 'order')} {_format(after)}"
    texts = _format(before), _format(after)
    if texts[0] == texts[1]:  # rounding or cutting hides the difference
        if isinstance(after, str | list | Mapping):
            return f"{path} {paint('note', _count(before, after))}"
        texts = repr(before), repr(after)
    return f"{path} {texts[0]} {paint('note', '->')} {texts[1]}"


def _format(value: Any) -> str:  # noqa: ANN401 - JSON
    return format_inline(value, max_chars=_MAX_CHARS)


def _count(before: Any, after: Any) -> str:  # noqa: ANN401 - JSON
    """Describe a change that the texts of both values do not show."""
    if isinstance(after, list) and len(before) == len(after):
        changed = sum(not _is_equal(*pair) for pair in zip(before, after, strict=True))
        return f"{changed} of {len(after)} items changed"
    return "changed"


def _compare(before: Any, after: Any, path: str, depth: int) -> Iterator[Difference]:  # noqa: ANN401
    if depth <= _MAX_DEPTH and isinstance(before, Mapping) and isinstance(after, Mapping):
        yield from _compare_members(before, after, path, depth, add_key)
    elif depth <= _MAX_DEPTH and isinstance(before, list) and isinstance(after, list):
        yield from _compare_lists(before, after, path, depth)
    elif not _is_equal(before, after):
        yield Difference(path, before, after)


def _compare_members(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    path: str,
    depth: int,
    add: Callable[[str, str], str],
) -> Iterator[Difference]:
    """Compare by name: the members of objects, or the objects of a list by their ids."""
    for name, value in before.items():
        place = add(path, name)
        if name in after:
            yield from _compare(value, after[name], place, depth + 1)
        else:
            yield Difference(place, value, ABSENT)
    for name, value in after.items():
        if name not in before:
            yield Difference(add(path, name), ABSENT, value)


def _compare_lists(
    before: Sequence[Any], after: Sequence[Any], path: str, depth: int
) -> Iterator[Difference]:
    named_before, named_after = _by_id(before), _by_id(after)
    if named_before is not None and named_after is not None:
        yield from _compare_members(named_before, named_after, path, depth, add_id)
        # The order that the differences above imply: old items as before, new items last.
        expected = [name for name in named_before if name in named_after]
        expected += [name for name in named_after if name not in named_before]
        if expected != list(named_after):
            yield Difference(path, expected, list(named_after), is_order=True)
        return
    if not any(isinstance(item, Mapping | list) for item in (*before, *after)):
        if not _is_equal(before, after):
            yield Difference(path, before, after)
        return
    common = min(len(before), len(after))
    if len(before) != len(after) and not _is_equal(before[:common], after[:common]):
        yield Difference(path, before, after)
        return
    for index in range(common):
        yield from _compare(before[index], after[index], add_index(path, index), depth + 1)
    for index in range(common, len(after)):
        yield Difference(add_index(path, index), ABSENT, after[index])
    for index in reversed(range(common, len(before))):
        yield Difference(add_index(path, index), before[index], ABSENT)


def _by_id(items: Sequence[Any]) -> dict[str, Mapping[str, Any]] | None:
    """Return objects by their ids; None unless each has an id of its own."""
    objects = {}
    for item in items:
        name = item.get("id") if isinstance(item, Mapping) else None
        if not isinstance(name, str):
            return None
        objects[name] = item
    return objects if len(objects) == len(items) else None


def _is_equal(before: Any, after: Any) -> bool:  # noqa: ANN401 - JSON
    """Return whether two values are equal as JSON: ``true`` is not 1, and NaN is NaN."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return before.keys() == after.keys() and all(
            _is_equal(value, after[key]) for key, value in before.items()
        )
    if isinstance(before, list) and isinstance(after, list):
        return len(before) == len(after) and all(map(_is_equal, before, after))
    if isinstance(before, bool) or isinstance(after, bool):
        return before is after
    is_nan = before != before and after != after
    return bool(before == after or is_nan)
