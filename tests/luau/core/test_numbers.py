"""Arithmetic as defined by IEEE 754 and the reference, and conversion to and from text."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawblox.luau.core.numbers import floor_divide, format_number, modulo, parse_number, raise_to
from tests.luau.support import run_plainly, value, values

finite = st.floats(allow_nan=False, allow_infinity=False)

TEXTS = {
    -0.0: "-0", 1.0: "1", -15.0: "-15", 0.1: "0.1", 1e15: "1000000000000000",
    1e20: "100000000000000000000", 1e21: "1e+21", 123456789012345680000.0: "123456789012345680000",
    1e-6: "0.000001", 1e-7: "1e-07", 1.5e-7: "1.5e-07", 1e100: "1e+100", 1.25e300: "1.25e+300",
    5e-324: "5e-324", math.inf: "inf", -math.inf: "-inf", 1 / 3: "0.3333333333333333",
    2.0**53: "9007199254740992",
}  # fmt: skip


def test_numbers_are_formatted_like_in_luau() -> None:
    assert [format_number(number) for number in TEXTS] == list(TEXTS.values())


def test_nan_is_formatted_without_a_sign() -> None:
    assert format_number(math.nan) == format_number(-math.nan) == "nan"


@given(finite)
def test_formatted_number_reads_back_as_the_same_number(number: float) -> None:
    read = parse_number(format_number(number))
    assert read is not None
    assert struct.pack("d", read) == struct.pack("d", number)


@given(finite, finite.filter(bool))
def test_modulo_is_rounded_at_every_step(a: float, b: float) -> None:
    quotient = a / b
    if math.isinf(quotient):
        return
    assert modulo(a, b) == a - math.floor(quotient) * b


def test_modulo_of_negative_zero_is_zero() -> None:
    assert math.copysign(1.0, modulo(-0.0, 0.5)) == 1.0
    assert value("1 / ((function(a) return a % 5 end)(-0))") == math.inf


@given(st.integers(-(2**40), 2**40), st.integers(1, 2**20))
def test_modulo_of_integers_has_the_sign_of_the_divisor(a: int, b: int) -> None:
    assert modulo(float(a), float(b)) == a % b
    assert modulo(float(a), float(-b)) == a % -b


@pytest.mark.thorough
@given(finite, finite)
def test_generated_arithmetic_agrees_with_the_helpers(a: float, b: float) -> None:
    source = f"local a, b = {a!r}, {b!r} local t = {{a = a, b = b}} return a % b, t.a % t.b, a // b"
    (one, two, three) = values(f"(function() {source} end)()")
    for got, wanted in ((one, modulo(a, b)), (two, modulo(a, b)), (three, floor_divide(a, b))):
        assert got == wanted or (got != got and wanted != wanted)


@pytest.mark.thorough
@given(st.floats(-1e9, 1e9), st.sampled_from([1.0, 2.0, 3.0, 7.0, 10.0, 360.0, 0.1, -2.0]))
def test_modulo_by_a_literal_equals_modulo_by_a_variable(a: float, b: float) -> None:
    assert value(f"(function(a) return a % {b!r} end)({a!r})") == modulo(a, b)


SPECIAL = {
    "1/0": math.inf, "-1/0": -math.inf, "1 / -0": -math.inf, "2^0.5": 2**0.5, "2^1024": math.inf,
    "(-2)^3": -8.0, "7 // 2": 3.0, "-7 // 2": -4.0, "7 // 0": math.inf, "7 // -2": -4.0,
    "-7 % 3": 2.0, "7 % -3": -2.0, "5 % math.huge": None, "0 // 1": 0.0, "(-8)^(1/3)": None,
    "0/0": None, "5 % 0": None, "math.huge % 2": None, "0^-1": math.inf,
}  # fmt: skip


def test_arithmetic_handles_infinities_zeros_and_nan() -> None:
    results = {source: value(source) for source in SPECIAL}
    assert {source: got if got == got else None for source, got in results.items()} == SPECIAL


def test_huge_powers_of_negative_numbers_keep_their_sign() -> None:
    assert raise_to(-2.0, 1025.0) == -math.inf
    assert raise_to(-2.0, 1026.0) == math.inf


PARSED = {
    "10": 10.0, " 0x1F ": 31.0, "1e3": 1000.0, "-.5": -0.5, "5.": 5.0, "inf": math.inf,
    "": None, " ": None, "1 2": None, "0x": None, "1e": None, "e1": None, "0b1": None, "+ 1": None,
    "0x1p4": 16.0, "-0X.8": -0.5, "0xA.8p-1": 5.25, "0x" + "f" * 20: 2.0**80, "0x1p9999": math.inf,
    "0x.": None, "0x1p": None, "0x1.8.": None, "1_000": None, "--1": None,
}  # fmt: skip


def test_tonumber_accepts_the_same_texts_as_luau() -> None:
    assert {text: value(f"tonumber({text!r})") for text in PARSED} == PARSED


def test_double_negation_of_a_literal_cancels_out() -> None:
    source = (
        "- - 5, - - -5, -(-0.5), 1 / - -0, - -5 == x, x == - - -1, 2 ^ - -2, 3 % - -2, 3 / - - -2"
    )
    assert values(f"(function(x) return {source} end)(-1)") == (
        5.0, -5.0, 0.5, math.inf, False, True, 4.0, 1.0, -1.5,
    )  # fmt: skip


def test_tonumber_reads_numbers_in_other_bases() -> None:
    assert values("tonumber('ff', 16), tonumber('zz', 36), tonumber('12', 2), tonumber('-7', 8)") == (
        255.0, 1295.0, None, 2.0**64 - 7,
    )  # fmt: skip


def test_random_streams_equal_the_streams_of_the_reference() -> None:
    """PCG32 with increment 105 and seed 42, computed from the published algorithm."""
    assert run_plainly("""
        math.randomseed(42)
        local a = {} for i = 1, 5 do a[i] = math.random(1, 100) end
        math.randomseed(42)
        local b = {} for i = 1, 5 do b[i] = math.random(100) end
        print(table.concat(a, " ") == table.concat(b, " "))
        local x = math.random() print(x >= 0 and x < 1)
        print(pcall(math.random, 0), pcall(math.random, 2, 1), pcall(math.random, 1, 2, 3))
    """) == [
        "true",
        "true",
        "false\tfalse\tfalse\twrong number of arguments",
    ]
