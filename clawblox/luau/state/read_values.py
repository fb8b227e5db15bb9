"""Reads the values in a document: those in tables, upvalues and variables."""

from __future__ import annotations

import math
from typing import Any, TypeVar

from clawblox.luau.core.errors import VMSnapshotError
from clawblox.luau.core.iteration import is_position
from clawblox.luau.core.values import TYPE_NAMES, LuaTable, check_key, flag, is_function
from clawblox.luau.core.vectors import make_vector
from clawblox.luau.lib.support.registry import BUILTINS
from clawblox.luau.runtime.chunk import Chunk, Prototype
from clawblox.luau.runtime.host import Host
from clawblox.luau.runtime.raw import VectorType
from clawblox.luau.state.snapshot import Json

T = TypeVar("T")

_LARGEST = 2**53
_CLASSES: dict[str, type] = {
    "num": float,
    "str": str,
    "bool": bool,
    "nil": type(None),
    "table": LuaTable,
}
_NAMES = {**TYPE_NAMES, int: "number", list: "list", dict: "object"}


def mismatch(value: Any, wanted: str) -> TypeError:
    """Return the error for a value of the wrong type."""
    kind = type(value)
    return TypeError(f"expected a {wanted}, not a {_NAMES.get(kind, kind.__name__)}")


def whole(saved: Any, largest: int = _LARGEST) -> int:
    """Return a whole number.

    Raises:
        ValueError: The value is not a whole number from 0 to the largest.
    """
    if saved.__class__ is not int or not 0 <= saved <= largest:
        raise ValueError(f"expected a whole number from 0 to {largest}, not {saved!r}")
    return int(saved)


def position(value: Any) -> float:
    """Return a number of elements.

    Raises:
        ValueError: The value is not a whole number in the range of table sizes.
    """
    if not is_position(value):
        raise ValueError(f"expected a position in a table, not {value!r}")
    return float(value)


def text(saved: Any) -> str:
    """Return a string of bytes.

    Raises:
        TypeError: The value is not a string.
        ValueError: A character is not a byte.
    """
    if saved.__class__ is not str:
        raise mismatch(saved, "string")
    saved.encode("latin-1")
    return str(saved)


def items(saved: Any) -> list[Any]:
    """Return a list.

    Raises:
        TypeError: The value is not a list.
    """
    if saved.__class__ is not list:
        raise mismatch(saved, "list")
    item: list[Any] = saved
    return item


def check_kind(kind: str, value: Any) -> None:
    """Check that a variable may contain a value.

    Args:
        kind: A kind of `Variable`.
        value: The value.

    Raises:
        TypeError: The value has another kind.
    """
    if kind == "func":
        fits = is_function(value)
    elif kind == "counter":
        fits = value.__class__ is float and value == value
    else:
        fits = isinstance(value, _CLASSES.get(kind, object))
    if not fits:
        raise mismatch(value, kind)


def required(item: T | None, fault: str) -> T:
    """Return an item named by the document, after checking that it exists.

    Raises:
        VMSnapshotError: The item is None.
    """
    if item is None:
        raise VMSnapshotError(fault)
    return item


HIDDEN = object()
"""Placeholder among the values for an object hidden from scripts."""
_UNUSUAL = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class ValueReader:
    """Finds the values that a document refers to."""

    def __init__(self, host: Host | None, vectors: VectorType) -> None:
        self._host = Host() if host is None else host
        self._functions = {**vectors.functions, **self._host.functions}
        self.chunks: list[Chunk] = []
        self.objects: list[Any] = []
        self.values: list[Any] = []  # the same, with `HIDDEN` for objects hidden from scripts

    def value(self, saved: Json) -> Any:
        """Return the Luau value for its form in a document.

        Raises:
            VMSnapshotError: The kind is unknown, or the host lacks the value.
            TypeError, ValueError, LookupError: The document is damaged.
        """
        kind = saved.__class__
        if kind is float or kind is bool or saved is None:
            return saved
        if kind is str:
            return saved if saved.isascii() else text(saved)
        if kind is int:
            return float(saved)
        if kind is not list:
            raise mismatch(saved, "value")
        kind = saved[0]
        if kind == "r":
            item = self.values[whole(saved[1])]
            if item is HIDDEN:
                raise TypeError(f"object {saved[1]} is not a value")
            return item
        if kind == "b":
            return required(
                BUILTINS.find(saved[1]),
                f"the document uses an unknown built-in function {saved[1]!r}",
            )
        if kind == "n":
            return _UNUSUAL[saved[1]]
        if kind == "v":
            x, y, z = (self.value_of_type(part, float, "number") for part in saved[1:])
            return make_vector(x, y, z)
        if kind == "h":
            name = text(saved[1])
            return required(self._functions.get(name), f"the host has no function {name!r}")
        if kind == "o":
            name, ident = text(saved[1]), text(saved[2])
            item = self._host.find_object(ident)
            return required(item, f"the host has no {name} with the id {ident!r}")
        raise VMSnapshotError(f"the document has a value of unknown kind {kind!r}")

    def value_of_type(self, saved: Json, kinds: type | tuple[type, ...], wanted: str) -> Any:
        """Return a value that must have certain classes, named ``wanted`` in errors.

        Raises:
            TypeError: The value has another class.
            VMSnapshotError, ValueError, LookupError: As for `value`.
        """
        value = self.value(saved)
        if not isinstance(value, kinds):
            raise mismatch(value, wanted)
        return value

    def key(self, saved: Json) -> Any:
        """Return a table key.

        Raises:
            LuaError: The key is nil or NaN.
            VMSnapshotError, TypeError, ValueError, LookupError: As for `value`.
        """
        key = flag(saved) if saved.__class__ is bool else self.value(saved)
        check_key(key)
        return key

    def object(self, number: Json) -> Any:
        """Return an object by number, including objects hidden from scripts.

        Raises:
            ValueError, LookupError: The object does not exist.
        """
        return self.objects[whole(number)]

    def referenced(self, saved: Json) -> Any:
        """Return the object of a reference, including objects hidden from scripts.

        Raises:
            TypeError, ValueError, LookupError: The value is not a reference to an object.
        """
        kind, number = saved
        if kind != "r":
            raise TypeError(f"expected a reference to an object, not {kind!r}")
        return self.object(number)

    def prototype(self, chunk: Json, index: Json) -> Prototype:
        """Return a function's prototype by the number of its chunk and its own number.

        Raises:
            ValueError, LookupError: The chunk, or the function in it, does not exist.
        """
        return self.chunks[whole(chunk)].prototypes[whole(index)]
