"""Errors in the terms of the script: positions, messages, and the Luau stack.

Python exceptions from generated code are translated here, when they are caught, without cost for
code without errors.
"""

from __future__ import annotations

import ast as python
import gc
import sys
from collections.abc import Iterator
from itertools import islice
from types import CodeType, FrameType, FunctionType, TracebackType
from typing import Any, NamedTuple

from clawblox.luau.compiler.ir import Writer
from clawblox.luau.core.errors import LuaError, OutOfMemory, RuntimeFault
from clawblox.luau.core.limits import OBJECT_BYTES
from clawblox.luau.core.machine import current, thread_environment
from clawblox.luau.core.operators import shown_type
from clawblox.luau.core.values import TYPE_NAMES, Function, as_tuple, describe_key, first, key_value
from clawblox.luau.runtime.chunk import (
    Prototype,
    checked,
    closure_cells,
    environment_cell,
    is_continuation,
    is_generated,
    locate,
)
from clawblox.luau.runtime.suspension import ScriptFrame

_PYTHON_TYPES = {kind.__name__: name for kind, name in TYPE_NAMES.items()}
BUILTIN_CODES: dict[CodeType, str] = {}  # the names of built-in functions by their Python code
RAW_NAMES: set[str] = set()  # of raw functions; messages of Python start with them
RESUME_CODES: set[CodeType] = set()  # the code at which a coroutine's stack starts
_MISSING_LIBRARIES = {"integer": "64-bit integers", "class": "classes"}
_MAX_TRACEBACK = 22
_MAX_TRACED = 1000  # levels in an error's traceback
_LEVELS_PER_CHARGE = 16
_STEPS_PER_LEVEL = 2
_STEPS_PER_ERROR = 30
_STEPS_PER_LINK = 4
_STEPS_TO_TRANSLATE = 100  # for reading a Python exception


class Level(NamedTuple):
    """A call in the Luau stack; built-in functions lack a prototype and have line -1."""

    name: str
    prototype: Prototype | None
    line: int
    frame: FrameType | ScriptFrame | None


def to_luau_error(error: BaseException) -> LuaError:
    """Return an exception from the VM as a Luau error with its position.

    Raises:
        BaseException: The exception itself, if the script did not cause it.
    """
    if isinstance(error, LuaError):
        fault = error
    elif isinstance(error, RecursionError):
        fault = RuntimeFault("stack overflow")
    elif isinstance(error, MemoryError):
        fault = OutOfMemory()
    elif isinstance(error, TypeError):
        fault = _translate_type_error(error)
    else:
        raise error
    current.vm.fill(OBJECT_BYTES)
    current.vm.take_steps(_STEPS_PER_ERROR + (0 if error is fault else _STEPS_TO_TRANSLATE))
    if not fault.traceback:
        levels = _error_levels(error)
        fault.traceback = describe(levels)
        if levels and levels[0].prototype is None:
            fault.raiser = levels[0].name
    if not fault.located:
        if isinstance(fault.value, str):
            fault.value = _position(error) + fault.value
            fault.args = (fault.value,)
        fault.located = True
    if error is not fault:
        error.__traceback__ = None
    fault.__traceback__ = None
    fault.__context__ = None
    return fault


def _links(error: BaseException) -> list[TracebackType]:
    links = []
    trace = error.__traceback__
    while trace is not None:
        links.append(trace)
        trace = trace.tb_next
    return links


def _position(error: BaseException) -> str:
    for link in reversed(_links(error)):
        code = link.tb_frame.f_code
        if is_generated(code):
            prototype, line = locate(link.tb_frame, link.tb_lineno)
            return f"{prototype.chunk.shown_name}:{line}: "
        following = link.tb_next
        if code in BUILTIN_CODES and following and following.tb_frame.f_code in BUILTIN_CODES:
            return ""
    return ""


def _translate_type_error(error: TypeError) -> LuaError:
    """Translate a TypeError raised by generated code itself."""
    links = _links(error)
    last = links[-1].tb_frame if links else None
    text = str(error)
    if last is not None and not is_generated(last.f_code) and not _is_own(last):
        raise error
    name, _, complaint = text.partition("() ")
    if name in RAW_NAMES:
        return RuntimeFault(f"invalid arguments to '{name}': {complaint}")
    in_script = last is not None and is_generated(last.f_code)
    if text.endswith("object is not callable"):
        if in_script:
            return _call_fault(links[-1], text)
        return RuntimeFault(f"attempt to call a {_named_type(text)} value")
    if not in_script:
        raise error
    if "argument" in text:
        return RuntimeFault(f"invalid arguments to a host function: {text}")
    if "subscriptable" in text or "item assignment" in text or "indices must be" in text:
        return _index_fault(links[-1], text)
    raise error


