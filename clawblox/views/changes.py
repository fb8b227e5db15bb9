"""Differences between two observations, as text. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clawblox.differences import ABSENT, Difference, is_equal
from clawblox.views.observations import Paint, format_inline, no_paint

_MAX_CHARS = 60


def format_difference(difference: Difference, paint: Paint = no_paint) -> str:
    """Return a difference as a line."""
    path = paint("key", f"{difference.path or 'observation'}:")
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
        changed = sum(not is_equal(*pair) for pair in zip(before, after, strict=True))
        return f"{changed} of {len(after)} items changed"
    return "changed"
