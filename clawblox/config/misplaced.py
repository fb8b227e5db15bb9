"""Keys that TOML puts into another table than their author meant. Pure.

A key below the header of a table belongs to that table, however far below it stands, and
``[agents]`` is a single table, where a list of tables needs ``[[agents]]``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from clawblox.config.schema import Keys


def find_elsewhere(tables: Mapping[str, Any], key: str) -> Keys | None:
    """Return the position of a key in another table of the document; None if it is in none."""
    for name, value in tables.items():
        for place, table in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(table, dict) and key in table:
                return (name, key) if place is None else (name, place, key)
    return None


def advise_placing(keys: Keys) -> str:
    """Return how to move a key of the whole document out of the table that it is in.

    Args:
        keys: Position of the key.
    """
    header = format_header(keys[:-1])
    return f"keys below {header} belong to it: write those of the whole file above the first header"


def format_header(keys: Keys) -> str:
    """Return the header of a table: ``[limits]``, or ``[[agents]]`` for one of a list."""
    name = ".".join(key for key in keys if isinstance(key, str))
    return f"[[{name}]]" if keys and isinstance(keys[-1], int) else f"[{name}]"


def advise_brackets(key: str, value: object) -> str | None:
    """Return how to write a list of tables that was written as a table, or the reverse.

    Args:
        key: The key.
        value: Its value, of the other kind; None is returned for all others.
    """
    if isinstance(value, dict) and value and all(isinstance(v, dict) for v in value.values()):
        name = next(iter(value))
        return f"write [[{key}]], with name = {str(name)!r} below it, in place of [{key}.{name}]"
    if isinstance(value, dict):
        return f"write [[{key}]] in place of [{key}]"
    if isinstance(value, list) and value and all(isinstance(entry, dict) for entry in value):
        return f"write [{key}] in place of [[{key}]]"
    return None


def advise(keys: Keys, tables: Mapping[str, Any], known: Collection[str]) -> str | None:
    """Return where a key belongs, if it is missing at the top or unknown in a table.

    Args:
        keys: Position of the key.
        tables: The document.
        known: The keys of the whole document.
    """
    if len(keys) > 1:
        return advise_placing(keys) if keys[-1] in known else None
    place = find_elsewhere(tables, str(keys[0])) if keys else None
    return None if place is None else advise_placing(place)
