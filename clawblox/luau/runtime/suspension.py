"""Turns running code into data.

A `Yield` passes through the Python stack, and each generated function, ``pcall`` and ``xpcall`` on
the way adds a frame to the exception.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import CellType, FunctionType
from typing import Any

from clawblox.luau.core.limits import CHARGED_COPY
from clawblox.luau.core.machine import SuspendedFrame, current
from clawblox.luau.core.values import Function, as_tuple
from clawblox.luau.runtime.chunk import Continuation, Prototype

_LINES_PER_STEP = 2  # of generated code


class Yield(BaseException):
    """The exception with which a coroutine suspends.

    Attributes:
        values: The yielded values.
        frames: The frames added so far, innermost first.
    """

    def __init__(self, values: tuple[Any, ...]) -> None:
        super().__init__()
        self.values = values
        self.frames: list[SuspendedFrame] = []


@dataclass(slots=True, eq=False)
class ScriptFrame(SuspendedFrame):
    """A Luau function suspended at a call.

    Attributes:
        continuation: The rest of the function.
        values: The variables needed by the rest.
        environment: The cell of the globals, shared with the function.
    """

    continuation: Continuation
    values: list[Any]
    environment: CellType

    def rest(self, result: Any) -> tuple[Callable[[Any], Any], Any]:
        """Return the rest of the function and its variables, dropping all other references."""
        return self.continuation.function(self.environment), [*self.values, result]


@dataclass(slots=True, eq=False)
class ProtectedFrame(SuspendedFrame):
    """A suspended ``pcall``, or ``xpcall`` with its handler."""

    handler: Function | None

    def rest(self, result: Any) -> tuple[Callable[[Any], Any], Any]:
        """Return the function that reports success."""
        return lambda value: (True, *as_tuple(value)), result


def save_frame(
    suspended: Yield, prototype: Prototype, variables: dict[str, Any], environment: FunctionType
) -> None:
    """Add the frame of a function to a `Yield` that is passing through it.

    Args:
        suspended: The exception.
        prototype: The function.
        variables: Its variables.
        environment: A closure over its globals alone. Its creation also gives each calling function
            a reference to the globals for ``getfenv`` and ``setfenv``.

    Raises:
        LuaError: The call has used up its steps or its memory, or the host has interrupted it.
    """
    trace = suspended.__traceback__
    assert trace is not None
    unit = prototype.chunk.units[trace.tb_frame.f_code.co_filename]
    site = unit.sites[trace.tb_lineno]
    assert site is not None, "only calls can suspend"
    suspended.__traceback__ = None
    continuation = prototype.continuation(site.ordinal)
    if (
        continuation.length > CHARGED_COPY
    ):  # every time, because a restored VM must compile it again
        current.vm.charge_work(continuation.length // _LINES_PER_STEP)
    values = [variables.get(name) for name in continuation.names]
    (cell,) = environment.__closure__ or ()
    suspended.frames.append(ScriptFrame(continuation, values, cell))
