"""Functions that scripts call, with arguments checked before the Python function sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from clawblox.luau import LuaTable, Vector
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
        checks: One for each argument; a method's first is that of the object.
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
    """Return an argument of any type; nil for a missing one."""
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
