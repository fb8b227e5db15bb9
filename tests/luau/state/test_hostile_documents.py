"""A forged document is refused, or gives a VM with only Luau errors and working limits."""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from clawblox.luau.core.errors import LuaError, VMSnapshotError
from clawblox.luau.core.machine import Coroutine
from clawblox.luau.vm import VM
from tests.luau.state.test_snapshots import begin

LIMITS: dict[str, Any] = {"steps": 30_000, "memory_bytes": 4 << 20}

# All possible contents of frames and objects: direct functions, number boxes, all kinds of loops.
EVERYTHING = """
    setmetatable({{}}, {__mode = "v"})
    local Base = {__index = {kind = "base"}, __add = function(a, b) return a.n + b.n end}
    local one, two = setmetatable({n = 1}, Base), setmetatable({n = 2}, Base)
    local frozen = table.freeze(setmetatable({1, 2}, {__newindex = one}))
    local sum, text, flags = 0, "t" .. #frozen, {[true] = 1, [false] = 2, [0.5] = 3, [{}] = 4}
    local function count() sum += 1 coroutine.yield(sum) return sum end
    local function scaled(x, by)
        escaped = escaped or debug.info(1, "f")
        local shift = x * 2
        local function inner() shift += 1 return shift + x + count() end
        return inner() * by + coroutine.yield(shift)
    end
    local function strings(...)
        local joined = text .. (...) .. coroutine.yield(...)
        for i = 3, 1, -1 do
            joined ..= i + coroutine.yield(i, joined)
        end
        return joined, ...
    end
    local function iterator() coroutine.yield("iterator") return sum < 40 and sum or nil end
    local co = coroutine.wrap(function() while true do for k, v in ipairs({one, two}) do coroutine.yield(v.kind) end end end)
    for round = 1, 4 do
        print(scaled(round, 0.5), pcall(strings, "a", "b", round))
        for k, v in pairs(flags) do
            local t = {co(), coroutine.yield(k)}
            if t[1] == coroutine.yield(v) then text ..= "x" elseif #t + coroutine.yield() > 1 then one.n += 1 end
        end
        for i, v in ipairs({1, 2}) do coroutine.yield(i + v) end
        for value in iterator do coroutine.yield(value) end
        local at = 0
        repeat at += 1 if at == 2 then continue end coroutine.yield(at) until at > 2
        while at > 0 and coroutine.yield(at) do at -= 1 end
        print(xpcall(function() count() local x = vector.create(1, 2, 3) + coroutine.yield(x) end, print))
        local env = setfenv(1, setmetatable({}, {__index = getfenv(1)}))
        next(flags)
        matches = string.gmatch(("k=v "):rep(60), "%w")
    end
"""

PROBE = """
    local seen, found = {}, {_G, main}
    for _, v in found do
        if v == nil or seen[v] then continue end
        seen[v] = true
        pcall(tostring, v)
        pcall(function() return v .. v, v + v end)
        pcall(function() return #v, v.x, v[1] end)
        pcall(function() v.x = 1 v[1] = v end)
        if type(v) == "table" then
            for k, x in next, v do table.insert(found, k) table.insert(found, x) end
            for k, x in pairs(v) do local _ = type(k) == type(x) and k == x end
            pcall(next, v, 1)
        elseif type(v) == "function" then
            pcall(debug.info, v, "slnaf")
            pcall(v) pcall(v, "a", {}, v) pcall(v, v)
            pcall(getfenv, v)
        elseif type(v) == "thread" then
            for level = 0, 5 do pcall(function() table.insert(found, (debug.info(v, level, "f"))) end) end
            debug.traceback(v)
        end
    end
"""
HOG = "local s = 'xxxxxxxx' for i = 1, 20 do s = s .. s end"


@functools.cache
def documents() -> list[tuple[str, Any]]:
    """Return documents of both scripts, with their names."""
    saved = []
    worlds: list[tuple[str, Callable[[], VM]]] = [
        ("world", begin),
        ("everything", begin_everything),
    ]
    for name, start in worlds:
        vm = start()
        for step in range(60):
            if vm.roots["main"].status != "suspended":
                break
            if step % 9 == 0 or (name == "everything" and step < 8):
                saved.append((f"{name} {step}", json.loads(json.dumps(vm.snapshot()))))
            vm.resume(vm.roots["main"], float(step))
    return saved


