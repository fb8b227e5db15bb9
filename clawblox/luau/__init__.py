"""Luau in pure Python, with state that can be saved and restored; see `docs/luau.md`.

In import order, the package consists of `core`, `compiler`, `runtime`, `lib`, `state`, the module
`vm`, and the command in `__main__`. It does not import other packages of clawblox.
"""

from clawblox.luau.core.deep import run_deep
from clawblox.luau.core.errors import (
    HostError,
    LuaError,
    LuauSyntaxError,
    RuntimeFault,
    VMSnapshotError,
)
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
from clawblox.luau.core.vectors import make_vector
from clawblox.luau.runtime.chunk import Places
from clawblox.luau.runtime.coroutines import fail_call
from clawblox.luau.runtime.host import Host, HostObject, HostType, suspend
from clawblox.luau.runtime.raw import HostValue, VectorType, suspend_raw
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
    "HostValue",
    "LuaError",
    "LuaTable",
    "LuauSyntaxError",
    "NativeFunction",
    "Places",
    "RuntimeFault",
    "Userdata",
    "VMSnapshotError",
    "Vector",
    "VectorType",
    "fail_call",
    "make_vector",
    "run_deep",
    "suspend",
    "suspend_raw",
]
