"""Operators for operands that the fast paths of generated code do not handle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from clawblox.luau.core import vectors
from clawblox.luau.core.errors import OutOfMemory, RuntimeFault
from clawblox.luau.core.limits import ENTRY_BYTES
from clawblox.luau.core.machine import call_unyieldable as call_hook
from clawblox.luau.core.machine import charge_reading, current
from clawblox.luau.core.numbers import (
    divide,
    floor_divide,
    format_number,
    modulo,
    raise_to,
    to_number,
)
from clawblox.luau.core.tables import border
from clawblox.luau.core.values import (
    LuaTable,
    Userdata,
    Vector,
    assign,
    check_key,
    describe_key,
    first,
    hooks,
    meta_equal,
    metamethod,
    table_key,
    truth,
    type_name,
)

MAX_STRING = 1 << 30
_COPIED, _SPREAD = 60, 40  # filled bytes per entry
_FEW_VALUES = 2  # of an interpolation that a step covers
_SMALL = 100  # bytes that the charge for a step covers


def _arithmetic(
    event: str, word: str, compute: Callable[[float, float], float]
) -> Callable[[Any, Any], Any]:
    """Build an operator for all values except vectors.

    Args:
        event: The metamethod.
        word: The operator's name in messages.
        compute: The operation on numbers.
    """

    def operate(left: Any, right: Any) -> Any:
        if left.__class__ is float and right.__class__ is float:
            return compute(left, right)
        handler = metamethod(left, event)
        if handler is None:
            handler = metamethod(right, event)
        if handler is not None:
            return first(call_hook(handler, left, right))
        a, b = to_number(left), to_number(right)
        if a is None or b is None:
            one, other = shown_type(left), shown_type(right)
            kinds = one if one == other else f"{one} and {other}"
            raise RuntimeFault(f"attempt to perform arithmetic ({word}) on {kinds}")
        return compute(a, b)

    operate.__name__ = word
    return operate


_add = _arithmetic("__add", "add", float.__add__)
_sub = _arithmetic("__sub", "sub", float.__sub__)
_mul = _arithmetic("__mul", "mul", float.__mul__)
_div = _arithmetic("__div", "div", divide)


def vector_operators(blanks: vectors.Blanks) -> dict[str, Callable[[Any, Any], Any]]:
    """Return the operators that create vectors, by their names in generated code.

    Args:
        blanks: Creates the vectors, initially without components.
    """
    return {
        "add": vectors.adding(_add, blanks),
        "sub": vectors.subtracting(_sub, blanks),
        "mul": vectors.multiplying(_mul, blanks),
        "div": vectors.dividing(_div, blanks),
    }


add, sub, mul, div = vector_operators(vectors.uncounted).values()
idiv = vectors.scaling(_arithmetic("__idiv", "idiv", floor_divide), floor_divide)
mod = _arithmetic("__mod", "mod", modulo)
power = _arithmetic("__pow", "pow", raise_to)


def minus(value: Any) -> Any:
    """Return ``-value``.

    Raises:
        RuntimeFault: The value is not a number, and has no ``__unm``.
    """
    if value.__class__ is Vector:
        return Vector(-value.x, -value.y, -value.z)
    handler = metamethod(value, "__unm")
    if handler is not None:
        return first(call_hook(handler, value, value))
    number = to_number(value)
    if number is None:
        raise RuntimeFault(f"attempt to perform arithmetic (unm) on {shown_type(value)}")
    return -number


def length(value: Any) -> float:
    """Return ``#value``.

    Raises:
        RuntimeFault: The value has no length, or its ``__len`` does not return a number.
    """
    if value.__class__ is LuaTable:
        return border(value)
    if value.__class__ is str:
        return float(len(value))
    handler = metamethod(value, "__len")
    if handler is not None:
        result = first(call_hook(handler, value))
        if result.__class__ is not float:
            raise RuntimeFault("'__len' must return a number")
        return float(result)
    if isinstance(value, LuaTable):
        return border(value)
    raise RuntimeFault(f"attempt to get length of a {shown_type(value)} value")


def equal(left: Any, right: Any) -> bool:
    """Return ``left == right`` for operands of different classes.

    Raises:
        LuaError: ``__eq`` fails.
    """
    if left.__class__ is bool or right.__class__ is bool:
        return left is right
    if left.__class__ is str and right.__class__ is str:
        return _equal_texts(left, right)
    if isinstance(left, LuaTable):
        return left is right or (isinstance(right, LuaTable) and meta_equal(left, right))
    if isinstance(left, Userdata):
        return left is right or (isinstance(right, Userdata) and meta_equal(left, right))
    return left is right or bool(left == right)


def _equal_texts(left: str, right: str) -> bool:
    if len(left) == len(right):
        charge_reading(len(left))
    return left == right


def raw_equal(left: Any, right: Any) -> bool:
    """Return ``rawequal(left, right)``."""
    if left is right:
        return bool(left == left) if left.__class__ in (float, Vector) else True
    if left.__class__ is not right.__class__ or left.__class__ is bool:
        return False
    if left.__class__ is str:
        return _equal_texts(left, right)
    return left.__class__ in (float, Vector) and bool(left == right)


def less(left: Any, right: Any) -> bool:
    """Return ``left < right``.

    Raises:
        RuntimeFault: The values cannot be compared.
    """
    if left.__class__ is right.__class__ and left.__class__ in (float, str):
        if left.__class__ is str:
            charge_reading(min(len(left), len(right)))
        return bool(left < right)
    return _compare(left, right, "__lt", "<")


def less_equal(left: Any, right: Any) -> bool:
    """Return ``left <= right``.

    Raises:
        RuntimeFault: The values cannot be compared.
    """
    if left.__class__ is right.__class__ and left.__class__ in (float, str):
        if left.__class__ is str:
            charge_reading(min(len(left), len(right)))
        return bool(left <= right)
    if metamethod(left, "__le") is None and metamethod(left, "__lt") is not None:
        return not _compare(right, left, "__lt", "<=")
    return _compare(left, right, "__le", "<=")


def _compare(left: Any, right: Any, event: str, sign: str) -> bool:
    if type_name(left) == type_name(right):
        handler = metamethod(left, event)
        if handler is not None and metamethod(right, event) is handler:
            return truth(first(call_hook(handler, left, right)))
    raise RuntimeFault(f"attempt to compare {shown_type(left)} {sign} {shown_type(right)}")


def _piece(value: Any) -> str | None:
    if value.__class__ is float:
        return format_number(value)
    return value if value.__class__ is str else None


def account_text(text: str) -> str:
    """Account for a new string; return it.

    Raises:
        OutOfMemory: The heap is full.
    """
    if len(text) > _SMALL:
        current.vm.allocate(len(text))
    return text


def join(pieces: list[str], separator: str = "") -> str:
    """Return pieces as one string.

    Raises:
        OutOfMemory: The heap is full.
    """
    size = sum(map(len, pieces)) + len(separator) * max(len(pieces) - 1, 0)
    if size > _SMALL:
        _allocate_text(size)
    return separator.join(pieces)


def _allocate_text(size: int) -> None:
    if size > MAX_STRING:
        raise OutOfMemory
    current.vm.allocate(size)


def concat(left: Any, right: Any) -> Any:
    """Return ``left .. right``.

    Raises:
        RuntimeFault: An operand is neither a string nor a number, and has no ``__concat``.
        OutOfMemory: The heap is full.
    """
    a, b = _piece(left), _piece(right)
    if a is not None and b is not None:
        size = len(a) + len(b)
        if size > _SMALL:
            _allocate_text(size)
        return a + b
    handler = metamethod(left, "__concat")
    if handler is None:
        handler = metamethod(right, "__concat")
    if handler is None:
        raise RuntimeFault(f"attempt to concatenate {shown_type(left)} with {shown_type(right)}")
    return first(call_hook(handler, left, right))


def concat_all(*values: Any) -> Any:
    """Return ``a .. b .. c``, evaluated right to left.

    Raises:
        RuntimeFault: An operand is neither a string nor a number, and has no ``__concat``.
        OutOfMemory: The heap is full.
    """
    pieces = []
    for value in values:
        if value.__class__ is str:
            pieces.append(value)
        elif value.__class__ is float:
            pieces.append(format_number(value))
        else:
            break
    else:
        return join(pieces)
    result = values[-1]
    for value in reversed(values[:-1]):
        result = concat(value, result)
    return result


def index(holder: Any, key: Any) -> Any:
    """Return ``holder[key]`` for any two values.

    Raises:
        RuntimeFault: The holder cannot be indexed, at least not with this key.
    """
    key = table_key(key)
    if holder.__class__ is str:
        return text_field(holder, key)
    try:
        read = type(holder).__getitem__
    except AttributeError:
        raise RuntimeFault(
            f"attempt to index {shown_type(holder)} with {describe_key(key)}"
        ) from None
    return read(holder, key)


def method(holder: Any, name: str) -> Any:
    """Return the function that ``holder:name()`` calls, for a holder other than a table.

    Raises:
        RuntimeFault: The holder cannot be indexed, at least not with this name.
    """
    if holder.__class__ is str:
        return text_field(holder, name)
    try:
        own_method = holder.find_method(name)
    except AttributeError:
        if hasattr(holder, "find_method"):
            raise
        return index(holder, name)
    return holder[name] if own_method is None else own_method


def put(holder: Any, key: Any, value: Any) -> None:
    """Carry out ``holder[key] = value`` for any values.

    Raises:
        RuntimeFault: The holder does not allow assignments, at least not with this key.
    """
    key = table_key(key)
    if holder.__class__ is LuaTable:
        check_key(key)
        if value is None:
            holder.pop(key, None)
        else:
            holder[key] = value
    elif isinstance(holder, LuaTable):
        assign(holder, key, value)
    else:
        write = getattr(type(holder), "__setitem__", None)
        if write is None:
            raise RuntimeFault(f"attempt to index {shown_type(holder)} with {describe_key(key)}")
        write(holder, key, value)


def text_field(text: str, key: Any) -> Any:
    """Return a field of a string: the entry of the string library with this name."""
    return current.vm.string_library[table_key(key)]


def table_without_nil(fields: dict[Any, Any]) -> LuaTable:
    """Return a new table with the fields other than nil."""
    table = LuaTable(fields)
    empty = [key for key, value in fields.items() if value is None]
    if empty:
        for key in empty:
            del table[key]
        table._hint = float(sum(key.__class__ is float for key in fields))
    return table


def account_table(table: LuaTable) -> LuaTable:
    """Account for a large table literal; return it.

    Raises:
        OutOfMemory: The heap is full.
    """
    current.vm.allocate(ENTRY_BYTES * len(table), _COPIED * len(table))
    return table


def place(table: LuaTable, key: Any, value: Any, positional: int | None) -> None:
    """Set a field of a table literal, unless a positional item has the same key.

    Args:
        table: The new table.
        key: The key.
        value: The value.
        positional: The number of positional items; None if `table_with` has counted them.

    Raises:
        RuntimeFault: The key is nil or NaN.
    """
    if positional is None:
        positional = int(getattr(table, "_hint", 0.0))
    if key.__class__ is not float or not (1.0 <= key <= positional and key.is_integer()):
        put(table, key, value)


def table_with(fields: dict[Any, Any], count: int, values: tuple[Any, ...]) -> LuaTable:
    """Return a new table with ``values`` after its ``count`` positional items.

    Raises:
        OutOfMemory: The heap is full.
    """
    table = table_without_nil(fields)
    current.vm.allocate(ENTRY_BYTES * len(values), _SPREAD * len(values))
    if len(values) + count:
        table._hint = float(len(values) + count)
    for position, value in enumerate(values, count + 1):
        if value is not None:
            table[float(position)] = value
    return table


def adjust(result: Any, count: int) -> tuple[Any, ...]:
    """Return exactly ``count`` values from a function's result."""
    if result.__class__ is not tuple:
        return take_values((result,), count)
    return result if len(result) == count else take_values(result, count)


