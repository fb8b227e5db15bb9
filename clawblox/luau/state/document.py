"""The names that writing and reading a document share, and the VM as they see it."""

from __future__ import annotations

import hashlib
from types import FunctionType
from typing import Any, Protocol

from clawblox.luau.core.machine import Coroutine, Machine
from clawblox.luau.core.values import FrozenTable, LuaTable, MetaTable, SlowTable
from clawblox.luau.runtime.chunk import Chunk

NAME = "clawblox.luau"
CLASS_LETTERS: dict[type, str] = {LuaTable: "", MetaTable: "m", SlowTable: "s", FrozenTable: "f"}
"""The letters of the classes of tables in a document; a class made for one metatable is `o`."""

Json = Any


class WholeMachine(Machine, Protocol):
    """A VM with all the state that a document contains; `VM` documents the attributes."""

    globals: LuaTable
    string_library: LuaTable
    string_metatable: LuaTable
    main_coroutine: Coroutine | None
    roots: dict[str, Any]
    serials_given: int
    steps_since_collection: int
    allocated: int

    def compile(self, source: str, name: str) -> Chunk:
        """Compile a chunk without a charge.

        Raises:
            LuauSyntaxError: The source is not Luau.
        """


def digest(source: str) -> str:
    """Return the fingerprint by which a document identifies a source."""
    return hashlib.sha256(source.encode("latin-1")).hexdigest()


def read_serial(value: Any) -> int | None:
    """Return the serial number of an object; None while it has none."""
    if isinstance(value, FunctionType):
        serial: int | None = value.__dict__.get("serial")
        return serial
    return getattr(value, "_serial", None)


def set_serial(value: Any, serial: int) -> None:
    """Give an object a serial number.

    Raises:
        AttributeError: The value is not an object.
    """
    if isinstance(value, FunctionType):
        value.__dict__["serial"] = serial
    else:
        value._serial = serial
