"""Tables that were large only need the time and memory of their entries."""

from __future__ import annotations

import tracemalloc

import pytest

from clawblox.luau.core.errors import LuaError
from clawblox.luau.core.values import LuaTable
from clawblox.luau.vm import VM
from tests.luau.support import round_trip, run_plainly, steps_taken

LARGE = "local t = {} for i = 1, 5000 do t['k' .. i] = i end"
EMPTIED = f"{LARGE} for i = 1, 4990 do t['k' .. i] = nil end"
MOST_ROOM = 6000  # bytes of a table with ten entries

PASSES = {
    "next": "next(t)",
    "next from elsewhere": "next(t, 'k4995')",
    "pairs": "for k in pairs(t) do break end",
    "a loop over the table": "for k in t do break end",
    "clone": "table.clone(t)",
    "maxn": "table.maxn(t)",
    "move": "table.move(t, 1, 1e6, 1)",
    "move to it": "table.move({}, 1, 1e6, 1, t)",
    "foreach": "table.foreach(t, type)",
    "collectgarbage": "collectgarbage()",
    "measuring": "collectgarbage('count')",
}


def table_after(source: str) -> LuaTable:
    vm = VM()
    (table,) = vm.call(vm.load(f"{EMPTIED} {source} return t"))
    assert isinstance(table, LuaTable)
    return table


def test_iterating_a_table_releases_the_memory_of_removed_entries() -> None:
    assert table_after("").__sizeof__() > 10 * MOST_ROOM
    for name, source in PASSES.items():
        table = table_after(source)
        assert table.__sizeof__() <= MOST_ROOM, name
        assert list(table) == [f"k{at}" for at in range(4991, 5001)], name


def test_removing_keys_one_by_one_skips_removed_keys_efficiently() -> None:
    """The number of empty slots before the first key is limited to some hundreds."""
    vm = VM()
    source = f"{LARGE} return t, function() for i = 1, 400 do t[next(t)] = nil end end"
    table, take = vm.call(vm.load(source))
    sizes = []
    while len(table) > 400:
        vm.call(take)
        sizes.append(table.__sizeof__() / len(table))
    assert max(sizes) < 300


def test_table_that_was_large_keeps_its_key_order() -> None:
    source = f"""
        {EMPTIED}
        t.k4992, t[1], t.new = nil, "first", "last"
        for k, v in pairs(t) do print(k, v) end
        local k, v = next(t)
        while k do print(k, v) if k == "k4995" then t.k4997 = nil end k, v = next(t, k) end
    """
    lines = run_plainly(source)
    keys = ["k4991", *(f"k{at}" for at in range(4993, 5001))]
    first = ["1\tfirst", *(f"{key}\t{key[1:]}" for key in keys), "new\tlast"]
    assert lines == first + [line for line in first if line != "k4997\t4997"]


def test_restored_vm_charges_the_same_steps_as_the_saved_vm() -> None:
    """Removals, reads and allocations before the save do not affect later charges."""
    setup = f"""
        {EMPTIED} local m, n, o = {{}}, {{}}, {{}} kept = {{t, m, n, o, setmetatable({{}}, o)}}
        setmetatable({{}}, m) setmetatable({{}}, n) setmetatable({{}}, n) setmetatable({{}}, o)
        s = ('x'):find('[a-c]+d?') next(t)
    """
    work = """
        local t, m, n, o = kept[1], kept[2], kept[3], kept[4]
        for i = 1, 30 do next(t) s = ('x'):find('[a-c]+d?') end
        for k in pairs(t) do t[k] = nil end
        setmetatable({}, m) setmetatable({}, n) setmetatable({}, o) collectgarbage()
    """

    def left(vm: VM) -> object:
        vm.call(vm.load(work))
        vm.more_steps()
        return vm.steps_left, vm.allocated

    options = {"steps": 10**9, "memory_bytes": 1 << 30}
    vm = VM(**options)
    vm.call(vm.load(setup))
    assert left(round_trip(vm, **options)) == left(vm)


QUICK = ("closures", "small tables in a line", "text")


def most_bytes(source: str, limit: int) -> tuple[int, str]:
    """Return the peak memory of a script, and its final error."""
    vm = VM(memory_bytes=limit)
    function = vm.load(source)
    tracemalloc.start()
    try:
        vm.call(function)
        return tracemalloc.get_traced_memory()[1], ""
    except LuaError as error:
        return tracemalloc.get_traced_memory()[1], str(error)
    finally:
        tracemalloc.stop()


HOARDS = {
    "closures with many upvalues": "{many} t[n] = function() return {sum} end",
    "closures": "local a = n t[n] = function() return a end",
    "empty tables": "t[n] = {{}}",
    "small tables": "t[n] = {{n}}",
    "small tables in a line": "t[n] = {{{line}}}",
    "metatables used twice": "local m = {{}} setmetatable({{}}, m) setmetatable({{}}, m) t[n] = m",
    "clones": "t[n] = table.clone(t[0])",
    "text": "t[n] = 'text ' .. n",
}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(body, marks=() if name in QUICK else pytest.mark.thorough, id=name)
        for name, body in HOARDS.items()
    ],
)
def test_process_memory_of_a_script_is_close_to_its_limit(body: str) -> None:
    many = " ".join(f"local u{at} = n" for at in range(60))
    names = "+".join(f"u{at}" for at in range(60))
    body = body.format(many=many, sum=names, line="{n}," * 100)
    limit = 1 << 20
    source = f"local t, n = {{[0] = {{}}}}, 0 while true do n += 1 {body} end"
    peak, error = most_bytes(source, limit)
    assert error.endswith("not enough memory")
    assert peak < 3 * limit


def test_table_that_was_large_counts_only_its_entries() -> None:
    source = """
        local t = {}
        for n = 1, 100 do
            local u = {}
            for i = 1, 500 do u[i] = i end
            for i = 1, 500 do u[i] = nil end
            t[n] = u
        end
    """
    peak, error = most_bytes(source, 1 << 20)
    assert not error
    assert peak < 3 << 20


def test_new_pattern_is_charged_once_per_call() -> None:
    once = steps_taken("('x'):find('[a-z]+d')")
    assert once >= 50
    assert steps_taken("for _ = 1, 9 do ('x'):find('[a-z]+d') end") - once <= 10
