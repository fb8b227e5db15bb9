"""The length of a table, and the memory of removed entries."""

from __future__ import annotations

from clawblox.luau.core.machine import current
from clawblox.luau.core.values import LuaTable, raw_has


def border(table: LuaTable) -> float:
    """Return the length of a table without ``__len``.

    In a table with holes it is, as in the reference, a border found by bisection, and depends on
    the number of elements that the table was created for.
    """
    try:
        hint = table._hint
    except AttributeError:  # reading an empty slot takes ten times as long
        hint = table._hint = 0.0
    size = float(len(table))
    if size == 0.0:
        return 0.0
    if hint and hint not in table:
        return _array_border(table, int(hint))
    if size >= hint and size in table and size + 1.0 not in table:
        return size
    if not hint:
        if 1.0 not in table:
            return 0.0
        room = 1 << int(size).bit_length()
        if not raw_has(table, float(room)):
            return _array_border(table, room)
        hint = float(room)
    low, high = hint, hint + 1.0
    while raw_has(table, high):
        low, high = high, high * 2.0
    return _bisect(table, low, high)


def _array_border(table: LuaTable, room: int) -> float:
    """Return the border that the reference finds in an array with an empty last slot."""
    _charge_search()
    base, rest = 0, room
    while half := rest >> 1:
        if raw_has(table, float(base + half + 1)):
            base += half
        rest -= half
    return float(base + raw_has(table, float(base + 1)))


def _charge_search() -> None:
    if current.vm is not None:  # otherwise the host is asking
        current.vm.charge_work(1)


def _bisect(table: LuaTable, low: float, high: float) -> float:
    """Return a border between two indices: ``low`` is present or 0, ``high`` is absent."""
    if high - low > 1.0:
        _charge_search()
    while high - low > 1.0:
        middle = (low + high) // 2.0
        if raw_has(table, middle):
            low = middle
        else:
            high = middle
    return low


_SPARE_BYTES = 2048
_BYTES_PER_ENTRY = 256  # twice the maximum size of a dictionary with the present entries
_room = LuaTable.__sizeof__


def give_back_room(table: LuaTable) -> None:
    """Shrink a table if removed entries take most of its memory."""
    if _room(table) > _SPARE_BYTES + _BYTES_PER_ENTRY * len(table):
        repack(table)


def repack(table: LuaTable) -> None:
    """Release the memory of removed entries, keeping the order of the others."""
    entries = list(dict.items(table))
    dict.clear(table)
    dict.update(table, entries)
