"""Checks of what a document says; the errors become a `SnapshotError` where it is read."""

from __future__ import annotations

from typing import Any

from clawblox.luau.core.iteration import is_position
from clawblox.luau.core.values import LuaTable, is_function

_MOST = 2**53
_CLASSES: dict[str, type] = {
    "num": float,
    "str": str,
    "bool": bool,
    "nil": type(None),
    "table": LuaTable,
}


def whole(saved: Any, most: int = _MOST) -> int:
    """Return a whole number from 0 to a largest one."""
    if saved.__class__ is not int or not 0 <= saved <= most:
        raise ValueError(f"{saved!r} is where a whole number up to {most} belongs")
    return int(saved)


def position(value: Any) -> float:
    """Return a number of elements."""
    if not is_position(value):
        raise ValueError(f"{value!r} is where a position belongs")
    return float(value)


def text(saved: Any) -> str:
    """Return a string of bytes."""
    if saved.__class__ is not str:
        raise TypeError(f"a {type(saved).__name__} is where a string belongs")
    saved.encode("latin-1")  # refuses characters that are no bytes
    return str(saved)


def items(saved: Any) -> list[Any]:
    """Return a list."""
    if saved.__class__ is not list:
        raise TypeError(f"a {type(saved).__name__} is where a list belongs")
    found: list[Any] = saved
    return found


def check_kind(kind: str, value: Any) -> None:
    """Check that a value is what a variable of a kind may hold."""
    if kind == "func":
        fits = is_function(value)
    elif kind == "counter":
        fits = value.__class__ is float and value == value
    else:
        fits = isinstance(value, _CLASSES.get(kind, object))
    if not fits:
        raise TypeError(f"a {type(value).__name__} is where a {kind} belongs")
