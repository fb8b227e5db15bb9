"""Raw functions: plain Python functions that scripts call directly, with Luau values."""

from __future__ import annotations

from types import FunctionType
from typing import Any

from clawblox.luau.core.errors import HostError
from clawblox.luau.runtime.coroutines import check_yieldable
from clawblox.luau.runtime.diagnose import BUILTIN_CODES, RAW_NAMES
from clawblox.luau.runtime.suspension import Yield


def make_raw(name: str, function: Any) -> FunctionType:
    """Give a plain Python function the name by which snapshots and messages refer to it.

    Returns:
        The function itself.

    Raises:
        HostError: It is no plain function, or has another name already.
    """
    if not isinstance(function, FunctionType):
        raise HostError(
            f"{name}: a raw function is made with def or lambda; "
            f"this is a {type(function).__name__}, so wrap it in one"
        )
    known = raw_name(function)
    if known not in (None, name):
        raise HostError(f"{name}: this function is registered as {known!r} already")
    if known is None:
        # Functions made by one def share their code, which tells them apart in stacks.
        function.__code__ = function.__code__.replace(co_name=name)
        function.__qualname__ = name
        function.__dict__["raw_name"] = name
        BUILTIN_CODES[function.__code__] = name.replace(":", ".").rpartition(".")[2]
        RAW_NAMES.add(name)
    return function


def raw_name(function: FunctionType) -> str | None:
    """Return the name of a raw function; None for any other function."""
    name: str | None = function.__dict__.get("raw_name")
    return name


def suspend_raw(*values: Any) -> Yield:
    """Return the exception that a raw function raises to suspend the calling coroutine.

    Args:
        values: The Luau values to yield. When the coroutine is resumed with other values, those
            are the result of the raw function.

    Raises:
        LuaError: The coroutine cannot be suspended here.
    """
    check_yieldable()
    return Yield(values)
