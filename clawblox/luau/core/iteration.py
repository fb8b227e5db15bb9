"""Loops: the numbers of a numeric ``for``, and the three kinds of generic ``for``.

An iterator object is a variable of its loop, so a suspended loop is saved with it. ``again``
repeats the current iteration and then yields the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any

from clawblox.luau.core.errors import RuntimeFault
from clawblox.luau.core.limits import CHARGED_COPY
from clawblox.luau.core.machine import call_unyieldable, current
from clawblox.luau.core.numbers import to_number
from clawblox.luau.core.operators import adjust, shown_type
from clawblox.luau.core.tables import border, give_back_room, repack
from clawblox.luau.core.values import (
    FALSE_KEY,
    TRUE_KEY,
    Flag,
    Function,
    LuaTable,
    Userdata,
    is_function,
    key_value,
    metamethod,
    raw_get,
)

CALL = object()  # the key of an iteration in which the loop has to call its iterator function
ONCE = (None,)
_CACHED = 4096
FLOATS = tuple(map(float, range(_CACHED)))
_CHUNK = 1024
_EXACT = 2.0**53
_LEAST_SEARCHES = 16  # between two repackings
_SEARCHES_PER_ROOT = 4  # of the number of keys
_ROOT_PER_STEP = 32
_KEYS_PER_STEP = 8
_POSITION_BYTES = 40  # of a list of positions
builtin_iterators: dict[str, Function] = {}  # `next` and the function `ipairs` returns


def charge_work(steps: int) -> None:
    """Charge library work that neither runs scripts nor fills tables.

    Raises:
        LuaError: The call has used up its steps or its memory, or the host has interrupted it.
    """
    current.vm.charge_work(steps)


def count(start: Any, limit: Any, step: Any) -> Any:
    """Return the numbers of ``for i = start, limit, step``.

    Raises:
        RuntimeFault: A bound is not a number.
    """
    if not (start.__class__ is float and limit.__class__ is float and step.__class__ is float):
        return count(*_bounds(start, limit, step))
    if step == 1.0:
        if not start <= limit:
            return ()
        if start.is_integer() and start > -_EXACT and limit < _EXACT:
            first, last = int(start), math.floor(limit)
            if first >= 0 and last < _CACHED:
                current.vm.charge(last - first + 1)
                return FLOATS[first : last + 1]
            return chain.from_iterable(_whole_numbers(first, last))
    return _steps(start, limit, step)


def count_on(value: float, limit: Any, step: Any) -> Any:
    """Return the number of the current iteration and all following numbers.

    Raises:
        RuntimeFault: A bound is not a number.
    """
    if not (limit.__class__ is float and step.__class__ is float):
        value, limit, step = _bounds(value, limit, step)
    return chain((value,), count(value + step, limit, step))


def _bounds(start: Any, limit: Any, step: Any) -> list[float]:
    bounds = []
    for value, what in ((limit, "limit"), (step, "step"), (start, "initial value")):
        number = to_number(value)
        if number is None:
            raise RuntimeFault(f"invalid 'for' {what} (number expected, got {shown_type(value)})")
        bounds.append(number)
    return [bounds[2], *bounds[:2]]


def _whole_numbers(first: int, last: int) -> Iterator[Any]:
    while first <= last:
        size = min(_CHUNK, last - first + 1)
        current.vm.charge(size)
        yield map(float, range(first, first + size))
        first += size


def _steps(value: float, limit: float, step: float) -> Iterator[float]:
    while value <= limit if step > 0.0 else limit <= value:
        current.vm.charge(1)
        yield value
        value += step


class LoopIterator:
    """A running generic ``for``."""

    __slots__ = ()

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        raise NotImplementedError

    def again(self, key: Any, value: Any) -> Iterator[tuple[Any, Any]]:
        """Return the current iteration and the rest."""
        return chain(((key, value),), iter(self))


@dataclass(slots=True, eq=False)
class FunctionLoop(LoopIterator):
    """Loops with an iterator function; the loop's code makes the calls because they may yield."""

    function: Any
    state: Any
    control: Any

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return repeat((CALL, None))

    def take(self, result: Any, count: int) -> tuple[Any, ...]:
        """Store the control variable from a call's result; return ``count`` values."""
        values = adjust(result, count)
        self.control = values[0]
        return values


