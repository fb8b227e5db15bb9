"""Work that grows with its arguments is charged, so steps bound the time of any script."""

from __future__ import annotations

import pytest

from clawblox.luau.core.errors import LuaError
from clawblox.luau.vm import VM
from tests.luau.support import failure, steps_taken, value

DEEP = "local function deep(n, f) if n == 0 then f() else deep(n - 1, f) end return 1 end"
TEXTS = "local s, t = ('x'):rep(2e6), ('x'):rep(2e6)"
SEQUENCE = "local t = table.create(20000, 1)"
HEAP = "local t = {} for i = 1, 5000 do t[i] = {} end"
BUFFER = f"{TEXTS} local b = buffer.create(2e6)"

# The preparation, the work that is done ten times, and the fewest steps it takes each time: one for
# each level, for each thousand bytes, or for a few entries.
COSTS: dict[str, tuple[str, str, int]] = {
    "level of debug.info": (DEEP, "deep(2000, function() TEN debug.info(2000, 'l') END end)", 2000),
    "level of error": (DEEP, "deep(2000, function() TEN pcall(error, 'x', 2000) END end)", 2000),
    "level of getfenv": (DEEP, "deep(2000, function() TEN getfenv(2000) END end)", 2000),
    "level of setfenv": (
        DEEP, "deep(2000, function() TEN pcall(setfenv, 2000, {}) END end)", 2000,
    ),
    "traceback": (DEEP, "deep(2000, function() TEN debug.traceback() END end)", 2000),
    "traceback of a coroutine": (
        f"{DEEP} local c = coroutine.create(deep) coroutine.resume(c, 2000, coroutine.yield)",
        "TEN debug.traceback(c) END", 2000,
    ),
    "level of a coroutine": (
        f"{DEEP} local c = coroutine.create(deep) coroutine.resume(c, 2000, coroutine.yield)",
        "TEN debug.info(c, 1, 'l') END", 2000,
    ),
    "==": (TEXTS, "TEN local _ = s == t END", 1900),
    "~=": (TEXTS, "TEN local _ = s ~= t END", 1900),
    "<": (TEXTS, "TEN local _ = s < t END", 1900),
    "<=": (TEXTS, "TEN local _ = s <= t END", 1900),
    "== of what is known to be text": (TEXTS, "local u = `{s}` TEN local _ = u == `{t}` END", 3800),
    "reading a key": (f"{TEXTS} local m = {{[s] = 1}}", "TEN local _ = m[t] END", 1900),
    "writing a key": (f"{TEXTS} local m = {{[s] = 1}}", "TEN m[t] = 2 END", 1900),
    "a known key": (f"{TEXTS} local u, m = `{{s}}`, {{}}", "TEN m[u] = m[u] END", 1900),
    "rawget": (f"{TEXTS} local m = {{[s] = 1}}", "TEN rawget(m, t) END", 1900),
    "rawset": (f"{TEXTS} local m = {{[s] = 1}}", "TEN rawset(m, t, 1) END", 1900),
    "rawequal": (TEXTS, "TEN rawequal(s, t) END", 1900),
    "table.find of a text": (f"{TEXTS} local m = {{s}}", "TEN table.find(m, t) END", 1900),
    "concatenating a literal": (TEXTS, "TEN local _ = s .. 'y' END", 1900),
    "concatenating to a literal": (TEXTS, "TEN local _ = 'y' .. s END", 1900),
    "..=": (TEXTS, "TEN s ..= 'y' END", 1900),
    "a known text and a literal": (f"{TEXTS} local u = `{{s}}`", "TEN local _ = u .. 'y' END", 1900),
    "sorting texts": ("local t = {} for i = 1, 8 do t[i] = ('x'):rep(1e5) end",
                      "TEN table.sort(t) END", 2000),
    "sorting": (SEQUENCE, "TEN table.sort(t) END", 20000),
    "sorting by a function": (
        "local t = table.create(500, 1)",
        "TEN table.sort(t, function(a, b) return a < b end) END", 4000,
    ),
    "string.byte": (TEXTS, "TEN s:byte(1, 7000) END", 800),
    "string.format": ("local s = ('%%'):rep(2000)", "TEN s:format() END", 2000),
    "string.format %q": (TEXTS, "TEN ('%q'):format(s) END", 20000),
    "string.upper": (TEXTS, "TEN s:upper() END", 1900),
    "string.pack": ("local s = ('<'):rep(2000)", "TEN s:pack() END", 2000),
    "string.unpack of what has no end": (TEXTS, "TEN pcall(string.unpack, 'z', s) END", 1900),
    "tonumber": ("local s = ('1'):rep(2e6) .. 'x'", "TEN tonumber(s) END", 1900),
    "tonumber with a base": ("local s = ('1'):rep(2e6)", "TEN tonumber(s, 7) END", 20000),
    "text as a number": ("local s = (' '):rep(2e6) .. '1'", "TEN local _ = s + 1 END", 1900),
    "a long pattern": (TEXTS, "TEN s:find(t) END", 20000),
    "a long replacement": ("local s = ('%%'):rep(2000)", "TEN ('x'):gsub('[x]', s) END", 1000),
    "gsub": ("local s = ('ab'):rep(2000)", "TEN s:gsub('%w', 'x') END", 4000),
    "a short slow pattern": ("local s = ('a'):rep(90)", "TEN s:find('%b()') END", 45),
    "repeated captures": ("local s = ('a'):rep(200)", "TEN s:find('^(a*)%1b') END", 200),
    "utf8.len": ("local s = ('x'):rep(20000)", "TEN utf8.len(s) END", 5000),
    "utf8.codepoint": (TEXTS, "TEN utf8.codepoint(s, 1, 7000) END", 1700),
    "utf8.offset": ("local s = ('\\x80'):rep(20000)", "TEN utf8.offset(s, 0, 20000) END", 4000),
    "utf8.codes": ("local f, s = utf8.codes('') s = 'a' .. ('\\x80'):rep(20000)",
                   "TEN f(s, 1) END", 4000),
    "table.maxn": (SEQUENCE, "TEN table.maxn(t) END", 1200),
    "table.foreach": (SEQUENCE, "TEN table.foreach(t, type) END", 20000),
    "table.foreachi": (SEQUENCE, "TEN table.foreachi(t, type) END", 20000),
    "table.move": (SEQUENCE, "TEN table.move(t, 1, 1e6, 1, {}) END", 4000),
    "next from elsewhere": (SEQUENCE, "TEN next(t, 19000) next(t, 1) END", 2400),
    "buffer.fill": (BUFFER, "TEN buffer.fill(b, 0, 1) END", 1900),
    "buffer.copy": (BUFFER, "TEN buffer.copy(b, 0, b) END", 1900),
    "buffer.writestring": (BUFFER, "TEN buffer.writestring(b, 0, s) END", 1900),
    "print": (TEXTS, "TEN print(s) END", 1900),
    "error": (TEXTS, "TEN pcall(function() error(s) end) END", 1900),
    "searching the heap": (HEAP, "TEN (function() debug.info(1, 'f') end)() END", 2500),
    "a late __newindex": (
        HEAP, "TEN local m = {} setmetatable({}, m) m.__newindex = print END", 2500,
    ),
    "collecting garbage": (HEAP, "TEN collectgarbage() END", 3500),
    "a new pattern": ("local n = 0", "TEN n += 1 s = ('x'):find(n .. '[a-z]?b*%w') END", 70),
    "a new long pattern": ("local s, n = ('%a'):rep(200), 0", "TEN n += 1 ('x'):find(s .. n) END",
                           2400),
    "a long pattern again": ("local s = ('%a'):rep(200)", "TEN ('x'):find(s) END", 2400),
    "a chain of __index": (
        "local t = {} for _ = 1, 90 do t = setmetatable({}, {__index = t}) end",
        "TEN local _ = t.x END", 10,
    ),
    "a chain of __newindex": (
        "local t = {} for _ = 1, 90 do t = setmetatable({}, {__newindex = t}) end",
        "TEN t.x = nil END", 10,
    ),
    "tonumber of 4,000 digits": ("local s = ('1'):rep(4000)", "TEN tonumber(s) END", 15),
    "4,000 digits as a number": ("local s = ('1'):rep(4000)", "TEN local _ = s + 1 END", 15),
    "the first of many keys": (
        "local t = {} for i = 1, 20000 do t['k' .. i] = i end", "TEN next(t) END", 4,
    ),
    "a length among holes": ("local t = table.create(1000) t[1] = 1 t[3] = 1",
                             "TEN local _ = #t END", 1),
    "a metatable's second use": (
        "", "TEN local m = {} setmetatable({}, m) setmetatable({}, m) END", 50,
    ),
    "a late __index": (
        "local m = {} setmetatable({}, m) setmetatable({}, m)", "TEN m.__index = print END", 8,
    ),
    "comparing while searching": (
        "local m, e = {__eq = rawequal}, setmetatable local t, x = table.create(9, e({}, m)), e({}, m)",
        "TEN table.find(t, x) END", 9,
    ),
    "an interpolation": ("local x = 1.5", "TEN local _ = `{x}{x}{x}{x}` END", 2),
    "small tables in a line": ("", f"TEN local _ = {{{'{},' * 50}}} END", 50),
    "functions in a line": ("", f"TEN local _ = {{{'function() end,' * 50}}} END", 100),
    "long code without calls": ("local t = {}", f"TEN {'t.a = t.b ' * 100} END", 8),
    "a condition that makes tables": (
        "", f"TEN if _ then _ = 1 elseif #{{{'{},' * 50}}} == 0 then _ = 1 end END", 50,
    ),
    "math.noise": ("", "TEN math.noise(0.5) END", 10),
    "long code": ("local f = loadstring(('x = 1 '):rep(2000))", "TEN f() END", 10),
    "yielding in long code": (
        "local next = coroutine.wrap(function() while true do coroutine.yield() %s end end)"
        % ("print() " * 400),
        "TEN next() END", 100,
    ),
    "a long literal": ("local f = loadstring('return {' .. ('1,'):rep(2000) .. '}')",
                       "TEN f() END", 100),
}  # fmt: skip

