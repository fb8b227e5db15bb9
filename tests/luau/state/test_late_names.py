"""Late names: documents omit them, and restored sandboxes have them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clawblox.luau import VM, Host, HostValue, LuaTable
from clawblox.luau.lib.support import registry
from clawblox.luau.lib.support.registry import Registry
from tests.luau.support import round_trip

LATE_NAMES = ("extra", "math.extra", "Extra", "Extra.later")


class Colour(HostValue):
    """A value that equals any other value of its type."""

    __slots__ = ()
    type_name = "Colour"

    def contents(self) -> tuple[Any, ...]:
        return ()

    def fill(self) -> None:
        """Do nothing."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Colour)

    __hash__ = object.__hash__


class Later(Host):
    """A host of a later version, which provides more than the earlier version."""

    def __init__(self) -> None:
        super().__init__()
        self.value_type(Colour)
        for name in ("extra", "math.extra", "Extra.later", "Extra.make"):
            self.raw(name)(lambda *_, name=name: name)

    def lend(self, vm: VM) -> VM:
        """Provide everything, late names first, to test that the sandbox moves them."""
        functions = self.functions
        math = {"extra": functions["math.extra"], **vm.globals["math"]}
        vm.globals["math"].clear()
        vm.globals["math"].update(math)
        library = {name: functions[f"Extra.{name}"] for name in ("later", "make")}
        names = {"extra": functions["extra"], "Extra": LuaTable({**library, "red": Colour.empty()})}
        names |= vm.globals
        vm.globals.clear()
        vm.globals.update(names)
        return vm


def lend(late_names: tuple[str, ...] = LATE_NAMES) -> VM:
    return Later().lend(VM(late_names=late_names))


def enclose(vm: VM) -> VM:
    vm.sandbox(writable=("_G", "shared"))
    vm.roots["environment"] = vm.new_environment()
    return vm


def run(vm: VM, source: str) -> Any:
    return vm.call(vm.load(source, environment=vm.roots["environment"]))


def restore(document: Any) -> VM:
    host = Later()
    fresh = host.lend(VM()).globals
    return VM.restore(
        json.loads(json.dumps(document)), host=host, fresh=fresh, late_names=LATE_NAMES
    )


def again(vm: VM) -> VM:
    """Return a restored copy, which must give the same document."""
    document = json.dumps(vm.snapshot())
    restored = restore(json.loads(document))
    assert json.dumps(restored.snapshot()) == document
    return restored


def list_names(vm: VM) -> list[list[Any]]:
    """Return the keys of the globals and of the libraries, in order."""
    tables = [vm.globals, *(table for table in vm.globals.values() if isinstance(table, LuaTable))]
    return [list(table) for table in tables]


def test_document_is_unchanged_when_a_sandbox_gets_late_names() -> None:
    assert enclose(lend()).snapshot() == enclose(VM()).snapshot()


def test_sandbox_from_an_older_document_has_the_late_names_in_order() -> None:
    fresh = enclose(lend())
    assert list(fresh.globals)[-2:] == ["extra", "Extra"]
    assert list(fresh.globals["Extra"]) == ["make", "red", "later"]
    assert list(fresh.globals["math"])[-1] == "extra"
    restored = restore(enclose(VM()).snapshot())
    assert list_names(restored) == list_names(fresh)
    read = "return extra(), math.extra(), Extra.make(), Extra.later(), table.isfrozen(Extra)"
    assert run(restored, read) == ("extra", "math.extra", "Extra.make", "Extra.later", True)
    assert list_names(again(restored)) == list_names(fresh)


