"""The names that a member of an archive may have.

An archive may come from a stranger, and its names become paths. A name is refused, never
corrected, unless it is in canonical form, below a known root, and made of visible characters
that mean the same on every system. ``policy`` decides which of these names may be archived.
"""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path
from typing import Final

from clawblox.errors import CheckpointPathError
from clawblox.snapshot.rows import rows_beside

METADATA_NAME: Final = "metadata.json"
SNAPSHOT_NAME: Final = "world.snapshot"
ROWS_NAME: Final = rows_beside(Path(SNAPSHOT_NAME)).name
"""The rows of the world's data stores at the tick of the snapshot."""

_MAX_COMPONENT: Final = 255
_MAX_PATH: Final = 4096
_MAX_DEPTH: Final = 64

_INVISIBLE: Final = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
"""Control, format (bidi, zero width) and surrogate code points, line and paragraph separators."""
_FOREIGN_SYNTAX: Final = frozenset("\\:")
"""Separators of directories, drives and streams on other systems."""

_IN_AGENT: Final = re.compile(r"agents/([^/]+)/(workspace|session)/(.+)")


def check_name(name: str) -> None:
    """Refuse a name that is not safe as a path.

    Args:
        name: The full name of a member.

    Raises:
        CheckpointPathError: It is not canonical, contains an invisible character or another
            system's separator, is too long or too deep, or is not below a known root.
    """
    if (problem := _find_problem(name)) is not None:
        raise CheckpointPathError(f"the name of an entry {problem}", entry=name)


def is_name(name: str) -> bool:
    """Return whether :func:`check_name` accepts ``name``."""
    return _find_problem(name) is None


def split_name(name: str) -> tuple[str, str, str] | None:
    """Return agent, tier (``workspace`` or ``session``) and the path below it.

    Args:
        name: A name that :func:`check_name` accepts.

    Returns:
        The three parts; None if the name is not below an agent's directory.
    """
    found = _IN_AGENT.fullmatch(name)
    return (found[1], found[2], found[3]) if found else None


def fold(component: str) -> str:
    """Return a form that is equal for components that a file system or program may confuse.

    Some ignore case, compatibility forms, invisible characters, or dots and spaces at the end.
    """
    visible = "".join(char for char in component if unicodedata.category(char) != "Cf")
    folded = unicodedata.normalize("NFKC", visible).casefold()
    return unicodedata.normalize("NFKC", folded).rstrip(". ")


def _find_problem(name: str) -> str | None:
    return _bad_character(name) or _bad_path(name) or _bad_root(name)


def _bad_character(name: str) -> str | None:
    for char in "" if name.isprintable() and _FOREIGN_SYNTAX.isdisjoint(name) else name:
        category = unicodedata.category(char)
        if category == "Cs":
            return "is not UTF-8"
        if category in _INVISIBLE or char in _FOREIGN_SYNTAX:
            return f"contains the forbidden character U+{ord(char):04X}"
    return None


def _bad_path(name: str) -> str | None:
    components = name.split("/")
    if len(name.encode()) > _MAX_PATH:
        return f"is longer than {_MAX_PATH} bytes"
    if len(components) > _MAX_DEPTH:
        return f"is deeper than {_MAX_DEPTH} directories"
    for component in components:
        if component in ("", ".", ".."):
            return "escapes or is not canonical"
        if component[-1] in ". ":
            return "has a part that ends with a dot or a space"
        if len(component) * 4 > _MAX_COMPONENT and len(component.encode()) > _MAX_COMPONENT:
            return f"has a part longer than {_MAX_COMPONENT} bytes"
    return None


def _bad_root(name: str) -> str | None:
    if name in (METADATA_NAME, SNAPSHOT_NAME, ROWS_NAME) or _IN_AGENT.fullmatch(name):
        return None
    return "is not in a directory of a checkpoint"
