"""The texts, positions and levels of runtime errors."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from clawblox.luau.core.errors import LuaError
from clawblox.luau.vm import VM
from tests.luau.support import MODES, failure, run_plainly

FAULTS = {
    "return integer.create(1)": "attempt to index nil with 'create': 64-bit integers are not "
    "supported",
    "return class.isinstance": "attempt to index nil with 'isinstance': classes are not supported",
    "local integer = nil; return integer.x": "attempt to index nil with 'x'",
    "local t = nil; return t.x": "attempt to index nil with 'x'",
    "local t = nil; t.x = 1": "attempt to index nil with 'x'",
    "local t = {}; return t.a.b": "attempt to index nil with 'b'",
    "local t = 5; return t[1]": "attempt to index number with number",
    "local t, k = nil, {}; return t[k]": "attempt to index nil with table",
    "return ('x').y.z": "attempt to index nil with 'z'",
    "local s = 'a'; s.x = 1": "attempt to index string with 'x'",
    "local f; f()": "attempt to call a nil value",
    "local f = {}; f()": "attempt to call a table value",
    "local t = {}; t.x.y()": "attempt to index nil with 'y'",
    "local t = {}; t.x()": "attempt to call a nil value",
    "local t = {}; t:x()": "attempt to call missing method 'x' of table",
    "('x'):nope()": "attempt to call missing method 'nope' of string",
    "return 1 + nil": "attempt to perform arithmetic (add) on number and nil",
    "return {} * {}": "attempt to perform arithmetic (mul) on table",
    "return -{}": "attempt to perform arithmetic (unm) on table",
    "return true - 1": "attempt to perform arithmetic (sub) on boolean and number",
    "return 'a' // 1": "attempt to perform arithmetic (idiv) on string and number",
    "return 1 < 'x'": "attempt to compare number < string",
    "return nil > 1": "attempt to compare number < nil",
    "return {} <= {}": "attempt to compare table <= table",
    "return true < false": "attempt to compare boolean < boolean",
    "return 'a' .. {}": "attempt to concatenate string with table",
    "return #5": "attempt to get length of a number value",
    "for i = 'a', 2 do end": "invalid 'for' initial value (number expected, got string)",
    "for i = 1, {} do end": "invalid 'for' limit (number expected, got table)",
    "for i = 1, 2, nil do end": "invalid 'for' step (number expected, got nil)",
    "for x in 5 do end": "attempt to iterate over a number value",
    "for x in pairs() do end": "missing argument #1 to 'pairs' (table expected)",
    "pairs(newproxy(true))": "invalid argument #1 to 'pairs' (table expected, got userdata)",
    "type()": "missing argument #1",
    "rawequal(1)": "missing argument #2",
    "assert()": "missing argument #1",
    "assert(false, {})": "invalid argument #2 to 'assert' (string expected, got table)",
    "assert(nil, 5)": "5",
    "error(5)": "5",
    "local t = {} t[nil] = 1": "table index is nil",
    "local t = {} t[0/0] = 1": "table index is NaN",
    "string.rep()": "missing argument #1 to 'rep' (string expected)",
    "string.rep('x', {})": "invalid argument #2 to 'rep' (number expected, got table)",
    "math.floor('x')": "invalid argument #1 to 'floor' (number expected, got string)",
    "setmetatable(1, {})": "invalid argument #1 to 'setmetatable' (table expected, got number)",
    "assert(false)": "assertion failed!",
    "assert(nil, 'why')": "why",
    "error('plain')": "plain",
    "string.format('%d', 'x')": "invalid argument #2 to 'format' (number expected, got string)",
    "string.format('%y', 1)": "invalid option '%y' to 'format'",
    "('x'):rep(1e10)": "resulting string too large",
    "table.concat({1, {}})": "invalid value (table) at index 2 in table for 'concat'",
    "select(0)": "invalid argument #1 to 'select' (index out of range)",
}


@pytest.mark.parametrize("run", MODES.values(), ids=MODES)
def test_error_messages_equal_those_of_luau(run: Callable[..., list[str]]) -> None:
    printed = {source: run(f"\nprint(); {source}") for source in FAULTS}
    assert printed == {source: ["", f"error: test:2: {text}"] for source, text in FAULTS.items()}


def test_an_error_has_the_position_of_its_operation() -> None:
    assert failure("local t = {}\nlocal x = 1 +\n  2 +\n  t.a.b") == (
        "test:4: attempt to index nil with 'b'"
    )


@pytest.mark.parametrize("run", MODES.values(), ids=MODES)
def test_error_level_selects_the_position(run: Callable[..., list[str]]) -> None:
    source = """
        local function f(level) error("x", level) end
        local function g(level)
            f(level)
        end
        for level = 0, 3 do
            print(pcall(function()
                g(level) end))
        end
    """
    assert run(source) == [
        "false\tx", "false\ttest:2: x", "false\ttest:4: x", "false\ttest:8: x",
    ]  # fmt: skip


def test_error_values_keep_their_type_and_identity() -> None:
    assert run_plainly("""
        local e = {}
        local ok, caught = pcall(error, e)
        print(ok, caught == e, pcall(error), pcall(error, nil), select(2, pcall(error, 5)))
    """) == ["false\ttrue\tfalse\tfalse\t5"]


def test_host_gets_the_error_value_and_the_traceback() -> None:
    vm = VM()
    function = vm.load("local function f()\n  error('why')\nend\nf()", "=chunk")
    with pytest.raises(LuaError) as caught:
        vm.call(function)
    assert caught.value.value == "chunk:2: why"
    assert caught.value.traceback == "chunk:2 function f\nchunk:4\n"


@pytest.mark.parametrize("run", MODES.values(), ids=MODES)
def test_handlers_see_the_stack_of_the_error(run: Callable[..., list[str]]) -> None:
    lines = run("""
        local function f() print("f") error("why") end
        for i = 1, 2 do
            print(select(2, xpcall(function() f() end, debug.traceback)))
        end
    """)
    assert lines == ["f", "test:2: why\ntest:2 function f\ntest:4\ntest:4\n"] * 2


def test_the_traceback_of_a_resumed_coroutine_is_complete() -> None:
    vm = VM()
    source = "local function f()\n  coroutine.yield()\n  error('why')\nend\n\nf()"
    coroutine = vm.coroutine(vm.load(source, "=chunk"))
    vm.resume(coroutine)
    with pytest.raises(LuaError) as caught:
        vm.resume(coroutine)
    assert caught.value.traceback == "chunk:3 function f\nchunk:6\n"


def test_errors_in_handlers_are_errors_in_error_handling() -> None:
    assert run_plainly("print(xpcall(error, function() error('again') end, 'x'))") == [
        "false\terror in error handling"
    ]


def test_debug_info_names_functions_and_lines() -> None:
    assert run_plainly("""
        local function named(a, b, ...) return debug.info(1, "slna") end
        print(named())
        print(debug.info(named, "lna"))
        print(debug.info(print, "sn"))
        print((debug.info(1, "f")) ~= nil, pcall(debug.info, 1, "x"))
    """) == [
        "test\t2\tnamed\t2\ttrue",
        "2\tnamed\t2\ttrue",
        "[C]\tprint",
        "true\tfalse\tinvalid argument #2 to 'info' (invalid option)",
    ]


@pytest.mark.parametrize("run", MODES.values(), ids=MODES)
def test_debug_info_shows_the_calls_of_a_failed_coroutine(
    run: Callable[..., list[str]],
) -> None:
    assert run("""
        local function deep(n) if n == 0 then return (nil).x end return (deep(n - 1)) end
        local function outer(...) deep(...) end
        local failed = coroutine.create(outer)
        coroutine.resume(failed, 40)
        local raised = coroutine.create(function() error("on purpose") end)
        coroutine.resume(raised)
        print("a line")
        print(debug.info(failed, 0, "sln"))
        print(debug.info(failed, 40, "l"), debug.info(failed, 41, "nfla"))
        print(debug.info(failed, 20, "l"), select("#", debug.info(failed, 42, "l")))
        print(debug.info(raised, 0, "sln"))
        print(debug.info(raised, 1, "sln"))
        print(pcall(debug.info, raised, 1, "x"))
    """) == [
        "a line",
        "test\t2\tdeep",
        "2\touter\tnil\t3\tnil\tnil",
        "nil\t0",
        "[C]\t-1\terror",
        "test\t6\t",
        "false\tinvalid argument #3 to 'info' (invalid option)",
    ]


@pytest.mark.parametrize("run", MODES.values(), ids=MODES)
def test_tracebacks_never_show_generated_code(run: Callable[..., list[str]]) -> None:
    lines = run("""
        local function deep() return deep() + 1 end
        print(select(2, pcall(deep)))
        print(select(2, pcall(function() local t = setmetatable({}, {__index = error}) return t.x.y end)))
        print((select(2, xpcall(deep, debug.traceback)):sub(1, 30)))
    """)
    assert not any(word in line for line in lines for word in ("<luau", "F0", "M0", ".py"))
    assert lines[0] == "test:2: stack overflow"
