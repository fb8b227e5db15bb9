"""The heap of a VM: a machine-independent estimate of its size, and its weak tables."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from itertools import islice
from types import FrameType, FunctionType
from typing import Any

from clawblox.luau.core.limits import (
    BUFFER_BYTES,
    CHUNK_BYTES,
    COROUTINE_BYTES,
    ENTRY_BYTES,
    ERROR_BYTES,
    FRAME_BYTES,
    FUNCTION_BYTES,
    NATIVE_BYTES,
    OBJECT_BYTES,
    SHORT_TEXT,
    STRING_BYTES,
    TABLE_BYTES,
    TOKEN_BYTES,
    UPVALUE_BYTES,
    VECTOR_BYTES,
)
from clawblox.luau.core.machine import Coroutine, Machine
from clawblox.luau.core.tables import give_back_room
from clawblox.luau.core.values import (
    OWN_CLASS_BYTES,
    Buffer,
    LuaTable,
    MetaTable,
    NativeFunction,
    Userdata,
    Vector,
    has_own_class,
    raw_get,
    raw_set,
)
from clawblox.luau.runtime.chunk import Chunk, find_prototype
from clawblox.luau.runtime.host import HostObject
from clawblox.luau.runtime.raw import HostValue
from clawblox.luau.runtime.suspension import ScriptFrame

_ROOM = "clawblox.luau"
"""Calls in other modules hold values of the host. The module of a script is unnamed."""
_LOOKS_PER_STEP = 4
_LOOKS_PER_CHARGE = 4096


def heap_bytes(vm: Machine, frame: FrameType | None) -> int:
    """Return an estimate of the bytes that globals, running frames and the host keep alive.

    The estimate costs steps.

    Args:
        vm: The VM.
        frame: The running frame; None outside scripts.

    Raises:
        LuaError: The call has used up its steps or its memory, or the host has interrupted it.
    """
    pending: list[Any] = [vm.globals, vm.running, *vm.roots.values(), *vm.held()]
    while frame is not None:
        if frame.f_globals.get("__name__", _ROOM).startswith(_ROOM):
            pending += frame.f_locals.values()
        frame = frame.f_back
    large: list[Iterator[Any]] = []  # parts of large tables, to avoid long lists
    seen: set[int] = set()
    total = looks = 0
    while pending or large:
        if not pending:
            pending += islice(large[-1], _LOOKS_PER_CHARGE)
            if not pending:
                large.pop()
                continue
        value = pending.pop()
        looks += 1
        if looks == _LOOKS_PER_CHARGE:
            vm.charge_work(looks // _LOOKS_PER_STEP)
            looks = 0
        if value is None or value.__class__ in (float, bool, int, type):
            continue
        # Snapshots do not record whether equal short strings and vectors are one object.
        if value.__class__ is str and len(value) <= SHORT_TEXT:
            total += STRING_BYTES + len(value)
        elif value.__class__ is Vector:
            total += VECTOR_BYTES
        elif id(value) not in seen:
            seen.add(id(value))
            if isinstance(value, LuaTable):
                total += _table_size(vm, value, pending, large)
            else:
                total += _size(value, pending)
    vm.charge_work(looks // _LOOKS_PER_STEP)
    return total


def _table_size(
    vm: Machine, table: LuaTable, pending: list[Any], large: list[Iterator[Any]]
) -> int:
    give_back_room(table)
    entries = vm.early_entries(table) if id(table) in vm.late else table
    if len(entries) > _LOOKS_PER_CHARGE:
        large += (iter(entries.values()), iter(entries.keys()))
    else:
        pending += entries.values()
        pending += entries.keys()
    pending.append(table.meta)
    own = OWN_CLASS_BYTES if has_own_class(table) else 0
    return TABLE_BYTES + ENTRY_BYTES * len(entries) + own


def _size(value: Any, pending: list[Any]) -> int:
    """Return the size of a value other than a table; add the values it refers to to `pending`."""
    if value.__class__ in (str, bytes):
        return STRING_BYTES + len(value)
    if isinstance(value, FunctionType):
        return _function_size(value, pending)
    if isinstance(value, Coroutine):
        pending.append(value.function)
        pending += value.frames
        if value.error is not None:
            pending += (value.error.value, value.error.traceback)
            return COROUTINE_BYTES + ERROR_BYTES
        return COROUTINE_BYTES
    if isinstance(value, ScriptFrame):
        pending += value.values
        pending.append(value.environment.cell_contents)
        return FRAME_BYTES
    if isinstance(value, NativeFunction):
        pending += value.held()
        return NATIVE_BYTES
    if isinstance(value, Buffer):
        return BUFFER_BYTES + len(value.data)
    if isinstance(value, HostObject):
        pending += value.held()
        return value.size_bytes
    if isinstance(value, Chunk):
        return CHUNK_BYTES + len(value.source) + TOKEN_BYTES * value.tokens
    if isinstance(value, (list, tuple)):
        pending += value
        return OBJECT_BYTES + 8 * len(value)
    if isinstance(value, HostValue):
        pending += value.contents()
    elif isinstance(value, Userdata):
        pending.append(value.meta)
    return OBJECT_BYTES


def _function_size(function: FunctionType, pending: list[Any]) -> int:
    prototype = find_prototype(function)
    if prototype is None:
        return OBJECT_BYTES  # its closure belongs to the host
    pending.append(prototype.chunk)
    cells = function.__closure__ or ()
    for cell in cells:
        try:
            pending.append(cell.cell_contents)
        except ValueError:
            continue
    return FUNCTION_BYTES + UPVALUE_BYTES * len(cells)


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
    """Return the object of a weak reference (None if dead), or any other value unchanged."""
    return value() if isinstance(value, weakref.ref) else value
