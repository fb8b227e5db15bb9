"""Every construct of the language, run without and with a restore at each printed line."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.luau.support import MODES, check_scripts, run_plainly, run_tortured

SCRIPTS: dict[str, tuple[str, list[str]]] = {
    "locals without values are nil": ("local a, b = 1 print(a, b)", ["1\tnil"]),
    "assignments happen at once": ("local a, b = 1, 2 a, b = b, a print(a, b)", ["2\t1"]),
    "targets are evaluated before values change": (
        "local i, t = 1, {} i, t[i] = 2, 'x' print(i, t[1], t[2])",
        ["2\tx\tnil"],
    ),
    "compound assignment evaluates its target once": (
        """
        local n, t = 0, {1, 2}
        local function at() n += 1 print("at", n) return n end
        t[at()] += 5
        t[at()] *= 5
        local s = "a"
        s ..= "b" .. 1
        print(t[1], t[2], s)
        """,
        ["at\t1", "at\t2", "6\t10\tab1"],
    ),
    "a block has locals of its own": ("local a = 1 do local a = 2 end print(a)", ["1"]),
    "if chooses one arm": (
        """
        local function f(x)
            if x == 1 then return "one" elseif x == 2 then return "two" else return "many" end
        end
        print(f(1), f(2), f(3))
        """,
        ["one\ttwo\tmany"],
    ),
    "conditions with calls are evaluated in order": (
        """
        local function t(x) print("t", x) return x end
        if t(false) then print(1) elseif t(nil) then print(2) elseif t(0) then print(3) end
        """,
        ["t\tfalse", "t\tnil", "t\t0", "3"],
    ),
    "only nil and false are false": (
        "print(0 and 1, '' and 2, false and 3, nil and 4, not nil, not 0)",
        ["1\t2\tfalse\tnil\ttrue\tfalse"],
    ),
    "and and or give operands": (
        """
        local function f(x) print("f", x) return x end
        print(nil or 1, false or nil, f(1) and f(2), f(false) and f(3), f(nil) or f(4))
        """,
        ["f\t1", "f\t2", "f\tfalse", "f\tnil", "f\t4", "1\tnil\t2\tfalse\t4"],
    ),
    "if expressions evaluate one value": (
        """
        local function f(x) print("f", x) return x end
        print(if 1 > 2 then f("a") elseif f(2) == 2 then f("b") else f("c"))
        """,
        ["f\t2", "f\tb", "b"],
    ),
    "while runs until its condition fails": (
        "local i = 0 while i < 3 do i += 1 print(i) end",
        ["1", "2", "3"],
    ),
    "repeat sees the locals of its body": (
        "local n = 0 repeat n += 1 local last = n == 3 print(n) until last",
        ["1", "2", "3"],
    ),
    "continue in repeat goes to until": (
        """
        local n = 0
        repeat
            n += 1
            if n % 2 == 1 then continue end
            print(n)
            if n == 8 then break end
        until n >= 6
        print("end", n)
        """,
        ["2", "4", "6", "end\t6"],
    ),
    "break and continue in nested loops": (
        """
        for i = 1, 3 do
            for j = 1, 3 do
                if j == 2 then continue end
                if i == 3 then break end
                print(i, j)
            end
        end
        """,
        ["1\t1", "1\t3", "2\t1", "2\t3"],
    ),
    "numeric for with steps": (
        """
        for i = 3, 1, -1 do print(i) end
        for i = 0, 1, 0.5 do print(i) end
        for i = 1, 0 do print("never") end
        for i = 1, 10, 0 do print("never") end
        """,
        ["3", "2", "1", "0", "0.5", "1"],
    ),
    "the loop variable may change without effect on the loop": (
        "for i = 1, 3 do i = i * 10 print(i) end",
        ["10", "20", "30"],
    ),
    "numeric for takes numeric strings": ("for i = '1', '2' do print(i) end", ["1", "2"]),
    "long loops count on": (
        "local n = 0 for i = 1, 10000 do n += i if i == 5000 then print(n) end end print(n)",
        ["12502500", "50005000"],
    ),
    "every iteration has its own variable": (
        """
        local fs = {}
        for i = 1, 3 do fs[i] = function() i += 10 return i end end
        print(fs[1](), fs[1](), fs[2](), fs[3]())
        """,
        ["11\t21\t12\t13"],
    ),
    "pairs gives the sequence first": (
        """
        local t = {x = 1, "a", "b", [10] = "c"}
        for k, v in pairs(t) do print(k, v) end
        """,
        ["1\ta", "2\tb", "x\t1", "10\tc"],
    ),
    "entries removed during a loop are skipped": (
        """
        local t = {a = 1, b = 2, c = 3}
        for k in pairs(t) do print(k) t.b = nil end
        """,
        ["a", "c"],
    ),
    "values are read late": (
        "local t = {1, 2, 3} for i, v in ipairs(t) do print(v) if i < 3 then t[i + 1] = v * 10 end end",
        ["1", "10", "100"],
    ),
    "generalised iteration": (
        "for k, v in {5, 6, x = 7} do print(k, v) end",
        ["1\t5", "2\t6", "x\t7"],
    ),
    "iterator functions get state and control": (
        """
        local function step(state, at) print("step", at) if at < state then return at + 1, at * at end end
        for i, square, none in step, 2, 0 do print(i, square, none) end
        """,
        ["step\t0", "1\t0\tnil", "step\t1", "2\t1\tnil", "step\t2"],
    ),
    "boolean keys are not numbers": (
        """
        local t = {[true] = "yes", [1] = "one", [false] = "no", [0] = "zero"}
        print(t[true], t[1], t[false], t[0])
        for k, v in t do print(k, v) end
        """,
        ["yes\tone\tno\tzero", "1\tone", "true\tyes", "false\tno", "0\tzero"],
    ),
    "functions take what they are given": (
        "local function f(a, b) return a, b end print(f(1)) print(f(1, 2, 3)) print((f(1, 2)))",
        ["1\tnil", "1\t2", "1"],
    ),
    "varargs": (
        """
        local function f(...)
            local a, b = ...
            print(select("#", ...), a, b, (...))
            return ..., "end"
        end
        print(f()) print(f(1, nil, 3))
        print({f(7)}[2], #{f(7, 8)})
        """.replace("{f(7)}[2]", "({f(7)})[2]"),
        ["0\tnil\tnil\tnil", "nil\tend", "3\t1\tnil\t1", "1\tend", "1\t7\tnil\t7", "2\t7\t8\t7", "end\t2"],
    ),
    "only the last call is spread": (
        "local function f() return 1, 2 end print(f(), f(), (f()))",
        ["1\t1\t1"],
    ),
    "recursive local functions see themselves": (
        "local function fact(n) return n < 2 and 1 or n * fact(n - 1) end print(fact(10))",
        ["3628800"],
    ),
    "closures share variables": (
        """
        local function counter()
            local n = 0
            return function() n += 1 return n end, function() return n end
        end
        local up, get = counter()
        up() print(get()) up() print(get())
        local other = counter()
        print(other(), get())
        """,
        ["1", "2", "1\t2"],
    ),
    "mutual recursion through locals": (
        """
        local even, odd
        function even(n) if n == 0 then return true end return odd(n - 1) end
        function odd(n) if n == 0 then return false end return even(n - 1) end
        print(even(10), odd(7))
        """,
        ["true\ttrue"],
    ),
    "methods get self": (
        """
        local Account = {} Account.__index = Account
        function Account.new(n) return setmetatable({n = n}, Account) end
        function Account:add(x) self.n += x print(self.n) return self end
        Account.new(1):add(2):add(3)
        local a, b = Account.new(10), Account.new(20)
        a:add(1) b:add(2)
        """,
        ["3", "6", "11", "22"],
    ),
    "strings have methods": (
        "print(('x'):rep(3), ('%d'):format(5), #'abc', ('abc'):upper())",
        ["xxx\t5\t3\tABC"],
    ),
    "table constructors": (
        """
        local function f() return 1, 2, 3 end
        local t = {10, f(), x = "y", ["a b"] = 1, [3 + 4] = 2; f()}
        print(#t, t[1], t[2], t[5], t.x, t["a b"], t[7])
        """,
        ["5\t10\t1\t3\ty\t1\t2"],
    ),
    "fields that another one replaces are evaluated": (
        """
        local o = {}
        print(pcall(function() return {10, [1] = 7 + o} end))
        print(pcall(function() return {x = o.y.z, x = 2} end))
        local t = {10, [1] = print("evaluated"), x = print("too"), x = 3} print(t[1], t.x)
        """,
        ["false\ttest:3: attempt to perform arithmetic (add) on number and table",
         "false\ttest:4: attempt to index nil with 'z'", "evaluated", "too", "10\t3"],
    ),
    "fields are evaluated in their order": (
        """
        local n = 0
        local o = setmetatable({}, {__index = function() n += 1 return n end})
        local t = {a = o.x, b = o.x, c = o.x, d = o.x}
        print(t.a, t.b, t.c, t.d)
        t = {foo = o.x, bar = o.x, [1] = o.x, o.x, thing = o.x}
        print(t.foo, t.bar, t[1], t.thing)
        t = {[o.x] = "key", o.x, a = o.x}
        print(t[10], t[1], t.a)
        """,
        ["1\t2\t3\t4", "5\t6\t8\t9", "key\t11\t12"],
    ),
    "literals are compared with other types": (
        "print(true == -(1 / 2), (-(1 / 2)) == nil, 'a' == nil, (2 ^ 0.5) ~= false)",
        ["false\tfalse\tfalse\ttrue"],
    ),
    "interpolated strings": (
        "local n = 2 print(`a{n}b{n + 1}c{`<{n}>`}\\{}`, `plain`)",
        ["a2b3c<2>{}\tplain"],
    ),
    "numeric literals": (
        "print(0xff, 0b101, 1_000, 1e3, .5, 3., 0xA_B)",
        ["255\t5\t1000\t1000\t0.5\t3\t171"],
    ),
    "string escapes": (
        r"print('\65\x42\u{43}\z   D\'', #'\0\n')",
        ["ABCD'\t2"],
    ),
    "long strings drop the first newline": ("print([[\nx\ny]], #[==[]]]==])", ["x\ny\t2"]),
    "comments": ("--[==[ long\n]] ]==] print(1) -- short\nprint(2)", ["1", "2"]),
    "types are read and forgotten": (
        """
        --!strict
        export type Point<T = number> = { x: T, read y: T?, [string]: (a: T, ...any) -> (T, ...T) }
        type Callback = <A..., B>(A...) -> B & { kind: "a" | "b" } | nil
        type function id(t) return t end
        local function f<T, U...>(a: T, b: typeof(1), ...: U...): (T, number)
            local c: { number } = { b :: number }
            return a, c[1] + (2 :: any) :: number
        end
        print(f(1, 2))
        for i: number, v: string in { "a" } do print(i, v) end
        """,
        ["1\t4", "1\ta"],
    ),
    "attributes": (
        "@native local function f() return 1 end @checked function g() return 2 end print(f() + g())",
        ["3"],
    ),
    "explicit type instantiation": (
        "local function id(x) return x end print(id<<number>>(1), (id<<{ string }>>('a')))",
        ["1\ta"],
    ),
    "soft keywords are names": (
        "local continue, type_, export = 1, 2, 3 continue = 4 print(continue, type_, export)",
        ["4\t2\t3"],
    ),
    "semicolons separate": ("local a = 1; print(a); (print)(2);", ["1", "2"]),
    "comparison": (
        "print(1 < 2, 'a' < 'b', 1 == '1', 'a' == 'a', {} == {}, 1 ~= 2, true == 1, false == 0)",
        ["true\ttrue\tfalse\ttrue\tfalse\ttrue\tfalse\tfalse"],
    ),
    "arithmetic takes numeric strings": ("print('10' + 5, '3' * '4', -'2', '7' % 4)", ["15\t12\t-2\t3"]),
    "concatenation takes numbers": ("print(1 .. 2, 'a' .. 1.5 .. true_ .. 'b')".replace(" .. true_", ""), ["12\ta1.5b"]),
    "nested calls keep their order": (
        """
        local function f(n) print("f", n) return n end
        local t = {[f(1)] = f(2), f(3)}
        print(f(4) + f(5) * f(6), f(7) .. f(8), t[1])
        """,
        ["f\t1", "f\t2", "f\t3", "f\t4", "f\t5", "f\t6", "f\t7", "f\t8", "34\t78\t3"],
    ),
    "many loops within loops": (
        """
        local n = 0
        local i = 0
        while i < 2 do i += 1
            for _, a in {1, 2} do
                repeat
                    for j = 1, 2 do n += a * j print(n) end
                until true
            end
        end
        """,
        ["1", "3", "5", "9", "10", "12", "14", "18"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("run", MODES.values(), ids=MODES)
def test_language_construct_behaves_like_in_luau(run: Callable[..., list[str]]) -> None:
    check_scripts(run, SCRIPTS)


def test_chain_of_a_hundred_conditions_with_calls_compiles() -> None:
    arms = "".join(f"elseif f({n}) then print({n})\n" for n in range(100))
    source = f"local function f(n) return n == 77 end if f(-1) then {arms} end"
    assert run_plainly(source) == run_tortured(source) == ["77"]


def test_a_long_sum_compiles() -> None:
    terms = " + ".join(["x"] * 500)
    assert run_plainly(f"local x = 2 print({terms})") == ["1000"]
