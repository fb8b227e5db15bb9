"""Host calls that fail after suspending their coroutine."""

from __future__ import annotations

import json

import pytest

from clawblox.luau import VM, Host, LuaError, RuntimeFault, fail_call, suspend


def begin(source: str) -> VM:
    """Return a VM, saved and restored once, with a coroutine that a host function has suspended."""
    host = Host()

    @host.function("ask")
    def ask() -> None:
        raise suspend()

    vm = VM()
    vm.globals["ask"] = host.functions["ask"]
    vm.roots["main"] = vm.coroutine(vm.load(source, "=world"))
    vm.resume(vm.roots["main"])
    return VM.restore(json.loads(json.dumps(vm.snapshot())), host=host)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("return pcall(function()\n local x = ask() end)", (False, "world:2: lost")),
        ("return pcall(ask)", (False, "lost")),
        ("return xpcall(function() ask() end, function(e) return e .. '!' end)",
         (False, "world:1: lost!")),
    ],
)  # fmt: skip
def test_script_gets_the_error_at_its_call(source: str, expected: object) -> None:
    vm = begin(source)
    fail_call(vm.roots["main"], RuntimeFault("lost"))
    assert vm.resume(vm.roots["main"]) == expected


def test_uncaught_error_ends_the_coroutine_with_a_traceback() -> None:
    vm = begin("local function f()\n ask()\n end\n f() print('never')")
    main = vm.roots["main"]
    fail_call(main, RuntimeFault("lost"))
    with pytest.raises(LuaError) as caught:
        vm.resume(main)
    assert str(caught.value) == "world:2: lost"
    assert caught.value.traceback == "world:2 function f\nworld:4\n"
    assert main.status == "dead"


def test_error_value_is_passed_unchanged() -> None:
    vm = begin("local ok, e = pcall(function() ask() end) return e")
    fail_call(vm.roots["main"], LuaError(5.0))
    assert vm.resume(vm.roots["main"]) == (5.0,)
