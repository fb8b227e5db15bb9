"""The globals that the reference's own test program adds for its conformance files."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from clawblox.luau.core.context import current
from clawblox.luau.core.errors import LuaError
from clawblox.luau.core.machine import Coroutine, Frame
from clawblox.luau.lib.buffer import create
from clawblox.luau.runtime import coroutines
from clawblox.luau.runtime.host import Host, HostObject, HostType, to_luau
from clawblox.luau.vm import VM

BLOCK_BYTES = 8 << 20  # the reference's test allocator refuses larger blocks
ITERATOR = """
return function(limit, index)
    if index < limit then
        coroutine.yield(index + 1)
        return index + 1
    end
    return nil
end
"""
PAUSING_ASSERT = """
local check, error, interval = assert, error, ...
local yield, running, isyieldable = coroutine.yield, coroutine.running, coroutine.isyieldable
local count = 0
return function(...)
    local value, message = ...
    if not value then
        check(...)
    end
    count += 1
    if count % interval == 0 and running() == nil and isyieldable() then
        yield()
    end
    return ...
end
"""


class ConformanceHost(Host):
    """Lends conformance files the functions and objects they expect, also after a restore.

    Args:
        interval: Suspend the file at every assertion whose number is a multiple of this; 0 never
            suspends it.
    """

    def __init__(self, interval: int = 0) -> None:
        super().__init__()
        self._interval = interval
        self._pointer = self.type(HostType("userdata"))
        self._pointers: dict[str, HostObject] = {}
        self.function("makelud")(lambda address: self.find_object(repr(address)))
        self.function("cxxthrow")(_throw)
        self.function("resumeerror")(_resume_with_error)
        self.function("is_native_if_supported")(lambda: True)
        self.function("buffer.create")(_create_uncharged)

    def find_object(self, ident: str) -> HostObject:
        """Return the pointer with an address; there is one for each address."""
        return self._pointers.setdefault(ident, HostObject(self._pointer, ident))

    def prepare(self, vm: VM) -> None:
        """Add the globals, and limit memory."""
        functions = dict(self.functions)
        vm.globals["buffer"]["create"] = functions.pop("buffer.create")
        vm.globals.update(functions)
        vm.globals["cYieldingIterator"] = vm.call(vm.load(ITERATOR, "=iterator"))[0]
        if self._interval:
            pausing = vm.load(PAUSING_ASSERT, "=assert")
            vm.globals["assert"] = vm.call(pausing, float(self._interval))[0]
        self._limit(vm)

    def _limit(self, vm: VM) -> None:
        vm.block_limit = BLOCK_BYTES
        vm.memory_limit = 12 * BLOCK_BYTES

    def round_trip(self, vm: VM) -> VM:
        """Return a restored copy of a VM.

        Raises:
            AssertionError: Saving the copy gives another document.
            SnapshotError: The VM cannot be saved or restored.
        """
        document = json.dumps(vm.snapshot())
        restored = VM.restore(json.loads(document), host=self)
        assert json.dumps(restored.snapshot()) == document
        self._limit(restored)
        return restored


def _throw() -> None:
    raise LuaError("oops")


def _create_uncharged(size: Any = None) -> Any:
    """Return a buffer; the conformance test of large buffers needs no limit of memory."""
    vm = current.vm
    assert isinstance(vm, VM)
    limits, vm.memory_limit, vm.block_limit = (vm.memory_limit, vm.block_limit), None, None
    try:
        return create(size)
    finally:
        vm.memory_limit, vm.block_limit = limits


def _resume_with_error(coroutine: Coroutine, error: Any) -> tuple[Any, ...]:
    """Resume a coroutine with an error at the place where it is suspended."""
    coroutine.frames.append(_FailingFrame(to_luau(error)))
    ok, values = coroutines.resume(coroutine, ())
    return (ok, *values)


class _FailingFrame(Frame):
    __slots__ = ("error",)

    def __init__(self, error: Any) -> None:
        self.error = error

    def rest(self, result: Any) -> tuple[Callable[[Any], Any], Any]:
        raise LuaError(self.error)
