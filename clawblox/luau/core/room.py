"""The room of tables that were large.

A dictionary keeps the room of removed entries: going through it takes time, and it takes memory, as
if they were there. No script can see that room, and a restored table has none, so it is given back
where a table is gone through or measured, and nothing is charged for it.
"""

from __future__ import annotations

from clawblox.luau.core.values import LuaTable

_SPARE_BYTES = 2048
_BYTES_PER_ENTRY = 256  # twice the most that a dictionary of present entries takes
_room = LuaTable.__sizeof__


def give_back_room(table: LuaTable) -> None:
    """Make a table smaller if most of its room is that of removed entries."""
    if _room(table) > _SPARE_BYTES + _BYTES_PER_ENTRY * len(table):
        repack(table)


def repack(table: LuaTable) -> None:
    """Give back all room of removed entries; the order of the others stays."""
    entries = list(dict.items(table))
    dict.clear(table)
    dict.update(table, entries)
