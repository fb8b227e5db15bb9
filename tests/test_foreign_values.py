"""Values from other programs can be stored, written and read again."""

from __future__ import annotations

import json
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawblox.foreign_values import (
    clean_text,
    clean_value,
    encode_line,
    finite_number,
    parse_document,
    parse_json,
    whole_number,
)

TEXTS = st.text(st.characters(exclude_categories=()))
HUGE = 10**4999
HUGE_TEXT = "9" * 5000
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | TEXTS
    | st.just(10**400)
    | st.binary(),
    lambda children: st.lists(children) | st.dictionaries(TEXTS | st.integers(), children),
)


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


@given(VALUES)
def test_every_cleaned_value_is_written_and_read_by_every_json_library(value: object) -> None:
    cleaned = clean_value(value)
    line = encode_line(value)
    assert msgspec.json.decode(line) == json.loads(line)
    assert msgspec.json.decode(msgspec.json.encode(cleaned)) == json.loads(line)


def test_a_number_that_python_cannot_print_is_written_as_null() -> None:
    assert encode_line({"a": HUGE, "b": [1]}) == b'{"a": null, "b": [1]}\n'


@given(TEXTS)
def test_a_text_is_unchanged_unless_it_has_a_lone_surrogate(text: str) -> None:
    cleaned = clean_text(text)
    assert cleaned.encode().decode() == cleaned
    if not any("\ud800" <= char <= "\udfff" for char in text):
        assert cleaned == text


def test_halves_of_a_pair_are_joined_and_lone_ones_replaced() -> None:
    assert clean_text("a\ud83d\ude00b\ud83dc\ude00") == "a\U0001f600b\ufffdc\ufffd"


@pytest.mark.parametrize("limit", [0, 2, 3, 10])
def test_a_long_text_is_cut(limit: int) -> None:
    assert len(clean_text("x" * 11, max_chars=limit)) <= max(3, limit)
    assert clean_text("x" * 11, max_chars=10) == "x" * 7 + "..."


@pytest.mark.thorough
def test_limits_bound_depth_members_and_length() -> None:
    assert clean_value(nested(100_000), max_depth=2) == [[None]]
    assert len(clean_value([0] * 1000, max_members=10)) < 10
    assert len(clean_value({str(key): 0 for key in range(1000)}, max_members=10)) < 10
    assert clean_value(["x" * 100], max_chars=5) == ["xx..."]


def test_a_value_that_is_not_json_becomes_its_text() -> None:
    class Silent:
        def __str__(self) -> str:
            raise OSError

    assert clean_value({1: {2}, "b": Silent()}) == {"1": "{2}", "b": "<Silent>"}


def test_numbers_unsupported_by_json_do_not_affect_other_values() -> None:
    document = f'{{"a": {HUGE_TEXT}, "b": NaN, "c": -Infinity, "d": 1e999, "e": 7}}'
    assert parse_json(document) == {"a": None, "b": None, "c": None, "d": None, "e": 7}
    assert parse_json(str(2**70)) == float(2**70)


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"[" * 100_000, "nested too deeply"), (b"[1,", "Expecting"), (b"1" * 11, "longer than 10")],
)
def test_an_unparseable_document_is_a_value_error(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_json(data, max_bytes=10 if data.startswith(b"11") else None)


def test_bytes_that_are_not_utf_8_are_replaced() -> None:
    assert parse_json(b'"a\xff"') == "a\ufffd"
    assert parse_json('"\\ud800"') == "\ufffd"


def test_a_number_that_is_not_finite_or_too_large_is_ignored() -> None:
    for value in (True, None, "7", math.nan, math.inf, -math.inf, -0.1, 1e300, HUGE, [7]):
        assert finite_number(value) is None
        assert whole_number(value) is None


def test_numbers_within_their_limits_are_returned() -> None:
    assert finite_number(0.5) == 0.5
    assert finite_number(7) == 7.0
    assert finite_number(-3, low=-5, high=5) == -3.0
    assert whole_number(7) == 7
    assert whole_number(7.0) is None
    assert whole_number(8, high=7) is None


def test_a_document_is_read_unchanged_except_for_numbers_that_json_cannot_represent() -> None:
    text = "\ud800" + "x" * (1 << 21)
    document = json.dumps({"text": text, "whole": 10**60, "deep": [[[]]]})
    odd = document.replace("[[[]]]", f"[NaN, 1e400, {HUGE_TEXT}]")
    assert parse_document(document) == json.loads(document)
    assert parse_document(odd)["deep"] == [None] * 3
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_document("[" * 100_000)


@pytest.mark.parametrize("parse", [parse_json, parse_document])
@pytest.mark.parametrize("member", ["[],", "{},", "1,", '"",'])
def test_a_document_with_too_many_values_is_refused_before_parsing(parse, member) -> None:
    document = "[" + member * 1000 + "0]"
    for data in (document, document.encode()):
        with pytest.raises(ValueError, match="more than 999 values"):
            parse(data, max_members=999)
        assert len(parse(data, max_members=2002)) == 1001


@pytest.mark.parametrize("text", [",[{" * 1000, '\\",[{' * 1000, "a\n,é" * 1000, "\\"])
def test_an_assignment_in_a_text_is_not_counted_as_a_value(text) -> None:
    document = json.dumps({"a": text, "b": [text]}, ensure_ascii=False)
    for data in (document, document.encode()):
        assert parse_json(data, max_members=10) == {"a": text, "b": [text]}