ARGUMENTS = {
    "type": 40, "string.char": 2500, "utf8.char": 2500, "math.max": 2500, "math.min": 2500,
    "bit32.band": 2500, "bit32.bxor": 2500, "print": 2500, "table.pack": 200, "give": 80,
}  # fmt: skip


def taken(setup: str, work: str) -> int:
    loop = work.replace("TEN", "for _ = 1, 10 do").replace("END", "end")
    return steps_taken(f"{setup} {loop}") - steps_taken(setup)


@pytest.mark.parametrize(("setup", "work", "least"), COSTS.values(), ids=COSTS)
def test_work_that_grows_is_charged(setup: str, work: str, least: int) -> None:
    assert taken(setup, work) >= 10 * least


@pytest.mark.parametrize(("function", "least"), ARGUMENTS.items(), ids=ARGUMENTS)
def test_many_arguments_are_charged(function: str, least: int) -> None:
    setup = "local function give(...) return ... end local function f(...) "
    work = f"TEN {function}(...) END end f(table.unpack(table.create(7000, 65)))"
    without = "end f(table.unpack(table.create(7000, 65)))"
    assert taken(setup + without, "") == 0
    loop = work.replace("TEN", "for _ = 1, 10 do").replace("END", "end")
    assert steps_taken(setup + loop) - steps_taken(setup + without) >= 10 * least


