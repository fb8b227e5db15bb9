"""Late names: globals and fields of libraries that scripts have got since format 5 of documents.

A document of a sandboxed VM leaves out a late name that no script has touched, and a restore puts
it back. So documents stay the same when a name is added, and older ones get it. In a sandbox, late
names come last in their tables, in the order of their list.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from clawblox.luau.core.values import FrozenTable, LuaTable, freeze, raw_get, raw_pop, raw_set

LATE_NAMES: tuple[str, ...] = (
    "gcinfo",
    "debug.profilebegin",
    "debug.profileend",
    "debug.setmemorycategory",
    "debug.resetmemorycategory",
    "utf8.graphemes",
)
"""Late names of the standard library, dotted below a library; new ones come last."""


def place_late(names: Iterable[str], fresh: LuaTable, target: LuaTable) -> dict[str, Any]:
    """Put late names last in the tables of a sandbox.

    Args:
        names: The names; what `fresh` lacks is ignored.
        fresh: The globals that have them.
        target: The globals that get those that they lack.

    Returns:
        The values in `fresh` by name.
    """
    late: dict[str, Any] = {}
    for name in names:
        source, key = _find_table(fresh, name)
        table, _ = _find_table(target, name)
        value = None if source is None else raw_get(source, key)
        if value is None or table is None:
            continue
        if isinstance(value, LuaTable):
            freeze(value)
        late[name] = value
        raw_set(table, key, raw_pop(table, key, value))
    return late


def find_late(globals_table: LuaTable, late: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    """Return the late names that have their original values, by the id of their table.

    Args:
        globals_table: The globals.
        late: The original values, from `place_late`.
    """
    found: dict[int, dict[str, Any]] = {}
    for name, original in late.items():
        table, key = _find_table(globals_table, name)
        value = None if table is None else raw_get(table, key)
        if value is original or _is_copy(value, original):
            found.setdefault(id(table), {})[key] = value
    return found


def _find_table(globals_table: LuaTable, name: str) -> tuple[LuaTable | None, str]:
    """Return the table that has a name, and its key there."""
    library, _, key = name.rpartition(".")
    table = raw_get(globals_table, library) if library else globals_table
    return (table if isinstance(table, LuaTable) else None), key


def _is_copy(value: Any, original: Any) -> bool:
    """Return whether a value is a late library that was in a document."""
    if value.__class__ is not FrozenTable or not isinstance(original, LuaTable):
        return False
    return value.meta is None and dict(value) == dict(original)
