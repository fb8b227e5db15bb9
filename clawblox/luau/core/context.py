"""The VM that runs on this thread, and what the lowest modules ask of it."""

from __future__ import annotations

import threading
from typing import Any, cast

from clawblox.luau.core.limits import BYTES_PER_STEP, LONG_TEXT
from clawblox.luau.core.machine import Machine


class _Context(threading.local):
    vm: Machine = cast("Machine", None)  # outside all VMs, where no code asks for it


current = _Context()
MAX_C_CALLS = 200
MAX_C_CALLS_IN_HANDLER = 225


def thread_environment() -> Any:
    """Return the globals of chunks that the running coroutine loads."""
    vm = current.vm
    return vm.main_environment if vm.running is None else vm.running.environment


def charge_reading(size: int) -> None:
    """Charge going through a long text, as comparing and hashing do.

    Raises:
        LuaError: The call has used up its steps or its memory, or the host has interrupted it.
    """
    if size >= LONG_TEXT:
        current.vm.charge_work(size // BYTES_PER_STEP)


def call_unyieldable(function: Any, *arguments: Any) -> Any:
    """Call a metamethod or callback, which must not yield and nests at most 200 deep.

    Raises:
        LuaError: The function fails, or callbacks nest too deep.
    """
    vm = current.vm
    vm.c_calls += 1
    try:
        if vm.c_calls >= MAX_C_CALLS:
            vm.check_c_calls()
        return function(*arguments)
    finally:
        vm.c_calls -= 1