def take_values(values: tuple[Any, ...], count: int) -> tuple[Any, ...]:
    """Return exactly ``count`` values, truncated or padded with nil."""
    missing = count - len(values)
    return values + (None,) * missing if missing > 0 else values[:count]


def shown_type(value: Any) -> str:
    """Return the ``typeof`` name of a value; the host names its own types."""
    if isinstance(value, Userdata):
        return value.type_name
    return current.vm.vectors.name if value.__class__ is Vector else type_name(value)


def to_text(value: Any) -> str:
    """Return ``tostring(value)``.

    Raises:
        RuntimeFault: ``__tostring`` does not return a string.
        LuaError: ``__tostring`` fails.
    """
    if value.__class__ is str:
        return str(value)
    if value.__class__ is float:
        return format_number(value)
    if value is None:
        return "nil"
    if value.__class__ is bool:
        return "true" if value else "false"
    handler = metamethod(value, "__tostring")
    if handler is not None:
        text = first(call_hook(handler, value))
        if text.__class__ is not str:
            raise RuntimeFault("'__tostring' must return a string")
        return str(text)
    if value.__class__ is Vector:
        return ", ".join(map(format_number, (value.x, value.y, value.z)))
    return current.vm.identify(value)


def interpolate(texts: tuple[str, ...], *values: Any) -> str:
    """Return the value of a backtick string.

    Raises:
        LuaError: ``__tostring`` of a value fails, or the heap is full.
    """
    if len(values) > _FEW_VALUES:
        current.vm.charge_work(len(values) // _FEW_VALUES)
    parts = [texts[0]]
    for text, value in zip(texts[1:], values, strict=True):
        parts += (to_text(value), text)
    return join(parts)


hooks["index"] = index
hooks["put"] = put