def _is_own(frame: FrameType) -> bool:
    """Return whether a frame belongs to this package, so its callee may come from a script."""
    return str(frame.f_globals.get("__name__")).startswith("clawblox.luau.")


def _named_type(text: str) -> str:
    name = text.partition("'")[2].partition("'")[0]
    return current.vm.vectors.name if name == "Vector" else _PYTHON_TYPES.get(name, "userdata")


def _call_fault(link: TracebackType, text: str) -> LuaError:
    unit = link.tb_frame.f_globals["CHUNK"].units[link.tb_frame.f_code.co_filename]
    site = unit.sites[link.tb_lineno]
    kind = _named_type(text)
    if site is None or site.method is None or kind != "nil":
        return RuntimeFault(f"attempt to call a {kind} value")
    holder = link.tb_frame.f_locals[site.receiver]
    explain = getattr(holder, "explain_missing", None)  # of `HostObject`
    if explain is not None:
        return RuntimeFault(explain(site.method))
    return RuntimeFault(f"attempt to call missing method '{site.method}' of {shown_type(holder)}")


def _evaluate(node: python.expr, frame: FrameType) -> Any:
    code = compile(python.Expression(node), "<operand>", "eval")
    return eval(code, frame.f_globals, dict(frame.f_locals))  # noqa: S307 - our own text


def _index_fault(link: TracebackType, text: str) -> LuaError:
    frame = link.tb_frame
    unit = frame.f_globals["CHUNK"].units[frame.f_code.co_filename]
    kind = "string" if text.startswith("string") else _named_type(text)
    try:
        node = _failed_subscript(link, unit)
        key = key_value(_evaluate(node.slice, frame))
    except (SyntaxError, NameError, IndexError, TypeError, AttributeError):
        return RuntimeFault(f"attempt to index {kind}")
    line = unit.text[link.tb_lineno - 1]
    why = _missing_library(python.unparse(node.value), line) if kind == "nil" else ""
    return RuntimeFault(f"attempt to index {kind} with {describe_key(key)}{why}")


def _missing_library(variable: str, line: str) -> str:
    """Return why the global read by a line is nil; empty if the script decides."""
    for library, feature in _MISSING_LIBRARIES.items():
        if f"({variable} := E['{library}'])" in line:
            return f": {feature} are not supported"
    return ""


