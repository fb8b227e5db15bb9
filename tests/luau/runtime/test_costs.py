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

TIMES = 3
# The preparation, the repeated work, and the minimum number of steps per repetition: one per level,
# per thousand bytes, or per few entries.
COSTS: dict[str, tuple[str, str, int]] = {
    "level of debug.info": (DEEP, "deep(2000, function() REPEAT debug.info(2000, 'l') END end)", 2000),
    "level of error": (DEEP, "deep(2000, function() REPEAT pcall(error, 'x', 2000) END end)", 2000),
    "level of getfenv": (DEEP, "deep(2000, function() REPEAT getfenv(2000) END end)", 2000),
    "level of setfenv": (
        DEEP, "deep(2000, function() REPEAT pcall(setfenv, 2000, {}) END end)", 2000,
    ),
    "traceback": (DEEP, "deep(2000, function() REPEAT debug.traceback() END end)", 2000),
    "traceback of a coroutine": (
        f"{DEEP} local c = coroutine.create(deep) coroutine.resume(c, 2000, coroutine.yield)",
        "REPEAT debug.traceback(c) END", 2000,
    ),
    "level of a coroutine": (
        f"{DEEP} local c = coroutine.create(deep) coroutine.resume(c, 2000, coroutine.yield)",
        "REPEAT debug.info(c, 1, 'l') END", 2000,
    ),
    "==": (TEXTS, "REPEAT local _ = s == t END", 1900),
    "~=": (TEXTS, "REPEAT local _ = s ~= t END", 1900),
    "<": (TEXTS, "REPEAT local _ = s < t END", 1900),
    "<=": (TEXTS, "REPEAT local _ = s <= t END", 1900),
    "== of a value known to be text": (TEXTS, "local u = `{s}` REPEAT local _ = u == `{t}` END", 3800),
    "reading a key": (f"{TEXTS} local m = {{[s] = 1}}", "REPEAT local _ = m[t] END", 1900),
    "writing a key": (f"{TEXTS} local m = {{[s] = 1}}", "REPEAT m[t] = 2 END", 1900),
    "a known key": (f"{TEXTS} local u, m = `{{s}}`, {{}}", "REPEAT m[u] = m[u] END", 1900),
    "rawget": (f"{TEXTS} local m = {{[s] = 1}}", "REPEAT rawget(m, t) END", 1900),
    "rawset": (f"{TEXTS} local m = {{[s] = 1}}", "REPEAT rawset(m, t, 1) END", 1900),
    "rawequal": (TEXTS, "REPEAT rawequal(s, t) END", 1900),
    "table.find of a text": (f"{TEXTS} local m = {{s}}", "REPEAT table.find(m, t) END", 1900),
    "concatenating a literal": (TEXTS, "REPEAT local _ = s .. 'y' END", 1900),
    "concatenating to a literal": (TEXTS, "REPEAT local _ = 'y' .. s END", 1900),
    "..=": (TEXTS, "REPEAT s ..= 'y' END", 1900),
    "a known text and a literal": (f"{TEXTS} local u = `{{s}}`", "REPEAT local _ = u .. 'y' END", 1900),
    "sorting texts": ("local t = {} for i = 1, 8 do t[i] = ('x'):rep(1e5) end",
                      "REPEAT table.sort(t) END", 2000),
    "sorting": (SEQUENCE, "REPEAT table.sort(t) END", 20000),
    "sorting by a function": (
        "local t = table.create(500, 1)",
        "REPEAT table.sort(t, function(a, b) return a < b end) END", 4000,
    ),
    "string.byte": (TEXTS, "REPEAT s:byte(1, 7000) END", 800),
    "string.format": ("local s = ('%%'):rep(2000)", "REPEAT s:format() END", 2000),
    "string.format %q": (TEXTS, "REPEAT ('%q'):format(s) END", 20000),
    "string.upper": (TEXTS, "REPEAT s:upper() END", 1900),
    "string.pack": ("local s = ('<'):rep(2000)", "REPEAT s:pack() END", 2000),
    "string.unpack of an unterminated string": (TEXTS, "REPEAT pcall(string.unpack, 'z', s) END", 1900),
    "tonumber": ("local s = ('1'):rep(2e6) .. 'x'", "REPEAT tonumber(s) END", 1900),
    "tonumber with a base": ("local s = ('1'):rep(2e6)", "REPEAT tonumber(s, 7) END", 20000),
    "text as a number": ("local s = (' '):rep(2e6) .. '1'", "REPEAT local _ = s + 1 END", 1900),
    "a long pattern": (TEXTS, "REPEAT s:find(t) END", 20000),
    "a long replacement": ("local s = ('%%'):rep(2000)", "REPEAT ('x'):gsub('[x]', s) END", 1000),
    "gsub": ("local s = ('ab'):rep(2000)", "REPEAT s:gsub('%w', 'x') END", 4000),
    "a short slow pattern": ("local s = ('a'):rep(90)", "REPEAT s:find('%b()') END", 45),
    "repeated captures": ("local s = ('a'):rep(200)", "REPEAT s:find('^(a*)%1b') END", 200),
    "utf8.len": ("local s = ('x'):rep(20000)", "REPEAT utf8.len(s) END", 5000),
    "utf8.codepoint": (TEXTS, "REPEAT utf8.codepoint(s, 1, 7000) END", 1700),
    "utf8.offset": ("local s = ('\\x80'):rep(20000)", "REPEAT utf8.offset(s, 0, 20000) END", 4000),
    "utf8.graphemes": ("local s = 'a' .. ('\\u{301}'):rep(1000)",
                       "REPEAT for _ in utf8.graphemes(s) do end END", 1000),
    "utf8.codes": ("local f, s = utf8.codes('') s = 'a' .. ('\\x80'):rep(20000)",
                   "REPEAT f(s, 1) END", 4000),
    "table.maxn": (SEQUENCE, "REPEAT table.maxn(t) END", 1200),
    "table.foreach": (SEQUENCE, "REPEAT table.foreach(t, type) END", 20000),
    "table.foreachi": (SEQUENCE, "REPEAT table.foreachi(t, type) END", 20000),
    "table.move": (SEQUENCE, "REPEAT table.move(t, 1, 1e6, 1, {}) END", 4000),
    "next from elsewhere": (SEQUENCE, "REPEAT next(t, 19000) next(t, 1) END", 2400),
    "buffer.fill": (BUFFER, "REPEAT buffer.fill(b, 0, 1) END", 1900),
    "buffer.copy": (BUFFER, "REPEAT buffer.copy(b, 0, b) END", 1900),
    "buffer.writestring": (BUFFER, "REPEAT buffer.writestring(b, 0, s) END", 1900),
    "print": (TEXTS, "REPEAT print(s) END", 9700),
    "print with __tostring": (
        TEXTS + " local t = setmetatable({}, {__tostring = function() return s end})",
        "REPEAT print(t) END", 9700,
    ),
    "error": (TEXTS, "REPEAT pcall(function() error(s) end) END", 1900),
    "searching the heap": (HEAP, "REPEAT (function() debug.info(1, 'f') end)() END", 2500),
    "a late __newindex": (
        HEAP, "REPEAT local m = {} setmetatable({}, m) m.__newindex = print END", 2500,
    ),
    "collecting garbage": (HEAP, "REPEAT collectgarbage() END", 3500),
    "a new pattern": ("local n = 0", "REPEAT n += 1 s = ('x'):find(n .. '[a-z]?b*%w') END", 70),
    "a new long pattern": ("local s, n = ('%a'):rep(200), 0", "REPEAT n += 1 ('x'):find(s .. n) END",
                           2400),
    "a long pattern again": ("local s = ('%a'):rep(200)", "REPEAT ('x'):find(s) END", 2400),
    "a chain of __index": (
        "local t = {} for _ = 1, 90 do t = setmetatable({}, {__index = t}) end",
        "REPEAT local _ = t.x END", 10,
    ),
    "a chain of __newindex": (
        "local t = {} for _ = 1, 90 do t = setmetatable({}, {__newindex = t}) end",
        "REPEAT t.x = nil END", 10,
    ),
    "tonumber of 4,000 digits": ("local s = ('1'):rep(4000)", "REPEAT tonumber(s) END", 15),
    "4,000 digits as a number": ("local s = ('1'):rep(4000)", "REPEAT local _ = s + 1 END", 15),
    "the first of many keys": (
        "local t = {} for i = 1, 20000 do t['k' .. i] = i end", "REPEAT next(t) END", 4,
    ),
    "the first of a sequence without its first": (
        "local t = table.create(20000, 1) t[1] = nil", "REPEAT next(t) END", 2400,
    ),
    "the first of a clone without its first": (
        "local t = table.create(20000, 1) t[1] = nil", "REPEAT next(table.clone(t)) END", 2400,
    ),
    "the only value of a long table": (
        "local t = table.create(20000) t[20000] = 1", "REPEAT next(t) END", 2400,
    ),
    "table.foreach of a long table": (
        "local t = table.create(20000) t[20000] = 1", "REPEAT table.foreach(t, print) END", 2400,
    ),
    "a length among holes": ("local t = table.create(1000) t[1] = 1 t[3] = 1",
                             "REPEAT local _ = #t END", 1),
    "a metatable's second use": (
        "", "REPEAT local m = {} setmetatable({}, m) setmetatable({}, m) END", 50,
    ),
    "a late __index": (
        "local m = {} setmetatable({}, m) setmetatable({}, m)", "REPEAT m.__index = print END", 8,
    ),
    "comparing while searching": (
        "local m, e = {__eq = rawequal}, setmetatable local t, x = table.create(9, e({}, m)), e({}, m)",
        "REPEAT table.find(t, x) END", 9,
    ),
    "an interpolation": ("local x = 1.5", "REPEAT local _ = `{x}{x}{x}{x}` END", 2),
    "small tables in a line": ("", f"REPEAT local _ = {{{'{},' * 50}}} END", 50),
    "functions in a line": ("", f"REPEAT local _ = {{{'function() end,' * 50}}} END", 100),
    "long code without calls": ("local t = {}", f"REPEAT {'t.a = t.b ' * 100} END", 8),
    "a condition that makes tables": (
        "", f"REPEAT if _ then _ = 1 elseif #{{{'{},' * 50}}} == 0 then _ = 1 end END", 50,
    ),
    "math.noise": ("", "REPEAT math.noise(0.5) END", 10),
    "long code": ("local f = loadstring(('x = 1 '):rep(2000))", "REPEAT f() END", 10),
    "yielding in long code": (
        "local next = coroutine.wrap(function() while true do coroutine.yield() %s end end)"
        % ("print() " * 400),
        "REPEAT next() END", 100,
    ),
    "a long literal": ("local f = loadstring('return {' .. ('1,'):rep(2000) .. '}')",
                       "REPEAT f() END", 100),
}  # fmt: skip

