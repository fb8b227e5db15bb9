"""The heap of a VM: an estimate of its size, the same on every machine, and its weak tables."""

from __future__ import annotations

import gc
import weakref
from types import FrameType, FunctionType
from typing import Any

from clawblox.luau.core.limits import SHORT_TEXT
from clawblox.luau.core.machine import Coroutine, Machine
from clawblox.luau.core.tables import give_back_room
from clawblox.luau.core.values import (
    OWN_CLASS_BYTES,
    Buffer,
    LuaTable,
    MetaTable,
    Vector,
    has_own_class,
    raw_get,
    raw_set,
)
from clawblox.luau.runtime.chunk import CheckedFunction, Chunk, find_prototype
from clawblox.luau.runtime.coroutines import WrapFunction
from clawblox.luau.runtime.host import HostObject
from clawblox.luau.runtime.raw import HostValue
from clawblox.luau.runtime.suspension import ScriptFrame

_TABLE_BYTES = 120
_ENTRY_BYTES = 60
_OBJECT_BYTES = 100
_FUNCTION_BYTES = 200
_UPVALUE_BYTES = 50
_TOKEN_BYTES = 400  # of compiled source
_STRING_BYTES = 50  # besides its characters
_ROOM = "clawblox.luau"
"""Calls in other modules hold values of the host. The module of a script has no name."""
_LOOKS_PER_STEP = 4
_LOOKS_PER_CHARGE = 4096


def heap_bytes(vm: Machine, frame: FrameType | None) -> int:
    """Return an estimate of the bytes that globals, running frames and the host keep alive.

    This costs steps.

    Args:
        vm: The VM.
        frame: The running frame; None while no script runs.

    Raises:
        LuaError: The call has used up its steps or its memory, or the host has interrupted it.
    """
    pending: list[Any] = [vm.globals, vm.running, *vm.roots.values(), *vm.held()]
    while frame is not None:
        if frame.f_globals.get("__name__", _ROOM).startswith(_ROOM):
            pending += frame.f_locals.values()
        frame = frame.f_back
    seen: set[int] = set()
    total = looks = 0
    while pending:
        value = pending.pop()
        looks += 1
        if looks == _LOOKS_PER_CHARGE:
            vm.charge_work(looks // _LOOKS_PER_STEP)
            looks = 0
        if value is None or value.__class__ in (float, bool, int, type):
            continue
        # Whether equal short strings and vectors are one object is not saved.
        if value.__class__ is str and len(value) <= SHORT_TEXT:
            total += _STRING_BYTES + len(value)
        elif value.__class__ is Vector:
            total += _OBJECT_BYTES
        elif id(value) not in seen:
            seen.add(id(value))
            total += _size(value, pending, vm)
    vm.charge_work(looks // _LOOKS_PER_STEP)
    return total


def _size(value: Any, pending: list[Any], vm: Machine) -> int:
    if value.__class__ in (str, bytes):
        return _STRING_BYTES + len(value)
    if isinstance(value, LuaTable):
        give_back_room(value)
        entries = vm.early_entries(value) if id(value) in vm.late else value
        pending += entries.values()
        pending += entries.keys()
        pending.append(value.meta)
        own = OWN_CLASS_BYTES if has_own_class(value) else 0
        return _TABLE_BYTES + _ENTRY_BYTES * len(entries) + own
    if isinstance(value, FunctionType):
        prototype = find_prototype(value)
        if prototype is None:
            return _OBJECT_BYTES  # its closure belongs to the host
        pending.append(prototype.chunk)
        cells = value.__closure__ or ()
        for cell in cells:
            try:
                pending.append(cell.cell_contents)
            except ValueError:
                continue
        return _FUNCTION_BYTES + _UPVALUE_BYTES * len(cells)
    if isinstance(value, Coroutine):
        pending.append(value.function)
        pending += value.frames
    elif isinstance(value, ScriptFrame):
        pending += value.values
        pending.append(value.environment.cell_contents)
    elif isinstance(value, CheckedFunction):
        pending.append(value.function)
    elif isinstance(value, WrapFunction):
        pending.append(value.coroutine)
    elif isinstance(value, HostValue):
        pending += value.contents()
    elif isinstance(value, HostObject):
        pending += value.held()
        return value.size_bytes
    elif isinstance(value, (list, tuple)):
        pending += value
        return _OBJECT_BYTES + 8 * len(value)
    elif isinstance(value, Buffer):
        return _OBJECT_BYTES + len(value.data)
    elif isinstance(value, Chunk):
        return len(value.source) + _TOKEN_BYTES * value.tokens
    return _OBJECT_BYTES


def collect() -> None:
    """Collect garbage, and remove the dead entries of weak tables."""
    tables = [item for item in gc.get_objects() if isinstance(item, MetaTable) and _mode(item)]
    weakened = [(table, _weaken(table, _mode(table))) for table in tables]
    gc.collect()
    for table, entries in weakened:
        for key, value in entries:
            key, value = _strong(key), _strong(value)
            if key is not None and value is not None:
                raw_set(table, key, value)


def _mode(table: LuaTable) -> str:
    mode = raw_get(table.meta, "__mode") if table.meta is not None else None
    return mode if mode.__class__ is str else ""


def _weaken(table: LuaTable, mode: str) -> list[tuple[Any, Any]]:
    entries = [
        (_weak(key) if "k" in mode else key, _weak(value) if "v" in mode else value)
        for key, value in table.items()
    ]
    table.clear()
    return entries


def _weak(value: Any) -> Any:
    try:
        return weakref.ref(value)
    except TypeError:
        return value


def _strong(value: Any) -> Any:
    """Return the object of a weak reference, None if it is dead; any other value as it is."""
    return value() if isinstance(value, weakref.ref) else value