def _failed_subscript(link: TracebackType, unit: Writer) -> python.Subscript:
    """Return the ``a[b]`` that failed, found by its position in the line."""
    code = link.tb_frame.f_code
    positions = list(code.co_positions())[link.tb_lasti // 2]
    line = unit.text[link.tb_lineno - 1]
    piece = line.encode()[positions[2] : positions[3]].decode()
    parsed = python.parse(piece.strip()).body[0]
    node = parsed.value if isinstance(parsed, python.Expr) else None
    if isinstance(parsed, python.Assign) and isinstance(parsed.targets[0], python.Subscript):
        return parsed.targets[0]
    if not isinstance(node, python.Subscript):
        raise TypeError
    return node


# The stack


def stack(frame: FrameType | None) -> Iterator[Level]:
    """Iterate over the Luau stack of a coroutine, innermost call first.

    Long stacks cost steps.

    Args:
        frame: The Python frame to start at.

    Raises:
        LuaError: The call has used up its steps or its memory, or the host has interrupted it.
    """
    vm = current.vm
    levels = 0
    while frame is not None and frame.f_code not in RESUME_CODES:
        level = _level(frame)
        if level is not None:
            levels += 1
            if not levels % _LEVELS_PER_CHARGE:
                vm.charge_work(_LEVELS_PER_CHARGE * _STEPS_PER_LEVEL)
            yield level
        frame = frame.f_back
    if vm.running is not None:
        yield from charged_levels(vm.running.frames)


def charged_levels(frames: list[Any]) -> list[Level]:
    """Return the Luau stack of suspended frames, innermost first, and charge steps.

    Raises:
        LuaError: The call has used up its steps or its memory, or the host has interrupted it.
    """
    if len(frames) >= _LEVELS_PER_CHARGE:
        current.vm.charge_work(len(frames) * _STEPS_PER_LEVEL)
    return suspended_levels(frames)


def _level(frame: FrameType, line: int | None = None) -> Level | None:
    code = frame.f_code
    if is_generated(code):
        prototype, place = locate(frame, line)
        return Level(prototype.name, prototype, place, frame)
    name = BUILTIN_CODES.get(code)
    return None if name is None else Level(name, None, -1, frame)


def find_environment(frame: FrameType | ScriptFrame | None) -> Any:
    """Return the globals of a running or suspended function, for None those of the thread."""
    if isinstance(frame, ScriptFrame):
        return frame.environment.cell_contents
    environment = frame.f_locals.get("E") if frame is not None else None
    return thread_environment() if environment is None else environment


def calling_environment() -> Any:
    """Return the globals of the running script function, or those of the thread."""
    levels = stack(sys._getframe(1))
    return find_environment(next((level.frame for level in levels if level.prototype), None))


def suspended_levels(frames: list[Any]) -> list[Level]:
    """Return the Luau stack of suspended frames, innermost first."""
    levels = []
    for frame in reversed(frames):
        if isinstance(frame, ScriptFrame):
            prototype = frame.continuation.prototype
            levels.append(Level(prototype.name, prototype, frame.continuation.line, frame))
        else:
            levels.append(Level("pcall" if frame.handler is None else "xpcall", None, -1, None))
    return levels


def describe(levels: list[Level]) -> str:
    """Return a traceback with one call per line."""
    lines = []
    for level in levels:
        if level.prototype is None:
            continue
        place = f"{level.prototype.chunk.shown_name}:{level.line}"
        lines.append(f"{place} function {level.name}" if level.name else place)
    if len(lines) > _MAX_TRACEBACK:
        hidden = len(lines) - _MAX_TRACEBACK + 2
        lines = [*lines[:10], f"... (+{hidden} frames)", *lines[-10:]]
    return "".join(line + "\n" for line in lines)


def _error_levels(error: BaseException) -> list[Level]:
    """Return the innermost levels from the raise of an error to its catch."""
    links = _links(error)
    current.vm.take_steps(len(links) * _STEPS_PER_LINK)
    levels = (_level(link.tb_frame, link.tb_lineno) for link in reversed(links))
    return list(islice((level for level in levels if level is not None), _MAX_TRACED))


def run_handler(handler: Function, error: LuaError) -> Any:
    """Call the handler of an ``xpcall`` with an error.

    Returns:
        The result of ``xpcall``: False, and the handler's value or the error of the handler.

    Raises:
        BaseException: The host's own code raised an exception.
    """
    vm = current.vm
    outer, outer_calls = vm.error_stack, vm.c_calls
    vm.error_stack = error.traceback
    vm.c_calls = max(outer_calls, error.c_calls) + 1
    try:
        result = handler(error.value)
        return (False, first(result)) if as_tuple(result) else (False, None)
    except Exception as nested:  # noqa: BLE001 - re-raises errors of the host
        fault = to_luau_error(nested)
        if isinstance(error, OutOfMemory) and isinstance(fault, OutOfMemory):
            return False, fault.value
        return False, "error in error handling"
    finally:
        vm.error_stack, vm.c_calls = outer, outer_calls


def frame_closure(frame: FrameType | ScriptFrame) -> Any:
    """Return the function of a frame with its variables, or a continuation.

    Raises:
        LuaError: The call has used up its steps.
    """
    if isinstance(frame, ScriptFrame):
        return frame.continuation.function(frame.environment)
    current.vm.charge_search()
    own = frame.f_locals
    candidates = [
        candidate
        for candidate in gc.get_referrers(frame.f_code)
        if isinstance(candidate, FunctionType)
    ]
    for function in candidates:
        cells = closure_cells(function)
        if all(own.get(name) is cell.cell_contents for name, cell in cells.items()):
            return function
    return None


def whole_function(closure: Any) -> Any:
    """Return the function of a closure or continuation; None if it no longer exists.

    Raises:
        LuaError: The call has used up its steps.
    """
    if not isinstance(closure, FunctionType):
        return closure
    if not is_continuation(closure.__code__):
        return checked(closure)
    current.vm.charge_search()
    for closures in gc.get_referrers(environment_cell(closure)):  # shared by all closures
        for candidate in gc.get_referrers(closures) if closures.__class__ is tuple else ():
            if isinstance(candidate, FunctionType) and not is_continuation(candidate.__code__):
                return checked(candidate)
    return None
