"""Luau in pure Python, with state that can be saved and restored; `docs/luau.md` explains it.

Rooms, each of which imports only those before it: `core`, `compiler`, `runtime`, `lib`, `state`;
then the modules `vm`, `reference_globals` and `cli`. This package needs nothing of the others.
"""

from clawblox.luau.core.deep import run_deep
from clawblox.luau.core.errors import HostError, LuaError, LuauSyntaxError, SnapshotError
from clawblox.luau.core.machine import Coroutine
from clawblox.luau.core.values import (
    FALSE_KEY,
    TRUE_KEY,
    Buffer,
    LuaTable,
    NativeFunction,
    Userdata,
    Vector,
)
from clawblox.luau.runtime.host import Host, HostObject, HostType, suspend
from clawblox.luau.vm import VM

__all__ = [
    "FALSE_KEY",
    "TRUE_KEY",
    "VM",
    "Buffer",
    "Coroutine",
    "Host",
    "HostError",
    "HostObject",
    "HostType",
    "LuaError",
    "LuaTable",
    "LuauSyntaxError",
    "NativeFunction",
    "SnapshotError",
    "Userdata",
    "Vector",
    "run_deep",
    "suspend",
]
