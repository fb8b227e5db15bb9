"""Metatables and every metamethod."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.luau.support import MODES, check_scripts

SCRIPTS: dict[str, tuple[str, list[str]]] = {
    "__index chains": (
        """
        local a = {x = 1}
        local b = setmetatable({y = 2}, {__index = a})
        local c = setmetatable({}, {__index = b})
        local d = setmetatable({}, {__index = function(t, k) return k .. "?", "dropped" end})
        print(c.x, c.y, c.z, d.q, rawget(c, "x"))
        """,
        ["1\t2\tnil\tq?\tnil"],
    ),
    "__index may change later": (
        """
        local meta = {__index = {x = 1}}
        local a, b, c = setmetatable({}, meta), setmetatable({}, meta), setmetatable({}, meta)
        print(a.x, b.x, c.x)
        meta.__index = {x = 2} print(a.x, b.x, c.x)
        meta.__index = function(_, k) return k end print(a.x, c.y)
        meta.__index = nil print(a.x, b.x)
        rawset(meta, "__index", {x = 3}) print(b.x)
        table.clear(meta) print(c.x)
        """,
        ["1\t1\t1", "2\t2\t2", "x\ty", "nil\tnil", "3", "nil"],
    ),
    "__newindex, even when it comes late": (
        """
        local log, meta = {}, {}
        local t = setmetatable({old = 1}, meta)
        t.a = 1
        meta.__newindex = function(t, k, v) print("new", k, v) rawset(t, k, v) end
        t.a = 2 t.b = 3 t.b = 4 t.b = nil t.b = 5
        local sink = {}
        meta.__newindex = sink
        t.c = 6
        print(rawget(t, "c"), sink.c, t.a, t.b)
        """,
        ["new\tb\t3", "new\tb\t5", "nil\t6\t2\t5"],
    ),
    "arithmetic": (
        """
        local function show(name) return function(a, b) return name .. (a == b and "=" or "") end end
        local m = {}
        for _, name in {"add", "sub", "mul", "div", "idiv", "mod", "pow", "unm", "concat"} do
            m["__" .. name] = show(name)
        end
        local t = setmetatable({}, m)
        print(t + 1, 1 - t, t * t, "x" / t, t // 2, t % 2, 2 ^ t, -t, t .. "a", 1 .. t)
        """,
        ["add\tsub\tmul=\tdiv\tidiv\tmod\tpow\tunm=\tconcat\tconcat"],
    ),
    "comparison": (
        """
        local m = {__lt = function(a, b) return a.n < b.n end, __le = function(a, b) return a.n <= b.n end,
                   __eq = function(a, b) return a.n == b.n end}
        local function v(n) return setmetatable({n = n}, m) end
        print(v(1) < v(2), v(1) > v(2), v(1) <= v(1), v(2) >= v(3), v(1) == v(1), v(1) ~= v(1))
        print(rawequal(v(1), v(1)), v(1) == 1, pcall(function() return v(1) < 1 end))
        local only = setmetatable({}, {__eq = function() return false end})
        print(only == only, only ~= only)
        """,
        ["true\tfalse\ttrue\tfalse\ttrue\tfalse",
         "false\tfalse\tfalse\ttest:6: attempt to compare table < number", "false\ttrue"],
    ),
    "__len, __call, __tostring, __iter": (
        """
        local t = setmetatable({1, 2}, {
            __len = function() return 42 end,
            __call = function(self, ...) return select("#", ...), self == ... end,
            __tostring = function(self) return "T" .. rawlen(self) end,
            __iter = function(self) return function(_, i) i = (i or 0) + 1 if i < 3 then return i, "v" .. i end end end,
        })
        print(#t, tostring(t), t(1, 2), `{t}`, string.format("%*", t))
        for k, v in t do print(k, v) end
        """.replace("t(1, 2)", "(t(1, 2))"),
        ["42\tT2\t2\tT2\tT2", "1\tv1", "2\tv2"],
    ),
    "__metatable protects": (
        """
        local t = setmetatable({}, {__metatable = "locked"})
        print(getmetatable(t), pcall(setmetatable, t, {}))
        print(getmetatable("").__index == nil, type(getmetatable("")))
        """,
        ["locked\tfalse\tcannot change a protected metatable", "true\tstring"],
    ),
    "frozen tables": (
        """
        local t = table.freeze({1, x = 2})
        print(table.isfrozen(t), pcall(function() t.x = 3 end))
        print(pcall(function() t[#t + 1] = 3 end))
        print(pcall(table.insert, t, 1))
        print(select("#", pcall(rawset, t, 1, 1)), t[1], t.x, #t)
        local copy = table.clone(t) copy.x = 9 print(copy.x, t.x)
        """,
        ["true\tfalse\ttest:3: attempt to modify a readonly table",
         "false\ttest:4: attempt to modify a readonly table",
         "false\tattempt to modify a readonly table", "2\t1\t2\t1", "9\t2"],
    ),
    "userdata": (
        """
        local u = newproxy(true)
        local m = getmetatable(u)
        m.__index = function(_, k) return k .. "!" end
        m.__newindex = function(_, k, v) print("set", k, v) end
        m.__len = function() return 3 end
        m.__add = function() return "sum" end
        print(type(u), typeof(u), u.x, #u, u + 1, getmetatable(newproxy()) == nil)
        u.y = 5
        print(pcall(function() return newproxy().x end))
        """,
        ["userdata\tuserdata\tx!\t3\tsum\ttrue", "set\ty\t5",
         "false\ttest:10: attempt to index userdata with 'x'"],
    ),
    "__call must be a function": (
        """
        local callable = setmetatable({}, {__call = function() return "called" end})
        print(callable(), pcall(setmetatable({}, {__call = callable})))
        """,
        ["called\tfalse\tattempt to call a table value"],
    ),
    "weak tables lose what nothing else holds": (
        """
        local weak = setmetatable({}, {__mode = "v"})
        local kept = {}
        weak[1], weak[2], weak.n = kept, {}, 5
        local keys = setmetatable({[kept] = 1, [{}] = 2}, {__mode = "k"})
        collectgarbage()
        local n = 0 for _ in keys do n += 1 end
        print(weak[1] == kept, weak[2], weak.n, n)
        """,
        ["true\tnil\t5\t1"],
    ),
    "loops of __index end": (
        """
        local a, b = {}, {}
        setmetatable(a, {__index = b}) setmetatable(b, {__index = a})
        print(pcall(function() return a.x end))
        """,
        ["false\ttest:4: '__index' chain too long; possibly loop"],
    ),
}  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("run", MODES.values(), ids=MODES)
def test_metamethods_behave_like_in_luau(run: Callable[..., list[str]]) -> None:
    check_scripts(run, SCRIPTS)
