"""Lines of JSON are parsed with the same result as by Python's ``json``."""

from __future__ import annotations

import json

import pytest

from clawblox.agents.drivers.output import parse_record


@pytest.mark.parametrize(
    "value",
    [
        *(b"12345678901234567890123", b"-9223372036854775809", b"-0", b"-0.0", b"1.5e3"),
        *(b"1.0000000000000000000001", b"5e-324"),
        *(rb'"\ud83d\ude00"', b'"\xc3\xa9"', rb'"\u0000"'),
        *(b'1, "a": 2', b"[[], {}, null, true]", b'"\x7f"'),
    ],
)
def test_a_record_is_parsed_as_by_the_json_module(value: bytes) -> None:
    line = b'{"a": %b}\r' % value
    # repr, because -0.0 is equal to 0.0
    assert repr(parse_record(line)) == repr(json.loads(line))


@pytest.mark.parametrize(
    ("value", "read"),
    [
        *((number, None) for number in (b"1e400", b"NaN", b"-Infinity", b"9" * 5000)),
        (rb'"\ud800"', "\ufffd"),
        (b'"\xff"', "\ufffd"),
        (b'"\xed\xa0\x80"', "\ufffd" * 3),
    ],
)
def test_an_unreadable_value_is_dropped_without_other_values(
    value: bytes, read: str | None
) -> None:
    assert parse_record(b'{"a": %b, "b": 1}' % value) == {"a": read, "b": 1}


@pytest.mark.parametrize(
    "line",
    [
        *(b"", b"words", b"[1]", b'"{"', b"{", b'{"a": 1} x', b'{"a": 01}', b'{"a": "\x01"}'),
        *(b'{"a": ' + b"[" * 100_000, b' {"a": 1}'),
    ],
)
def test_a_line_that_is_not_a_record_is_ignored(line: bytes) -> None:
    assert parse_record(line) is None
