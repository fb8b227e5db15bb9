"""Checks and converts arguments, with Luau's messages. Positions count from 0."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from clawblox.luau.core.errors import RuntimeFault
from clawblox.luau.core.machine import Coroutine, current
from clawblox.luau.core.numbers import format_number, to_number
from clawblox.luau.core.operators import join, shown_type, to_text
from clawblox.luau.core.values import Buffer, LuaTable, Vector, is_function

T = TypeVar("T")

Arguments = tuple[Any, ...]
_BIGGEST = 2**63 - 1
_MAX_STACK = 8000
FEW = 8
_PRINTED_PER_STEP = 256  # bytes


def charge(args: Arguments) -> None:
    """Charge for more than a few arguments.

    Raises:
        LuaError: The call has used up its steps, or the host has interrupted it.
    """
    if len(args) > FEW:
        current.vm.charge_work(len(args) // 2)


def printed(args: Arguments) -> str:
    """Return arguments as one text in the form of ``print``, and charge for its length.

    Raises:
        LuaError: ``__tostring`` fails; or the call has used up its steps or its memory, or the host
            has interrupted it.
    """
    charge(args)
    text = join([to_text(value) for value in args], "\t")
    if len(text) >= _PRINTED_PER_STEP:
        current.vm.charge_work(len(text) // _PRINTED_PER_STEP)
    return text


def wrong_type(args: Arguments, at: int, function: str, wanted: str) -> NoReturn:
    """Refuse an argument that is missing or has the wrong type.

    Raises:
        RuntimeFault: Always.
    """
    if at >= len(args):
        raise RuntimeFault(f"missing argument #{at + 1} to '{function}' ({wanted} expected)")
    raise RuntimeFault(
        f"invalid argument #{at + 1} to '{function}' "
        f"({wanted} expected, got {shown_type(args[at])})"
    )


def wrong(at: int, function: str, why: str) -> NoReturn:
    """Refuse an argument's value.

    Raises:
        RuntimeFault: Always.
    """
    raise RuntimeFault(f"invalid argument #{at + 1} to '{function}' ({why})")


def check_results(args: Arguments, count: int, why: str) -> None:
    """Check that the results fit next to the arguments on the reference's stack.

    Raises:
        RuntimeFault: There is not enough room; ``why`` is the message.
    """
    if len(args) + count > _MAX_STACK:
        raise RuntimeFault(why)


def any_value(args: Arguments, at: int) -> Any:
    """Return a required argument of any type.

    Raises:
        RuntimeFault: The argument is missing.
    """
    if at >= len(args):
        raise RuntimeFault(f"missing argument #{at + 1}")
    return args[at]


def number(args: Arguments, at: int, function: str) -> float:
    """Return a number argument, or the number that a string contains.

    Raises:
        RuntimeFault: The argument is missing, or is not a number.
    """
    if at < len(args):
        value = args[at]
        if value.__class__ is float:
            return float(value)
        if value.__class__ is str:
            parsed = to_number(value)
            if parsed is not None:
                return parsed
    wrong_type(args, at, function, "number")


def optional_number(args: Arguments, at: int, function: str, default: float) -> float:
    """Return a number argument; a default if it is nil or missing.

    Raises:
        RuntimeFault: The argument is neither nil nor a number.
    """
    return default if at >= len(args) or args[at] is None else number(args, at, function)


def to_integer(value: float) -> int:
    """Return a number truncated to an integer and clamped to 64 bits."""
    if value != value:
        return 0
    if math.isinf(value):
        return _BIGGEST if value > 0 else -_BIGGEST
    return max(-_BIGGEST, min(_BIGGEST, int(value)))


def integer(args: Arguments, at: int, function: str) -> int:
    """Return a number argument truncated to an integer.

    Raises:
        RuntimeFault: The argument is missing, or is not a number.
    """
    return to_integer(number(args, at, function))


def optional_integer(args: Arguments, at: int, function: str, default: int) -> int:
    """Return an integer argument; a default if it is nil or missing.

    Raises:
        RuntimeFault: The argument is neither nil nor a number.
    """
    return default if at >= len(args) or args[at] is None else integer(args, at, function)


def position(value: int, length: int) -> int:
    """Return a position counted from 1; negative positions count from the end."""
    return value if value >= 0 else max(length + value + 1, 0)


def string(args: Arguments, at: int, function: str) -> str:
    """Return a string argument, or a number as text.

    Raises:
        RuntimeFault: The argument is missing, or is not a string.
    """
    if at < len(args):
        value = args[at]
        if value.__class__ is str:
            return str(value)
        if value.__class__ is float:
            return format_number(value)
    wrong_type(args, at, function, "string")


def optional_string(args: Arguments, at: int, function: str, default: str) -> str:
    """Return a string argument; a default if it is nil or missing.

    Raises:
        RuntimeFault: The argument is neither nil nor a string.
    """
    return default if at >= len(args) or args[at] is None else string(args, at, function)


def function(args: Arguments, at: int, name: str) -> Any:
    """Return a function argument.

    Raises:
        RuntimeFault: The argument is missing, or is not a function.
    """
    if at < len(args) and is_function(args[at]):
        return args[at]
    wrong_type(args, at, name, "function")


def numbers(args: Arguments, function: str, count: int) -> list[float]:
    """Return the first arguments, after checking that they are numbers.

    Raises:
        RuntimeFault: An argument is missing, or is not a number.
    """
    return [number(args, at, function) for at in range(count)]


def _reader(cls: type[T], wanted: str) -> Callable[[Arguments, int, str], T]:
    """Return a function that returns an argument of a class, and refuses other classes."""

    def read(args: Arguments, at: int, function: str) -> T:
        if at < len(args) and isinstance(args[at], cls):
            return args[at]  # type: ignore[no-any-return]
        wrong_type(args, at, function, wanted)

    return read


table = _reader(LuaTable, "table")
buffer = _reader(Buffer, "buffer")
vector = _reader(Vector, "vector")
thread = _reader(Coroutine, "thread")
