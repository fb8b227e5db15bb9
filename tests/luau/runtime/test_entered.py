"""A common budget for many calls, and the cost of calls."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from clawblox.luau import VM, Host, LuaError, VMSnapshotError, run_deep, suspend_raw
from tests.luau.support import round_trip, values

LOOP = "for i = 1, 600 do local t = i end"


def make_call(vm: VM, source: str) -> Callable[[], Any]:
    function = vm.load(source)
    return lambda: vm.resume(vm.coroutine(function))


def twice(vm: VM, call: Callable[[], Any]) -> None:
    with vm.entered():
        call()
        call()


@pytest.mark.parametrize("start", [run_deep, lambda function: function()], ids=["deep", "ordinary"])
@pytest.mark.parametrize("call", ["call", "resume"])
def test_calls_within_a_block_share_one_budget(start: Any, call: str) -> None:
    vm = VM(steps=1000)
    function = vm.load(LOOP)
    make = {"call": lambda: vm.call(function), "resume": lambda: vm.resume(vm.coroutine(function))}[
        call
    ]
    start(make)
    start(make)  # each has its own budget
    assert vm.limit_hit is None
    with pytest.raises(LuaError, match="exhausted the allowed number of steps"):
        start(lambda: twice(vm, make))
    assert vm.limit_hit == "steps"
    start(make)
    assert vm.limit_hit is None


def test_nested_blocks_share_the_outer_budget() -> None:
    vm = VM(steps=1000)
    call = make_call(vm, LOOP)
    with vm.entered():
        call()
        with pytest.raises(LuaError, match="steps"), vm.entered():
            call()
        with pytest.raises(
            LuaError, match="steps"
        ):  # an exhausted budget remains exhausted until the block ends
            call()


def test_a_vm_keeps_its_budget_while_another_runs() -> None:
    one, other = VM(steps=1000), VM(steps=1000)
    host = Host()

    @host.raw("cross")
    def cross() -> Any:
        return other.call(back)

    @host.raw("back")
    def back() -> Any:
        return one.call(loop)

    loop = one.load(LOOP)
    one.globals["cross"] = cross
    with pytest.raises(LuaError, match="exhausted the allowed number of steps"):
        one.call(one.load(f"{LOOP} cross()"))
    assert (one.limit_hit, other.limit_hit) == ("steps", None)
    one.call(one.load("cross()"))


def test_a_block_on_an_ordinary_thread_serves_other_threads_of_the_call() -> None:
    vm = VM()
    with vm.entered():
        assert vm.call(vm.load("return math.random(1, 1)")) == (1.0,)
        with pytest.raises(VMSnapshotError, match="while it runs"):
            vm.snapshot()
    vm.snapshot()


def test_deep_calls_within_a_block_do_not_start_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    vm = VM()
    call = make_call(vm, "return 1")

    def refuse(*_: Any) -> None:
        raise AssertionError("a thread was started")

    def many() -> None:
        monkeypatch.setattr(threading.Thread, "start", refuse)
        with vm.entered():
            for _ in range(10):
                call()
        monkeypatch.undo()

    run_deep(many)


def test_resume_within_a_block_adds_a_single_python_call() -> None:
    """A tick consists of `vm.resume` calls; this counts Python calls instead of time."""
    vm = VM()
    co = vm.coroutine(vm.load("while true do coroutine.yield() end"))
    calls: list[str] = []

    def count(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            calls.append(frame.f_code.co_name)

    def measure() -> list[str]:
        with vm.entered():
            vm.resume(co)
            sys.setprofile(count)
            vm.resume(co)
            sys.setprofile(None)
        return calls

    found = run_deep(measure)
    assert found[:2] == ["resume", "resume"]  # the VM's and the coroutine's own
    assert len(found) < 20


def test_handlers_run_inside_host_functions() -> None:
    """A signal fired by a setter resumes handlers, which may wait, while the setter runs."""
    host, vm = Host(), VM(steps=5000)
    waiting: list[Any] = []
    vm.roots["waiting"] = None

    @host.raw("fire")
    def fire(function: Any, *values: Any) -> None:
        co = vm.coroutine(function)
        vm.resume(co, *values)
        if co.status == "suspended":
            waiting.append(co)

    @host.raw("wait")
    def wait(seconds: float) -> None:
        raise suspend_raw(seconds)

    vm.globals.update(host.functions)
    main = vm.coroutine(
        vm.load(
            """
            log = ''
            local function inner(x) log ..= 'i' .. x wait(1) log ..= 'w' .. x end
            local function outer(x) log ..= 'o' .. x fire(inner, x) wait(1) log ..= 'v' .. x end
            fire(outer, 1) fire(outer, 2) log ..= '.' wait(2) return log
            """
        )
    )
    with vm.entered():
        assert vm.resume(main) == (2.0,)
        assert vm.globals["log"] == "o1i1o2i2."
        for co in waiting:
            assert vm.resume(co) == ()
        assert vm.resume(main) == ("o1i1o2i2.w1v1w2v2",)


def test_handlers_nest_at_most_200_deep() -> None:
    host, vm = Host(), VM()

    @host.raw("fire")
    def fire(function: Any, *values: Any) -> Any:
        return vm.resume(vm.coroutine(function), *values)

    vm.globals["fire"] = fire
    with pytest.raises(LuaError, match="C stack overflow"):
        vm.resume(vm.coroutine(vm.load("local function f() fire(f) end f()")))
    assert vm.call(vm.load("return 1")) == (1.0,)


def test_limit_hit_is_memory_after_a_full_heap() -> None:
    vm = VM(memory_bytes=100_000)
    grow = vm.load("kept = {} for i = 1, 1e6 do kept[i] = {} end")
    with pytest.raises(LuaError, match="not enough memory"):
        vm.call(grow)
    assert vm.limit_hit == "memory"
    vm.call(vm.load("kept = nil"))
    assert vm.limit_hit is None


def test_a_script_may_free_memory_and_continue() -> None:
    vm = VM(memory_bytes=100_000)
    source = "local ok = pcall(function() local kept = {} for i = 1, 1e6 do kept[i] = {} end end) return ok"
    assert vm.call(vm.load(source)) == (False,)
    assert vm.limit_hit == "memory"


@pytest.mark.parametrize("where", ["roots", "held"])
def test_memory_held_by_the_host_counts(where: str) -> None:
    vm = VM(memory_bytes=200_000)
    threads: list[Any] = []
    if where == "held":
        vm.held = lambda: threads
    source = vm.load("local t = table.create(1000, 1) coroutine.yield() return t")

    def hold_many() -> None:
        for at in range(1000):
            co = vm.coroutine(source)
            if where == "held":
                threads.append(co)
            else:
                vm.roots[str(at)] = co
            vm.resume(co)

    with pytest.raises(LuaError, match="not enough memory"):
        hold_many()
    assert vm.limit_hit == "memory"


@pytest.mark.thorough
def test_error_in_a_call_does_not_affect_other_calls() -> None:
    vm = VM()
    fail = make_call(vm, "local function f() error('no') end f()")
    deep = make_call(vm, "local function f() return f() + 1 end f()")
    with vm.entered():
        for _ in range(300):
            with pytest.raises(LuaError, match="no"):
                fail()
        with pytest.raises(LuaError, match="stack overflow"):
            deep()
        assert make_call(vm, "return select(2, pcall(string.rep))")()[0].startswith(
            "missing argument"
        )


# Clocks


def test_host_can_set_the_clocks() -> None:
    vm = VM()
    vm.clock, vm.wall_clock = lambda: 12.5, lambda: 86400.75
    source = "return os.clock(), os.time(), os.date('%Y-%m-%d %H:%M:%S'), os.date('*t').day, os.date('!%H')"
    assert vm.call(vm.load(source)) == (12.5, 86400.0, "1970-01-02 00:00:00", 2.0, "00")


def test_dates_do_not_depend_on_the_time_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    with monkeypatch.context() as patch:
        patch.setenv("TZ", "JST-9")
        time.tzset()
        vm = VM()
        found = vm.call(
            vm.load("return os.date('%H', 0), os.date('!%H', 0), os.date('*t', 0).hour")
        )
    time.tzset()
    assert found == ("00", "00", 0.0)


# Random numbers


def test_random_treats_trailing_nil_arguments_as_absent() -> None:
    source = """
        local function draw(...) math.randomseed(3) return math.random(...) end
        return draw(nil, nil) == draw(), draw(nil) == draw(), draw(9, nil) == draw(9),
            draw(2, 9, nil) == draw(2, 9), pcall(draw, nil, 2)
    """
    *same, ok, text = values(f"(function() {source} end)()")
    assert same == [True, True, True, True]
    assert (ok, text) == (
        False,
        "test:2: invalid argument #1 to 'random' (number expected, got nil)",
    )
    assert values("pcall(math.random, 1, 2, 3)")[0] is False


def test_random_streams_continue_after_a_restore() -> None:
    vm = VM()
    vm.call(vm.load("math.random(nil, nil)"))
    restored = round_trip(vm)
    draw = "return math.random(nil)"
    assert vm.call(vm.load(draw)) == restored.call(restored.load(draw))
