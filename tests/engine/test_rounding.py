"""Numbers in the JSON that a world sends."""

from __future__ import annotations

import struct

import pytest

from clawblox.engine.instances.attributes import hundredths, shortest


def single(value: float) -> float:
    return struct.unpack("f", struct.pack("f", value))[0]


@pytest.mark.parametrize("value", [0.0, 0.6, -0.1, 1 / 3, 16777216.0, 1e-30, 3.4e38])
def test_32_bit_float_is_shown_with_the_fewest_exact_digits(value):
    shown = shortest(single(value))
    assert single(shown) == single(value)
    assert len(repr(shown)) <= len(repr(single(value)))


def test_0_6_is_shown_as_0_6():
    assert shortest(single(0.6)) == 0.6


def test_minus_zero_is_shown_as_zero_in_any_order():
    shortest.cache_clear()
    assert [str(shortest(-0.0)), str(shortest(0.0)), str(hundredths(-0.004))] == ["0.0"] * 3
