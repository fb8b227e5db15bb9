"""Functions and objects provided by a host to scripts, and calls in both directions."""

from __future__ import annotations

from typing import Any

import pytest

from clawblox.luau.core.errors import HostError, LuaError
from clawblox.luau.runtime.host import Host, HostObject, HostType, suspend, to_luau
from clawblox.luau.vm import VM
from tests.luau.support import round_trip


class Zoo(Host):
    """Two animals, a clock that suspends, and a function."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[Any] = []
        self.kind = self.type(
            HostType(
                "Animal",
                properties={"Name": lambda animal: animal.value["name"], "Age": lambda animal: 3},
                setters={"Name": self.rename},
                methods={"Speak": lambda animal, *words: f"{animal.value['name']}: {words}"},
                operators={
                    "__add": lambda a, b: "family",
                    "__len": lambda animal: len(animal.value["name"]),
                    "__tostring": lambda animal: animal.ident,
                    "__lt": lambda a, b: a.ident < b.ident,
                    "__call": lambda animal, times: times * 2,
                },
            )
        )
        self.animals = {
            ident: HostObject(self.kind, ident, {"name": name})
            for ident, name in (("a1", "Ant"), ("b2", "Bee"))
        }

        @self.function("wait")
        def wait(seconds: float) -> None:
            raise suspend("wait", seconds)

        @self.function("hear")
        def hear(*words: Any) -> tuple[Any, ...]:
            self.heard.append(words)
            return len(words), "ok"

        @self.function("fail")
        def fail(how: str) -> None:
            if how == "luau":
                raise LuaError("as a script")
            raise ValueError(how)

    def rename(self, animal: HostObject, name: str) -> None:
        animal.value["name"] = name

    def find_object(self, ident: str) -> HostObject | None:
        return self.animals.get(ident)

    def lend(self, vm: VM) -> VM:
        for name in ("wait", "hear", "fail"):
            vm.globals[name] = self.functions[name]
        vm.globals["ant"], vm.globals["bee"] = self.animals.values()
        return vm


@pytest.fixture
def zoo() -> Zoo:
    return Zoo()


def run(zoo: Zoo, source: str) -> tuple[Any, ...]:
    vm = zoo.lend(VM())
    return vm.call(vm.load(source, "=zoo"))


def test_functions_take_and_return_python_values(zoo: Zoo) -> None:
    assert run(zoo, "return hear('ü', 1, nil, true)") == (4.0, "ok")
    assert zoo.heard == [("ü", 1.0, None, True)]


def test_objects_have_properties_methods_and_identity(zoo: Zoo) -> None:
    assert run(zoo, "bee.Name = 'Ö' return bee.Name, ant.Age, ant:Speak('hi'), ant == ant, ant ~= bee") == (
        to_luau("Ö"), 3.0, "Ant: ('hi',)", True, True,
    )  # fmt: skip
    assert run(zoo, "local t = {[ant] = 1} return t[ant], t[bee], typeof(ant), type(ant)") == (
        1.0, None, "Animal", "userdata",
    )  # fmt: skip


def test_objects_have_operators(zoo: Zoo) -> None:
    assert run(zoo, "return ant + bee, #ant, tostring(bee), ant < bee, ant(21)") == (
        "family", 3.0, "b2", True, 42.0,
    )  # fmt: skip


def test_an_unknown_member_is_an_error_of_the_script(zoo: Zoo) -> None:
    assert run(zoo, "return pcall(function() return ant.Wings end)") == (
        False, "zoo:1: 'Wings' is not a valid member of Animal",
    )  # fmt: skip
    assert run(zoo, "return pcall(function() ant.Age = 4 end)")[0] is False


def test_host_errors_reach_the_host_despite_pcall(zoo: Zoo) -> None:
    assert run(zoo, "return pcall(fail, 'luau')") == (False, "as a script")
    with pytest.raises(ValueError, match="python"):
        run(zoo, "pcall(fail, 'python')")


def test_a_function_can_suspend_its_caller(zoo: Zoo) -> None:
    vm = zoo.lend(VM())
    co = vm.coroutine(vm.load("local a = wait(2) local b = wait(3) return a + b"))
    assert vm.resume(co) == ("wait", 2.0)
    assert vm.resume(co, 10.0) == ("wait", 3.0)
    assert vm.resume(co, 20.0) == (30.0,)
    with pytest.raises(LuaError, match="cannot resume dead coroutine"):
        vm.resume(co)


def test_suspension_outside_a_coroutine_is_an_error(zoo: Zoo) -> None:
    with pytest.raises(LuaError, match="attempt to yield from outside a coroutine"):
        run(zoo, "wait(1)")


def test_host_function_can_call_luau_functions(zoo: Zoo) -> None:
    vm = zoo.lend(VM())

    @zoo.function("twice")
    def twice(function: Any, argument: Any) -> Any:
        (once,) = vm.call(function, argument)
        return vm.call(function, once)[0]

    vm.globals["twice"] = twice
    assert vm.call(vm.load("return twice(function(x) return x * 3 end, 2)")) == (18.0,)
    with pytest.raises(LuaError, match="inner"):
        vm.call(vm.load("twice(function() error('inner') end, 1)"))


def test_a_function_called_by_the_host_cannot_yield(zoo: Zoo) -> None:
    vm = zoo.lend(VM())

    @zoo.function("call")
    def call(function: Any) -> Any:
        return vm.call(function)

    vm.globals["call"] = call
    co = vm.coroutine(vm.load("return pcall(call, function() coroutine.yield() end)", "=zoo"))
    assert vm.resume(co) == (
        False, "zoo:1: attempt to yield across metamethod/C-call boundary",
    )  # fmt: skip


def test_host_error_kills_the_running_coroutine(zoo: Zoo) -> None:
    vm = zoo.lend(VM())
    co = vm.coroutine(vm.load("coroutine.yield() fail('python')"))
    vm.resume(co)
    with pytest.raises(ValueError, match="python"):
        vm.resume(co)
    assert co.status == "dead"
    assert vm.call(vm.load("return 1")) == (1.0,)


def test_snapshot_refers_to_objects_and_functions_by_the_hosts_ids(zoo: Zoo) -> None:
    vm = zoo.lend(VM())
    vm.roots["co"] = vm.coroutine(
        vm.load(
            "local mine, speak = bee, bee.Speak while true do wait(1) mine.Name ..= '!' speak(mine) end"
        )
    )
    vm.resume(vm.roots["co"])
    for _ in range(3):
        vm = round_trip(vm, zoo)
        vm.resume(vm.roots["co"])
    assert zoo.animals["b2"].value["name"] == "Bee!!!"


def test_two_host_functions_cannot_share_a_name(zoo: Zoo) -> None:
    with pytest.raises(HostError, match="wait"):
        zoo.function("wait")(lambda: None)


def test_values_without_a_luau_form_are_refused() -> None:
    with pytest.raises(HostError, match="object: a value of this type has no Luau form"):
        to_luau(object())
    table = to_luau({"a": [1, None, "x"], 2: b"\xff"})
    assert (table["a"][1.0], table["a"][3.0], table[2.0]) == (1.0, "x", "\xff")


SHOW = """
    local mine, old = bee, ant
    local t = {[ant] = "a", speak = bee.Speak}
    wait(1) mine.Name ..= "!"
    local sum, words = ant + bee, {wait("got")}
    wait(2) t[bee] = mine == bee and old == ant and t[ant]
    local ok, caught = pcall(function() wait(3) return mine.Wings end)
    local failed, text = pcall(function() wait(4) fail("luau") end)
    wait(5)
    return t[bee], sum, words[1], ok, caught, failed, text, #bee, bee(4), hear(t.speak(old, "x"))
"""


def test_a_script_with_objects_continues_in_restored_vms() -> None:
    def finish(*, every_time: bool) -> list[tuple[Any, ...]]:
        zoo = Zoo()
        vm = zoo.lend(VM())
        vm.roots["co"] = vm.coroutine(vm.load(SHOW, "=zoo"))
        seen = []
        while vm.roots["co"].status == "suspended":
            seen.append(vm.resume(vm.roots["co"], "sent"))
            vm = round_trip(vm, zoo) if every_time else vm
        return [*seen, tuple(zoo.heard)]

    plain = finish(every_time=False)
    assert len(plain) == 8
    assert finish(every_time=True) == plain
