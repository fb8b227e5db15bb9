"""The allowed names of an archive's members, and the allowed paths of their files.

An archive may come from a stranger, and its names become paths. A name must be in canonical form,
below a known root, and made of visible characters that mean the same on every system. Other names
are refused, never corrected.

Files of a workspace may have any path that Linux allows. If the path is not an allowed name, the
member has a neutral name, ``agents/<agent>/workspace/.renamed/<number>``, and the metadata records
the path. Files in a directory of that name also have neutral names. Readers of schema 1 accept
neutral names as names, and then refuse the schema. ``policy`` decides which of these paths may be
archived.
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
"""Name of the member with the rows of the world's data stores at the tick of the snapshot."""

_MAX_COMPONENT: Final = 255
_MAX_PATH: Final = 4096
_MAX_DEPTH: Final = 255

_INVISIBLE: Final = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
"""Categories of control, format (bidi, zero width) and surrogate code points, and separators."""
_FOREIGN_SYNTAX: Final = frozenset("\\:")
"""Separators of directories, drives and streams on other systems."""
_NOT_UTF_8: Final = "is not UTF-8"
_OUTSIDE: Final = "is not in a directory of a checkpoint"

_IN_AGENT: Final = re.compile(r"agents/([^/]+)/(workspace|session)/(.+)", re.DOTALL)
_NEUTRAL: Final = re.compile(r"agents/([^/]+)/workspace/\.renamed/(?:0|[1-9][0-9]{0,8})")
_RESERVED: Final = re.compile(r"agents/[^/]+/workspace/\.renamed(?P<below>/.+)?", re.DOTALL)
_RESERVED_PART: Final = "/workspace/.renamed"
_DIRECTORY: Final = re.compile(r"agents(?:/[^/]+(?:/(?:workspace|session)(?:/.+)?)?)?", re.DOTALL)


def check_name(name: str) -> None:
    """Check that a name is safe as a path.

    Args:
        name: The full name of a member.

    Raises:
        CheckpointPathError: The name is not canonical, contains an invisible character or another
            system's separator, is too long or too deep, or is not below a known root.
    """
    _refuse(name, _find_problem(name))


def is_name(name: str) -> bool:
    """Return whether :func:`check_name` accepts ``name``."""
    return _find_problem(name) is None


def check_directory(name: str) -> None:
    """Check that a name is allowed for a directory.

    Args:
        name: The full name, ending with a slash.

    Raises:
        CheckpointPathError: The name is not the canonical name of a directory that may contain
            members.
    """
    path = name.removesuffix("/")
    _refuse(name, _bad_text(path) or (None if _DIRECTORY.fullmatch(path) else _OUTSIDE))


def check_path(path: str) -> None:
    """Check that a path is an allowed name or a path of a workspace.

    Args:
        path: The full path of a file, link or directory, ``agents/<agent>/workspace/…``.

    Raises:
        CheckpointPathError: The path is neither. Below a workspace, paths are refused only if they
            are not canonical, too long or too deep, or cannot be encoded.
    """
    _refuse(path, _find_path_problem(path))


def is_path(path: str) -> bool:
    """Return whether :func:`check_path` accepts ``path``."""
    return _find_path_problem(path) is None


def split_name(name: str) -> tuple[str, str, str] | None:
    """Return agent, tier (``workspace`` or ``session``) and the path below it.

    Args:
        name: A name or path that :func:`check_path` accepts.

    Returns:
        The three parts; None if the name is not below an agent's directory.
    """
    found = _IN_AGENT.fullmatch(name)
    return (found[1], found[2], found[3]) if found else None


def find_tier(name: str) -> str | None:
    """Return the tier of a name, like :func:`split_name`; None outside both tiers."""
    found = _IN_AGENT.fullmatch(name)
    return found[2] if found else None


def neutral_name(agent: str, number: int) -> str:
    """Return the neutral name of a member.

    Args:
        agent: Name of the agent.
        number: Number of the member, unique for the agent.
    """
    return f"agents/{agent}/workspace/.renamed/{number}"


def neutral_agent(name: str) -> str | None:
    """Return the agent of a member with a neutral name; None for other names."""
    found = _NEUTRAL.fullmatch(name)
    return found[1] if found else None


def is_reserved(name: str) -> bool:
    """Return whether a name is reserved for members with neutral names or for their directory."""
    return _RESERVED_PART in name and _RESERVED.fullmatch(name) is not None


def is_neutral_directory(path: str) -> bool:
    """Return whether a path is the directory for an agent's members with neutral names."""
    found = _RESERVED.fullmatch(path)
    return found is not None and found["below"] is None


def names_itself(path: str) -> bool:
    """Return whether the path of a file is also the name of its member."""
    return is_name(path) and not is_reserved(path)


def fold(component: str) -> str:
    """Return a form that is equal for components that file systems or programs may confuse.

    Some ignore case, compatibility forms, invisible characters, or trailing dots and spaces.
    """
    visible = "".join(char for char in component if unicodedata.category(char) != "Cf")
    folded = unicodedata.normalize("NFKC", visible).casefold()
    return unicodedata.normalize("NFKC", folded).rstrip(". ")


def _refuse(name: str, problem: str | None) -> None:
    if problem is not None:
        raise CheckpointPathError(f"the name of an entry {problem}", entry=name)


def _find_problem(name: str) -> str | None:
    return _bad_text(name) or _bad_root(name)


def _bad_text(name: str) -> str | None:
    return _bad_character(name) or _bad_path(name) or _bad_ending(name)


def _find_path_problem(path: str) -> str | None:
    problem = _find_problem(path)
    split = None if problem is None else split_name(path)
    if split is None or split[1] != "workspace" or not is_name(f"agents/{split[0]}/workspace/_"):
        return problem
    if "\0" in path:
        return "contains the forbidden character U+0000"
    return _bad_path(path) if is_encodable(path) else _NOT_UTF_8


def is_encodable(text: str) -> bool:
    """Return whether a text, such as a name from a file system, is valid Unicode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _bad_character(name: str) -> str | None:
    for char in "" if name.isprintable() and _FOREIGN_SYNTAX.isdisjoint(name) else name:
        category = unicodedata.category(char)
        if category == "Cs":
            return _NOT_UTF_8
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
        if len(component) * 4 > _MAX_COMPONENT and len(component.encode()) > _MAX_COMPONENT:
            return f"has a part longer than {_MAX_COMPONENT} bytes"
    return None


def _bad_ending(name: str) -> str | None:
    if name.endswith((".", " ")) or "./" in name or " /" in name:
        return "has a part that ends with a dot or a space"
    return None


def _bad_root(name: str) -> str | None:
    if name in (METADATA_NAME, SNAPSHOT_NAME, ROWS_NAME) or _IN_AGENT.fullmatch(name):
        return None
    return _OUTSIDE
