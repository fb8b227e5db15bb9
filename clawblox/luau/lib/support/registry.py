"""The names of all built-in functions, by which snapshots refer to them.

*Late names* are globals and fields of libraries that scripts have got since format 5 of documents.
A document of a sandboxed VM leaves out a late name that no script has touched, and a restore puts
it back; nor does it count as memory. So worlds and documents stay the same when a name is added,
and older ones get it. In a sandbox, late names come last in their tables, in the order of their
list.
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
"""Late names of the standard library, dotted below a library; new ones come last."""


def place_late(
    names: Iterable[str], fresh: LuaTable, target: LuaTable
) -> dict[int, dict[str, Any]]:
    """Put late names last in the tables of a sandbox.

    Args:
        names: The names; what `fresh` lacks is ignored.
        fresh: The globals that have them.
        target: The globals that get those that they lack.

    Returns:
        The key and the value of each late name, by the id of its table; without those for which
        a document had another value.
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
    """Return the table that has a name, and its key there."""
    library, _, key = name.rpartition(".")
    table = raw_get(globals_table, library) if library else globals_table
    return (table if isinstance(table, LuaTable) else None), key


def _is_copy(value: Any, original: Any) -> bool:
    """Return whether a value is a late library that was in a document."""
    if value.__class__ is not FrozenTable or not isinstance(original, LuaTable):
        return False
    return value.meta is None and dict(value) == dict(original)


class Registry:
    """Built-in functions by full name, such as ``string.rep``.

    Attributes:
        functions: The functions that a script finds in its globals.
        internal: Functions that it only gets as values, such as the one ``ipairs`` returns.
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

        A trailing underscore, where Python has a word of the same name, is dropped.
        """
        library = module.__name__.rpartition(".")[2]
        prefix = "" if library == "base" else f"{library}."
        for name, function in vars(module).items():
            is_own = getattr(function, "__module__", None) == module.__name__
            if is_own and isinstance(function, FunctionType) and not name.startswith("_"):
                self.add(prefix + name.removesuffix("_"), function)

    def find_name(self, function: Any) -> str | None:
        """Return a function's name; None if it is not built in."""
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
    """Return the place of a function among the late names, with its parts; -1 if it is not late."""
    places = (at for at, late in enumerate(LATE_NAMES) if f"{name}.".startswith(f"{late}."))
    return next(places, -1)


BUILTINS = Registry()


def install(name: str, function: Callable[..., Any]) -> None:
    """Register a function other than the public functions of a library's module.

    It gets code of its own, by which tracebacks find its name.
    """
    assert isinstance(function, FunctionType)
    function.__code__ = function.__code__.replace(co_name=name.rpartition(".")[2])
    BUILTINS.add(name, function)