ARGUMENTS = {
    "type": 40, "string.char": 2500, "utf8.char": 2500, "math.max": 2500, "math.min": 2500,
    "bit32.band": 2500, "bit32.bxor": 2500, "print": 2500, "table.pack": 200, "give": 80,
}  # fmt: skip


def taken(setup: str, work: str) -> int:
    loop = work.replace("REPEAT", f"for _ = 1, {TIMES} do").replace("END", "end")
    return steps_taken(f"{setup} {loop}") - steps_taken(setup)


@pytest.mark.thorough
def test_work_that_grows_with_its_arguments_is_charged() -> None:
    steps = {name: taken(setup, work) for name, (setup, work, _) in COSTS.items()}
    too_few = {name: steps[name] for name in COSTS if steps[name] < TIMES * COSTS[name][2]}
    assert not too_few


def test_many_arguments_are_charged() -> None:
    setup = "local function give(...) return ... end local function f(...) "
    call = "end f(table.unpack(table.create(7000, 65)))"
    free = steps_taken(setup + call)
    for function, least in ARGUMENTS.items():
        loop = f"for _ = 1, {TIMES} do {function}(...) end"
        assert steps_taken(f"{setup} {loop} {call}") - free >= TIMES * least, function


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
    """A sequence of digits is matched in only one way."""
    source = "return tonumber(('1'):rep(300000) .. 'x'), tonumber('0x' .. ('1'):rep(300000) .. 'x')"
    vm = VM()
    assert vm.call(vm.load(source)) == (None, None)


def test_number_too_large_for_its_base_becomes_the_maximum() -> None:
    assert value("tonumber(('1'):rep(5000), 7)") == float(2**64 - 1)
    assert value("tonumber(('0'):rep(5000) .. '12', 7)") == 9.0
    assert value("tonumber(('1'):rep(5000) .. '7', 7)") is None


def test_messages_of_the_runtime_are_truncated() -> None:
    vm = VM()
    function = vm.load("local s = ('x'):rep(1e6) assert(false, s)")
    with pytest.raises(LuaError) as caught:
        vm.call(function)
    assert caught.value.value == "script:1: " + "x" * 511
