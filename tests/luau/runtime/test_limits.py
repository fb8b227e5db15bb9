"""Hostile scripts end in Luau errors, within their budgets."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from operator import length_hint

import pytest

from clawblox.luau.core.deep import recursion_is_unchecked, run_deep
from clawblox.luau.core.errors import LuaError
from clawblox.luau.vm import VM
from tests.luau.support import MODES, failure, run_plainly, run_tortured, steps_taken

STEPS = "exhausted the allowed number of steps"
ENDLESS = {
    "while": "while true do end",
    "repeat": "repeat until false",
    "for": "for i = 1, math.huge do end",
    "for without progress": "for i = 1, 0, 0 do end",
    "long for": "for i = 1, 1e15 do end",
    "recursion": "local function f(n) if n > 0 then f(n - 1) f(n - 1) end end f(100)",
    "iterator": "for _ in function() return 1 end do end",
    "growing sequence": "local t = {1} for i in ipairs(t) do t[i + 1] = 1 end",
    "pcall": "while true do pcall(function() while true do end end) end",
    "coroutines": "local f = coroutine.wrap(function() while true do coroutine.yield() end end) "
    "while true do f() end",
    "metamethods": "local t = setmetatable({}, {__index = function(t, k) return t end}) "
    "while t do t = t.x end",
    "sort": "local t = {} for i = 1, 1000 do t[i] = i end while true do table.sort(t) end",
    "pattern": "string.find(('a'):rep(2000), ('.-'):rep(20) .. 'b')",
    "greedy pattern": "string.find(('a'):rep(30000), ('a*'):rep(10) .. 'b')",
    "optional items": "string.find(('a'):rep(60), ('a?'):rep(60) .. 'b')",
    "more repeats than floats can count": "string.find(('b'):rep(2e6), ('a-'):rep(90) .. 'c')",
    "quadratic pattern": "while true do string.find(('a'):rep(2000), 'a-b') end",
    "unbalanced parentheses": "string.find(('('):rep(1e5), '%b()')",
    "plain find": "local s = ('a'):rep(1e6) while true do s:find('b', 1, true) end",
    "copies": "local s = ('a'):rep(1e6) while true do s:upper() end",
    "utf8": "local s = ('a'):rep(1e4) while true do utf8.len(s) end",
    "loadstring": "local s = ('x = 1 '):rep(1000) while true do loadstring(s) end",
    "format": "local s = ('%%'):rep(1e4) while true do string.format(s) end",
    "pack": "local s = (' '):rep(1e5) while true do string.pack(s) end",
    "garbage": "local t = table.create(1e5, 1) while true do collectgarbage() end",
    "counting": "local t = table.create(1e5, 1) while true do collectgarbage('count') end",
    "move": "local t = {} while true do table.move(t, 1, 1000, 2) end",
}


def check_endings(run: Callable[..., list[str]], scripts: dict[str, str], end: str) -> None:
    """Assert that all scripts end in an error; show the scripts that do not."""
    last = {name: run(f"print(); {source}", steps=20_000)[-1] for name, source in scripts.items()}
    assert {name: line for name, line in last.items() if end not in line} == {}


def test_endless_scripts_run_out_of_steps() -> None:
    check_endings(run_plainly, ENDLESS, STEPS)


@pytest.mark.thorough
def test_endless_scripts_run_out_of_steps_in_a_restored_vm() -> None:
    check_endings(run_tortured, ENDLESS, STEPS)


def test_arguments_and_results_share_one_limit() -> None:
    source = """
        local t, s = table.create(8000, 1), ("x"):rep(8000)
        print(pcall(function() return select("#", table.unpack(t, 1, 7997)) end))
        print(pcall(table.unpack, t, 1, 7998))
        print(select("#", string.byte(s, 4, -1)), pcall(string.byte, s, 3, -1))
    """
    assert run_plainly(source) == [
        "true\t7997",
        "false\ttoo many results to unpack",
        "7997\tfalse\tstring slice too long",
    ]


def test_sorting_needs_steps_but_no_memory() -> None:
    source = "local t = {} for i = 1, 30000 do t[i] = -i end table.sort(t) return t[1]"
    vm = VM(memory_bytes=8 << 20)
    assert vm.call(vm.load(source)) == (-30000.0,)


def test_allocations_of_a_comparator_are_counted() -> None:
    source = """
        local t, kept = {}, {}
        for i = 1, 4000 do t[i] = i % 100 end
        table.sort(t, function(a, b) kept[#kept + 1] = {} return a < b end)
    """
    assert failure(source, memory_bytes=2 << 20).endswith("not enough memory")


def test_each_call_gets_its_own_budget() -> None:
    vm = VM(steps=1000)
    count = vm.load("for i = 1, 600 do end return true")
    assert [vm.call(count) for _ in range(5)] == [(True,)] * 5


def test_the_same_script_stops_at_the_same_step() -> None:
    def reached() -> object:
        vm = VM(steps=12_345)
        with pytest.raises(LuaError):
            vm.call(vm.load("n = 0 while true do n += 1 if n % 7 == 0 then type(n) end end"))
        return vm.globals["n"]

    assert reached() == reached()


RECURSION = {
    "calls": "local function f() return f() + 1 end f()",
    "varargs": "local function f(...) return f(...) + 1 end f(1, 2)",
    "metamethods": "local t = setmetatable({}, {__index = function(t, k) return t[k] end}) "
    "return t.x",
    "tostring": "local t t = setmetatable({}, {__tostring = function() return tostring(t) end}) "
    "tostring(t)",
    "sort": "local function f() table.sort({2, 1}, f) end f()",
    "gsub": "local function f() return (('x'):gsub('x', f)) end f()",
    "pcall": "local function f() local ok, e = pcall(f) error(e, 0) end f()",
    "coroutines": "local function f() coroutine.wrap(f)() end f()",
    "concat": "local t t = setmetatable({}, {__concat = function(a, b) return a .. b end}) "
    "return t .. t",
}


@pytest.mark.thorough
@pytest.mark.parametrize("run", MODES.values(), ids=MODES)
def test_deep_recursion_is_a_stack_overflow(run: Callable[..., list[str]]) -> None:
    check_endings(run, RECURSION, "stack overflow")


def test_recursion_reaches_the_depth_of_the_reference() -> None:
    source = "local function f(n) return n <= 1 and 1 or f(n - 1) + 1 end print(f(19900))"
    assert run_plainly(source) == ["19900"]


DEPTHS = {
    "plain calls": ("f(19998)", "f(19999)"),
    "below pcall": ("assert(pcall(f, 19997))", "assert(pcall(f, 19998))"),
}


@pytest.mark.parametrize(("fits", "does_not"), DEPTHS.values(), ids=DEPTHS)
def test_maximum_call_depth_equals_that_of_the_reference(fits: str, does_not: str) -> None:
    vm = VM()
    define = "function f(n) return n <= 1 and 1 or f(n - 1) + 1 end"
    coroutine = vm.coroutine(vm.load(f"{define} {fits} coroutine.yield() {fits} {does_not}"))
    assert vm.resume(coroutine) == ()
    with pytest.raises(LuaError, match="stack overflow"):
        vm.resume(coroutine)


def test_yieldable_pcall_nests_as_deep_as_calls() -> None:
    source = """
        local function f() return pcall(f) end
        local results = {pcall(f)}
        local function sum(n) return n == 0 and 0 or n + select(2, pcall(sum, n - 1)) end
        return #results, results[#results], sum(5000)
    """
    vm = VM()
    for _ in range(2):
        results = vm.resume(vm.coroutine(vm.load(source, "=deep")))
        assert results == (10_000.0, "deep:2: stack overflow", 12_502_500.0)


STARTS = {
    "resume": "select(2, coroutine.resume(coroutine.create(deep)))",
    "wrap": "coroutine.wrap(deep)()",
    "resume in wrap": (
        "coroutine.wrap(function() return select(2, coroutine.resume(coroutine.create(deep))) end)()"
    ),
    "behind an overflow": "(pcall(f) and coroutine.wrap(deep)())",
    "in a deeper function": "(function() return (coroutine.wrap(deep)()) end)()",
}


@pytest.mark.parametrize(
    "start",
    [
        pytest.param(start, marks=() if name == "resume in wrap" else pytest.mark.thorough, id=name)
        for name, start in STARTS.items()
    ],
)
def test_nested_coroutine_allows_the_same_call_depth(start: str) -> None:
    source = f"""
        function f() return pcall(f) end
        function g(n) return n <= 1 and 1 or g(n - 1) + 1 end
        function deep() return #{{pcall(f)}} end
        print({start}, #{{pcall(f)}}, g(19998), pcall(g, 19998))
        function deep() return g(19998) end
        print({start}, g(19998), (pcall(g, 19998)))
    """
    assert run_plainly(source) == [
        "10000\t10000\t19998\tfalse\ttest:3: stack overflow",
        "19998\t19998\tfalse",
    ]


def test_endlessly_nested_coroutines_overflow_the_stack() -> None:
    source = """
        local function sink(n, f) if n == 0 then return f() end return (sink(n - 1, f)) end
        local function start() return sink(150, function() return coroutine.wrap(start)() end) end
        local function dive() return sink(15000, function() return coroutine.wrap(dive)() end) end
        local function endless(...) return endless(...) + 1 end
        local left = 150
        local function last()
            left -= 1
            return sink(60, function() return coroutine.wrap(left == 0 and endless or last)(1, 2) end)
        end
        print(pcall(start))
        print(pcall(dive))
        print(pcall(last))
    """
    endings = [line.rpartition(": ")[2] for line in run_plainly(source)]
    assert endings == ["C stack overflow", "stack overflow", "stack overflow"]


def test_unyieldable_pcall_counts_as_a_callback() -> None:
    source = "local function f() return pcall(f) end return #{pcall(f)}"
    vm = VM()
    assert vm.call(vm.load(source)) == (200.0,)


@pytest.mark.parametrize(
    "megabytes",
    [10, *(pytest.param(size, marks=pytest.mark.thorough) for size in range(11, 16))],
)
def test_endless_unpacking_runs_out_of_stack_before_the_heap(megabytes: int) -> None:
    source = """
        local function f(...) return f(table.unpack(table.create(4000, 1))) + 1 end
        f()
    """
    assert failure(source, memory_bytes=megabytes << 20).endswith("too many results to unpack")


def test_the_vm_works_after_a_stack_overflow() -> None:
    assert (
        run_plainly("""
        local function f() return f() + 1 end
        for i = 1, 3 do
            local ok = pcall(f)
            local n = 0
            while n < 3000 do n += 1 end
            print(ok, n)
        end
    """)
        == ["false\t3000"] * 3
    )


@pytest.mark.thorough
def test_compiling_is_charged_by_the_size_of_the_source() -> None:
    def compiled(statements: int, statement: str) -> int:
        source = f"assert(loadstring(string.rep({statement!r}, {statements})))"
        return steps_taken(source) - steps_taken(source.replace("loadstring", "#"))

    for statement in ("x=1\n", "f(a.b, c)\n", "do local a,b=1,2 local c=a+b*a..b end\n"):
        small, large = compiled(100, statement), compiled(1000, statement)
        assert small >= 10 * 100
        assert 9 * small <= large <= 11 * small


@pytest.mark.thorough
def test_memory_needed_while_compiling_is_limited() -> None:
    source = "return loadstring(string.rep('x=1\\n', 10000)) ~= nil"
    assert failure(source, memory_bytes=16 << 20).endswith("not enough memory")
    vm = VM(memory_bytes=64 << 20)
    assert vm.call(vm.load(source)) == (True,)


def test_compiling_stops_when_the_steps_are_used_up() -> None:
    source = "loadstring(string.rep('x=1\\n', 400000))"
    assert failure(source, steps=50_000).endswith(STEPS)


def test_compiling_can_be_interrupted() -> None:
    vm = VM()
    function = vm.load("return loadstring(string.rep('x=1\\n', 400000))")
    timer = threading.Timer(0.1, vm.interrupt)
    timer.start()
    with pytest.raises(LuaError, match="interrupted by the host"):
        vm.call(function)
    timer.join()


def test_a_budget_never_hands_out_more_than_it_has() -> None:
    vm = VM(steps=1500)
    vm.renew_steps()
    vm.more_steps()
    assert (length_hint(vm.steps), vm.steps_left) == (1000, 500)
    vm.more_steps()
    assert (length_hint(vm.steps), vm.steps_left) == (500, 0)
    vm.charge_work(496)  # the rest of the batch
    for steps in (5, 5):
        with pytest.raises(LuaError, match=STEPS):
            vm.charge_work(steps)


def test_work_beyond_the_budget_is_not_started() -> None:
    source = """
        local t = table.create(100000, 1)
        print(pcall(table.concat, t))
    """
    assert run_plainly(source, steps=50_000) == [f"false\t{STEPS}"]
    source = "for i = 1, 2500 do print(i) end"
    assert run_plainly(source, steps=2000) == [f"error: test:1: {STEPS}"]


def test_all_steps_can_be_used() -> None:
    source = "while n < 900 do n += 1 end string.rep('x', 1024 * 90)"
    vm = VM(steps=1000)
    vm.globals["n"] = 0.0
    assert vm.call(vm.load(source)) == ()


BOMBS = {
    "rep": "local s = ('x'):rep(1e6) for i = 1, 1000 do s = s .. s end",
    "table": "local t = {} while true do t[#t + 1] = {} end",
    "create": "local t = {} while true do t[#t + 1] = table.create(100000, 1) end",
    "closures": "local t, n = {}, 0 while true do n += 1 t[n] = function() return n end end",
    "buffer": "local t = {} while true do t[#t + 1] = buffer.create(1000000) end",
    "format": "local s = ('x'):rep(1000) while true do s = string.format('%s%s', s, s) end",
    "concat": "local s = ('x'):rep(1000) while true do s = table.concat({s, s}) end",
    "gsub": "local s = ('x'):rep(1000) while true do s = s:gsub('x', 'xx') end",
    "long replacements": "(('x'):rep(1000)):gsub('[x]', ('%%'):rep(50000))",
    "concat of one long string": "table.concat(table.create(1000, ('x'):rep(1e6)))",
    "format of one long string": "string.format(('%s'):rep(99), unpack(table.create(99, ('x'):rep(1e6))))",
    "pack": "string.pack(('s4'):rep(99), unpack(table.create(99, ('x'):rep(1e6))))",
    "padded pack": "string.pack('c1000000000', '')",
    "interpolation": "local s = 'x' while true do s = `{s}{s}` end",
    "operator": "local s = ('x'):rep(1e6) return s .. s .. s .. s .. s",
    "sub": "local s, t = ('x'):rep(1e6), {} while true do t[#t + 1] = s:sub(2) end",
    "upper": "local s, t = ('x'):rep(1e6), {} while true do t[#t + 1] = s:upper() end",
    "reverse": "local s, t = ('x'):rep(1e6), {} while true do t[#t + 1] = s:reverse() end",
    "split": "local s, t = ('x'):rep(1e6) .. 'y', {} while true do t[#t + 1] = s:split('y') end",
    "match": "local s, t = ('x'):rep(1e6), {} while true do t[#t + 1] = s:match('.(.*)') end",
    "copied buffer": "local s, t = ('x'):rep(1e6), {} while true do t[#t + 1] = buffer.fromstring(s) end",
    "text of a buffer": "local b, t = buffer.create(1e6), {} while true do t[#t + 1] = buffer.tostring(b) end",
    "growing arguments": "local function f(...) return f(1, ...) end f()",
    "code": "local s, t = ('x = 1 '):rep(1e3), {} while true do t[#t + 1] = loadstring(s) end",
}


@pytest.mark.thorough
def test_script_that_keeps_allocating_runs_out_of_memory() -> None:
    messages = {name: failure(source, memory_bytes=5_000_000) for name, source in BOMBS.items()}
    others = {name: text for name, text in messages.items() if "not enough memory" not in text}
    assert not others


def test_checking_a_large_table_for_emptiness_is_cheap() -> None:
    source = """
        local t = table.create(200000, 1)
        local k = next(t)
        for i = 1, 1000 do assert(next(t) == 1) end
        t[1] = nil
        return next(t, k)
    """
    vm = VM(steps=100_000)
    assert vm.call(vm.load(source)) == (2.0, 1.0)


def test_iteration_over_more_empty_slots_than_steps_fails() -> None:
    """A complete iteration would exceed the memory of the process."""
    source = "local t = table.create(2^26) t[2^26] = 1 "
    vm = VM(steps=1_100_000)
    for work in ("next(t)", "table.foreach(t, print)", "for _ in t do end"):
        with pytest.raises(LuaError, match="exhausted the allowed number of steps"):
            vm.call(vm.load(source + work))


def test_iteration_over_empty_slots_takes_memory() -> None:
    source = "local t = table.create(2^16) t[2^16] = 1 next(t)"
    assert failure(source, memory_bytes=2_500_000) == "not enough memory"


def test_garbage_does_not_count() -> None:
    source = "for i = 1, 300000 do local t = {i} end print('done')"
    assert run_plainly(source, memory_bytes=5_000_000) == ["done"]


def test_gcinfo_grows_as_the_script_allocates_and_is_the_same_after_a_restore() -> None:
    source = """
        kept = {}
        for i = 1, 5000 do kept[i] = {i} end
        coroutine.yield(gcinfo())
        for i = 1, 5000 do kept[i] = {kept[i]} end
        return gcinfo()
    """
    options = {"steps": 100_000, "memory_bytes": 5_000_000}
    vm = VM(**options)
    main = vm.roots["main"] = vm.coroutine(vm.load(source))
    (before,) = vm.resume(main)
    restored = VM.restore(vm.snapshot(), **options)
    (after,) = vm.resume(main)
    assert 100.0 < before < after
    assert restored.resume(restored.roots["main"]) == (after,)


def test_values_of_the_host_do_not_count() -> None:
    vm = VM()
    count = vm.load("return collectgarbage('count')")

    def call_with(*held: object) -> object:
        return vm.call(count)

    assert run_deep(call_with) == run_deep(lambda: call_with(["x" * 300] * 9, {"a": b"1" * 500}))


def test_vector_counts_once_per_reference() -> None:
    def count(is_same: bool) -> object:
        vm = VM()
        vm.globals["same"] = is_same
        source = "local v = vector.create(1, 2, 3) local w = if same then v else v + v "
        return vm.call(vm.load(source + "t = {v, w} return collectgarbage('count')"))

    assert count(True) == count(False)


def test_sort_with_an_inconsistent_comparator_terminates() -> None:
    for body in ("return true", "return false", "return a < b == (a % 3 < 1)"):
        source = f"""
            local t = {{}} for i = 1, 500 do t[i] = (i * 7919) % 1009 end
            print(pcall(table.sort, t, function(a, b) {body} end))
        """
        (line,) = run_plainly(source, steps=1_000_000)
        assert line in ("true", "false\tinvalid order function for sorting")


def test_another_thread_can_interrupt_a_script() -> None:
    vm = VM()
    function = vm.load("pcall(function() while true do end end) while true do end")
    timer = threading.Timer(0.1, vm.interrupt)
    timer.start()
    with pytest.raises(LuaError, match="interrupted by the host"):
        vm.call(function)
    timer.join()


def test_control_c_ends_the_script() -> None:
    vm = VM()
    function = vm.load("while true do end")
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.1, signal.pthread_kill, (main, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        vm.call(function)
    timer.join()
    assert vm.call(vm.load("return 1")) == (1.0,)


def test_interpreter_recursion_is_probed_only_once() -> None:
    assert recursion_is_unchecked() in (True, False)
    assert run_deep(recursion_is_unchecked) == recursion_is_unchecked()
