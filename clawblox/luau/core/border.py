"""The length of a table, which the reference defines by how its array grows."""

from __future__ import annotations

from clawblox.luau.core.values import LuaTable, raw_has


def border(table: LuaTable) -> float:
    """Return the length of a table without ``__len``.

    Where there are holes it is, as in the reference, a border that depends on the number of
    elements the table was made for, and is found by bisection.
    """
    size = float(len(table))
    if size == 0.0:
        return 0.0
    known: float = getattr(table, "_hint", 0.0)
    if known and not raw_has(table, known):
        return _array_border(table, int(known))
    if size >= known and raw_has(table, size) and not raw_has(table, size + 1.0):
        return size
    if not known:
        if not raw_has(table, 1.0):
            return 0.0
        room = 1 << int(size).bit_length()
        if not raw_has(table, float(room)):
            return _array_border(table, room)
        known = float(room)
    low, high = known, known + 1.0
    while raw_has(table, high):
        low, high = high, high * 2.0
    return _bisect(table, low, high)


def _array_border(table: LuaTable, room: int) -> float:
    """Return the border the reference finds in an array whose last place is empty."""
    base, rest = 0, room
    while half := rest >> 1:
        if raw_has(table, float(base + half + 1)):
            base += half
        rest -= half
    return float(base + raw_has(table, float(base + 1)))


def _bisect(table: LuaTable, low: float, high: float) -> float:
    """Return a border between two indices: ``low`` is there or 0, ``high`` is not there."""
    while high - low > 1.0:
        middle = (low + high) // 2.0
        if raw_has(table, middle):
            low = middle
        else:
            high = middle
    return low
