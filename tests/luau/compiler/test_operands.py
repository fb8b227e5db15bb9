"""Operators give the same results for all forms of operands, whose generated code differs."""

from __future__ import annotations

import itertools

import pytest

from clawblox.luau.vm import VM

OPERATORS = ["+", "*", "/", "//", "%", "^", "..", "==", "<", ">="]
LITERALS = ["3", "0", "'4'", "nil"]
VALUES = [*LITERALS, "vector.create(1, 2, 3)", "object"]

SETTING = """
local meta = {__concat = function() return "joined" end, __tostring = function() return "object" end}
for _, event in {"add", "mul", "div", "idiv", "mod", "pow"} do
    meta["__" .. event] = function() return event end
end
meta.__eq = function() return true end
meta.__lt = function() return true end
meta.__le = function() return false end
local object = setmetatable({}, meta)
local function shown(ok, value)
    return if ok then tostring(value) else (string.gsub(value, "^test:%d+: ", ""))
end
"""


def _forms(side: str, value: str) -> dict[str, str]:
    """Return the forms of an operand, given the name and the text of its value."""
    forms = {
        "local": side,
        "field": f"held.{side}",
        "upvalue": f"changed_{side}",
        "call": f"give({side})",
    }
    if value in LITERALS:
        forms["literal"] = value
    return forms


def _script(left: str, right: str, operators: list[str]) -> str:
    pairs = itertools.product(_forms("l", left).items(), _forms("r", right).items())
    checks = [
        f"check('{one} {operator} {other}', shown(pcall(function() return {a} {operator} {b} end)))"
        for (one, a), (other, b) in pairs
        for operator in operators
    ]
    body = "\n".join(checks)
    return f"""
        {SETTING}
        local l, r = {left}, {right}
        local held = {{l = l, r = r}}
        local changed_l, changed_r
        changed_l, changed_r = l, r
        local function give(...) return ... end
        local expected, wrong = {{}}, {{}}
        local function check(what, got)
            local operator = string.split(what, " ")[2]
            expected[operator] = expected[operator] or got
            if got ~= expected[operator] then
                table.insert(wrong, what .. ": " .. got .. " instead of " .. expected[operator])
            end
        end
        {body}
        return table.concat(wrong, "\\n")
    """


def check(left: str, operators: list[str]) -> None:
    vm = VM()
    for right in VALUES:
        assert vm.call(vm.load(_script(left, right, operators), "=test")) == ("",), right


@pytest.mark.thorough
@pytest.mark.parametrize("left", ["3", "object"])
def test_operator_gives_the_same_result_for_all_forms_of_operands(left: str) -> None:
    check(left, ["+", "%", "..", "==", "<"])  # each of these has its own code


@pytest.mark.thorough
@pytest.mark.parametrize("left", VALUES)
def test_every_operator_gives_the_same_result_for_all_forms_of_operands(left: str) -> None:
    check(left, OPERATORS)
