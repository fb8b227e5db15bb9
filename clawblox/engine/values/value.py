"""The base of the value types: functions that check arguments, 32-bit rounding."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, TypeVar

from clawblox.engine.errors import suggest
from clawblox.luau import HostValue, LuaTable, RuntimeFault, Vector
from clawblox.luau.core.numbers import format_number
from clawblox.luau.core.values import describe_key, key_value
from clawblox.luau.lib.support import arguments as arg

Function = Callable[..., Any]
Check = Callable[[tuple[Any, ...], int, str], Any]
"""Gets all arguments, a position from 0 and the function's name; returns the argument."""

F = TypeVar("F", bound=Function)


Functions = dict[str, Function]
"""Functions by the name that scripts use."""


def checked(functions: Functions | LuaTable, name: str, *checks: Check) -> Callable[[F], F]:
    """Register a function that gets exactly the arguments that its checks return.

    Args:
        functions: Where to register it.
        name: The name in scripts and in messages.
        checks: A check for each argument; a method's first checks the object.
    """

    def register(function: F) -> F:
        checking = _with_checks(function, name, checks)
        checking.__wrapped__ = function  # type: ignore[attr-defined]  # for the reference
        functions[name] = checking
        return function

    return register


def _with_checks(function: Function, name: str, checks: tuple[Check, ...]) -> Function:
    if len(checks) == 1:
        (only,) = checks
        return lambda *args: function(only(args, 0, name))
    if len(checks) == 2:
        first, second = checks
        return lambda *args: function(first(args, 0, name), second(args, 1, name))
    places = tuple(enumerate(checks))
    return lambda *args: function(*[check(args, at, name) for at, check in places])


def instance_check(wanted: type[Any], type_name: str) -> Check:
    """Return a check for the objects of a class."""

    def check(args: tuple[Any, ...], at: int, name: str) -> Any:
        if at >= len(args) or not isinstance(args[at], wanted):
            arg.wrong_type(args, at, name, type_name)
        return args[at]

    return check


def any_value(args: tuple[Any, ...], at: int, name: str) -> Any:
    """Return an argument of any type; nil if it is missing."""
    return args[at] if at < len(args) else None


number: Check = arg.number
string: Check = arg.string
vector: Check = instance_check(Vector, "Vector3")
table: Check = instance_check(LuaTable, "table")


def optional(check: Check, default: Any) -> Check:
    """Return a check that gives a default for nil and for a missing argument."""

    def check_optional(args: tuple[Any, ...], at: int, name: str) -> Any:
        return default if at >= len(args) or args[at] is None else check(args, at, name)

    return check_optional


class Value(HostValue):
    """A value that is equal to any other of its type with the same contents.

    Attributes:
        getters: Its members by name, each as a function of the value.
        methods: Its methods by name.
    """

    __slots__ = ()

    getters: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}
    methods: ClassVar[Functions] = {}

    def __getitem__(self, key: Any) -> Any:
        getter = self.getters.get(key)
        if getter is not None:
            return getter(self)
        method = self.methods.get(key)
        if method is None:
            raise RuntimeFault(self._refusal(key))
        return method

    def __setitem__(self, key: Any, value: Any) -> None:
        if key in self.getters:
            raise RuntimeFault(f"{key} cannot be assigned to")
        raise RuntimeFault(self._refusal(key))

    def find_method(self, name: str) -> Function | None:
        """Return a method for a call ``value:name(…)``, or None."""
        return self.methods.get(name)

    def _refusal(self, key: Any) -> str:
        likely = suggest(key, self.names())
        return f"{describe_key(key_value(key))} is not a valid member of {self.type_name}{likely}"

    def names(self) -> Iterable[str]:
        """Return the names of its members."""
        return (*self.getters, *self.methods)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Value)
            and other.__class__ is self.__class__
            and self.contents() == other.contents()
        )


def operator(cls: type[HostValue], event: str, *checks: Check) -> Callable[[F], F]:
    """Register an operator of a type, such as ``__add``, as `checked` does."""
    return checked(vars(cls)["meta"], event, *checks)


def expect_contents(values: tuple[Any, ...], *classes: type[Any]) -> None:
    """Check the contents that a snapshot gives a value.

    Raises:
        TypeError: They are not exactly an object of each class.
    """
    if len(values) != len(classes) or not all(map(isinstance, values, classes)):
        raise TypeError(f"expected {', '.join(cls.__name__ for cls in classes)}")


def numbers_text(*numbers: float) -> str:
    """Return numbers as ``tostring`` shows them within a value."""
    return ", ".join(map(format_number, numbers))


_STRUCTS = [struct.Struct(f"{count}f") for count in range(13)]  # native: too large a number is inf


def singles(*values: float) -> tuple[float, ...]:
    """Return up to twelve numbers rounded to 32 bits."""
    packer = _STRUCTS[len(values)]
    return packer.unpack(packer.pack(*values))
