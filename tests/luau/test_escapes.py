"""Scripts cannot expose Python's semantics or errors to themselves or the host."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from clawblox.luau.core.errors import LuaError, VMSnapshotError
from clawblox.luau.lib.support.registry import BUILTINS
from clawblox.luau.runtime.host import Host
from clawblox.luau.vm import VM
from tests.luau.support import MODES, round_trip

# Ways for a script to obtain `add`, which its chunk calls only with numbers.
ESCAPES = {
    "its own level": "found = debug.info(1, 'f')",
    "a level above": "(function() found = debug.info(2, 'f') end)()",
    "what setfenv returns": "found = setfenv(1, getfenv(1))",
    "an error handler": "xpcall(error, function() found = debug.info(3, 'f') end)",
    "a running coroutine": "found = debug.info(coroutine.running(), 1, 'f')",
    "a callback": "table.sort({2, 1}, function() found = debug.info(3, 'f') return false end)",
    "a metamethod": "local _ = setmetatable({}, {__index = function() found = debug.info(2, 'f') end}).x",
    "a suspended coroutine": "coroutine.yield()",
}
MISUSES = {
    "'a', 'b'": "invalid argument #1 to 'add' (number expected, got string)",
    "1, {}": "invalid argument #2 to 'add' (number expected, got table)",
    "true, 1": "invalid argument #1 to 'add' (number expected, got boolean)",
    "1": "invalid argument #2 to 'add' (number expected, got no value)",
}


def escaped(way: str) -> VM:
    """Return a VM in which `found` is the function."""
    vm = VM(memory_bytes=32 << 20)
    add = f"local function add(x, y) {ESCAPES[way]} return x + y end"
    vm.roots["co"] = vm.coroutine(
        vm.load(f"{add} local sum = add(1, 2) return sum + add(3, 4)", "=add")
    )
    vm.resume(vm.roots["co"])
    if way == "a suspended coroutine":
        vm.globals["co"] = vm.roots["co"]
        vm.call(vm.load("found = debug.info(co, 1, 'f')"))
        vm.resume(vm.roots["co"])
    return vm


@pytest.mark.thorough
@pytest.mark.parametrize("is_restored", [False, True])
@pytest.mark.parametrize("way", ESCAPES)
def test_escaped_direct_function_checks_its_arguments(way: str, is_restored: bool) -> None:
    vm = escaped(way)
    if is_restored:
        vm = round_trip(vm)
    vm.call(vm.load("co, found_before = nil, found"))
    if way == "a suspended coroutine":  # this one yields
        assert vm.call(vm.load("return coroutine.resume(coroutine.create(found), 1, 2)")) == (True,)
    else:
        vm.roots["co"] = vm.coroutine(vm.load("return found(1, 2, 'more'), found == found_before"))
        assert vm.resume(vm.roots["co"]) == (3.0, True)
    for arguments, complaint in MISUSES.items():
        (ok, message) = vm.call(vm.load(f"return pcall(found, {arguments})"))
        assert (ok, message) == (False, complaint)


def test_an_escaped_function_keeps_its_identity_and_debug_info() -> None:
    for vm in (escaped("its own level"), round_trip(escaped("its own level"))):
        check = """
            local is_same = getfenv(found) == getfenv() and type(found) == "function"
            return is_same, debug.info(found, "nsal")
        """
        assert vm.call(vm.load(check)) == (True, "add", "add", 2.0, False, 1.0)
        shown = vm.call(vm.load("return tostring(found)"))
        assert round_trip(vm).call(vm.load("return tostring(found)")) == shown
        vm.call(vm.load("setfenv(found, {})"))
        with pytest.raises(LuaError, match="attempt to index nil with 'info'"):
            vm.call(vm.load("found(1, 2)"))


def test_the_memory_limit_holds_for_an_escaped_function() -> None:
    source = """
        local escaped
        local function double(x) escaped = debug.info(1, "f") return x + x end
        double(1)
        local text = ("x"):rep(1e6)
        for i = 1, 6 do text = escaped(text) end
        return #text
    """
    vm = VM(memory_bytes=32 << 20)
    with pytest.raises(LuaError, match="number expected, got string"):
        vm.call(vm.load(source))


LEAKS = {
    "for i = 1, 2, '1' do print(i) end": ["1", "2"],
    "for i = '2', '1', '-1' do print(i) end": ["2", "1"],
    "local f, s = ipairs({1}) for i in f, s, 0/0 do print(i) end print('end')": ["end"],
    "local f, s = ipairs({1}) for i in f, s, 1/0 do print(i) end print('end')": ["end"],
    "local f, s = ipairs({1}) for i in f, s, -1e300 do print(i) end print('end')": ["end"],
    "local f, s = ipairs({5}) for i, v in f, s, 0 do print(i, v) end": ["1\t5"],
    "local f, s = ipairs({[0] = 4, 5}) for i, v in f, s, -1 do print(i, v) end": ["0\t4", "1\t5"],
}


@pytest.mark.parametrize("run", MODES.values(), ids=MODES)
def test_loops_accept_any_numeric_bounds(run: Callable[[str], list[str]]) -> None:
    assert {source: run(source) for source in LEAKS} == LEAKS


def test_a_key_removed_before_a_restore_is_still_a_boolean() -> None:
    vm = VM()
    source = """
        t = {a = 1, [true] = 1}
        for key in pairs(t) do coroutine.yield() kind = type(key) t[true] = 5 end
    """
    vm.roots["co"] = vm.coroutine(vm.load(source))
    vm.resume(vm.roots["co"])
    vm.call(vm.load("t[true] = nil"))
    vm = round_trip(vm)
    vm.resume(vm.roots["co"])
    vm.resume(vm.roots["co"])
    assert vm.globals["kind"] == "boolean"


def test_wrong_arguments_to_a_host_function_are_an_error_of_the_script() -> None:
    host, vm = Host(), VM()

    @host.function("wait")
    def wait(seconds: float) -> float:
        return abs(seconds)

    vm.globals["wait"] = wait
    for arguments in ("", "1, 2"):
        (ok, message) = vm.call(vm.load(f"return pcall(function() return wait({arguments}) end)"))
        assert not ok
        assert message.startswith("script:1: invalid arguments to 'wait': ")


def test_a_type_error_in_a_host_function_is_an_error_of_the_host() -> None:
    host, vm = Host(), VM()

    @host.function("broken")
    def broken(value: float) -> str:
        return "a" + value  # type: ignore[operator]

    vm.globals["broken"] = broken
    with pytest.raises(TypeError, match="concatenate"):
        vm.call(vm.load("return pcall(broken, 1)"))


ODD_VALUES = """
    nil, true, false, 0, -1, 1, 2.5, 0/0, 1/0, -1/0, 1e300, -1e300, 2^53, 2^31, -2^63, "", "abc", "%", "[", "%1",
    "%d%s", "%c", "!%c", "%Q", ">i17", "z", "10", "0x10", ("\\255"):rep(3), "k", "year", "*t", {}, {1, 2, 3},
    {[1.5] = 1}, print, error, function(...) return ... end, coroutine.create(function() end), buffer.create(16),
    vector.create(1, 2, 3), vector.create(0/0, 1/0, 0), newproxy(true), setmetatable({1, 2, x = 1}, {
        __index = function(_, key) return key end, __tostring = function() return 5 end,
        __len = function() return "x" end, __lt = function() return 1 end, __iter = function() return 1 end})
