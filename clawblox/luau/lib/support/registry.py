"""The names of all built-in functions, by which snapshots refer to them."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

from clawblox.luau.lib.support.late import LATE_NAMES
from clawblox.luau.runtime.diagnose import BUILTIN_CODES


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
