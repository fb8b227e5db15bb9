"""A call that fails while its coroutine is suspended in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from clawblox.luau.core.errors import LuaError
from clawblox.luau.core.machine import Coroutine, Frame
from clawblox.luau.runtime.diagnose import suspended_levels


class FailedCall(Frame):
    """Stands for the call in which a coroutine is suspended, and fails instead of returning.

    Args:
        error: The error.
    """

    __slots__ = ("_error",)

    def __init__(self, error: LuaError) -> None:
        self._error = error

    def rest(self, result: Any) -> tuple[Callable[[Any], Any], Any]:
        """Fail."""
        self._fail()

    def _fail(self) -> NoReturn:
        raise self._error


def fail_call(coroutine: Coroutine, error: LuaError) -> None:
    """Let the host's call in which a coroutine is suspended fail; then resume the coroutine.

    The error appears in the script as if the host function had raised it. The host resumes the
    coroutine at once: a snapshot in between is impossible.

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
