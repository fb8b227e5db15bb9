"""Luau values as JSON text."""

from __future__ import annotations

import math

import pytest

from clawblox.engine.json_text import MAX_DEPTH, read_text, write_text
from clawblox.luau import VM, LuaTable


def evaluate(expression: str) -> object:
    vm = VM()
    (value,) = vm.call(vm.load(f"return {expression}"))
    return value


def free(steps: int) -> None:
    return


def loose(value: object) -> str:
    return write_text(value, free, strict=False)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("{b = 1, a = 2, ['a!'] = 3}", '{"a":2,"a!":3,"b":1}'),
        ("{1, 2.5, -3}", "[1,2.5,-3]"),
        ("{[2] = 'x', [4] = true}", '[null,"x",null,true]'),
        ("{}", "{}"),
        ("{{}}", "[{}]"),
        ("{[0] = 1, [1] = 2}", '{"0":1,"1":2}'),
        ("{[1.5] = 1, x = 2}", '{"1.5":1,"x":2}'),
        ("{1, 2, x = 3}", '{"1":1,"2":2,"x":3}'),
        ("{[true] = 1}", '{"true":1}'),
        ("{a = 0/0, b = 1/0, c = print, d = newproxy()}", '{"a":null,"b":null,"c":null,"d":null}'),
        ("{vector.create(1, 2, 3)}", "[null]"),
        ("{[{}] = 1, a = 2}", '{"a":2}'),
        ("1e15", "1000000000000000"),
        ("1e300", "1e+300"),
        ("0.1", "0.1"),
        ("-0", "-0"),
        ("nil", "null"),
        ("'\\u{2603} \\n\\0\"'", '"\N{SNOWMAN} \\n\\u0000\\""'),
        ("'\\xff'", '"\N{REPLACEMENT CHARACTER}"'),
    ],
)
def test_json_encoding_converts_values(expression: str, text: str) -> None:
    assert loose(evaluate(expression)) == text


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("{print}", "function has no JSON form"),
        ("{0/0}", "nan has no JSON form"),
        ("{1/0}", "inf has no JSON form"),
        ("{[{}] = 1}", "a table cannot be a key"),
        ("'\\xff'", "a string is not valid UTF-8"),
        ("vector.create(1, 2, 3)", "vector has no JSON form"),
        ("coroutine.create(print)", "thread has no JSON form"),
    ],
)
def test_strict_encoding_names_values_without_a_json_form(expression: str, why: str) -> None:
    value = evaluate(expression)
    with VM().entered(), pytest.raises(ValueError, match=f"^{why}$"):
        write_text(value, free, strict=True)


def test_table_that_contains_itself_is_refused_as_nested_too_deeply() -> None:
    table = LuaTable()
    table["self"] = table
    with pytest.raises(ValueError, match="nested more than 128 deep"):
        loose(table)


def test_holes_of_an_array_are_charged_before_they_are_written() -> None:
    def refuse(steps: int) -> None:
        assert steps < 10_000, "charged"

    with pytest.raises(AssertionError, match="charged"):
        write_text(LuaTable({1e15: 1.0}), refuse, strict=False)


def test_decoding_returns_the_encoded_values() -> None:
    text = '{"b": [1, null, "\\u2603"], "a": {"x": true, "gone": null}, "n": -1.5e3}'
    table = read_text(text, free)
    assert list(table) == ["b", "a", "n"]
    assert list(read_text(text, free, sort=True)) == ["a", "b", "n"]
    assert dict(table["b"]) == {1.0: 1.0, 3.0: "\xe2\x98\x83"}
    assert dict(table["a"]) == {"x": True}
    assert table["n"] == -1500.0
    assert type(read_text("7", free)) is float
    assert math.copysign(1, read_text("-0", free)) == -1


DEEP = "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[1,]", "NaN", "Infinity", "1e999", "9" * 400, '"\\ud800"', "[" * 200_000, DEEP],
    ids=lambda text: text[:12] or "empty",
)
def test_invalid_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the reason differs
        read_text(text, free)
