"""Memory of a process relative to the limit of a VM, for kinds of values.

Values of each kind are created in a separate process until the limit stops the script.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from benchmarks.fresh import call_in_fresh_process
from benchmarks.measure import Row, peak_resident_bytes, reset_peak, resident_bytes
from clawblox.luau import VM, LuaError

__all__ = ["KINDS", "fill_up", "measure_memory"]

_MOST: Final = 1.5  # times the limit
_LOCALS: Final = ", ".join(f"a{n}" for n in range(55))
KINDS: Final[Mapping[str, str]] = {
    "numbers": "t[i] = i + 0.5",
    "short strings": "t[i] = 's' .. i",
    "tables of small tables": "t[i] = {{i}, {i}, {i}}",
    "20 entries in a line": " ".join(f"t[i + {n} / 32] = i" for n in range(20)),
    "closures with 55 fresh upvalues": f"local {_LOCALS} = {', '.join(['i'] * 55)} "
    f"t[i] = function() {' '.join(f'a{n} += 1' for n in range(55))} end",
    "coroutines": "t[i] = coroutine.create(print)",
    "functions of coroutine.wrap": "t[i] = coroutine.wrap(print)",
    "suspended coroutines": "local c = coroutine.create(deep) coroutine.resume(c, 9) t[i] = c",
    "failed coroutines": "local c = coroutine.create(fail) coroutine.resume(c) t[i] = c",
    "messages of errors": "t[i] = select(2, pcall(fail))",
    "vectors": "t[i] = v + v",
    "buffers": "t[i] = buffer.create(0)",
    "userdata": "t[i] = newproxy(true)",
    "iterators over long strings": "t[i] = (('x'):rep(500) .. i):gmatch('.')",
}
"""Statements that add a value to a table, by kind."""
_SOURCE: Final = """
    local t, v = {}, vector.create(1, 2, 3)
    local function deep(n) if n == 0 then coroutine.yield() else deep(n - 1) end return n end
    local function fail() return (nil).x end
    local i = 0
    while true do i += 1 BODY end
"""


def fill_up(kind: str, limit_bytes: int) -> None:
    """Run a script that creates values of a kind until the limit stops it.

    Raises:
        AssertionError: The script ends in another way.
    """
    vm = VM(memory_bytes=limit_bytes)
    main = vm.coroutine(vm.load(_SOURCE.replace("BODY", KINDS[kind])))
    reason = "the script ended"
    try:
        vm.resume(main)
    except LuaError as error:
        reason = str(error)
    assert reason == "not enough memory", f"{kind}: {reason}"


def measure_growth(kind: str, limit_bytes: int) -> int:
    """Return the peak growth of this process in bytes, including measurements of the heap."""
    VM().call(VM().load("return 1"))
    before = resident_bytes()
    reset_peak()
    fill_up(kind, limit_bytes)
    return peak_resident_bytes() - before


def measure_memory(limit_mib: int) -> list[Row]:
    """Measure each kind in a fresh process."""
    return [
        Row(
            f"memory: {kind}",
            call_in_fresh_process(measure_growth, kind, limit_mib << 20) / 2**20,
            "MiB",
            limit_mib,
            _MOST,
        )
        for kind in KINDS
    ]