"""


@pytest.mark.thorough
def test_library_functions_accept_any_arguments_or_raise_luau_errors() -> None:
    choice = random.Random(1)
    vm = VM(steps=2000, memory_bytes=4 << 20)
    values = vm.call(vm.load(f"return {ODD_VALUES}"))
    for name in sorted([*BUILTINS.functions, *BUILTINS.internal]):
        for _ in range(8):
            arguments = [choice.choice(values) for _ in range(choice.randrange(5))]
            try:
                vm.call(BUILTINS.find(name), *arguments)
            except LuaError:
                continue
            except BaseException as error:
                error.add_note(f"{name}{arguments}")
                raise


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (
            "setfenv(-1, {})",
            (False, "invalid argument #1 to 'setfenv' (level must be non-negative)"),
        ),
        ("string.format('%c', 0/0)", (True, "\0")),
        ("string.format('%c', -1/0)", (True, "\0")),
    ],
)
def test_numbers_without_an_integer_do_not_reach_python(
    call: str, expected: tuple[bool, str]
) -> None:
    function, _, arguments = call.partition("(")
    vm = VM()
    assert vm.call(vm.load(f"return pcall({function}, {arguments}")) == expected


def test_chunk_name_is_a_byte_string_for_scripts() -> None:
    vm = VM()
    vm.roots["f"] = vm.load("local ok, message = pcall(error, 'x') error('y')", "=世界")
    with pytest.raises(LuaError, match="世界:1: y"):
        vm.call(vm.roots["f"])
    vm.globals["f"] = vm.roots["f"]
    size = "local _, message = pcall(f) return buffer.len(buffer.fromstring(message))"
    assert vm.call(vm.load(size)) == (11.0,)
    document = vm.snapshot()
    VM.restore(document, sources={"=世界": "local ok, message = pcall(error, 'x') error('y')"})
    with pytest.raises(VMSnapshotError, match="the source of '=世界' has changed"):
        VM.restore(document, sources={"=世界": ""})
