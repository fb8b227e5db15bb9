"""The ``coroutine`` library."""

from __future__ import annotations

from typing import Any

from clawblox.luau.core.limits import COROUTINE_BYTES, NATIVE_BYTES
from clawblox.luau.core.machine import Coroutine, current, thread_environment
from clawblox.luau.core.values import as_result
from clawblox.luau.lib.support import arguments as arg
from clawblox.luau.runtime import coroutines
from clawblox.luau.runtime.coroutines import WrapFunction
from clawblox.luau.runtime.suspension import Yield

_STEPS_TO_RUN = 10  # of a coroutine, up to its end


def _new(args: arg.Arguments, function: str, size: int = COROUTINE_BYTES) -> Coroutine:
    vm = current.vm
    vm.charge_work(_STEPS_TO_RUN)
    vm.fill(size)
    return Coroutine(arg.function(args, 0, function), thread_environment())


def create(*args: Any) -> Coroutine:
    """Return a coroutine that will run a function.

    Raises:
        RuntimeFault: The argument is not a function.
    """
    return _new(args, "create")


def wrap(*args: Any) -> WrapFunction:
    """Return a function that resumes a new coroutine.

    Raises:
        RuntimeFault: The argument is not a function.
    """
    return WrapFunction(_new(args, "wrap", COROUTINE_BYTES + NATIVE_BYTES))


def resume(*args: Any) -> Any:
    """Resume a coroutine; return true and its values, or false and the error.

    Raises:
        RuntimeFault: The first argument is not a coroutine.
    """
    ok, values = coroutines.resume(arg.thread(args, 0, "resume"), args[1:])
    return (ok, *values)


def yield_(*args: Any) -> Any:
    """Suspend the running coroutine.

    Raises:
        Yield: The coroutine suspends.
        RuntimeFault: The coroutine may not yield here.
    """
    coroutines.check_yieldable()
    raise Yield(args)


def status(*args: Any) -> str:
    """Return the status of a coroutine.

    Raises:
        RuntimeFault: The argument is not a coroutine.
    """
    return arg.thread(args, 0, "status").status


def running(*_: Any) -> Any:
    """Return the running coroutine, or nil."""
    vm = current.vm
    return None if vm.running is vm.main_coroutine else vm.running


def isyieldable(*_: Any) -> bool:
    """Return whether the running coroutine may yield here."""
    vm = current.vm
    return vm.running is not None and vm.c_calls <= vm.base_c_calls


def close(*args: Any) -> Any:
    """Kill a coroutine; return true, or false and the error that killed it before.

    Raises:
        RuntimeFault: The argument is not a coroutine, or the coroutine is running or waiting for
            another coroutine.
    """
    return as_result(coroutines.close(arg.thread(args, 0, "close")))