@dataclass(slots=True, eq=False)
class TableLoop(LoopIterator):
    """Loops over the keys that a table had at the start, reading each value in its iteration."""

    state: LuaTable
    keys: list[Any]
    _position: Any = None

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        table = self.state  # no removals since its keys were listed
        return self._entries(TRUE_KEY in table or FALSE_KEY in table)

    def again(self, key: Any, value: Any) -> Iterator[tuple[Any, Any]]:
        """Return the current iteration and the rest."""
        self.keys = self.rest()
        return chain(((key, value),), self._entries(Flag in map(type, self.keys)))

    def _entries(self, has_flags: bool) -> Iterator[tuple[Any, Any]]:
        keys = self.keys
        current.vm.charge(len(keys) + 1)
        shown = [key_value(key) for key in keys] if has_flags else keys
        self._position = position = iter(shown)
        return zip(position, map(self.state.get, keys))  # noqa: B905 - to pass `strict` takes time

    def rest(self) -> list[Any]:
        """Return the remaining keys."""
        if self._position is None:
            return self.keys
        left = self._position.__length_hint__()
        return self.keys[len(self.keys) - left :]


@dataclass(slots=True, eq=False)
class SequenceLoop(LoopIterator):
    """Loops over 1, 2, 3, … up to the first nil."""

    state: LuaTable
    control: float

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return _entries_in_order(self.state.get, int(self.control) + 1)

    def again(self, key: Any, value: Any) -> Iterator[tuple[Any, Any]]:
        """Return the current iteration and the rest."""
        self.control = key
        return LoopIterator.again(self, key, value)


def _entries_in_order(get: Callable[[float], Any], start: int) -> Iterator[tuple[Any, Any]]:
    """Read the values from a position on, charging for positions in advance."""
    size = 16
    while True:
        current.vm.charge(size)
        stop = start + size
        for number in FLOATS[start:stop] if stop < _CACHED else map(float, range(start, stop)):
            value = get(number)
            if value is None:
                return
            yield number, value
        start = stop
        size = min(size * 2, _CHUNK)


def is_position(control: Any) -> bool:
    """Return whether a control value is valid in a loop over positions."""
    return control.__class__ is float and 0.0 <= control < _EXACT and control.is_integer()


def iterate(function: Any, state: Any, control: Any, *, is_call: bool = False) -> LoopIterator:
    """Return the iterator of ``for … in function, state, control``.

    Args:
        function: An iterator function, or a value that can be iterated over.
        state: Its first argument.
        control: The first control value.
        is_call: Whether the loop is written with ``pairs``, ``ipairs`` or ``next``, and therefore
            requires a function.

    Raises:
        RuntimeFault: The value cannot be iterated over.
    """
    if function is builtin_iterators["next"] and control is None and isinstance(state, LuaTable):
        return TableLoop(state, ordered_keys(state))
    is_sequence = function is builtin_iterators["inext"] and isinstance(state, LuaTable)
    if is_sequence and is_position(control):
        return SequenceLoop(state, control)
    if is_function(function):
        return FunctionLoop(function, state, control)
    handler = metamethod(function, "__iter")
    if handler is not None:
        function, state, control = adjust(call_unyieldable(handler, function), 3)
        if function is None:
            raise RuntimeFault("attempt to call a nil value")
        if isinstance(function, LuaTable):
            return FunctionLoop(function, state, control)
        return iterate(function, state, control)
    if metamethod(function, "__call") is not None:
        return FunctionLoop(function, state, control)
    if isinstance(function, LuaTable) and not is_call:
        return TableLoop(function, ordered_keys(function))
    if callable(function) and not isinstance(function, (LuaTable, Userdata, float, str)):
        return FunctionLoop(function, state, control)
    raise RuntimeFault(f"attempt to iterate over a {shown_type(function)} value")


