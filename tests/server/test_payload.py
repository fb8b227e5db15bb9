"""Strict JSON: accepted values can be written again and read by any parser."""

from __future__ import annotations

import json
import math

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from clawblox.server.payload import (
    MAX_DEPTH,
    encode_json,
    encode_large_json,
    read_json,
)

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    # a lone surrogate is text to Python, and escaped in ASCII
    | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=40,
)


@pytest.mark.thorough
@settings(max_examples=30)
@given(VALUES)
@example([[]])
@example({"": {}})
@example([{"x": [1.5] * 1023}, [0] * 1024, [0.1] * 1025, list(range(5000))])
@example({"a": {"b": {"c": {"d": {"e": [1, {"f": "g"}]}}}}})
def test_writing_in_slices_gives_the_same_bytes(value):
    assert encode_large_json(value) == encode_json(value)


@pytest.mark.parametrize("encode", [encode_json, encode_large_json])
@pytest.mark.parametrize("value", [math.nan, [math.inf], {"a": [0.0] * 2000 + [-math.inf]}])
def test_a_number_that_is_not_finite_is_never_written(encode, value):
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode(value)


def test_a_key_that_is_not_a_string_is_not_written():
    with pytest.raises(TypeError, match="keys must be strings, not int: 7"):
        encode_large_json({"agents": {7: "seven"}})


@given(st.text(st.characters()) | st.binary().map(lambda body: body.decode("latin-1")))
@example("[1e308, 1e309]")
@example('{"a": "\\ud83d\\ude00"}')
@example('{"\\udc00": 1}')
def test_accepted_json_is_strict_for_every_parser(text):
    body = text.encode("utf-8", "surrogatepass")
    try:
        value = read_json(body)
    except ValueError:
        return
    assert read_json(encode_json(value)) == value
    assert msgspec.json.decode(encode_json(value)) == value


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_survives_to_the_bit(value):
    assert read_json(encode_json(value)).hex() == value.hex()


@pytest.mark.parametrize("brackets", ["[]", ("{", "}")])
def test_nesting_beyond_the_limit_is_refused(brackets):
    opening, closing = ('{"a":', "}") if brackets != "[]" else brackets
    inner = "null"
    for _ in range(MAX_DEPTH):
        inner = opening + inner + closing
    assert json.loads(inner) == read_json(inner.encode())
    with pytest.raises(ValueError, match="nested too deeply"):
        read_json(f"{opening}{inner}{closing}".encode())


@pytest.mark.parametrize("digits", [308, 309, 5000])
def test_an_integer_beyond_a_double_is_refused(digits):
    body = b"9" * digits
    if digits == 308:
        assert math.isfinite(float(read_json(body)))
    else:
        with pytest.raises(ValueError, match="308 digits"):
            read_json(body)
