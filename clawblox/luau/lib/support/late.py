"""Late names: globals and fields of libraries that scripts have got since format 5 of documents.

A document of a sandboxed VM leaves out a late name that no script has touched, and a restore puts
it back; nor does it count as memory. So worlds and documents stay the same when a name is added,
and older ones get it. In a sandbox, late names come last in their tables, in the order of their
list.
"""

from __future__ import annotations

from collections.abc import Iterable
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


def place_late(
    names: Iterable[str], fresh: LuaTable, target: LuaTable
) -> dict[int, dict[str, Any]]:
    """Put late names last in the tables of a sandbox.

    Args:
        names: The names; what `fresh` lacks is ignored.
        fresh: The globals that have them.
        target: The globals that get those that they lack.

    Returns:
        The key and the value of each late name, by the id of its table; without those for which
        a document had another value.
    """
    places: list[tuple[LuaTable, str, Any]] = []
    for name in names:
        source, key = _find_table(fresh, name)
        table, _ = _find_table(target, name)
        value = None if source is None else raw_get(source, key)
        if value is None or table is None:
            continue
        if isinstance(value, LuaTable):
            freeze(value)
        raw_set(table, key, raw_pop(table, key, value))
        places.append((table, key, value))
    late: dict[int, dict[str, Any]] = {}
    for table, key, original in places:
        value = raw_get(table, key)
        if value is original or _is_copy(value, original):
            late.setdefault(id(table), {})[key] = value
    return late


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
