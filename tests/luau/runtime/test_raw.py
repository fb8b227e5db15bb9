"""Raw functions: called directly with Luau values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from clawblox.luau import VM, Host, HostError, LuaError, RuntimeFault, VMSnapshotError, suspend_raw
from clawblox.luau.core.values import LuaTable
from tests.luau.support import round_trip


def make_answer(host: Host, name: str, answer: str) -> Callable[..., Any]:
    def answer_(*_: Any) -> str:
        return answer

    return host.raw(name)(answer_)


class Shop(Host):
    """Raw functions of every kind."""

    def __init__(self) -> None:
        super().__init__()
        self.got: list[Any] = []

        @self.raw("keep")
        def keep(*values: Any) -> tuple[()]:
            self.got += values
            return ()

        @self.raw("pair")
        def pair(first: Any, second: Any = 2.0) -> tuple[Any, Any]:
            return second, first

        @self.raw("nothing")
        def nothing() -> None:
            return None

        @self.raw("refuse")
        def refuse(text: str) -> None:
            raise_deep_down(text)

        @self.raw("throw")
        def throw(value: Any) -> None:
            raise LuaError(value)

        @self.raw("wait")
        def wait(*values: Any) -> None:
            raise suspend_raw(*values)

        @self.raw("break")
        def break_(how: str) -> None:
            if how == "arguments":
                raise_deep_down()  # type: ignore[call-arg]
            if how == "call":
                how()  # type: ignore[operator]
            raise ValueError(how)

        @self.raw("call")
        def call(function: Any, *values: Any) -> Any:
            from clawblox.luau.core.machine import current

            vm: Any = current.vm
            return vm.resume(vm.coroutine(function), *values)


def raise_deep_down(text: str) -> None:
    raise RuntimeFault(text)


def open_shop(**options: Any) -> tuple[Shop, VM]:
    shop, vm = Shop(), VM(**options)
    vm.globals.update(shop.functions)
    vm.globals["break_"] = shop.functions["break"]
    return shop, vm


def run(source: str) -> tuple[Any, ...]:
    _, vm = open_shop()
    return vm.call(vm.load(source, "=shop"))


def test_raw_functions_get_unconverted_luau_values() -> None:
    shop, vm = open_shop()
    vm.call(vm.load("t = {} keep('\\xfc', 1, nil, t)"))
    assert shop.got == ["\xfc", 1.0, None, vm.globals["t"]]
    assert shop.got[3] is vm.globals["t"]


def test_raw_functions_return_results_like_luau_functions() -> None:
    assert run("return select('#', keep()), select('#', nothing()), nothing(), pair(1)") == (
        0.0, 1.0, None, 2.0, 1.0,
    )  # fmt: skip


def test_faults_of_raw_functions_get_the_position_of_the_script() -> None:
    assert run("return pcall(function()\n refuse('no') end)") == (False, "shop:2: no")
    assert run("return pcall(refuse, 'no')") == (False, "no")
    with pytest.raises(LuaError, match=r"^shop:1: no$") as caught:
        run("refuse('no')")
    assert caught.value.traceback == "shop:1\n"


def test_errors_of_raw_functions_keep_their_value() -> None:
    caught, value = run("return pcall(throw, {})")
    assert not caught
    assert isinstance(value, LuaTable)


@pytest.mark.parametrize("call", ["pair()", "pair(1, 2, 3)", "nothing(1)"])
@pytest.mark.parametrize("form", ["{}", "table.sort({{1, 2}}, function() {} end)"])
def test_wrong_number_of_arguments_is_a_script_error(call: str, form: str) -> None:
    caught, text = run(f"return pcall(function() {form.format(call)} end)")
    assert not caught
    assert text.startswith(f"shop:1: invalid arguments to '{call.partition('(')[0]}': ")


@pytest.mark.parametrize(
    "call",
    [
        "pcall(pair)",
        "xpcall(pair, print)",
        "coroutine.resume(coroutine.create(pair))",
        "pcall(table.sort, {1, 2}, nothing)",
    ],
)
def test_wrong_number_of_arguments_is_found_in_library_callbacks(call: str) -> None:
    assert run(f"return ({call})") == (False,)


@pytest.mark.parametrize(
    ("how", "error"), [("value", ValueError), ("arguments", TypeError), ("call", TypeError)]
)
def test_other_exceptions_are_host_errors(how: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        run(f"pcall(break_, '{how}')")


def test_a_raw_function_suspends_its_caller() -> None:
    shop, vm = open_shop()
    vm.roots["main"] = vm.coroutine(vm.load("local a, b = wait('\\xfc', 2) return b, a", "=shop"))
    assert vm.resume(vm.roots["main"]) == ("\xfc", 2.0)
    vm = round_trip(vm, shop)
    assert vm.resume(vm.roots["main"], "\xe4", None) == (None, "\xe4")
    with pytest.raises(LuaError, match="attempt to yield from outside a coroutine"):
        vm.call(vm.load("wait()"))


def test_a_raw_function_resumes_others() -> None:
    _, vm = open_shop()
    co = vm.coroutine(vm.load("return call(function(a) coroutine.yield(a + 1) end, 1)"))
    assert vm.resume(co) == (2.0,)
    assert co.status == "dead"


def test_snapshot_refers_to_raw_functions_by_name() -> None:
    shop, vm = open_shop()
    vm.call(vm.load("kept = {pair, [pair] = 1}"))
    restored = round_trip(vm, shop)
    kept = restored.globals["kept"]
    assert kept[1.0] is shop.functions["pair"]
    assert kept[shop.functions["pair"]] == 1.0
    with pytest.raises(VMSnapshotError, match="the host has no function"):
        VM.restore(vm.snapshot(), host=Host())


def test_the_text_of_a_raw_function_is_the_same_in_every_process() -> None:
    shop, vm = open_shop()
    vm.globals["other"] = shop.function("other")(lambda: None)
    texts = vm.call(vm.load("return tostring(pair), tostring(keep), tostring(other)"))
    assert len(set(texts)) == 3
    restored = round_trip(vm, shop)
    assert (
        restored.call(restored.load("return tostring(pair), tostring(keep), tostring(other)"))
        == texts
    )


def test_stack_shows_raw_functions() -> None:
    assert run("return debug.info(pair, 'sn')") == ("[C]", "pair")
    assert run("return pcall(call, function() error('deep', 2) end)") == (False, "deep")


def test_raw_functions_created_by_one_def_keep_their_names() -> None:
    host, vm = Host(), VM()
    for name in ("Animal:Speak", "Animal:Run"):
        vm.globals[name[-3:]] = make_answer(host, name, name)
    assert vm.call(vm.load("return debug.info(eak, 'n'), debug.info(Run, 'n'), eak(), Run()")) == (
        "Speak", "Run", "Animal:Speak", "Animal:Run",
    )  # fmt: skip


def test_host_refuses_duplicate_function_names_and_a_second_name() -> None:
    host = Host()

    def greet() -> str:
        return "hello"

    assert host.raw("greet")(greet) is greet
    assert Host().raw("greet")(greet) is greet  # several hosts may share a function
    with pytest.raises(HostError, match="greet: a host function with this name"):
        host.raw("greet")(lambda: None)
    with pytest.raises(HostError, match="hail: this function is already registered as 'greet'"):
        host.raw("hail")(greet)
    with pytest.raises(
        HostError, match="built: must be a function made with def or lambda, not a builtin"
    ):
        host.raw("built")(len)


def test_closure_of_a_raw_function_does_not_count_as_script_memory() -> None:
    held = [LuaTable({float(at): "x" * 100 for at in range(10_000)})]
    host, vm = Host(), VM(memory_bytes=300_000)

    @host.raw("hold")
    def hold() -> float:
        return float(len(held))

    vm.globals["hold"] = hold
    assert vm.call(vm.load("local t for i = 1, 5000 do t = {i} end return hold()")) == (1.0,)
