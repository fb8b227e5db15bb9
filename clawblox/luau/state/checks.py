"""Checks the parts of a document; the reader turns their errors into a `SnapshotError`."""

from __future__ import annotations

from typing import Any

from clawblox.luau.core.iteration import is_position
from clawblox.luau.core.values import LuaTable, is_function

_LARGEST = 2**53
_CLASSES: dict[str, type] = {
    "num": float,
    "str": str,
    "bool": bool,
    "nil": type(None),
    "table": LuaTable,
}
_NAMES = {
    "NoneType": "nil",
    "bool": "boolean",
    "float": "number",
    "int": "number",
    "str": "string",
    "list": "list",
    "dict": "object",
    "LuaTable": "table",
}


def mismatch(value: Any, wanted: str) -> TypeError:
    """Return the error that says that a value should have been something else."""
    kind = type(value).__name__
    return TypeError(f"expected a {wanted}, not a {_NAMES.get(kind, kind)}")


def whole(saved: Any, largest: int = _LARGEST) -> int:
    """Return a whole number.

    Raises:
        ValueError: It is no whole number from 0 to the largest.
    """
    if saved.__class__ is not int or not 0 <= saved <= largest:
        raise ValueError(f"expected a whole number from 0 to {largest}, not {saved!r}")
    return int(saved)


def position(value: Any) -> float:
    """Return a number of elements.

    Raises:
        ValueError: It is no whole number of the size of a table.
    """
    if not is_position(value):
        raise ValueError(f"expected a position in a table, not {value!r}")
    return float(value)


def text(saved: Any) -> str:
    """Return a string of bytes.

    Raises:
        TypeError: It is no string.
        ValueError: A character of it is no byte.
    """
    if saved.__class__ is not str:
        raise mismatch(saved, "string")
    saved.encode("latin-1")
    return str(saved)


def items(saved: Any) -> list[Any]:
    """Return a list.

    Raises:
        TypeError: It is no list.
    """
    if saved.__class__ is not list:
        raise mismatch(saved, "list")
    found: list[Any] = saved
    return found


def check_kind(kind: str, value: Any) -> None:
    """Check that a value is one that a variable may hold.

    Args:
        kind: A kind of `Variable`.
        value: The value.

    Raises:
        TypeError: It is not.
    """
    if kind == "func":
        fits = is_function(value)
    elif kind == "counter":
        fits = value.__class__ is float and value == value
    else:
        fits = isinstance(value, _CLASSES.get(kind, object))
    if not fits:
        raise mismatch(value, kind)