@pytest.mark.parametrize(
    "use",
    [
        "kept = Extra",
        "kept = {[Extra] = Extra.make}",
        "kept = Extra.red",
        "text = tostring(Extra)",
        "next(Extra, (next(Extra)))",
        "setmetatable({}, Extra)",
        "kept = extra",
        "kept = math.extra",
        "for name in next, math do kept = name end",
        "loop = coroutine.wrap(function() for name in Extra do coroutine.yield() end end) loop()",
    ],
)
def test_used_late_library_continues_as_without_a_restore(use: str) -> None:
    plain, restored = enclose(lend()), enclose(lend())
    for vm in (plain, restored):
        run(vm, use)
    steps = (
        "same = kept == Extra or kept == Extra.red",
        "kept, loop = nil, nil",
        "all = {Extra, Extra.red}",
        "all = nil",
        "text = tostring(Extra) .. tostring(Extra.red) .. (next(Extra))",
    )
    for step in steps:
        restored = again(restored)
        run(plain, step)
        run(restored, step)
        assert restored.snapshot() == plain.snapshot()
        assert list_names(restored) == list_names(plain)


def test_held_late_library_is_identical_to_the_global_after_a_restore() -> None:
    vm = enclose(lend())
    run(vm, "kept, red, used = Extra, Extra.red, {[Extra.red] = 1}")
    vm = again(again(vm))
    assert run(vm, "return rawequal(kept, Extra), rawequal(red, Extra.red), used[Extra.red]") == (
        True,
        True,
        1.0,
    )
    run(vm, "kept, red, used = nil")
    assert "Extra.make" not in json.dumps(vm.snapshot())


def test_late_names_cost_no_memory_or_steps_until_held() -> None:
    def measure(vm: VM) -> tuple[Any, int]:
        vm.step_limit = 10_000
        size = run(vm, "return collectgarbage('count')")
        return size, vm.steps_taken()

    late = enclose(lend())
    assert measure(late) == measure(enclose(VM()))
    run(late, "kept = 1")
    (before,), _ = measure(late)
    run(late, "kept = Extra")
    restored = again(late)
    (after,), steps = measure(late)
    assert after > before + 0.2
    assert measure(restored) == ((after,), steps)


def test_document_without_a_sandbox_contains_every_name() -> None:
    vm = lend()
    vm.call(vm.load("extra, math.extra = nil table.freeze(math) table.freeze(_G)"))
    vm = again(vm)
    assert vm.call(vm.load("return extra, math.extra, Extra.later()")) == (
        None,
        None,
        "Extra.later",
    )
    assert list_names(vm) == list_names(again(vm))


def test_value_with_a_late_name_in_an_older_document_is_kept() -> None:
    vm = lend(())
    vm.globals["extra"], vm.globals["Extra"] = 5.0, LuaTable({"make": 6.0})
    restored = again(restore(enclose(vm).snapshot()))
    read = "return extra, math.extra(), Extra.make, Extra.later()"
    assert run(restored, read) == (5.0, "math.extra", 6.0, "Extra.later")
    assert list(restored.globals)[-2:] == ["extra", "Extra"]


@pytest.mark.parametrize("library", [None, 5.0, "globals", "environment"])
def test_a_document_without_a_library_gives_a_usable_vm(library: Any) -> None:
    vm = lend(())
    vm.globals["Extra"] = vm.globals if library == "globals" else library
    del vm.globals["extra"]
    if library is None:
        del vm.globals["Extra"], vm.globals["math"]
    enclose(vm)
    if library == "environment":
        dict.__setitem__(vm.globals, "Extra", vm.roots["environment"])
    restored = again(restore(vm.snapshot()))
    assert run(restored, "return extra()") == ("extra",)


def test_late_names_do_not_change_serial_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    def numbers(*names: str) -> list[int]:
        functions = Registry()
        for name in names:
            functions.add(name, lambda: None)
        return [functions.serial_number(name) for name in names]

    before = numbers("a", "c")
    monkeypatch.setattr(registry, "LATE_NAMES", ("b.z", "b.y"))
    after = numbers("a", "c", "b.z", "b.z.next", "b.y")
    assert after == [*before, *(before[1] + 16 * more for more in (1, 2, 3))]


def test_built_in_functions_have_the_serial_numbers_of_format_5() -> None:
    """Check the alphabetically last; scripts see these numbers in the texts of functions."""
    assert registry.BUILTINS.serial_number("xpcall") == 0x1AA0


def test_vm_without_a_host_needs_no_late_names() -> None:
    vm = enclose(VM())
    assert list_names(round_trip(vm)) == list_names(vm)
