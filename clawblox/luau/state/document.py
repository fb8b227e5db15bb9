"""The names that writing and reading a document share."""

from __future__ import annotations

import hashlib
from typing import Any

from clawblox.luau.core.values import FrozenTable, LuaTable, MetaTable, SlowTable

NAME = "clawblox.luau"
CLASS_LETTERS: dict[type, str] = {LuaTable: "", MetaTable: "m", SlowTable: "s", FrozenTable: "f"}
"""The letters of the classes of tables in a document; a class made for one metatable is `o`."""

Json = Any


def digest(source: str) -> str:
    """Return the fingerprint by which a document identifies a source."""
    return hashlib.sha256(source.encode("latin-1")).hexdigest()
