"""Resumes, suspends and closes coroutines."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from clawblox.luau.core.deep import COUNTS_C_CALLS, MAX_CALLS, call_limit
from clawblox.luau.core.errors import LuaError, RuntimeFault
from clawblox.luau.core.limits import ERROR_BYTES, FRAME_BYTES
from clawblox.luau.core.machine import MAX_C_CALLS, Coroutine, SuspendedFrame, current
from clawblox.luau.core.values import NativeFunction, as_result, as_tuple
from clawblox.luau.runtime.diagnose import (
    RESUME_CODES,
    describe,
    run_handler,
    suspended_levels,
    to_luau_error,
)
from clawblox.luau.runtime.suspension import ProtectedFrame, Yield

_MAX_LEVELS = 1000  # of a traceback
_FEW_FRAMES = 4  # covered by the charge for a coroutine
_MOST_CALLS_BELOW = 200  # coroutines started deeper do not get their own calls


@dataclass(slots=True, eq=False, repr=False)
class WrapFunction(NativeFunction):
    """The function that ``coroutine.wrap`` returns."""

    coroutine: Coroutine

    def held(self) -> tuple[Any, ...]:
        """Return the values that its state keeps alive."""
        return (self.coroutine,)

    def __call__(self, *values: Any) -> Any:
        """Resume the coroutine; return its values or raise its error."""
        ok, result = resume(self.coroutine, values)
        if ok:
            return as_result(result)
        error = result[0]
        fault = LuaError(error, located=False)  # texts get the caller's position
        if self.coroutine.error is not None:
            fault.traceback = self.coroutine.error.traceback
        raise fault


def check_yieldable() -> None:
    """Check that the running coroutine may yield here.

    Raises:
        RuntimeFault: Called outside coroutines, or a callback is active in the coroutine.
    """
    vm = current.vm
    if vm.running is None:
        raise RuntimeFault("attempt to yield from outside a coroutine")
    if vm.c_calls > vm.base_c_calls:
        raise RuntimeFault("attempt to yield across metamethod/C-call boundary")


def resume(coroutine: Coroutine, values: tuple[Any, ...]) -> tuple[bool, tuple[Any, ...]]:
    """Run a coroutine until it yields, returns or fails.

    Returns:
        Whether it succeeded, and the values that it yielded or returned, or the error value.

    Raises:
        BaseException: The host's own code raised an exception; the coroutine is dead.
    """
    if coroutine.status != "suspended":
        what = "dead" if coroutine.status == "dead" else "non-suspended"
        return False, (f"cannot resume {what} coroutine",)
    vm = current.vm
    if vm.c_calls >= MAX_C_CALLS:
        return False, ("C stack overflow",)
    outer, outer_base = vm.running, vm.base_c_calls
    if outer is not None:
        outer.status = "normal"
    vm.running = coroutine
    coroutine.status = "running"
    vm.c_calls += 1
    vm.base_c_calls = vm.c_calls
    depth, extra_calls = vm.depth, vm.extra_calls
    if outer is not None and coroutine.function is not None:
        _allow_own_calls()
    try:
        outcome = True, as_tuple(_run(coroutine, values))
        coroutine.status = "dead"
    except Yield as suspended:
        coroutine.frames += reversed(suspended.frames)
        if len(suspended.frames) > _FEW_FRAMES:
            vm.fill(FRAME_BYTES * len(suspended.frames))
        coroutine.status = "suspended"
        return True, suspended.values
    except BaseException as error:
        coroutine.frames.clear()
        coroutine.status = "dead"
        if not isinstance(error, LuaError):
            raise
        coroutine.error = error.with_traceback(None)  # it would keep the stack alive
        vm.fill(ERROR_BYTES + len(error.traceback))
        outcome = False, (error.value,)
    finally:
        vm.c_calls -= 1
        vm.running, vm.base_c_calls, vm.depth = outer, outer_base, depth
        if vm.extra_calls != extra_calls:
            vm.extra_calls, vm.has_headroom = extra_calls, False
            sys.setrecursionlimit(call_limit() + extra_calls)
        if outer is not None:
            outer.status = "running"
    if coroutine.ended is not None:
        coroutine.ended(*outcome)
    return outcome


def _allow_own_calls() -> None:
    """Allow a coroutine that starts within another the same depth of calls."""
    vm = current.vm
    frame = sys._getframe(1)
    calls = 1
    while frame.f_code not in RESUME_CODES:
        if frame.f_back is None or calls > _MOST_CALLS_BELOW:
            return
        calls += 1 + (COUNTS_C_CALLS and frame.f_code is _WRAP_CODE)
        frame = frame.f_back
    vm.depth, vm.has_headroom = 0, False
    vm.extra_calls += calls
    sys.setrecursionlimit(call_limit() + vm.extra_calls)


def _run(coroutine: Coroutine, values: tuple[Any, ...]) -> Any:
    """Run a coroutine to its end; a `Yield` is raised with the frames added so far."""
    result: Any = as_result(values)
    frames = coroutine.frames
    vm = current.vm
    base = vm.c_calls
    if coroutine.function is not None:
        function, coroutine.function = coroutine.function, None
        try:
            return function(*values)
        except Exception as error:  # noqa: BLE001 - re-raises errors of the host
            raise to_luau_error(error) from None
    while frames:
        try:
            function, argument = frames.pop().rest(result)
            result = None
            if len(frames) >= MAX_CALLS:
                raise RuntimeFault("stack overflow")
            result = function(argument)
        except Exception as error:  # noqa: BLE001
            vm.c_calls = base
            result = _recover(frames, to_luau_error(error))
    return result


def _recover(frames: list[SuspendedFrame], error: LuaError) -> Any:
    """Unwind to the innermost ``pcall``; return its result."""
    left: list[SuspendedFrame] = []
    while frames and not isinstance(frames[-1], ProtectedFrame):
        left.append(frames.pop())
    error.traceback += describe(suspended_levels(left[:_MAX_LEVELS][::-1]))
    if not frames:
        raise error
    protected = frames.pop()
    assert isinstance(protected, ProtectedFrame)
    if protected.handler is None:
        return False, error.value
    return run_handler(protected.handler, error)


def close(coroutine: Coroutine) -> tuple[Any, ...]:
    """Kill a coroutine that is not running.

    Returns:
        True; or False and the error that had killed it.

    Raises:
        RuntimeFault: The coroutine is running, or waiting for a coroutine that it has resumed.
    """
    if coroutine.status not in ("suspended", "dead"):
        raise RuntimeFault(f"cannot close {coroutine.status} coroutine")
    error, coroutine.error = coroutine.error, None
    was_suspended = coroutine.status == "suspended"
    coroutine.status = "dead"
    coroutine.function = None
    coroutine.frames = []
    if was_suspended and coroutine.ended is not None:
        coroutine.ended(False, ("the thread was closed",))
    return (True,) if error is None else (False, error.value)


RESUME_CODES.add(_run.__code__)
_WRAP_CODE = WrapFunction.__call__.__code__


@dataclass(slots=True, eq=False)
class FailedCall(SuspendedFrame):
    """A frame that replaces a coroutine's suspended call, and fails instead of returning.

    Args:
        error: The error.
    """

    error: LuaError

    def rest(self, result: Any) -> tuple[Callable[[Any], Any], Any]:
        """Raise the error."""
        raise self.error


def fail_call(coroutine: Coroutine, error: LuaError) -> None:
    """Make the host call in which a coroutine is suspended fail on resumption.

    The error appears in the script as if the host function had raised it. The host must resume the
    coroutine immediately, since a snapshot in between is impossible.

    Args:
        coroutine: A coroutine that a host function has suspended.
        error: The error; a `RuntimeFault` gets the position of the call.
    """
    if not error.located and isinstance(error.value, str):
        (level,) = suspended_levels(coroutine.frames[-1:]) or (None,)
        if level is not None and level.prototype is not None:
            error.value = f"{level.prototype.chunk.shown_name}:{level.line}: {error.value}"
            error.args = (error.value,)
        error.located = True
    coroutine.frames.append(FailedCall(error))
