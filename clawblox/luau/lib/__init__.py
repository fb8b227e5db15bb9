"""The standard library: one module per library, with Luau's names.

`build_globals` returns the globals of a new VM.

The public functions of a library's module are available to scripts under the same names, without
trailing underscores; `support.registry` registers them.

- `base`, `bit32`, `buffer`, `coroutine`, `debug`, `math`, `os`, `string`, `table`, `utf8`,
  `vector`: the functions in the globals of scripts
- `support`: code shared by several libraries, and the large functions of `string`

The ``Raises:`` sections of library functions list errors in arguments. Functions whose work grows
with their arguments also raise `LuaError` when the call has used up its steps or its memory.
"""

from __future__ import annotations

from clawblox.luau.core.values import LuaTable
from clawblox.luau.lib import (
    base,
    bit32,
    buffer,
    coroutine,
    debug,
    math,
    os,
    string,
    table,
    utf8,
    vector,
)
from clawblox.luau.lib.support import packing, textformat  # noqa: F401 - they register functions
from clawblox.luau.lib.support.registry import BUILTINS

for _library in (base, string, table, math, bit32, utf8, buffer, vector, coroutine, os, debug):
    BUILTINS.add_library(_library)


def build_globals() -> tuple[LuaTable, LuaTable]:
    """Return the globals of a new VM, and its string library."""
    globals_table = LuaTable()
    # Sorted, to make the order independent of the order of imports.
    functions = sorted(BUILTINS.functions.items())
    constants = math.CONSTANTS | utf8.CONSTANTS | vector.CONSTANTS
    for name, value in (*functions, *constants.items()):
        library, _, field = name.rpartition(".")
        table = globals_table.setdefault(library, LuaTable()) if library else globals_table
        table[field] = value
    globals_table["_VERSION"] = "Luau"
    globals_table["_G"] = globals_table
    globals_table["unpack"] = globals_table["table"]["unpack"]
    return globals_table, globals_table["string"]
