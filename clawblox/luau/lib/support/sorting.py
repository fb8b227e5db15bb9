"""``table.sort``: the reference's introsort, with the same order of equal elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from clawblox.luau.core.errors import RuntimeFault
from clawblox.luau.core.iteration import charge_work
from clawblox.luau.core.limits import BYTES_PER_STEP, LONG_TEXT, STEP_BYTES
from clawblox.luau.core.machine import call_unyieldable, current
from clawblox.luau.core.operators import less as less_than
from clawblox.luau.core.values import LuaTable, first, truth

_Less = Callable[[Any, Any], bool]


def charge_sorting(size: int, comparator: Any) -> None:
    """Charge for sorting a sequence.

    Raises:
        LuaError: The call has used up its steps, or the host has interrupted it.
    """
    if size > 1:
        comparisons = size * size.bit_length()
        charge_work(comparisons if comparator is not None else comparisons // 4)


def sort_values(values: list[Any], comparator: Any, table: LuaTable) -> None:
    """Sort a table's values in place, by a Luau function or by ``<``.

    Args:
        values: The values of the table's sequence.
        comparator: The function; None for ``<``.
        table: The table, whose size must not change during the sort.

    Raises:
        RuntimeFault: Values cannot be compared, the comparator is inconsistent, or it changes the
            table.
        LuaError: The comparator fails, or a limit is reached.
    """
    if comparator is None:
        kinds = {value.__class__ for value in values}
        if kinds == {str}:  # one comparison per element and binary digit of the size
            long = sum(len(value) for value in values if len(value) >= LONG_TEXT)
            charge_work(long // BYTES_PER_STEP * len(values).bit_length())
        if kinds == {str} or (kinds == {float} and not any(value != value for value in values)):
            values.sort()
            return
        charge_sorting(len(values), less_than)
        _sort(values, _charged(less_than))
    else:
        size = len(table)

        def less(a: Any, b: Any) -> bool:
            result = call_unyieldable(comparator, a, b)
            if len(table) != size:
                raise RuntimeFault("table modified during sorting")
            return truth(first(result))

        _sort(values, _charged(less))


def _charged(less: _Less) -> _Less:
    """Return a comparison that accounts for the memory that each script call may fill."""
    vm = current.vm

    def charged(a: Any, b: Any) -> bool:
        vm.allocate(STEP_BYTES)
        return less(a, b)

    return charged


def _sort(values: list[Any], less: _Less) -> None:
    pending = [(0, len(values) - 1, len(values))]
    while pending:
        low, high, limit = pending.pop()
        while low < high:
            if limit == 0:
                _heap_sort(values, low, high, less)
                break
            middle = _order_three(values, low, high, less)
            if high - low <= 2:
                break
            pivot = _partition(values, low, high, middle, less)
            limit = (limit >> 1) + (limit >> 2)
            if pivot - low < high - pivot:
                pending.append((pivot + 1, high, limit))
                high = pivot - 1
            else:
                pending.append((low, pivot - 1, limit))
                low = pivot + 1


def _swap(values: list[Any], a: int, b: int) -> None:
    values[a], values[b] = values[b], values[a]


def _order_three(values: list[Any], low: int, high: int, less: _Less) -> int:
    """Sort the first, middle and last element; return the middle index."""
    if less(values[high], values[low]):
        _swap(values, high, low)
    middle = low + ((high - low) >> 1)
    if high - low == 1:
        return middle
    if less(values[middle], values[low]):
        _swap(values, middle, low)
    elif less(values[high], values[middle]):
        _swap(values, middle, high)
    return middle


def _partition(values: list[Any], low: int, high: int, middle: int, less: _Less) -> int:
    at = high - 1
    _swap(values, middle, at)
    pivot = values[at]
    i, j = low, high - 1
    while True:
        i += 1
        while less(values[i], pivot):
            if i >= high:
                raise RuntimeFault("invalid order function for sorting")
            i += 1
        j -= 1
        while less(pivot, values[j]):
            if j <= low:
                raise RuntimeFault("invalid order function for sorting")
            j -= 1
        if j < i:
            break
        _swap(values, i, j)
    _swap(values, at, i)
    return i


def _heap_sort(values: list[Any], low: int, high: int, less: _Less) -> None:
    count = high - low + 1
    for root in range(count // 2 - 1, -1, -1):
        _sift(values, low, count, root, less)
    for last in range(count - 1, 0, -1):
        _swap(values, low, low + last)
        _sift(values, low, last, 0, less)


def _sift(values: list[Any], low: int, count: int, root: int, less: _Less) -> None:
    while root * 2 + 2 < count:
        following = root
        for child in (root * 2 + 1, root * 2 + 2):
            if less(values[low + following], values[low + child]):
                following = child
        if following == root:
            break
        _swap(values, low + root, low + following)
        root = following
    last = root * 2 + 1
    if last == count - 1 and less(values[low + root], values[low + last]):
        _swap(values, low + root, low + last)
