"""Paths into an observation, as people read and type them: ``world.entities[marble-1].position``.

A part is a key, an index, or the ``id`` of an object in a list.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from clawblox.errors import UsageError

_NAME = re.compile(r"[^\W\d]\w*")
_BARE_ID = re.compile(r"[\w:.-]*[^\W\d][\w:.-]*")
_INDEX = re.compile(r"-?(0|[1-9]\d{0,8})")
_PART = re.compile(r'\.?([^\W\d]\w*)|\[\s*("(?:[^"\\]|\\.)*"|[^\]"]*?)\s*\]')


def add_key(path: str, key: str) -> str:
    """Return the path of a member of the object at ``path``."""
    if not _NAME.fullmatch(key):
        return add_id(path, key)
    return f"{path}.{key}" if path else key


def add_index(path: str, index: int) -> str:
    """Return the path of an item of the list at ``path``."""
    return f"{path}[{index}]"


def add_id(path: str, name: str) -> str:
    """Return the path of the object with this id in the list at ``path``."""
    return f"{path}[{name if _BARE_ID.fullmatch(name) else json.dumps(name)}]"


def find_value(value: Any, path: str) -> Any:  # noqa: ANN401 - JSON
    """Return what is at a path.

    Raises:
        UsageError: The path is malformed, or nothing is there; says how far it leads.
    """
    way = ""
    for text, part in _parse(path):
        try:
            value = _step(value, part)
        except (KeyError, IndexError):
            place = way or "the observation"
            name = text.lstrip(".")
            raise UsageError(f"{place} has no {name}", hint=_describe(value)) from None
        way += text
    return value


def _parse(path: str) -> Iterator[tuple[str, str | int]]:
    """Yield the parts of a path, as they are written and as they are meant."""
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


def _describe(value: Any) -> str | None:  # noqa: ANN401 - JSON
    if isinstance(value, dict):
        return f"it has: {', '.join(map(str, value)) or 'nothing'}"
    return f"it has {len(value)} items" if isinstance(value, list) else None
