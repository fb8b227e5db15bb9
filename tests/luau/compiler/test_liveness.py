"""A suspended function keeps exactly the variables needed by its rest."""

from __future__ import annotations

from typing import Any

import pytest

from clawblox.luau.vm import VM
from tests.luau.support import run_plainly, run_tortured

# Strings that look like generated code, and like literals within it.
TEXTS = [
    "(t%d := ", "' (t%d := ", '"(t%d := ', "t%d = ", "' + t%d", "x_%d", "h_100000%d", "' F%d '", "va",
    "E v y", "INF", "(-%d", "None", "True", "return ", "lambda t%d: ", "{t%d}", "\\", "#", "'\"\n",
]  # fmt: skip

EVERYWHERE = """
    local t, va, E = {v = 5}, 1, 2
    print("start")
    local x = (t.v + 1) * (function() print(1) return 2 end)() .. TEXT
    local y = TEXT .. (t.v - 1) / (function() print(2) return 2 end)() .. TEXT
    print(x, y, #TEXT, TEXT == x, x ~= TEXT, TEXT < y)
    local held = {[TEXT] = t.v .. TEXT, ["inf"] = 1, [1e999] = 2, [-1e999] = 3, [-0] = 4, [1] = 5, 6}
    print(held[TEXT], held.inf, held[1e999], held[-1e999], held[0], held[1], held[TEXT .. "x"])
    while (held[TEXT] or TEXT) == (held[TEXT] or t) .. (if t.v > 3 then "" else TEXT) do
        t.v -= 1
        print(t.v, if t.v == TEXT then TEXT elseif TEXT then x .. TEXT else TEXT)
    end
    local function say(...) print(TEXT, ..., TEXT) return ... end
    print(say(TEXT, t.v + 1, TEXT) .. TEXT)
    print(pcall(function() return t[TEXT]:size(TEXT) end))
    print(pcall(function() return t:size(TEXT, say(TEXT)) end))
    print(pcall(function() return t.a.b[TEXT] end))
    print(`{t.v}{TEXT}{say(TEXT)}`, -t.v ^ 2, - - -1e999)
"""


def luau_literal(text: str) -> str:
    """Return a string as Luau source."""
    return '"' + "".join(f"\\{byte:03}" for byte in text.encode()) + '"'


def test_string_that_looks_like_generated_code_is_preserved() -> None:
    for text in TEXTS:
        plain = run_plainly(everywhere(text))
        assert not plain[-1].startswith("error"), (text, plain)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(text, marks=pytest.mark.thorough if at % 10 else ())
        for at, text in enumerate(TEXTS)
    ],
)
def test_string_that_looks_like_generated_code_is_preserved_after_a_restore(text: str) -> None:
    assert run_tortured(everywhere(text)) == run_plainly(everywhere(text))


def everywhere(text: str) -> str:
    """Return a script with a string at every possible position."""
    return EVERYWHERE.replace("TEXT", luau_literal(text.replace("%d", "1")))


def saved_variables(source: str) -> list[Any]:
    """Return the variables in the frame of a function that has yielded."""
    vm = VM()
    vm.roots["co"] = vm.coroutine(vm.load(source))
    vm.resume(vm.roots["co"])
    (frame,) = next(saved for saved in vm.snapshot()["objects"] if saved[0] == "coroutine")[4]
    values: list[Any] = frame[4]
    return values


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("local a, b = 1, 2 coroutine.yield() return a", [1.0]),
        ("local a, b = 1, 2 coroutine.yield() return 'b_2'", []),
        ("local a, b = 1, 2 coroutine.yield() a = b return a", [2.0]),
        ("local a, b = 1, 2 coroutine.yield() if b then a = 3 else a = 4 end return a", [2.0]),
        ("local a, b = 1, 2 coroutine.yield() if b then a = 3 end return a", [1.0, 2.0]),
        ("local a, b = 1, 2 coroutine.yield() if b then return b else a = 4 end return a", [2.0]),
        ("local a, b = 1, 2 coroutine.yield() for _ in g do a = 3 end return a", [1.0]),
        ("local a, b = 1, 2 coroutine.yield() do local b = a return b end", [1.0]),
        ("local a, b = 1, 2 return a .. coroutine.yield() .. 't1'", [1.0]),
        ("local a, b = 1, 2 while true do coroutine.yield(a) b += 1 end", [1.0, 2.0]),
        ("local a, b = 1, 2 repeat local c = a coroutine.yield() until c == b", [1.0, 2.0, 1.0]),
    ],
)
def test_frame_contains_exactly_the_variables_needed_by_the_rest(
    source: str, expected: list[float]
) -> None:
    assert saved_variables(source) == expected


def test_loop_condition_does_not_keep_values_alive() -> None:
    source = """
        local weak = setmetatable({}, {__mode = "v"})
        local function fresh() local t = {} weak[1] = t return {t = t} end
        local left = 2
        local holder = fresh()
        while holder.t and left > 0 do
            left -= 1
            holder = nil
            collectgarbage()
            print(weak[1])
            holder = fresh()
        end
    """
    assert run_plainly(source) == ["nil", "nil"]