def begin_everything() -> VM:
    vm = VM(**LIMITS)
    vm.roots["main"] = vm.coroutine(vm.load(EVERYTHING, "=everything"))
    return vm


def live(document: Any) -> None:
    """Restore a document and use the VM in all ways; only Luau errors may result."""
    try:
        vm = VM.restore(document, **LIMITS)
    except VMSnapshotError:
        return
    main = vm.roots.get("main")
    for value in (1.0, "text", LuaError, None, vm.globals):
        if isinstance(main, Coroutine) and main.status == "suspended":
            attempt(lambda value=value: vm.resume(main, value))
    if main is not None:
        vm.globals["main"] = main
    attempt(lambda: vm.call(vm.load(PROBE)))
    with pytest.raises(LuaError, match="not enough memory"):
        vm.call(vm.load(HOG, environment=VM().globals))
    again = json.dumps(vm.snapshot())
    assert json.dumps(VM.restore(json.loads(again), **LIMITS).snapshot()) == again


def attempt(action: Callable[[], Any]) -> None:
    with contextlib.suppress(LuaError):
        action()


def places(part: Any) -> Iterator[tuple[Any, Any]]:
    for key, inner in list(part.items() if isinstance(part, dict) else enumerate(part)):
        yield part, key
        if isinstance(inner, (dict, list)):
            yield from places(inner)


OTHERS: list[Any] = [
    None, True, False, -1, 0, 1, 2.5, 2**40, -(2**70), 10**400, 1e308, "", "x", "世", "x" * 300, [], {}, ["r", -1],
    ["r", 0], ["r", 10**9], ["r", 1.0], ["r", True], ["n", "nan"], ["n", "inf"], ["i", 3], ["i", "A"], ["i", [1]],
    ["i", {}], ["c"], ["t"], ["t", 1.0, "x"], ["t", ["t"]], ["v", 1.0, 2.0, 3.0], ["v", "a", "b", "c"],
    ["b", "print"], ["b", []], ["l", "function", None, None, None], ["l", "sequence", ["r", 0], 1e300],
    ["l", "table", ["r", 0], [None]], ["pcall"], ["xpcall", 1.0], ["box", "x"], ["checked", ["r", 5]],
]  # fmt: skip


def mutate(document: Any, choice: random.Random) -> str:
    """Replace one or two nodes of a document; return a description."""
    done = []
    for _ in range(choice.choice((1, 1, 2))):
        found = list(places(some_part(document, choice)))
        if not found:
            continue
        holder, key = choice.choice(found)
        other = choice.choice(OTHERS)
        if choice.random() < 0.5:  # a node of the same document
            source, at = choice.choice(list(places(some_part(document, choice))) or [([None], 0)])
            other = source[at]
        elif choice.random() < 0.3:
            other = ["r", choice.randrange(len(document["objects"]))]
        done.append(f"{holder[key]!r:.60} -> {other!r:.60}")
        if isinstance(holder, list) and choice.random() < 0.1:
            del holder[key]
        else:
            holder[key] = copy.deepcopy(other)
    return "; ".join(done)


def some_part(document: Any, choice: random.Random) -> Any:
    """Return a random object, with equal chances per kind, or all but objects and sources."""
    kind = choice.choice(
        ("table", "function", "box", "coroutine", "coroutine", "wrap", "gmatch", "checked", None)
    )
    if kind is None:
        return {key: part for key, part in document.items() if key not in ("chunks", "objects")}
    objects = [
        saved for saved in document["objects"] if isinstance(saved, list) and saved[:1] == [kind]
    ]
    return choice.choice(objects or [[]])


ROUNDS = 20  # for each seed


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(more, marks=pytest.mark.thorough) for more in range(1, 40))]
)
def test_a_changed_document_is_refused_or_gives_a_usable_vm(seed: int) -> None:
    choice = random.Random(seed)
    originals = documents()
    for _ in range(ROUNDS):
        name, document = choice.choice(originals)
        document = copy.deepcopy(document)
        change = mutate(document, choice)
        try:
            live(document)
        except BaseException as error:
            error.add_note(f"{name}: {change}")
            raise


