"""Estimates the size of a VM's heap, the same on every machine."""

from __future__ import annotations

from types import FrameType, FunctionType
from typing import TYPE_CHECKING, Any

from clawblox.luau.coroutines import Coroutine, WrapFunction
from clawblox.luau.suspension import ScriptFrame
from clawblox.luau.values import Buffer, LuaTable

if TYPE_CHECKING:
    from clawblox.luau.vm import VM

_TABLE_BYTES = 120
_ENTRY_BYTES = 60
_OBJECT_BYTES = 100


def heap_bytes(vm: VM, frame: FrameType | None) -> int:
    """Return an estimate of what the globals, coroutines and running frames keep alive."""
    pending: list[Any] = [vm.globals, vm.running]
    while frame is not None:
        pending += frame.f_locals.values()
        frame = frame.f_back
    seen: set[int] = set()
    total = 0
    while pending:
        value = pending.pop()
        if value is None or value.__class__ in (float, bool, int) or id(value) in seen:
            continue
        seen.add(id(value))
        total += _size(value, pending)
    return total


def _size(value: Any, pending: list[Any]) -> int:
    if value.__class__ is str:
        return 50 + len(value)
    if isinstance(value, LuaTable):
        pending += value.values()
        pending += value.keys()
        pending.append(value.meta)
        return _TABLE_BYTES + _ENTRY_BYTES * len(value)
    if isinstance(value, FunctionType):
        for cell in value.__closure__ or ():
            try:
                pending.append(cell.cell_contents)
            except ValueError:
                continue
    elif isinstance(value, Coroutine):
        pending.append(value.function)
        pending += value.frames
    elif isinstance(value, ScriptFrame):
        pending += value.values
        pending.append(value.environment.cell_contents)
    elif isinstance(value, WrapFunction):
        pending.append(value.coroutine)
    elif isinstance(value, (list, tuple)):
        pending += value
        return _OBJECT_BYTES + 8 * len(value)
    elif isinstance(value, Buffer):
        return _OBJECT_BYTES + len(value.data)
    return _OBJECT_BYTES
