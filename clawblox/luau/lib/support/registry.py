"""The names of all built-in functions, used as references in snapshots.

*Late names* are globals and library fields added since format 5 of documents. The document of a
sandboxed VM omits late names that scripts have not touched, and a restore adds them. They do not
count as memory either. New names therefore leave worlds and documents unchanged, and older worlds
get them. In a sandbox, late names come last in their tables, in the order of their list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import FunctionType, ModuleType
from typing import Any

from clawblox.luau.core.values import FrozenTable, LuaTable, freeze, raw_get, raw_pop, raw_set
from clawblox.luau.runtime.diagnose import BUILTIN_CODES

LATE_NAMES: tuple[str, ...] = (
    "gcinfo",
    "debug.profilebegin",
    "debug.profileend",
    "debug.setmemorycategory",
    "debug.resetmemorycategory",
    "utf8.graphemes",
)
"""Late names of the standard library, library fields with dots; new names come last."""


def place_late(
    names: Iterable[str], fresh: LuaTable, target: LuaTable
) -> dict[int, dict[str, Any]]:
    """Put late names last in the tables of a sandbox.

    Args:
        names: The names; names missing in `fresh` are ignored.
        fresh: The globals with the late names.
        target: The globals to which missing late names are added.

    Returns:
        The key and value of each late name by the id of its table, without names for which a
        document had another value.
    """
    places: list[tuple[LuaTable, str, Any]] = []
    for name in names:
        source, key = _find_table(fresh, name)
        table, _ = _find_table(target, name)
        value = None if source is None else raw_get(source, key)
        if value is None or table is None:
            continue
        if isinstance(value, LuaTable):
            freeze(value)
        raw_set(table, key, raw_pop(table, key, value))
        places.append((table, key, value))
    late: dict[int, dict[str, Any]] = {}
    for table, key, original in places:
        value = raw_get(table, key)
        if value is original or _is_copy(value, original):
            late.setdefault(id(table), {})[key] = value
    return late


def _find_table(globals_table: LuaTable, name: str) -> tuple[LuaTable | None, str]:
    """Return the table that contains a name, and its key in the table."""
    library, _, key = name.rpartition(".")
    table = raw_get(globals_table, library) if library else globals_table
    return (table if isinstance(table, LuaTable) else None), key


def _is_copy(value: Any, original: Any) -> bool:
    """Return whether a value is a late library from a document."""
    if value.__class__ is not FrozenTable or not isinstance(original, LuaTable):
        return False
    return value.meta is None and dict(value) == dict(original)


class Registry:
    """Built-in functions by full name, such as ``string.rep``.

    Attributes:
        functions: The functions in the globals of scripts.
        internal: Functions that scripts only get as values, such as the result of ``ipairs``.
    """

    def __init__(self) -> None:
        self.functions: dict[str, Any] = {}
        self.internal: dict[str, Any] = {}
        self._names: dict[int, str] = {}
        self._numbers: dict[str, int] = {}

    def add(self, name: str, function: Any, *, internal: bool = False) -> None:
        """Register a function."""
        (self.internal if internal else self.functions)[name] = function
        self._names[id(function)] = name
        BUILTIN_CODES[function.__code__] = name.rpartition(".")[2]

    def add_library(self, module: ModuleType) -> None:
        """Register the public functions that a module defines.

        A trailing underscore, used to avoid Python's own names, is dropped.
        """
        library = module.__name__.rpartition(".")[2]
        prefix = "" if library == "base" else f"{library}."
        for name, function in vars(module).items():
            is_own = getattr(function, "__module__", None) == module.__name__
            if is_own and isinstance(function, FunctionType) and not name.startswith("_"):
                self.add(prefix + name.removesuffix("_"), function)

    def find_name(self, function: Any) -> str | None:
        """Return the name of a built-in function, or None."""
        return self._names.get(id(function))

    def find(self, name: str) -> Any:
        """Return the function with a name, or None."""
        return self.functions.get(name) or self.internal.get(name)

    def serial_number(self, name: str) -> int:
        """Return the serial number of a function, the same in every VM.

        Raises:
            LookupError: The function does not exist.
        """
        if not self._numbers:
            names = sorted([*self.functions, *self.internal])
            names.sort(key=_late_place)
            self._numbers = {name: 0x1000 + 16 * at for at, name in enumerate(names)}
        return self._numbers[name]


def _late_place(name: str) -> int:
    """Return the position of a function or of its library among the late names, or -1."""
    places = (at for at, late in enumerate(LATE_NAMES) if f"{name}.".startswith(f"{late}."))
    return next(places, -1)


BUILTINS = Registry()


def install(name: str, function: Callable[..., Any]) -> None:
    """Register a function that is not a public function of a library's module.

    The function gets its own code object, to identify its name in tracebacks.
    """
    assert isinstance(function, FunctionType)
    function.__code__ = function.__code__.replace(co_name=name.rpartition(".")[2])
    BUILTINS.add(name, function)
