"""The ``table`` library."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from clawblox.luau.core.errors import OutOfMemory, RuntimeFault
from clawblox.luau.core.iteration import charge_work, ordered_keys
from clawblox.luau.core.limits import (
    BYTES_PER_STEP,
    ENTRY_BYTES,
    FILLED_BYTES,
    LONG_TEXT,
    TABLE_BYTES,
)
from clawblox.luau.core.machine import call_unyieldable, current
from clawblox.luau.core.numbers import format_number
from clawblox.luau.core.operators import equal, join, shown_type
from clawblox.luau.core.tables import border, give_back_room
from clawblox.luau.core.values import (
    FrozenTable,
    LuaTable,
    SlowTable,
    as_result,
    check_writable,
    first,
    key_value,
    metamethod,
    raw_assign,
    raw_get,
    raw_pop,
    raw_set,
    renew_class,
    set_metatable,
)
from clawblox.luau.core.values import (
    freeze as freeze_table,
)
from clawblox.luau.lib.support import arguments as arg
from clawblox.luau.lib.support.sorting import charge_sorting, sort_values

_PLACE_BYTES = 16  # of a table created for a number of values
_ITEM_BYTES, _FILL_BYTES, _COPY_BYTES = 40, 44, 60  # of an entry that is packed, repeated, copied
_STACK_BYTES = 128  # per value; generous, since the stack must run out before the heap
MAX_ITEMS = 1 << 26
_BIGGEST = 2**31 - 1


def _writable(args: arg.Arguments, function: str) -> LuaTable:
    table = arg.table(args, 0, function)
    check_writable(table)
    return table


def insert(*args: Any) -> tuple[()]:
    """Insert a value at a position, by default at the end.

    Raises:
        RuntimeFault: The first argument is not a table, the table is frozen, the position is not a
            number, or there are not two or three arguments.
    """
    if len(args) == 2 and args[0].__class__ is LuaTable and args[1] is not None:
        table = args[0]
        try:
            made_for = table._hint
        except AttributeError:  # reading an empty slot takes ten times as long
            made_for = table._hint = 0.0
        size = float(len(table))
        if (size in table or not size) and size + 1.0 not in table and size >= made_for:
            table[size + 1.0] = args[1]
            return ()
    table = _writable(args, "insert")
    size = border(table)
    if len(args) == 2:
        raw_assign(table, size + 1.0, args[1])
        return ()
    if len(args) != 3:
        raise RuntimeFault("wrong number of arguments to 'insert'")
    at = float(arg.integer(args, 1, "insert"))
    if 1.0 <= at <= size:
        charge_work(int(size - at) + 1)
        position = size
        while position >= at:
            raw_set(table, position + 1.0, raw_get(table, position))
            position -= 1.0
    raw_assign(table, at, args[2])
    return ()


def remove(*args: Any) -> Any:
    """Remove and return the value at a position, by default the last.

    Raises:
        RuntimeFault: The first argument is not a table, the table is frozen, or the position is not
            a number.
    """
    if len(args) == 1 and args[0].__class__ is LuaTable:
        size = border(args[0])
        return raw_pop(args[0], size) if size else ()
    table = arg.table(args, 0, "remove")
    size = border(table)
    at = float(arg.optional_integer(args, 1, "remove", int(size)))
    if not 1.0 <= at <= size:
        return ()
    check_writable(table)
    value = raw_get(table, at)
    if at < size:
        charge_work(int(size - at))
    while at < size:
        raw_set(table, at, raw_get(table, at + 1.0))
        at += 1.0
    raw_pop(table, size, None)
    return value


def concat(*args: Any) -> str:
    """Return the joined strings of a sequence.

    Raises:
        RuntimeFault: An argument is missing or of the wrong type, or a value is neither a string
            nor a number.
    """
    table = arg.table(args, 0, "concat")
    separator = arg.optional_string(args, 1, "concat", "")
    start = arg.optional_integer(args, 2, "concat", 1)
    end = arg.optional_integer(args, 3, "concat", int(border(table)))
    if end - start >= 16:
        charge_work(end - start)
    parts = []
    for position in range(start, end + 1):
        value = raw_get(table, float(position))
        if value.__class__ is float:
            value = format_number(value)
        elif value.__class__ is not str:
            kind = shown_type(value)
            raise RuntimeFault(f"invalid value ({kind}) at index {position} in table for 'concat'")
        parts.append(value)
    return join(parts, separator)


def unpack(*args: Any) -> Any:
    """Return the values of a range.

    Raises:
        RuntimeFault: An argument is missing or of the wrong type, or there are too many values.
    """
    table = arg.table(args, 0, "unpack")
    start = arg.optional_integer(args, 1, "unpack", 1)
    is_open = len(args) < 3 or args[2] is None
    end = int(border(table)) if is_open else arg.integer(args, 2, "unpack")
    if end < start:
        return ()
    arg.check_results(args, end - start + 1, "too many results to unpack")
    try:
        current.vm.allocate(_STACK_BYTES * (end - start + 1))
    except OutOfMemory:
        raise RuntimeFault("too many results to unpack") from None
    return as_result(tuple(raw_get(table, float(at)) for at in range(start, end + 1)))


def pack(*args: Any) -> LuaTable:
    """Return a table of the arguments, with their number in ``n``."""
    current.vm.allocate(
        TABLE_BYTES + ENTRY_BYTES * len(args), FILLED_BYTES + _ITEM_BYTES * len(args)
    )
    table = LuaTable({float(at): item for at, item in enumerate(args, 1) if item is not None})
    if args:
        table._hint = float(len(args))
    table["n"] = float(len(args))
    return table


def create(*args: Any) -> LuaTable:
    """Return a table with room for a number of values, or filled with a value.

    Raises:
        RuntimeFault: The first argument is not a number, or the size is out of range.
    """
    size = arg.integer(args, 0, "create")
    if not 0 <= size <= _BIGGEST:
        arg.wrong(0, "create", "size out of range")
    if size > MAX_ITEMS:
        raise RuntimeFault("table overflow")
    current.vm.allocate(TABLE_BYTES + _PLACE_BYTES * size, FILLED_BYTES + _PLACE_BYTES * size)
    table = LuaTable()
    if len(args) > 1 and args[1] is not None:
        current.vm.allocate((ENTRY_BYTES - _PLACE_BYTES) * size, _FILL_BYTES * size)
        charge_work(size // 8 + 1)
        table.update(dict.fromkeys(map(float, range(1, size + 1)), args[1]))
    if size:
        table._hint = float(size)  # for which the reference searches for the end of the array
    return table


def find(*args: Any) -> float | None:
    """Return the position of a value in a sequence, or nil.

    Raises:
        RuntimeFault: An argument is missing or of the wrong type, or the start is less than 1.
    """
    table = arg.table(args, 0, "find")
    wanted = arg.any_value(args, 1)
    at = float(arg.optional_integer(args, 2, "find", 1))
    if at < 1.0:
        arg.wrong(2, "find", "index out of range")
    wanted_size = len(wanted) if wanted.__class__ is str else 0
    calls = metamethod(wanted, "__eq") is not None
    while (value := raw_get(table, at)) is not None:
        if wanted_size >= LONG_TEXT and value.__class__ is str and len(value) == wanted_size:
            charge_work(wanted_size // BYTES_PER_STEP)
        if calls:
            charge_work(1)
        alike = value.__class__ is wanted.__class__
        if value == wanted if alike else equal(value, wanted):
            return at
        at += 1.0
        if not int(at) & 63:
            charge_work(16)
    return None


def sort(*args: Any) -> tuple[()]:
    """Sort a sequence in place.

    Raises:
        RuntimeFault: The first argument is not a table, the table is frozen, values cannot be
            compared, or the comparator is inconsistent.
        LuaError: The comparator fails.
    """
    table = _writable(args, "sort")
    size = int(border(table))
    has_comparator = len(args) > 1 and args[1] is not None
    comparator = arg.function(args, 1, "sort") if has_comparator else None
    charge_sorting(size, comparator)
    keys = [float(at) for at in range(1, size + 1)]
    values = [raw_get(table, key) for key in keys]
    try:
        sort_values(values, comparator, table)
    finally:
        for key, value in zip(keys, values, strict=True):
            raw_set(table, key, value)
    return ()


def move(*args: Any) -> LuaTable:
    """Copy a range to another position, possibly in another table.

    Raises:
        RuntimeFault: An argument is missing or of the wrong type, the target is frozen, or the
            ranges are too large.
    """
    source = arg.table(args, 0, "move")
    start, end, to = (arg.integer(args, at, "move") for at in (1, 2, 3))
    target = arg.table(args, 4, "move") if len(args) > 4 and args[4] is not None else source
    if end < start:
        return target
    if not (start > 0 or end < _BIGGEST + start):
        arg.wrong(2, "move", "too many elements to move")
    if to > _BIGGEST - (end - start + 1) + 1:
        arg.wrong(3, "move", "destination wrap around")
    check_writable(target)
    if end - start > 4 * (len(source) + len(target)):
        _move_sparse(source, target, float(start), float(end), float(to))
        return target
    current.vm.charge(end - start + 1)
    positions = range(end - start + 1)
    if to > start and to <= end and target is source:
        positions = positions[::-1]
    for at in positions:
        raw_assign(target, float(to + at), raw_get(source, float(start + at)))
    return target


def _move_sparse(source: LuaTable, target: LuaTable, start: float, end: float, to: float) -> None:
    """Move a range that is mostly empty."""
    charge_work((len(source) + len(target)) // 4)
    give_back_room(source)
    give_back_room(target)
    moved = {
        key - start + to: value
        for key, value in source.items()
        if key.__class__ is float and start <= key <= end and key.is_integer()
    }
    last = end - start + to
    for key in list(target):
        if key.__class__ is float and to <= key <= last and key not in moved and key.is_integer():
            raw_pop(target, key)
    for key, value in moved.items():
        raw_set(target, key, value)


def clear(*args: Any) -> tuple[()]:
    """Remove all entries; the table keeps its allocated size.

    Raises:
        RuntimeFault: The argument is not a table, or the table is frozen.
    """
    table = _writable(args, "clear")
    size = int(border(table))
    if size and not getattr(table, "_hint", 0.0):
        table._hint = float(1 << (size - 1).bit_length())
    table.clear()
    if table.__class__ is SlowTable:
        renew_class(table)
    return ()


def freeze(*args: Any) -> LuaTable:
    """Make a table read-only.

    Raises:
        RuntimeFault: The argument is not a table, the table is already frozen, or its metatable is
            protected.
    """
    table = arg.table(args, 0, "freeze")
    if table.__class__ is FrozenTable:
        arg.wrong(0, "freeze", "table is already frozen")
    if table.meta is not None and raw_get(table.meta, "__metatable") is not None:
        arg.wrong(0, "freeze", "table has a protected metatable")
    freeze_table(table)
    return table


def isfrozen(*args: Any) -> bool:
    """Return whether a table is read-only.

    Raises:
        RuntimeFault: The argument is not a table.
    """
    return arg.table(args, 0, "isfrozen").__class__ is FrozenTable


def clone(*args: Any) -> LuaTable:
    """Return a copy with the same metatable.

    Raises:
        RuntimeFault: The argument is not a table, or the metatable is protected.
    """
    table = arg.table(args, 0, "clone")
    if table.meta is not None and raw_get(table.meta, "__metatable") is not None:
        arg.wrong(0, "clone", "table has a protected metatable")
    current.vm.allocate(
        TABLE_BYTES + ENTRY_BYTES * len(table), FILLED_BYTES + _COPY_BYTES * len(table)
    )
    give_back_room(table)
    copy = LuaTable(table)
    copy._hint = getattr(table, "_hint", 0.0)
    if table.meta is not None:
        set_metatable(copy, table.meta)
    return copy


def getn(*args: Any) -> float:
    """Return the length of a sequence.

    Raises:
        RuntimeFault: The argument is not a table.
    """
    return border(arg.table(args, 0, "getn"))


def maxn(*args: Any) -> float:
    """Return the largest number among the keys.

    Raises:
        RuntimeFault: The argument is not a table.
    """
    table = arg.table(args, 0, "maxn")
    charge_work(len(table) // 16)
    give_back_room(table)
    return max((key for key in table if key.__class__ is float and key > 0.0), default=0.0)


def foreach(*args: Any) -> Any:
    """Call a function for each entry until it returns a value.

    Raises:
        RuntimeFault: The first argument is not a table, or the second is not a function.
        LuaError: The function fails.
    """
    table = arg.table(args, 0, "foreach")
    function = arg.function(args, 1, "foreach")
    current.vm.charge(len(table) + 1)
    return _call_each(function, table, (key for key in ordered_keys(table) if key in table))


def _call_each(function: Any, table: LuaTable, keys: Iterable[Any]) -> Any:
    for key in keys:
        result = first(call_unyieldable(function, key_value(key), raw_get(table, key)))
        if result is not None:
            return result
    return ()


def foreachi(*args: Any) -> Any:
    """Call a function for each index until it returns a value.

    Raises:
        RuntimeFault: The first argument is not a table, or the second is not a function.
        LuaError: The function fails.
    """
    table = arg.table(args, 0, "foreachi")
    function = arg.function(args, 1, "foreachi")
    size = int(border(table))
    current.vm.charge(size + 1)
    return _call_each(function, table, map(float, range(1, size + 1)))
