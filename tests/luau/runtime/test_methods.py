"""Method calls prefer methods; getters of unknown members."""

from __future__ import annotations

import re
from typing import Any

import pytest

from clawblox.luau import VM, Host, HostObject, HostType, LuaError, Userdata
from tests.luau.support import round_trip


class Jumper(Host):
    """An object with a method and a property of the same name, and children."""

    def __init__(self) -> None:
        super().__init__()
        kind = self.type(
            HostType(
                "Humanoid",
                properties={"Jump": lambda one: one.value["jump"]},
                setters={"Jump": lambda one, value: one.value.update(jump=value)},
                methods={"Jump": lambda one, by: by * 2, "Walk": lambda one: "walks"},
                missing=lambda one, key: one.value["children"].get(key),
            )
        )
        self.one = HostObject(kind, "1", {"jump": False, "children": {"Ärm": 5}})

    def find_object(self, ident: str) -> HostObject | None:
        return self.one if ident == "1" else None


def run(source: str) -> tuple[Any, ...]:
    vm = VM()
    vm.globals["one"] = Jumper().one
    return vm.call(vm.load(source, "=jump"))


def test_a_method_call_prefers_the_method_to_a_property_of_its_name() -> None:
    assert run("one.Jump = true return one.Jump, one:Jump(4)") == (True, 8.0)


def test_a_method_without_a_property_is_a_value_too() -> None:
    assert run("return one.Walk(one), one:Walk()") == ("walks", "walks")


def test_a_type_can_have_a_getter_of_unknown_members() -> None:
    assert run("return one['Ärm'], one.Leg, one[1], one[true]") == (5.0, None, None, None)


def test_missing_method_is_named_in_the_error() -> None:
    assert run("return pcall(function() one:Swim() end)")[1].startswith(
        "jump:1: attempt to call missing method 'Swim' of"
    )


@pytest.mark.parametrize(
    ("holder", "text"),
    [
        ("nil", "attempt to index nil with 'go'"),
        ("5", "attempt to index number with 'go'"),
        ("print", "attempt to index function with 'go'"),
        ("newproxy()", "attempt to index userdata with 'go'"),
        ("buffer.create(1)", "attempt to index buffer with 'go'"),
        ("{}", "attempt to call missing method 'go' of table"),
        ("'a'", "attempt to call missing method 'go' of string"),
    ],
)
def test_method_calls_on_other_values_fail_as_before(holder: str, text: str) -> None:
    assert run(f"local v = {holder} return pcall(function() v:go() end)") == (
        False, f"jump:1: {text}",
    )  # fmt: skip


def test_method_calls_on_tables_and_strings_find_the_same_values_as_indexing() -> None:
    assert run(
        """
        local base = {name = function(self) return self.n end}
        local own = setmetatable({n = 1}, {__index = base})
        local called = setmetatable({}, {__index = function(_, key) return function() return key end end})
        return own:name(), called:whatever(), ('abc'):upper()
        """
    ) == (1.0, "whatever", "ABC")


def test_userdata_may_define_their_own_lookup() -> None:
    class Own(Userdata):
        __slots__ = ()

        def __getitem__(self, key: Any) -> Any:
            return f"field {key}"

        def find_method(self, name: str) -> Any:
            return (lambda own: f"method {name}") if name == "go" else None

    vm = VM()
    vm.globals["own"] = Own(None)
    assert vm.call(vm.load("return own.go, own:go()")) == ("field go", "method go")
    with pytest.raises(LuaError, match="attempt to call a string value"):
        vm.call(vm.load("own:stay()"))


def test_a_method_call_may_be_suspended_in_its_arguments() -> None:
    host = Jumper()
    vm = VM()
    vm.globals["one"] = host.one
    vm.roots["main"] = vm.coroutine(vm.load("return one:Jump(coroutine.yield())"))
    vm.resume(vm.roots["main"])
    vm = round_trip(vm, host)
    assert vm.resume(vm.roots["main"], 3.0) == (6.0,)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("return one + 1", "attempt to perform arithmetic (add) on Humanoid and number"),
        ("return -one", "attempt to perform arithmetic (unm) on Humanoid"),
        ("return one < one", "attempt to compare Humanoid < Humanoid"),
        ("return one .. ''", "attempt to concatenate Humanoid with string"),
        ("return #one", "attempt to get length of a Humanoid value"),
        ("one()", "attempt to call a Humanoid value"),
        ("one:Swim()", "attempt to call missing method 'Swim' of Humanoid"),
        ("for _ in one do end", "attempt to iterate over a Humanoid value"),
    ],
)
def test_messages_name_the_type_of_an_object(source: str, text: str) -> None:
    with pytest.raises(LuaError, match=f"^jump:1: {re.escape(text)}$"):
        run(source)
