"""Snapshots: contents, refused documents, and the stable format."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clawblox.luau.core.errors import LuaError, VMSnapshotError
from clawblox.luau.vm import VM
from tests.luau.support import round_trip

GOLDEN = Path(__file__).parent / "golden"

WORLD = """
local Account = {} Account.__index = Account
function Account.new(n) return setmetatable({n = n}, Account) end
function Account:pay(x) self.n -= x coroutine.yield(self.n) return self end
local shared = 0
local function up() shared += 1 return shared end
local cycle = {name = "ü", flags = {[true] = 1, [false] = 0}, huge = math.huge, nan = 0/0,
    text = ("long "):rep(50)}
cycle.self = cycle
local inner = coroutine.wrap(function(...) for i, v in {...} do coroutine.yield(v, up()) end end)
local matches = ("k1=v1 k2=v2"):gmatch("(%w+)=(%w+)")
local proxy, bytes = newproxy(true), buffer.fromstring("bytes")
getmetatable(proxy).__index = function(_, k) return k .. shared end
local account = Account.new(100)
for round = 1, 3 do
    for key, value in pairs({10, 20, x = 30}) do
        local ok, e = pcall(function()
            account:pay(value):pay(round)
            if key == "x" then error({key = key}) end
            for i = 1, 2 do coroutine.yield(i + up()) end
        end)
        trace = (trace or "") .. tostring(key) .. tostring(ok) .. (if ok then "" else e.key)
    end
    coroutine.yield(inner("a", "b", "c"))
    coroutine.yield(matches())
    coroutine.yield(proxy.y, buffer.len(bytes), cycle.self == cycle, cycle.nan ~= cycle.nan)
    coroutine.yield(math.random(1000), tostring(account), vector.create(1, 2, 3).y)