@pytest.mark.thorough
def test_unchanged_document_is_accepted() -> None:
    for _, document in documents():
        live(document)


FRAME = """
    local function add(x, y) coroutine.yield() return x + y end
    local sum, flags = 0, {}
    local function bump() sum += 1 return sum end
    local value = add(1, 2)
    for i = 1, 3 do flags[i] = coroutine.yield(i) end
    for i, v in ipairs({1, 2}) do coroutine.yield(v) end
    for k in function() return coroutine.yield() end do flags[k] = bump end
    return sum + value, bump, "t" .. value, add(3, 4)
"""


def suspended(steps: int) -> tuple[Any, list[Any]]:
    """Return a document of a VM, and its frames."""
    vm = VM(**LIMITS)
    vm.roots["main"] = vm.coroutine(vm.load(FRAME, "=frame"))
    for _ in range(steps):
        vm.resume(vm.roots["main"])
    document = json.loads(json.dumps(vm.snapshot()))
    return document, next(saved for saved in document["objects"] if saved[0] == "coroutine")[4]


def refused(document: Any) -> bool:
    try:
        VM.restore(document, **LIMITS)
    except VMSnapshotError:
        return True
    return False


@pytest.mark.thorough
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_frames_are_checked_for_everything_that_generated_code_trusts(steps: int) -> None:
    """Code that assumes a number in a variable must never find a string."""
    document, frames = suspended(steps)
    assert not refused(document)
    numbers = [
        (frame[4], at)
        for frame in frames
        for at, value in enumerate(frame[4])
        if value.__class__ is float
    ]
    assert numbers
    for values, at in numbers:
        before = values[at]
        for other in ("A", None, True, ["r", 0], ["i", 1], ["t", 1.0], ["c"], [1.0], {"x": 1.0}):
            values[at] = other
            assert refused(document), (values, at, other)
        values[at] = before
    assert not refused(document)


def test_number_box_must_contain_a_number_and_have_one_owner() -> None:
    document, _frames = suspended(2)
    box = next(saved for saved in document["objects"] if saved[0] == "box")
    for other in ("A", None, ["i", 3], ["r", 0]):
        box[1] = other
        assert refused(document), other
    box[1] = 5.0
    assert not refused(document)
    vm = VM()
    vm.call(
        vm.load("local a, b = 1, 'x' f = function() a += 1 return a end g = function() b ..= b end")
    )
    document = vm.snapshot()
    first, second = (
        saved for saved in document["objects"] if saved[0] == "function" and len(saved[3]) == 2
    )
    first[3], second[3] = second[3], first[3]
    assert refused(document)
    second[3] = first[3]
    assert refused(document)


def test_boxes_and_unchecked_functions_are_refused_as_values() -> None:
    document, _ = suspended(1)
    kinds = [saved[0] for saved in document["objects"]]
    add = next(
        at for at, saved in enumerate(document["objects"]) if saved[:3] == ["function", 0, 1]
    )
    for hidden in (kinds.index("box"), add):
        document["roots"]["kept"]["found"] = ["r", hidden]
        assert refused(document), hidden
        document["roots"]["kept"]["found"] = None
        document["objects"][0][4][1] = ["r", hidden]
        assert refused(document), hidden
        document["objects"][0][4][1] = 1.0


def test_suspended_direct_call_must_wait_for_its_own_function() -> None:
    for change in (lambda frames: frames.pop(), lambda frames: frames.insert(1, ["pcall"])):
        document, frames = suspended(1)
        document["shared globals"] = []  # which names frames by their numbers
        assert len(frames) == 2
        assert not refused(document)
        change(frames)
        assert refused(document)


def test_a_loop_and_its_key_must_match() -> None:
    document, (frame,) = suspended(5)
    at = next(
        at for at, saved in enumerate(frame[4]) if isinstance(saved, list) and saved[0] == "l"
    )
    assert frame[4][at][1] == "sequence"
    for control in ("x", -1.0, 0.5, 1e300, ["n", "nan"], ["n", "inf"]):
        frame[4][at][3] = control
        assert refused(document), control
    document, (frame, _) = suspended(7)
    for at, saved in enumerate(frame[4]):
        if isinstance(saved, list) and saved[0] in "cl":
            frame[4][at] = ["l", "table", ["r", 0], []] if saved[0] == "l" else 1.0
            assert refused(document)
            frame[4][at] = saved


