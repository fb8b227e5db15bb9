"""Times the Luau implementation against hand-written CPython and lupa's Lua 5.4.

Without lupa (``pip install lupa``), the comparison with Lua is omitted.

    python -m benchmarks.luau [--repeat 5]

Times are CPU time; each is the median of several runs in one process.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.luau_memory import measure_memory
from benchmarks.measure import Row, measure_loops, report
from clawblox.luau import VM, Host, HostObject, HostType, Vector, VectorType, run_deep

_OPERATION_ROUNDS = 12  # per repetition of the programs
LUAU = {
    "fib": """
        local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end
        return function() return fib(24) end""",
    "loop": """
        return function() local s = 0.5 for i = 1, 1000000 do s = s + i end return s end""",
    "table": """
        return function()
            local t = {}
            for i = 1, 200000 do t[i] = i * 2 end
            local s = 0
            for i = 1, 200000 do s = s + t[i] end
            return s
        end""",
    "method": """
        local C = {} C.__index = C
        function C:inc(x) self.n = self.n + x end
        return function()
            local o = setmetatable({n = 0}, C)
            for i = 1, 200000 do o:inc(i) end
            return o.n
        end""",
    "str": """
        return function()
            local n = 0
            for i = 1, 50000 do local s = "item" .. i .. ":" .. (i * 2) n = n + #s end
            return n
        end""",
    "heartbeat": """
        local entities = {}
        for i = 1, 200 do
            entities[i] = {pos = {x = i, y = 0, z = 0}, vel = {x = 1, y = 2, z = 3}}
        end
        return function()
            local dt = 1 / 60
            for tick = 1, 50 do
                for i, e in ipairs(entities) do
                    local p, v = e.pos, e.vel
                    v.y = v.y - 9.8 * dt
                    p.x = p.x + v.x * dt
                    p.y = p.y + v.y * dt
                    p.z = p.z + v.z * dt
                    if p.y < 0 then p.y = 0 v.y = -v.y * 0.5 end
                end
            end
            return #entities
        end""",
    "closure": """
        return function()
            local function counter() local n = 0 return function(d) n = n + d return n end end
            local c, r = counter(), 0
            for i = 1, 200000 do r = c(i) end
            return r
        end""",
    "#t": """
        local t = {} for i = 1, 100 do t[i] = i end
        return function()
            local n = 0
            for i = 1, 200000 do n = n + #t end
            return n
        end""",
    "insert": """
        return function()
            local t, n = {}, 0
            for i = 1, 100000 do table.insert(t, i) end
            for i = 1, 100000 do n = n + table.remove(t) end
            return n
        end""",
    "format": """
        return function()
            local n = 0
            for i = 1, 50000 do n = n + #string.format("%s: %d of %.2f", "item", i, i / 3) end
            return n
        end""",
    "ipairs": """
        local t = {1, 2, 3}
        return function()
            local n = 0
            for i = 1, 50000 do for _, v in ipairs(t) do n = n + v end end
            return n
        end""",
    "pairs": """
        local t = {a = 1, b = 2, c = 3}
        return function()
            local n = 0
            for i = 1, 50000 do for _, v in pairs(t) do n = n + v end end
            return n
        end""",
    "vector": """
        local v = vector.create(1, 2, 3)
        return function()
            local n = 0
            for i = 1, 200000 do n = n + v.X + v.Z end
            return n
        end""",
    "coroutine": """
        return function()
            local function inner(i) coroutine.yield(i) end
            local co = coroutine.wrap(function() for i = 1, 30000 do inner(i) end end)
            local s, v = 0, co()
            while v do s = s + v v = co() end
            return s
        end""",
}


def fib(n: float) -> float:
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def loop() -> float:
    s = 0.5
    for i in range(1, 1000001):
        s = s + i
    return s


def table() -> float:
    t = []
    for i in range(1, 200001):
        t.append(i * 2.0)  # noqa: PERF401 - as in Luau
    s = 0.0
    for i in range(200000):
        s = s + t[i]
    return s


class Counter:
    def __init__(self) -> None:
        self.n = 0.0

    def inc(self, x: float) -> None:
        self.n = self.n + x


def method() -> float:
    o = Counter()
    for i in range(1, 200001):
        o.inc(i)
    return o.n


def string() -> float:
    n = 0
    for i in range(1, 50001):
        s = f"item{i}:{i * 2}"
        n = n + len(s)
    return n


# The same data as in Luau, with dictionaries as tables.
ENTITIES = [
    {"pos": {"x": float(i), "y": 0.0, "z": 0.0}, "vel": {"x": 1.0, "y": 2.0, "z": 3.0}}
    for i in range(1, 201)
]


def heartbeat() -> float:
    dt = 1 / 60
    for _ in range(50):
        for e in ENTITIES:
            p, v = e["pos"], e["vel"]
            v["y"] = v["y"] - 9.8 * dt
            p["x"] = p["x"] + v["x"] * dt
            p["y"] = p["y"] + v["y"] * dt
            p["z"] = p["z"] + v["z"] * dt
            if p["y"] < 0:
                p["y"] = 0.0
                v["y"] = -v["y"] * 0.5
    return len(ENTITIES)


def closure() -> float:
    def counter() -> Callable[[float], float]:
        n = 0.0

        def add(d: float) -> float:
            nonlocal n
            n = n + d
            return n

        return add

    c, r = counter(), 0.0
    for i in range(1, 200001):
        r = c(i)
    return r


SEQUENCE = [float(i) for i in range(1, 101)]
FIELDS = {"a": 1.0, "b": 2.0, "c": 3.0}
VECTOR = Vector(1.0, 2.0, 3.0)


def length() -> float:
    n = 0.0
    for _ in range(200000):
        n = n + len(SEQUENCE)
    return n


def insert() -> float:
    t: list[float] = []
    n = 0.0
    for i in range(1, 100001):
        t.append(i)  # noqa: PERF402 - as in Luau
    for _ in range(100000):
        n = n + t.pop()
    return n


def form() -> float:
    n = 0.0
    for i in range(1, 50001):
        n = n + len("%s: %d of %.2f" % ("item", i, i / 3))  # noqa: UP031 - as in Luau
    return n


def sequence() -> float:
    n = 0.0
    for _ in range(50000):
        for v in SEQUENCE[:3]:
            n = n + v
    return n


def fields() -> float:
    n = 0.0
    for _ in range(50000):
        for v in FIELDS.values():
            n = n + v
    return n


def vector() -> float:
    n = 0.0
    for _ in range(200000):
        n = n + VECTOR.x + VECTOR.z
    return n


def coroutine() -> float:
    def inner(i: int) -> Any:
        yield i

    def outer() -> Any:
        for i in range(1, 30001):
            yield from inner(i)

    return float(sum(outer()))


PYTHON: dict[str, Callable[[], float]] = {
    "fib": lambda: fib(24),
    "loop": loop,
    "table": table,
    "method": method,
    "str": string,
    "heartbeat": heartbeat,
    "closure": closure,
    "#t": length,
    "insert": insert,
    "format": form,
    "ipairs": sequence,
    "pairs": fields,
    "vector": vector,
    "coroutine": coroutine,
}


def median_ms(function: Callable[[], Any], repeat: int) -> tuple[float, Any]:
    times = []
    result = None
    for _ in range(repeat):
        started = time.process_time()
        result = function()
        times.append((time.process_time() - started) * 1000)
    return statistics.median(times), result


def lua_functions() -> dict[str, Callable[[], Any]] | None:
    try:
        from lupa.lua54 import LuaRuntime
    except ImportError:
        return None
    lua = LuaRuntime()
    return {name: lua.execute(source) for name, source in LUAU.items() if name != "vector"}


def compare(repeat: int) -> list[Row]:
    """Time the same programs in Luau, in CPython and, with lupa, in Lua 5.4."""
    lua = lua_functions() or {}
    rows, ratios, lua_ratios = [], [], []
    for name, source in LUAU.items():
        vm = VM()
        (function,) = vm.call(vm.load(source, f"={name}"))
        here, result = median_ms(lambda vm=vm, function=function: vm.call(function), repeat)
        python, expected = median_ms(PYTHON[name], repeat)
        assert result == (float(expected),), (name, result, expected)
        rows.append(Row(f"{name}, against CPython", here, "ms", python))
        ratios.append(here / python)
        if name in lua:
            theirs, _ = median_ms(lua[name], repeat)
            rows.append(Row(f"{name}, against Lua 5.4", here, "ms", theirs))
            lua_ratios.append(here / theirs)
    rows.append(_mean("CPython", ratios))
    return [*rows, *([_mean("Lua 5.4", lua_ratios)] if lua_ratios else [])]


def _mean(other: str, ratios: list[float]) -> Row:
    return Row(f"geometric mean against {other}", statistics.geometric_mean(ratios), "times")


def snapshots(repeat: int) -> list[Row]:
    return [
        *_snapshot("1e5 numbers", "t = {} for i = 1, 100000 do t[i] = i * 1.5 end", repeat),
        *_snapshot(
            "1e4 tables of 10 fields",
            "t = {} for i = 1, 10000 do t[i] = {a=1,b=2,c=3,d='x',e='y',f=i,g=i,h=i,k=1,l=2} end",
            repeat,
        ),
    ]


def _snapshot(what: str, source: str, repeat: int) -> list[Row]:
    vm = VM()
    vm.call(vm.load(source))
    took, document = median_ms(vm.snapshot, repeat)
    dumped, text = median_ms(lambda: json.dumps(document), repeat)
    loaded, _ = median_ms(lambda: VM.restore(json.loads(text)), repeat)
    return [
        Row(f"snapshot of {what}", took, "ms"),
        Row(f"JSON of that snapshot, {len(text) / 1e6:.2f} MB", dumped, "ms"),
        Row("loading and restoring that snapshot", loaded, "ms"),
    ]


def compilation(repeat: int) -> Row:
    block = LUAU["heartbeat"].replace("return function", "local function tick", 1)
    lines = block.count("\n") + 1
    source = "\n".join(f"do {block} end" for _ in range(1000 // lines + 1))
    took, _ = median_ms(lambda: VM().load(source), repeat)
    return Row("compiling 1,000 lines", took * 1000 / (source.count("\n") + 1), "ms")


OPERATIONS = {
    "v + w": "x = v + w",
    "v * 0.1": "x = v * 0.1",
    "v / 3": "x = v / 3",
    "v == w": "x = v == w",
    "v.X": "x = v.X",
    "v.Magnitude": "x = v.Magnitude",
    "v:Dot(w)": "x = v:Dot(w)",
    "table:method()": "t:get('size')",
    "string:len()": "x = s:len()",
    "getter of a HostType": "x = plain.size",
    "method of a HostType": "x = plain:get('size')",
    "own __getitem__": "x = own.size",
    "own __setitem__": "own.size = i",
    "own find_method": "x = own:get('size')",
    "raw function": "x = raw(own)",
}


class Own(HostObject):
    """An object with its own lookup of Luau values."""

    __slots__ = ("fields", "methods")

    def __getitem__(self, key: Any) -> Any:
        return self.fields[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.fields[key] = value

    def find_method(self, name: str) -> Any:
        return self.methods.get(name)


def make_engine() -> VM:
    """Return a VM with the kinds of vectors and objects that an engine provides."""
    host = Host()
    kind = host.type(
        HostType(
            "Plain",
            properties={"size": lambda _: 1.0},
            methods={"get": lambda plain, name: name},
        )
    )

    @host.raw("get")
    def get(own: Any, name: str = "size") -> Any:
        return own.fields[name]

    own = Own(kind, "own")
    own.fields, own.methods = {"size": 1.0}, {"get": get}
    vm = VM(
        vectors=VectorType(
            "Vector3",
            properties={"Magnitude": lambda v: math.sqrt(v.x * v.x + v.y * v.y + v.z * v.z)},
            methods={"Dot": lambda v, w: v.x * w.x + v.y * w.y + v.z * w.z},
        )
    )
    vm.globals.update(plain=HostObject(kind, "plain"), own=own, raw=get)
    vm.globals.update(v=Vector(1.0, 2.0, 3.0), w=Vector(4.0, 5.0, 6.0))
    return vm


def operations(repeat: int, turns: int = 5_000) -> list[Row]:
    """Time single operations, without the surrounding loop."""
    vm = make_engine()
    local = "local v, w, own, plain, raw, s, x = v, w, own, plain, raw, 'abc'"
    table = "local C = {} C.__index = C function C:get(k) return k end"

    def load(body: str) -> Callable[[], object]:
        source = f"{local} {table} local t = setmetatable({{}}, C)"
        (function,) = vm.call(
            vm.load(f"{source} return function() for i = 1, {turns} do {body} end end")
        )
        return lambda: vm.call(function)

    loops = {name: load(body) for name, body in {"": "", **OPERATIONS}.items()}
    taken = measure_loops(loops, turns, _OPERATION_ROUNDS * repeat)
    return [Row(name, taken[name], "ns") for name in OPERATIONS]


def resumes(repeat: int, times: int = 20_000) -> list[Row]:
    """Time the host's resumes, within one block of `entered`."""
    vm = VM()
    loop = vm.coroutine(vm.load("while true do coroutine.yield() end"))
    once = vm.load("return")

    def again() -> None:
        for _ in range(times):
            vm.resume(loop)

    def fresh() -> None:
        for _ in range(times):
            vm.resume(vm.coroutine(once))

    with vm.entered():
        return [
            Row(name, median_ms(function, repeat)[0] / times * 1e6, "ns")
            for name, function in (("resume and yield", again), ("coroutine that ends", fresh))
        ]


def measure(repeat: int, limit_mib: int = 64) -> list[Row]:
    """Measure everything."""
    return [
        *compare(repeat),
        *snapshots(repeat),
        compilation(repeat),
        *operations(repeat),
        *resumes(repeat),
        *measure_memory(limit_mib),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--quick", action="store_true", help="a smoke test, not a measurement")
    options = parser.parse_args()
    rows = measure(1, 8) if options.quick else measure(options.repeat)
    report("Luau", rows, options.json)


if __name__ == "__main__":
    run_deep(main)