end
return trace, shared
"""


def begin() -> VM:
    vm = VM()
    vm.roots["main"] = vm.coroutine(vm.load(WORLD, "=world"))
    return vm


def finish(vm: VM, *, every_time: bool) -> list[tuple[Any, ...]]:
    seen = []
    while vm.roots["main"].status == "suspended":
        seen.append(vm.resume(vm.roots["main"]))
        if every_time:
            vm = round_trip(vm)
    return seen


def test_a_world_continues_from_any_point_unchanged() -> None:
    plain = finish(begin(), every_time=False)
    assert len(plain) == 43
    assert finish(begin(), every_time=True) == plain


STEP = """
import json, sys
from clawblox.luau import VM
vm = VM.restore(json.load(sys.stdin))
print(json.dumps([vm.resume(vm.roots["main"]), vm.snapshot()]))
"""


def in_new_process(document: Any, interpreter: str = sys.executable) -> tuple[list[Any], Any]:
    root = str(Path(__file__).parent.parent.parent.parent)
    done = subprocess.run(
        [interpreter, "-c", STEP], input=json.dumps(document), capture_output=True, text=True,
        check=True, env={"PYTHONPATH": root},
    )  # fmt: skip
    values, after = json.loads(done.stdout)
    return values, after


@pytest.mark.thorough
def test_a_world_continues_in_other_processes() -> None:
    plain = finish(begin(), every_time=False)
    vm = begin()
    for expected in plain[:20]:
        assert vm.resume(vm.roots["main"]) == expected
    document = vm.snapshot()
    for expected in plain[20:22]:
        values, document = in_new_process(document)
        assert tuple(values) == expected
    vm = VM.restore(document)
    assert finish(vm, every_time=False) == plain[22:]


def test_documents_of_this_version_stay_readable() -> None:
    """The golden document was written when the format got its version; see golden/README.md."""
    expected = json.loads((GOLDEN / "world-5-rest.json").read_text())
    document = json.loads((GOLDEN / "world-5.json").read_text())
    vm = VM.restore(document)
    assert vm.snapshot() == document
    assert [list(values) for values in finish(vm, every_time=False)] == expected


NEWER = {
    "debug": ("profilebegin", "profileend", "resetmemorycategory", "setmemorycategory"),
    "_G": ("gcinfo",),
    "utf8": ("graphemes",),
}
"""Functions added to the library since the golden document was written, by table."""


def test_the_same_state_gives_the_same_document() -> None:
    def saved() -> str:
        vm = begin()
        for library, names in NEWER.items():
            for name in names:
                del vm.globals[library][name]
        for _ in range(15):
            vm.resume(vm.roots["main"])
        return json.dumps(vm.snapshot())

    assert saved() == saved()
    assert json.loads((GOLDEN / "world-5.json").read_text()) == json.loads(saved())


def damaged(**changes: Any) -> Any:
    return {**json.loads((GOLDEN / "world-5.json").read_text()), **changes}


def test_document_of_another_version_is_refused() -> None:
    with pytest.raises(VMSnapshotError, match="has version 99; this program reads 5"):
        VM.restore(damaged(version=99))
    with pytest.raises(VMSnapshotError, match="not a snapshot of a Luau VM"):
        VM.restore({"format": "something"})


MUTANTS: tuple[Any, ...] = (None, True, -1, 10**9, 1e308, "x", "世", [], {}, ["r", -1], ["r", 10**9], ["b", "x"],
           ["zz"], "table", ["t"])  # fmt: skip


def places(part: Any) -> Iterator[tuple[Any, Any]]:
    for key, inner in list(part.items() if isinstance(part, dict) else enumerate(part)):
        yield part, key
        if isinstance(inner, (dict, list)):
            yield from places(inner)


@pytest.mark.thorough
def test_damaged_document_is_refused_or_gives_a_working_vm() -> None:
    outcomes = []
    for at in range(0, 3000, 113):
        document = damaged()
        found = list(places(document))
        part, key = found[at % len(found)]
        part[key] = MUTANTS[at % len(MUTANTS)]
        try:
            VM.restore(document)
        except VMSnapshotError:
            outcomes.append("refused")
        else:
            outcomes.append("restored")
    assert set(outcomes) == {"refused", "restored"}


def test_a_frame_with_too_few_variables_is_refused() -> None:
    document = damaged()
    coroutine = next(saved for saved in document["objects"] if saved[0] == "coroutine")
    coroutine[4][0][4].pop()
    number = document["objects"].index(coroutine)
    with pytest.raises(VMSnapshotError, match=f"damaged at object {number}: "):
        VM.restore(document)


def test_document_contains_a_long_string_only_once() -> None:
    vm = VM()
    vm.call(vm.load("s = ('x'):rep(1e5) t = table.create(1000, s) u = {[s] = s} g = s:gmatch('x')"))
    assert len(json.dumps(vm.snapshot())) < 150_000
    vm = round_trip(vm)
    assert vm.call(vm.load("return t[1000] == s, u[s] == s, g()")) == (True, True, "x")


def test_restored_weak_tables_still_lose_dead_entries() -> None:
    vm = VM()
    vm.call(vm.load("weak = setmetatable({{}}, {__mode = 'v'}) for i = 1, 200000 do end"))
    vm = round_trip(vm)
    assert vm.call(vm.load("for i = 1, 90000 do end return #weak")) == (1.0,)
    assert vm.call(vm.load("for i = 1, 20000 do end return #weak")) == (0.0,)


def test_a_changed_source_is_refused() -> None:
    document = damaged()
    VM.restore(document, sources={"=world": WORLD})
    with pytest.raises(VMSnapshotError, match="the source of '=world' has changed"):
        VM.restore(document, sources={"=world": WORLD + " "})
    name, digest, source = document["chunks"][0]
    with pytest.raises(VMSnapshotError, match="damaged"):
        VM.restore(damaged(chunks=[[name, digest, source + " "]]))


def test_missing_host_function_or_object_is_named_in_the_error() -> None:
    vm = VM()
    document = vm.snapshot()
    document["roots"]["kept"]["f"] = ["h", "wait"]
    with pytest.raises(VMSnapshotError, match="the host has no function 'wait'"):
        VM.restore(document)
    document["roots"]["kept"]["f"] = ["o", "Part", "p7"]
    with pytest.raises(VMSnapshotError, match="the host has no Part with the id 'p7'"):
        VM.restore(document)


def test_unregistered_functions_cannot_be_saved() -> None:
    vm = VM()
    vm.globals["f"] = lambda: None
    with pytest.raises(VMSnapshotError, match="not registered with the host"):
        vm.snapshot()


def test_a_running_vm_cannot_be_saved() -> None:
    vm = VM()
    refused: list[str] = []

    def save(*_: Any) -> tuple[()]:
        try:
            vm.snapshot()
        except VMSnapshotError as error:
            refused.append(str(error))
        return ()

    vm.globals["save"] = save
    vm.call(vm.load("save()"))
    assert refused == ["a VM cannot be saved while it runs"]


def test_dead_coroutine_keeps_its_error_after_a_restore() -> None:
    vm = VM()
    vm.roots["co"] = vm.coroutine(vm.load("error('why')", "=chunk"))
    with pytest.raises(LuaError):
        vm.resume(vm.roots["co"])
    vm = round_trip(vm)
    assert vm.call(vm.globals["coroutine"]["close"], vm.roots["co"]) == (False, "chunk:1: why")


def test_loop_over_next_continues_after_a_restore() -> None:
    vm = VM()
    vm.call(vm.load("t = {a = 1, b = 2, c = 3} k = next(t) t[k] = nil"))
    vm = round_trip(vm)
    assert vm.call(vm.load("return next(t, k)")) == ("c", 3.0)


def test_loop_over_boolean_keys_continues_after_keys_are_removed_and_added() -> None:
    vm = VM()
    vm.call(
        vm.load(
            """
            t = {}
            t[1], t[true], t[false] = "one", "yes", "no"
            thread = coroutine.create(function()
                local seen = {}
                for key in pairs(t) do
                    table.insert(seen, `{key} {type(key)}`)
                    if key == 1 then
                        coroutine.yield()
                        t[true], t[false] = 1, 2
                    end
                end
                result = table.concat(seen, " ")
            end)
            coroutine.resume(thread)
            t[true], t[false] = nil, nil
            """
        )
    )
    vm = round_trip(vm)
    vm.call(vm.load("coroutine.resume(thread)"))
    assert vm.globals["result"] == "1 number true boolean false boolean"


def test_frozen_tables_and_sandboxes_are_restored() -> None:
    vm = VM()
    vm.sandbox()
    vm.roots["env"] = vm.new_environment()
    vm.call(vm.load("t = table.freeze({1})", environment=vm.roots["env"]))
    vm = round_trip(vm)
    check = vm.load(
        "return table.isfrozen(t), table.isfrozen(math), math.max(1, 2)",
        environment=vm.roots["env"],
    )
    assert vm.call(check) == (True, True, 2.0)


@pytest.mark.parametrize(
    ("kept", "complaint"), [(2000, "not enough memory"), (200, "allowed number of steps")]
)
def test_limits_apply_equally_after_a_restore(kept: int, complaint: str) -> None:
    source = f"""
        t, n = {{}}, 0
        local prefix = ("x"):rep(300)
        coroutine.yield()
        while true do n += 1 t[n % {kept}] = prefix .. n end
    """
    limits = {"steps": 20_000, "memory_bytes": 500_000}
    strikes = []
    for is_restored in (False, True):
        vm = VM(**limits)
        vm.roots["co"] = vm.coroutine(vm.load(source))
        vm.resume(vm.roots["co"])
        vm.call(vm.load("names = table.create(1000, 'idle') for i = 1, 90 do t[i] = {} end"))
        if is_restored:
            vm = VM.restore(json.loads(json.dumps(vm.snapshot())), **limits)
        with pytest.raises(LuaError, match=complaint):
            vm.resume(vm.roots["co"])
        strikes.append(vm.globals["n"])
    assert strikes[0] == strikes[1]
