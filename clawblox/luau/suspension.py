"""How running code becomes data.

A `Yield` passes through the Python stack, and every generated function, ``pcall`` and ``xpcall``
on its way leaves a frame behind.
"""

from __future__ import annotations

from typing import Any

from clawblox.luau.chunk import Continuation, Prototype
from clawblox.luau.errors import LuaError
from clawblox.luau.values import Function, as_tuple


class Yield(BaseException):
    """A coroutine's way out.

    Attributes:
        values: What it yields.
        frames: The frames left behind so far, innermost first.
    """

    def __init__(self, values: tuple[Any, ...]) -> None:
        super().__init__()
        self.values = values
        self.frames: list[Frame] = []


class Frame:
    """Something suspended that waits for the result of a call."""

    __slots__ = ()

    def resume(self, result: Any) -> Any:
        """Go on with the result of the call, in the form functions return it."""
        raise NotImplementedError

    def recover(self, error: LuaError) -> Any:
        """Turn an error of the call into a result, or raise it again."""
        raise error


class ScriptFrame(Frame):
    """A Luau function suspended at a call."""

    __slots__ = ("continuation", "values")

    def __init__(self, continuation: Continuation, values: list[Any]) -> None:
        self.continuation = continuation
        self.values = values

    def resume(self, result: Any) -> Any:
        """Run the rest of the function."""
        return self.continuation.function(result, *self.values)


class ProtectedFrame(Frame):
    """A suspended ``pcall``, or ``xpcall`` with its handler."""

    __slots__ = ("handler",)

    def __init__(self, handler: Function | None) -> None:
        self.handler = handler

    def resume(self, result: Any) -> Any:
        """Report success."""
        return (True, *as_tuple(result))

    def recover(self, error: LuaError) -> Any:
        """Report the error, or what the handler makes of it."""
        if self.handler is None:
            return False, error.value
        return handled(self.handler, error)


def save(suspended: Yield, prototype: Prototype, variables: dict[str, Any], _: Any) -> None:
    """Leave the frame of the function a `Yield` is passing through.

    Its globals are the last argument, so that every function that calls another has them at hand:
    ``getfenv`` and ``setfenv`` look for them there.
    """
    trace = suspended.__traceback__
    assert trace is not None
    unit = prototype.chunk.units[trace.tb_frame.f_code.co_filename]
    site = unit.sites[trace.tb_lineno]
    assert site is not None, "only calls can suspend"
    suspended.__traceback__ = None
    continuation = prototype.continuation(site.ordinal)
    suspended.frames.append(
        ScriptFrame(continuation, [variables.get(name) for name in continuation.names])
    )


def handled(handler: Function, error: LuaError) -> Any:
    """Return what ``xpcall`` returns for an error."""
    from clawblox.luau.diagnose import run_handler

    return run_handler(handler, error)
