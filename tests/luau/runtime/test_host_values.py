"""Values of the host: userdata that snapshots save by contents."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from clawblox.luau import VM, Host, HostError, HostValue, RuntimeFault, VMSnapshotError
from clawblox.luau.core.values import LuaTable
from tests.luau.support import round_trip


class Colour(HostValue):
    """Three numbers, compared by content."""

    __slots__ = ("blue", "green", "red")
    type_name = "Colour"

    def __init__(self, red: float, green: float, blue: float) -> None:
        self.red, self.green, self.blue = red, green, blue

    operators: ClassVar[dict[str, Callable[..., Any]]] = {
        "__add": lambda a, b: Colour(a.red + b.red, a.green + b.green, a.blue + b.blue),
        "__tostring": lambda a: f"{a.red:g} {a.green:g} {a.blue:g}",
    }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Colour) and self.contents() == other.contents()

    def __getitem__(self, key: Any) -> Any:
        if key in ("red", "green", "blue"):
            return getattr(self, key)
        raise RuntimeFault(f"{key} is not a member of Colour")

    def find_method(self, name: str) -> Any:
        return (lambda own: own.red + own.green + own.blue) if name == "Sum" else None

    def contents(self) -> tuple[Any, ...]:
        return self.red, self.green, self.blue

    def fill(self, *values: Any) -> None:
        red, green, blue = values
        for value in values:
            if value.__class__ is not float:
                raise TypeError("a colour has three numbers")
        self.red, self.green, self.blue = red, green, blue


class Filter(HostValue):
    """A mutable value that can contain any other value, including itself."""

    __slots__ = ("held",)
    type_name = "Filter"

    def __init__(self) -> None:
        self.held: Any = None

    def __getitem__(self, key: Any) -> Any:
        return self.held

    def __setitem__(self, key: Any, value: Any) -> None:
        self.held = value

    def contents(self) -> tuple[Any, ...]:
        return (self.held,)

    def fill(self, *values: Any) -> None:
        (self.held,) = values


class Palette(Host):
    def __init__(self) -> None:
        super().__init__()
        self.value_type(Colour)
        self.value_type(Filter)

        @self.raw("colour")
        def colour(red: float, green: float, blue: float) -> Colour:
            return Colour(red, green, blue)

        @self.raw("filter")
        def filter_() -> Filter:
            return Filter()


@pytest.fixture
def palette() -> Palette:
    return Palette()


def make_vm(palette: Palette, **options: Any) -> VM:
    vm = VM(**options)
    vm.globals.update(palette.functions)
    return vm


def run(vm: VM, source: str) -> tuple[Any, ...]:
    return vm.call(vm.load(source, "=paint"))


def test_values_have_members_operators_and_a_type(palette: Palette) -> None:
    vm = make_vm(palette)
    assert run(
        vm,
        """local c = colour(1, 2, 3)
        return c.green, c:Sum(), tostring(c + c), typeof(c), type(c), getmetatable(c)""",
    ) == (2.0, 6.0, "2 4 6", "Colour", "userdata", "The metatable is locked")
    assert run(vm, "return pcall(function() return colour(1, 2, 3).alpha end)") == (
        False, "paint:1: alpha is not a member of Colour",
    )  # fmt: skip


def test_equality_compares_contents_and_tables_distinguish_values(palette: Palette) -> None:
    assert run(
        make_vm(palette),
        """local a, b = colour(1, 2, 3), colour(1, 2, 3)
        local t = {[a] = 'a', [b] = 'b'}
        return a == b, a ~= b, a == colour(1, 2, 4), rawequal(a, b), t[a], t[b], a == filter()""",
    ) == (True, False, False, False, "a", "b", False)


def test_snapshots_keep_contents_and_identity(palette: Palette) -> None:
    vm = make_vm(palette)
    run(
        vm,
        "red = colour(1, 0, -0.0) same = red twin = colour(1, 0, 0) key = {[red] = 'red'} text = tostring(filter())",
    )
    vm = round_trip(vm, palette)
    assert run(vm, "return red == twin, rawequal(red, same), rawequal(red, twin), key[same], key[twin], 1 / red.blue") == (
        True, True, False, "red", None, float("-inf"),
    )  # fmt: skip


def test_values_may_hold_each_other_and_themselves(palette: Palette) -> None:
    vm = make_vm(palette)
    run(vm, "a, b = filter(), filter() a.held = {b, a, 'x', print} b.held = b")
    vm = round_trip(vm, palette)
    assert run(vm, "return a.held[2] == a, a.held[1] == b, b.held == b, a.held[3]") == (
        True, True, True, "x",
    )  # fmt: skip


def test_a_suspended_call_keeps_values(palette: Palette) -> None:
    vm = make_vm(palette)
    vm.roots["main"] = vm.coroutine(
        vm.load("local c = colour(1, 2, 3) coroutine.yield() return c:Sum()")
    )
    vm.roots["colour"] = Colour(1.0, 1.0, 1.0)
    vm.resume(vm.roots["main"])
    vm = round_trip(vm, palette)
    assert vm.resume(vm.roots["main"]) == (6.0,)
    assert vm.roots["colour"] == Colour(1.0, 1.0, 1.0)


def test_serial_numbers_of_values_survive_a_restore(palette: Palette) -> None:
    vm = make_vm(palette)
    (text,) = run(vm, "f = filter() return tostring(f)")
    assert run(round_trip(vm, palette), "return tostring(f)") == (text,)


def test_the_contents_of_values_count_as_memory(palette: Palette) -> None:
    vm = make_vm(palette, memory_bytes=200_000)
    grow = "kept = filter() for i = 1, 200 do kept.held = {kept.held, string.rep('x', 2000)} end"
    assert run(vm, f"return pcall(function() {grow} end)") == (False, "not enough memory")


def test_contents_without_a_luau_form_are_refused_at_a_save(palette: Palette) -> None:
    vm = make_vm(palette)
    vm.roots["colour"] = Colour(1, 2.0, 3.0)
    with pytest.raises(VMSnapshotError, match="Colour: its contents have a Python int"):
        vm.snapshot()


def saved(palette: Palette) -> tuple[dict[str, Any], int]:
    vm = make_vm(palette)
    run(vm, "red = colour(1, 2, 3)")
    document = json.loads(json.dumps(vm.snapshot()))
    (at,) = [at for at, found in enumerate(document["objects"]) if found[0] == "value"]
    assert document["objects"][at] == ["value", "Colour", [1.0, 2.0, 3.0]]
    return document, at


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (["Color", [1.0, 2.0, 3.0]], "the host has no type of values 'Color'"),
        ([None, [1.0, 2.0, 3.0]], "expected a string"),
        ([["Colour"], []], "expected a string"),
        (["Colour", [1.0, 2.0]], "the host refuses the contents of a Colour: not enough values"),
        (["Colour", [1.0, 2.0, 3.0, 4.0]], "the host refuses the contents of a Colour: too many"),
        (["Colour", [1.0, 2.0, "3"]], "a colour has three numbers"),
        (["Colour", [1.0, 2.0, ["i", 3]]], "unknown kind 'i'"),
        (["Colour", None], "expected a list"),
        (["Colour", {}], "expected a list"),
        (["Colour"], "damaged"),
        (["Colour", [], []], "damaged"),
        ([], "damaged"),
    ],
)
def test_hostile_documents_are_refused(palette: Palette, parts: list[Any], text: str) -> None:
    document, at = saved(palette)
    document["objects"][at] = ["value", *parts]
    with pytest.raises(VMSnapshotError, match=text):
        VM.restore(document, host=palette)


def test_a_host_without_the_type_is_refused(palette: Palette) -> None:
    document, _ = saved(palette)
    with pytest.raises(VMSnapshotError, match="the host has no"):
        VM.restore(document)


def test_two_types_of_values_cannot_share_a_name(palette: Palette) -> None:
    class Other(HostValue):
        type_name = "Colour"

    assert palette.value_type(Colour) is Colour
    with pytest.raises(HostError, match="Colour: a type of values with this name"):
        palette.value_type(Other)


def test_contents_may_contain_tables_that_are_filled_later(palette: Palette) -> None:
    vm = make_vm(palette)
    run(vm, "f = filter() f.held = {} f.held.back = f for i = 1, 3 do f.held[i] = {i} end")
    restored = round_trip(vm, palette)
    held = restored.globals["f"].held
    assert isinstance(held, LuaTable)
    assert held["back"] is restored.globals["f"]
