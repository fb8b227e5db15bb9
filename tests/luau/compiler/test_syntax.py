"""Syntax errors, with Luau's wording and the right line."""

from __future__ import annotations

import pytest

from clawblox.luau.core.errors import LuauSyntaxError
from clawblox.luau.vm import VM

ERRORS = {
    "hello world": "1: Incomplete statement: expected assignment or a function call",
    "local x = ": "1: Expected identifier when parsing expression, got <eof>",
    "\n\nlocal 1 = 2": "3: Expected identifier when parsing variable name, got '1'",
    "if x then": "1: Expected 'end' (to close 'if' at column 1), got <eof>",
    "while x do\n\n": "3: Expected 'end' (to close 'do' at line 1), got <eof>",
    "local function f<T...>(): ...T... end": "1: Expected identifier when parsing expression, got '...'",
    "f(1": "1: Expected ')' (to close '(' at column 2), got <eof>",
    "x = {1, 2": "1: Expected '}' (to close '{' at column 5), got <eof>",
    "repeat x = 1": "1: Expected 'until' (to close 'repeat' at column 1), got <eof>",
    "if x = 1 then end": "1: Expected 'then' when parsing if statement, got '='",
    "break": "1: Break statement must be inside a loop",
    "continue": "1: Continue statement must be inside a loop",
    "f() = 1": "1: Expected identifier when parsing expression, got '='",
    "function f() return ... end": "1: Cannot use '...' outside of a vararg function",
    "x = 'abc": "1: Malformed string; did you forget to finish it?",
    "x = 1..2": "1: Malformed number",
    "x = 0xg": "1: Malformed number",
    "x = '\\400'": "1: String literal contains malformed escape sequence",
    "x = `a{`": "1: Malformed interpolated string; did you forget to add a '`'?",
    "x = `{{1}}`": "1: Double braces are not permitted within interpolated strings; "
    "did you mean '\\{'?",
    "f\n(1)": "2: Ambiguous syntax: this looks like an argument list for a function call, but "
    "could also be a start of new statement; use ';' to separate statements",
    "x = a != b": "1: Unexpected '!='; did you mean '~='?",
    "@unknown function f() end": "1: Invalid attribute '@unknown'",
    "repeat\nif x then continue end\nlocal late = 1\nuntil\nlate": "5: Local late used in the "
    "repeat..until condition is undefined because continue statement on line 2 jumps over it",
    "repeat if x then continue end local late = 1 until (function() return late end)()": "1: Local "
    "late used in the repeat..until condition is undefined because continue statement on line 1 "
    "jumps over it",
    "return 1 x": "1: Expected <eof>, got 'x'",
    "end": "1: Expected <eof>, got 'end'",
    "const x": "1: Missing initializer in const declaration",
    "const a, b = 1": "1: Missing initializer in const declaration",
    "const a, b = (f())": "1: Missing initializer in const declaration",
    "const a = 1, 2": "1: Missing initializer in const declaration",
    "const x = 1\nx = 2": "2: Variable 'x' is constant and may not be reassigned",
    "const x = 1\nx += 2": "2: Variable 'x' is constant and may not be reassigned",
    "const x = 1\ny, x = 2, 3": "2: Variable 'x' is constant and may not be reassigned",
    "const x = 1\nfunction f() x = 2 end": "2: Variable 'x' is constant and may not be reassigned",
    "const function f() end\nf = 1": "2: Variable 'f' is constant and may not be reassigned",
    "const f = 1\nfunction f() end": "2: Variable 'f' is constant and may not be reassigned",
    "const": "1: Incomplete statement: expected assignment or a function call",
    "@native const x = 1": "1: Expected 'function', 'local function', 'const function', 'declare "
    "function' or a function type declaration after attribute, got 'const'",
    "class Point\nend": "1: 'class' declarations are not supported; use a metatable",
    "x = 1i": "1: 64-bit integers, such as 1i, are not supported",
    "x = 0i": "1: 64-bit integers, such as 0i, are not supported",
    "x = 0xFFi": "1: 64-bit integers, such as 0xFFi, are not supported",
    "x = 1j": "1: Malformed number",
    "a.b:c = 1": "1: Expected '(', '{' or <string> when parsing function call, got '='",
    "local " + ", ".join(f"a{n}" for n in range(201)): "1: Out of local registers when trying to "
    "allocate a200: exceeded limit 200",
    "do " * 1100: "1: Exceeded allowed recursion depth; simplify your block to make the code "
    "compile",
    "x = " + "(" * 1100: "1: Exceeded allowed recursion depth; simplify your expression to make "
    "the code compile",
}


def refusal(source: str, name: str = "=chunk") -> str:
    with pytest.raises(LuauSyntaxError) as caught:
        VM().load(source, name)
    return str(caught.value)


def test_syntax_errors_have_the_wording_of_luau() -> None:
    messages = {source: refusal(source) for source in ERRORS}
    assert messages == {source: f"chunk:{text}" for source, text in ERRORS.items()}


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("=short", "short:1:"),
        ("@dir/file.luau", "dir/file.luau:1:"),
        ("nope", '[string "nope"]:1:'),
        ("nope\nmore", '[string "nope..."]:1:'),
    ],
)
def test_positions_show_the_chunk_name(name: str, shown: str) -> None:
    assert refusal("nope", name).startswith(shown)


ACCEPTED = {
    "const as a name": "const = 1 const += 1 const, b = 2, 3 local const = {} const.x = 1 "
    "function const() end const() const 'x' const {}",
    "const in another place": "local t = {const = 1} local x = t.const goto = const",
    "a continue before which the condition's local is declared": "repeat local early = 1 "
    "if early then continue end local late = 2 until early",
    "a continue of an inner loop": "repeat for i = 1, 2 do continue end local late = 1 until late",
    "a name of the condition's own": "repeat do continue end local late = 1 "
    "until (function(late) return late end)(true)",
    "a global of that name": "repeat repeat do continue end local late = 1 until true until not late",
    "a generic pack as a return type": "local function f<T...>(...: T...): T... return ... end",
    "long sums": "local a = 1 return " + " + ".join(["a"] * 900),
    "long concatenations": "local a = 1 return " + " .. ".join(["a"] * 900),
    "long chains of elseif": "local a = 1 if a then " + "elseif a then " * 900 + "end",
    "deep tables": "return " + "{" * 900 + "}" * 900,
    "deep blocks": "do " * 900 + "end " * 900,
}


@pytest.mark.parametrize("source", ACCEPTED.values(), ids=ACCEPTED)
def test_valid_syntax_compiles_and_runs(source: str) -> None:
    vm = VM()
    vm.call(vm.load(source))
