"""Weak tables: ``collectgarbage`` removes entries that nothing else refers to."""

from __future__ import annotations

import gc
import weakref
from typing import Any

from clawblox.luau.core.values import LuaTable, raw_get, raw_set

_ABSENT = object()


def collect() -> None:
    """Collect garbage, and remove the dead entries of weak tables."""
    tables = [
        found
        for found in gc.get_objects()
        if isinstance(found, LuaTable) and found.meta is not None and _mode(found)
    ]
    weakened = [(table, _weaken(table, _mode(table))) for table in tables]
    gc.collect()
    for table, entries in weakened:
        for key, value in entries:
            key, value = _strong(key), _strong(value)
            if key is not _ABSENT and value is not _ABSENT:
                raw_set(table, key, value)


def _mode(table: LuaTable) -> str:
    mode = raw_get(table.meta, "__mode") if table.meta is not None else None
    return mode if mode.__class__ is str else ""


def _weaken(table: LuaTable, mode: str) -> list[tuple[Any, Any]]:
    entries = [
        (_weak(key) if "k" in mode else key, _weak(value) if "v" in mode else value)
        for key, value in table.items()
    ]
    table.clear()
    return entries


def _weak(value: Any) -> Any:
    try:
        return weakref.ref(value)
    except TypeError:
        return value


def _strong(value: Any) -> Any:
    if not isinstance(value, weakref.ref):
        return value
    found = value()
    return _ABSENT if found is None else found