def ordered_keys(table: LuaTable) -> list[Any]:
    """Return a table's keys: 1 to its length, then the rest in order of insertion.

    Large numbers of empty positions are charged.

    Raises:
        LuaError: The call has used up its steps or its memory, or the host has interrupted it.
    """
    give_back_room(table)
    size = int(border(table))
    empty = size - len(table)
    if empty >= CHARGED_COPY and current.vm is not None:  # otherwise the host is reading
        current.vm.allocate(_POSITION_BYTES * empty)
        current.vm.charge_work(empty // _KEYS_PER_STEP)
    keys = list(table)
    if not size:
        return keys
    sequence = FLOATS[1 : size + 1] if size < _CACHED else tuple(map(float, range(1, size + 1)))
    if tuple(keys[:size]) == sequence:
        return keys
    return [
        *sequence,
        *(
            key
            for key in keys
            if not (key.__class__ is float and 1.0 <= key <= size and key.is_integer())
        ),
    ]


def next_entry(table: LuaTable, key: Any) -> Any:
    """Return the result of ``next(table, key)`` for a table key.

    Raises:
        RuntimeFault: The table does not have the key.
    """
    cursor: Cursor | None = getattr(table, "_cursor", None)
    if key is None:
        cursor = table._cursor = _first_cursor(table, cursor)
        position = 0
    else:
        position = cursor.after(key) if cursor is not None else -1
        if cursor is None or position < 0:
            cursor = table._cursor = Cursor(_charged_keys(table))
            position = cursor.after(key)
            if position < 0:
                raise RuntimeFault("invalid key to 'next'")
        elif len(cursor.keys) == 1:
            cursor.keys += [other for other in _charged_keys(table) if other != key]
    keys = cursor.keys
    for at in range(position, len(keys)):
        value = raw_get(table, keys[at])
        if value is not None:
            cursor.position = at
            return key_value(keys[at]), value
    del table._cursor
    return None


def _first_cursor(table: LuaTable, last: Cursor | None) -> Cursor:
    """Return a cursor with only the first of a table's keys.

    Most calls only check whether the table is empty. A search from the start also visits the slots
    of removed keys, so the table is repacked from time to time. The cost of a search is up to the
    square root of the number of keys, and is charged.
    """
    key: Any = 1.0
    searches = 0
    if not border(table):
        searches = 0 if last is None else last.searches
        root = math.isqrt(len(table))
        if root >= _ROOT_PER_STEP:
            charge_work(root // _ROOT_PER_STEP)
        if searches % (_LEAST_SEARCHES + _SEARCHES_PER_ROOT * root) == 0:
            repack(table)
        key = next(iter(table), None)
        searches += 1
    keys = _charged_keys(table) if raw_get(table, key) is None else [key]
    return Cursor(keys, searches=searches)


def _charged_keys(table: LuaTable) -> list[Any]:
    charge_work(len(table) // _KEYS_PER_STEP)
    return ordered_keys(table)


@dataclass(slots=True, eq=False)
class Cursor:
    """The position of ``next`` in a table.

    Attributes:
        keys: The table's keys, or only the first.
        position: The position among the keys.
        searches: Number of searches for the first key, without effects visible to scripts.
    """

    keys: list[Any]
    position: int = 0
    searches: int = 0

    def after(self, key: Any) -> int:
        """Return the position after a key; -1 if the key is missing."""
        at = self.position
        if at < len(self.keys) and self.keys[at] == key:
            return at + 1
        charge_work(len(self.keys) // 16)
        try:
            return self.keys.index(key) + 1
        except ValueError:
            return -1
