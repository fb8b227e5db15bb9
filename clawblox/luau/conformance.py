"""What the reference's own test program adds to the globals of its conformance files."""

from __future__ import annotations

from typing import Any

from clawblox.luau import coroutines
from clawblox.luau.context import current
from clawblox.luau.errors import LuaError
from clawblox.luau.lib.buffer import create
from clawblox.luau.suspension import ScriptFrame
from clawblox.luau.values import Userdata, as_result
from clawblox.luau.vm import VM

BLOCK_BYTES = 8 << 20  # the reference's test allocator refuses larger blocks


def create_uncharged(size: Any = None, *_: Any) -> Any:
    """Return a buffer; the test of large ones runs without a limit of memory."""
    vm = current.vm
    limits, vm.memory_limit, vm.block_limit = (vm.memory_limit, vm.block_limit), None, None
    try:
        return create(size)
    finally:
        vm.memory_limit, vm.block_limit = limits


class LightUserdata(Userdata):
    """A bare pointer: equal to any other with the same address."""

    __slots__ = ("address",)

    def __init__(self, address: Any) -> None:
        super().__init__(None)
        self.address = address

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LightUserdata) and other.address == self.address

    def __hash__(self) -> int:
        return hash(("light userdata", self.address))


def make_light_userdata(address: Any = None, *_: Any) -> LightUserdata:
    """Return a pointer."""
    return LightUserdata(address)


def throw(*_: Any) -> Any:
    """Fail the way an exception of the host would."""
    raise LuaError("oops")


def is_native(*_: Any) -> bool:
    """Return whether code runs natively where it can: it cannot here."""
    return True


def resume_with_error(coroutine: Any = None, error: Any = None, *_: Any) -> Any:
    """Resume a coroutine with an error at the place where it is suspended."""
    coroutine.frames.append(_FailingFrame(error))
    ok, values = coroutines.resume(coroutine, ())
    return as_result((ok, *values))


class _FailingFrame(ScriptFrame):
    __slots__ = ("error",)

    def __init__(self, error: Any) -> None:
        self.error = error

    def resume(self, result: Any) -> Any:
        raise LuaError(self.error)


def prepare(vm: VM) -> None:
    """Add the test program's globals, and limit blocks of memory as it does."""
    vm.block_limit = BLOCK_BYTES
    vm.memory_limit = 48 * BLOCK_BYTES
    vm.globals["buffer"]["create"] = create_uncharged
    vm.globals.update(
        makelud=make_light_userdata,
        cxxthrow=throw,
        resumeerror=resume_with_error,
        is_native_if_supported=is_native,
    )