BAD_COUNTS: dict[str, list[Any]] = {
    "allocated": [-1, -(2**60), 2**60, 1.5, "5", True, None, [], 10**400],
    "steps since collection": [-1, 10**6, 1.5, "5", None],
    "next serial": [-1, 2**60, "1", None, 1.5],
    "random": ["-1", str(2**64), "x", 5, None, "9" * 5000],
    "serials": [[[0, -1]], [[0, "x"]], [[-1, 65552]], [[0]], {}, [[10**9, 1]]],
    "shared globals": [[[0]], [[[]]], [[-1, -1]], [0], [[[0, 0]]]],
}


@pytest.mark.thorough
def test_counts_in_a_document_are_checked() -> None:
    for name, values in BAD_COUNTS.items():
        for value in values:
            document, _ = suspended(1)
            document[name] = value
            assert refused(document), (name, value)


DAMAGES: list[Any] = [
    ["table", "", None, [None], []],
    ["table", "", None, [], ["x", None]],
    ["table", "", None, [], [None, 1.0]],
    ["table", "", None, [], [["n", "nan"], 1.0]],
    ["table", "", None, [], [["v", ["n", "nan"], 1.0, 1.0], 1.0]],
    ["table", "", ["r", 0], [], []],
    ["table", "m", None, [], []],
    ["table", "m", ["r", 0], [], []],
    ["table", "x", ["r", 0], [], []],
    ["table", "", None, [], [], {"border": -1.0}],
    ["table", "", None, [], [], {"border": 1e300}],
    ["table", "", None, [], [], {"next": [-1, "x"]}],
    ["table", "", None, [], [], {"next": [5, "x"]}],
    ["table", "", None, [["v", "a", "b", "c"]], []],
    ["gmatch", "x", "x", -1],
    ["gmatch", "x", "x", 1e9],
    ["gmatch", 1.0, "x", 0],
    ["buffer", "?"],
    ["string", 5],
    ["box", ["t"]],
    ["checked", ["r", 0]],
    ["wrap", ["r", 0]],
    ["userdata", 1.0],
    ["coroutine", "dead", None, ["r", 0], [["pcall"]], None],
    ["coroutine", "suspended", ["b", "print"], ["r", 0], [["pcall"]], None],
    ["coroutine", "suspended", None, 5.0, [], None],
    ["coroutine", "suspended", None, ["r", 0], [["xpcall", 1.0]], None],
    ["coroutine", "dead", None, ["r", 0], [], ["x", 5]],
    ["function", -1, 0, [["r", 0]]],
    ["function", 0, -1, [["r", 0]]],
    ["function", 0, True, [["r", 0]]],
    ["function", 0, 0, [5.0]],
]


@pytest.mark.thorough
def test_damaged_objects_are_refused() -> None:
    for damage in DAMAGES:
        document, _ = suspended(1)
        document["roots"]["kept"]["found"] = ["r", len(document["objects"])]
        document["objects"].append(damage)
        assert refused(document), damage


def test_restored_metatable_cycle_fails_as_before() -> None:
    vm = VM()
    vm.call(vm.load("m = {} for i = 1, 3 do t = setmetatable({}, m) end m.__index = t"))
    (before,) = vm.call(vm.load("return select(2, pcall(function() return t.x end))"))
    assert before == "script:1: '__index' chain too long; possibly loop"
    vm = VM.restore(vm.snapshot())
    assert vm.call(vm.load("return select(2, pcall(function() return t.x end))")) == (before,)


def test_collection_works_after_a_refused_document() -> None:
    vm = VM()
    vm.call(vm.load("x = setmetatable({}, {__index = {}})"))
    document = vm.snapshot()
    (table,) = [each for each in document["objects"] if each[:2] == ["table", "m"]]
    table[2] = "no metatable"
    with pytest.raises(VMSnapshotError) as refused:
        VM.restore(document)
    # Its tables are kept alive by the traceback.
    assert vm.call(vm.load("collectgarbage() return 'collected'")) == ("collected",)
    assert refused.value
