"""The memory limit holds for the memory of the process, not only for the VM's estimate."""

from __future__ import annotations

import tracemalloc

import pytest

from benchmarks.luau_memory import KINDS, fill_up
from clawblox.luau.core.errors import LuaError
from clawblox.luau.core.limits import SIZES
from clawblox.luau.vm import VM
from tests.luau.support import failure, steps_taken

LIMIT = 1 << 20
OLDER = {"steps": 1_000_000, "memory_bytes": 2 << 20}


@pytest.mark.parametrize("kind", KINDS)
def test_real_memory_of_values_is_at_most_1_5_times_the_limit(kind: str) -> None:
    VM()
    tracemalloc.start()
    try:
        fill_up(kind, LIMIT)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.5 * LIMIT


def test_allocating_tables_functions_and_vectors_costs_no_extra_steps() -> None:
    loop = "local t, v = {}, vector.create(1, 2, 3) for i = 1, 100 do BODY end"
    plain = steps_taken(loop.replace("BODY", "t[i] = i"))
    assert steps_taken(loop.replace("BODY", "t[i] = v + v")) == plain
    assert steps_taken(loop.replace("BODY", "t[i] = {i, {i}}")) == plain + 200
    assert steps_taken(loop.replace("BODY", "t[i] = function() return i end")) == plain + 200


def test_vectors_created_in_a_call_are_counted_before_the_next_call() -> None:
    vm = VM(memory_bytes=LIMIT)
    vm.call(vm.load("v = vector.create(1, 2, 3)"))
    before = vm.allocated
    vm.call(vm.load("for i = 1, 50 do v += v end"))
    without = vm.allocated - before
    vm.call(vm.load("for i = 1, 50 do v = v end"))
    assert without - (vm.allocated - before - without) >= 50 * 100


def grown() -> VM:
    vm = VM(memory_bytes=16 << 20)
    vm.call(vm.load("kept = {} function grow(n) for i = 1, n do kept[#kept + 1] = {i} end end"))
    vm.call(vm.load("grow(10000)"))
    return vm


def test_heap_from_a_document_with_older_sizes_may_exceed_the_limit_and_grow_by_it() -> None:
    document = grown().snapshot()
    assert document["sizes"] == SIZES
    vm = VM.restore(document, **OLDER)
    with pytest.raises(LuaError, match="not enough memory"):
        vm.call(vm.load("grow(1000)"))
    del document["sizes"]
    vm = VM.restore(document, **OLDER)
    vm.call(vm.load("grow(3000)"))
    assert "sizes" not in vm.snapshot()
    again = VM.restore(vm.snapshot(), **OLDER)
    for restored in (vm, again):
        restored.call(restored.load("grow(1000)"))
        with pytest.raises(LuaError, match="not enough memory"):
            restored.call(restored.load("grow(20000)"))


def test_heap_below_the_limit_from_a_document_with_older_sizes_keeps_the_limit() -> None:
    vm = grown()
    document = vm.snapshot()
    del document["sizes"]
    restored = VM.restore(document, steps=1_000_000, memory_bytes=8 << 20)
    with pytest.raises(LuaError, match="not enough memory"):
        restored.call(restored.load("grow(20000)"))
    assert restored.snapshot()["sizes"] == SIZES


def test_texts_held_only_by_an_iterator_count_as_memory() -> None:
    source = "local t = {} for i = 1, 100 do t[i] = (('x'):rep(1e5) .. i):gmatch('.') end"
    assert failure(source, memory_bytes=LIMIT) == "not enough memory"


def test_the_metatable_of_a_userdata_counts() -> None:
    source = """
        local t = {}
        for i = 1, 40 do
            t[i] = newproxy(true)
            getmetatable(t[i]).x = ("x"):rep(2e5) .. i
        end
    """
    assert failure(source, memory_bytes=LIMIT) == "not enough memory"
