"""The ``debug`` library: ``info``, ``traceback``, and profiler functions without effect."""

from __future__ import annotations

import re
import sys
from itertools import islice
from types import FrameType
from typing import Any, NamedTuple

from clawblox.luau.core.errors import LuaError
from clawblox.luau.core.machine import Coroutine, current
from clawblox.luau.core.operators import to_text
from clawblox.luau.core.values import as_result, is_function
from clawblox.luau.lib.support import arguments as arg
from clawblox.luau.lib.support.registry import BUILTINS
from clawblox.luau.runtime.chunk import find_prototype
from clawblox.luau.runtime.diagnose import (
    Level,
    charged_levels,
    describe,
    frame_closure,
    stack,
    whole_function,
)
from clawblox.luau.runtime.host import lent_name

_OPTIONS = "slnaf"
_STEPS_PER_TRACEBACK = 8
_CALL = re.compile(r"(?P<source>.*):(?P<line>\d{1,9})(?: function (?P<name>.*))?")  # of a traceback
_HIDDEN_CALLS = re.compile(r"\.\.\. \(\+(\d{1,9}) frames\)")


def traceback(*args: Any) -> Any:
    """Return a message followed by the stack, starting at a level, as text.

    Raises:
        RuntimeFault: The level is not a number.
    """
    coroutine = args[0] if args and args[0].__class__ is Coroutine else None
    rest = args if coroutine is None else args[1:]
    message = rest[0] if rest else None
    if message is not None and message.__class__ not in (str, float):
        return message
    level = arg.optional_integer(rest, 1, "traceback", 1 if coroutine is None else 0)
    current.vm.charge_work(_STEPS_PER_TRACEBACK)
    text = _stack_text(coroutine, level, sys._getframe(1))
    return text if message is None else f"{to_text(message)}\n{text}"


def _stack_text(coroutine: Coroutine | None, level: int, frame: FrameType | None) -> str:
    if coroutine is None or coroutine is current.vm.running:
        pending = current.vm.error_stack
        levels = list(stack(frame))
        return (pending or "") + describe(levels[max(level - 1, 0) :])
    if coroutine.error is not None:
        return coroutine.error.traceback
    return describe(_coroutine_levels(coroutine)[max(level, 0) :])


def _coroutine_levels(coroutine: Coroutine) -> list[Level]:
    levels = charged_levels(coroutine.frames)
    return [Level("yield", None, -1, None), *levels] if levels else levels


def info(*args: Any) -> Any:
    """Return information about a function or a stack level, selected by letters of ``slnaf``.

    Raises:
        RuntimeFault: The subject is neither a function nor a level, or an option is unknown or
            doubled.
    """
    coroutine = args[0] if args and args[0].__class__ is Coroutine else None
    shift = 0 if coroutine is None else 1
    subject = args[shift] if len(args) > shift else None
    if is_function(subject):
        level: Level | _PastLevel = _function_level(subject)
    elif subject.__class__ is float:
        number = arg.integer(args, shift, "info")
        if number < 0:
            arg.wrong(shift, "info", "level can't be negative")
        arg.string(args, shift + 1, "info")
        selected = _level_at(coroutine, number, sys._getframe(1))
        if selected is None:
            return ()
        level = selected
    else:
        arg.wrong(shift, "info", "function or level expected")
    options = arg.string(args, shift + 1, "info")
    seen: set[str] = set()
    values: list[Any] = []
    for option in options:
        if option not in _OPTIONS or option in seen:
            why = "invalid option" if option not in _OPTIONS else "duplicate option"
            arg.wrong(shift + 1, "info", why)
        seen.add(option)
        values += _fact(option, level, subject)
    return as_result(tuple(values))


def profilebegin(*args: Any) -> tuple[()]:
    """Check the label; profiler sections are not supported.

    Raises:
        RuntimeFault: The label is not a string.
    """
    arg.string(args, 0, "profilebegin")
    return ()


def profileend(*_: Any) -> tuple[()]:
    """Do nothing, since profiler sections are not supported."""
    return ()


def setmemorycategory(*args: Any) -> str:
    """Return the name of the only memory category.

    Raises:
        RuntimeFault: The name is not a string.
    """
    arg.string(args, 0, "setmemorycategory")
    return "Default"


def resetmemorycategory(*_: Any) -> tuple[()]:
    """Do nothing, since there is only one memory category."""
    return ()


class _PastLevel(NamedTuple):
    """A call in the stack of a failed coroutine, known only by its text."""

    source: str
    line: int
    name: str


def _level_at(
    coroutine: Coroutine | None, number: int, frame: FrameType | None
) -> Level | _PastLevel | None:
    if coroutine is not None and coroutine is not current.vm.running:
        if coroutine.error is not None:
            return _past_level(coroutine.error, number)
        levels = _coroutine_levels(coroutine)
        return levels[number] if number < len(levels) else None
    if number == 0:
        return Level("info", None, -1, None)
    return next(islice(stack(frame), number - 1, None), None)


def _past_level(error: LuaError, number: int) -> _PastLevel | None:
    at = 0
    if error.raiser:
        if number == 0:
            return _PastLevel("[C]", -1, error.raiser)
        at = 1
    current.vm.charge_work(_STEPS_PER_TRACEBACK)
    for line in error.traceback.splitlines():
        if hidden := _HIDDEN_CALLS.fullmatch(line):
            at += int(hidden[1])
        elif call := _CALL.fullmatch(line):
            if at == number:
                return _PastLevel(call["source"], int(call["line"]), call["name"] or "")
            at += 1
    return None


def _function_level(function: Any) -> Level:
    prototype = find_prototype(function)
    if prototype is None:
        name = BUILTINS.find_name(function) or lent_name(function) or ""
        return Level(name.replace(":", ".").rpartition(".")[2], None, -1, None)
    return Level(prototype.name, prototype, prototype.line, None)


def _fact(option: str, level: Level | _PastLevel, subject: Any) -> list[Any]:
    if isinstance(level, _PastLevel):
        facts = {"s": level.source, "l": float(level.line), "n": level.name}
        return [facts.get(option)] * (2 if option == "a" else 1)
    prototype = level.prototype
    if option == "s":
        return ["[C]" if prototype is None else prototype.chunk.shown_name]
    if option == "l":
        return [float(level.line)]
    if option == "n":
        return [level.name]
    if option == "a":
        if prototype is None:
            return [0.0, True]
        return [float(prototype.parameters), prototype.is_vararg]
    return [subject if is_function(subject) else _function_at(level)]


def _function_at(level: Level) -> Any:
    frame = level.frame
    if frame is None:
        return BUILTINS.find(f"debug.{level.name}")
    if level.prototype is None and isinstance(frame, FrameType):
        builtins = [*BUILTINS.functions.values(), *BUILTINS.internal.values()]
        return next((item for item in builtins if item.__code__ is frame.f_code), None)
    return whole_function(frame_closure(frame))
