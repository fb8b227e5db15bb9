"""Coroutines, pcall across yields, and loops and calls suspended in the middle."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.luau.support import MODES, check_scripts

SCRIPTS: dict[str, tuple[str, list[str]]] = {
    "values go both ways": (
        """
        local co = coroutine.create(function(a, b)
            print("start", a, b)
            print("got", coroutine.yield(a + b, "sum"))
            return "end", 1
        end)
        print(coroutine.resume(co, 1, 2))
        print(coroutine.status(co))
        print(coroutine.resume(co, "x", "y"))
        print(coroutine.status(co), coroutine.resume(co))
        """,
        ["start\t1\t2", "true\t3\tsum", "suspended", "got\tx\ty", "true\tend\t1",
         "dead\tfalse\tcannot resume dead coroutine"],
    ),
    "wrap raises the error with the caller's position": (
        """
        local f = coroutine.wrap(function() error("oops") end)
        print(pcall(f))
        print(pcall(function() coroutine.wrap(function() error("in") end)() end))
        print(pcall(coroutine.wrap(function() error({}) end)) == false)
        """,
        ["false\ttest:2: oops", "false\ttest:4: test:4: in", "true"],
    ),
    "generators": (
        """
        local function range(n)
            return coroutine.wrap(function() for i = 1, n do coroutine.yield(i, i * i) end end)
        end
        for i, square in range(3) do print(i, square) end
        """,
        ["1\t1", "2\t4", "3\t9"],
    ),
    "yields from nested calls keep every frame": (
        """
        local function leaf(x) local y = coroutine.yield(x) print("leaf", x, y) return y end
        local function middle(x) local a = leaf(x) local b = leaf(x + 1) return a + b end
        local co = coroutine.wrap(function() return "sum", middle(1) * middle(10) end)
        print(co()) print(co(1)) print(co(2)) print(co(3)) print(co(4))
        """,
        ["1", "leaf\t1\t1", "2", "leaf\t2\t2", "10", "leaf\t10\t3", "11", "leaf\t11\t4", "sum\t21"],
    ),
    "pcall survives yields": (
        """
        local function work(n)
            print("work", coroutine.yield(n))
            if n == 2 then error("bad") end
            if n == 3 then error({code = 42}) end
            return n * 10
        end
        local co = coroutine.wrap(function()
            print(pcall(work, 1))
            print(pcall(work, 2))
            local ok, e = pcall(work, 3)
            print(ok, e.code)
            print(xpcall(work, function(m) return "handled " .. m end, 2))
            return "done"
        end)
        local sent = 0
        repeat sent += 1 local got = co(sent) print("main", got) until got == "done"
        """,
        ["main\t1", "work\t2", "true\t10", "main\t2", "work\t3", "false\ttest:4: bad", "main\t3",
         "work\t4", "false\t42", "main\t2", "work\t5", "false\thandled test:4: bad", "main\tdone"],
    ),
    "coroutines within coroutines": (
        """
        local inner = coroutine.wrap(function() for i = 1, 3 do print("inner", coroutine.yield(i)) end end)
        local outer = coroutine.wrap(function()
            for i = 1, 3 do print("outer", i, inner(i)) coroutine.yield() end
        end)
        outer() outer() outer()
        """,
        ["outer\t1\t1", "inner\t2", "outer\t2\t2", "inner\t3", "outer\t3\t3"],
    ),
    "status and running": (
        """
        local co
        co = coroutine.create(function()
            print(coroutine.status(co), coroutine.running() == co, coroutine.isyieldable())
            local other = coroutine.create(function() print(coroutine.status(co)) end)
            coroutine.resume(other)
            print(coroutine.resume(co))
            print(coroutine.resume(coroutine.running()))
        end)
        print(coroutine.status(co))
        coroutine.resume(co)
        print(coroutine.status(co))
        """,
        ["suspended", "running\ttrue\ttrue", "normal",
         "false\tcannot resume non-suspended coroutine",
         "false\tcannot resume non-suspended coroutine", "dead"],
    ),
    "close": (
        """
        local co = coroutine.create(function() coroutine.yield() print("never") end)
        coroutine.resume(co)
        print(coroutine.close(co), coroutine.status(co))
        local failed = coroutine.create(error)
        coroutine.resume(failed, "why")
        print(coroutine.close(failed)) print(coroutine.close(failed))
        print(pcall(coroutine.close, coroutine.running()))
        """,
        ["true\tdead", "false\twhy", "true", "false\tcannot close running coroutine"],
    ),
    "metamethods and callbacks cannot yield": (
        """
        local t = setmetatable({}, {__index = function() return coroutine.yield() end})
        print(pcall(function() return t.x end))
        print(pcall(table.sort, {2, 1}, function() coroutine.yield() end))
        print(pcall(string.gsub, "a", "a", coroutine.yield))
        print(coroutine.isyieldable())
        """,
        ["false\ttest:2: attempt to yield across metamethod/C-call boundary",
         "false\ttest:4: attempt to yield across metamethod/C-call boundary",
         "false\tattempt to yield across metamethod/C-call boundary", "true"],
    ),
    "__call may yield": (
        """
        local t = setmetatable({}, {__call = function(_, x) return coroutine.yield(x) end})
        local co = coroutine.wrap(function() print("back", t("out")) end)
        print(co()) co("in")
        """,
        ["out", "back\tin"],
    ),
    "iterator functions may yield": (
        """
        local function step(n, i) coroutine.yield("step") if i < n then return i + 1 end end
        local co = coroutine.wrap(function() for i in step, 2, 0 do print(i) end return "end" end)
        print(co()) print(co()) print(co()) print(co())
        """,
        ["step", "1", "step", "2", "step", "end"],
    ),
    "every kind of loop can be suspended": (
        """
        local out = {}
        local co = coroutine.wrap(function()
            local i = 0
            while i < 2 do i += 1 coroutine.yield("while " .. i) end
            repeat i -= 1 local last = i coroutine.yield("repeat " .. i) until last == 0
            for n = 10, 1, -4 do coroutine.yield("for " .. n) end
            for k, v in pairs({5, x = 6}) do coroutine.yield("pairs " .. k .. v) end
            for k, v in ipairs({7, 8}) do if coroutine.yield("ipairs " .. k .. v) then break end end
            for w in ("a b"):gmatch("%a") do coroutine.yield("gmatch " .. w) end
            for k, v in {9} do coroutine.yield("table " .. k .. v) end
        end)
        local got = co()
        while got do print(got) got = co(got == "ipairs 17") end
        """,
        ["while 1", "while 2", "repeat 1", "repeat 0", "for 10", "for 6", "for 2", "pairs 15",
         "pairs x6", "ipairs 17", "gmatch a", "gmatch b", "table 19"],
    ),
    "expressions can be suspended anywhere": (
        """
        local function y(x) return coroutine.yield(x) or x end
        local co = coroutine.wrap(function()
            local t = {y(1), k = y(2), [y(3)] = y(4), y(5), y(6)}
            print(t[1], t.k, t[3], t[2])
            print(y(7) + y(8) * -y(9), y("a") .. y("b") .. y("c"), #y("four"), not y(false))
            print(y(1) and y(2) or y(3), y(nil) and 1 or y(4), if y(true) then y(5) else y(6))
            t[y("k")] += y(10)
            t.a, t[y("b")] = y("A"), y("B")
            print(t.k, t.a, t.b, `{y(1)}-{y(2)}`, (y(1)), y(3) == y(3), y(1) < y(2))
            return y("last")
        end)
        local n, got = 0, co()
        while coroutine.isyieldable() and got ~= "last" do n += 1 got = co() end
        print(n > 30, co())
        """,
        ["1\t2\t6\t5", "-65\tabc\t4\ttrue", "2\t4\t5", "12\tA\tB\t1-2\t1\ttrue\ttrue", "true\tlast"],
    ),
    "varargs and closures survive": (
        """
        local function f(...)
            local n = select("#", ...)
            local add = function(x) n += x return n end
            coroutine.yield()
            print(add(1), n, ...)
            return add
        end
        local co = coroutine.wrap(function() local add = f("a", nil, "c") coroutine.yield() print(add(10)) end)
        co() co() co()
        """,
        ["4\t4\ta\tnil\tc", "14"],
    ),
    "globals of suspended functions can be replaced": (
        """
        local print, setfenv, getfenv, debug, coroutine = print, setfenv, getfenv, debug, coroutine
        x = "old"
        local function waiting() coroutine.yield() return x end
        local first = coroutine.wrap(waiting) first()
        local function twin() return function() coroutine.yield() return x end end
        local a, b = twin(), twin()
        local second, third = coroutine.wrap(a), coroutine.wrap(b) second() third()
        setfenv(waiting, {x = "new"}) setfenv(a, {x = "a"})
        print(first(), second(), third())
        local own
        function own() coroutine.yield() return setfenv(1, {x = "own"}) == own, x end
        local fourth = coroutine.wrap(own) fourth() print("own", fourth())
        local outer
        local function inner()
            coroutine.yield()
            return setfenv(2, {x = "outer"}) == outer, getfenv(2).x, debug.info(2, "f") == outer
        end
        function outer() local s, g, f = inner() return s, g, f, x end
        local fifth = coroutine.wrap(outer) fifth() print(fifth())
        local function deep(n) if n > 0 then return deep(n - 1) .. x end coroutine.yield() return x end
        local sixth = coroutine.wrap(deep) sixth(2) setfenv(deep, {x = "d"}) print(sixth())
        """,
        ["new\ta\told", "own\ttrue\town", "true\touter\ttrue\touter", "ddd"],
    ),
    "a resumed function keeps nothing alive that it drops": (
        """
        local seen = setmetatable({}, {__mode = "v"})
        local co = coroutine.wrap(function()
            local dropped = {}
            seen[1] = dropped
            coroutine.yield()
            dropped = nil
            collectgarbage()
            return seen[1]
        end)
        co()
        print(co())
        """,
        ["nil"],
    ),
    "iterators end without a value": (
        """
        print(select("#", ipairs({})({}, 0)), select("#", ("x"):gmatch("y")()))
        """,
        ["0\t0"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("run", MODES.values(), ids=MODES)
def test_coroutines_suspend_and_resume_anywhere(run: Callable[..., list[str]]) -> None:
    check_scripts(run, SCRIPTS)