def test_short_texts_and_few_arguments_cost_nothing() -> None:
    setup = """
        local s, t, m, u = ("x"):rep(90), ("x"):rep(90), {}, {("x"):rep(90)}
        local function f(...) return math.max(...) end
    """
    work = """
        f(1, 2, 3)
        m[s] = s == t and s < t and m[t] and s .. "y" and tonumber(s) and s:upper()
        print(s, t, rawequal(s, t), table.find(u, t), ("%a+"):rep(1))
        debug.info(1, "l")
    """
    assert steps_taken(setup + work) - steps_taken(setup) <= 3


def test_errors_formats_and_coroutines_cost_steps() -> None:
    assert steps_taken('pcall(error, "x")') >= 30
    assert steps_taken("pcall(function() local x x.y = 1 end)") >= 130
    assert steps_taken('("%d %d"):format(1, 2)') >= 16
    assert steps_taken("coroutine.create(print)") >= 10


def test_large_values_of_literals_and_arguments_take_memory() -> None:
    for body in (
        "t[#t + 1] = s .. 'y'",
        "t[#t + 1] = 'y' .. s",
        "t[#t + 1] = f()",
    ):
        source = f"""
            local s, t = ("x"):rep(1e5), {{}}
            local f = loadstring("return {{" .. ("1,"):rep(2000) .. "}}")
            while true do {body} end
        """
        assert failure(source, memory_bytes=10_000_000).endswith("not enough memory")
    source = "local s = ('x'):rep(1e6) print(table.unpack(table.create(5000, s)))"
    assert failure(source, memory_bytes=10_000_000).endswith("not enough memory")


def test_numbers_are_read_without_backtracking() -> None:
    """A run of digits is never tried in another way."""
    source = "return tonumber(('1'):rep(300000) .. 'x'), tonumber('0x' .. ('1'):rep(300000) .. 'x')"
    vm = VM()
    assert vm.call(vm.load(source)) == (None, None)


def test_numbers_too_large_for_their_base_become_the_largest() -> None:
    assert value("tonumber(('1'):rep(5000), 7)") == float(2**64 - 1)
    assert value("tonumber(('0'):rep(5000) .. '12', 7)") == 9.0
    assert value("tonumber(('1'):rep(5000) .. '7', 7)") is None


def test_messages_of_the_runtime_are_truncated() -> None:
    vm = VM()
    function = vm.load("local s = ('x'):rep(1e6) assert(false, s)")
    with pytest.raises(LuaError) as caught:
        vm.call(function)
    assert caught.value.value == "script:1: " + "x" * 511
