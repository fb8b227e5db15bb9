"""Numbers in the JSON that leaves a world."""

from __future__ import annotations

import pytest

from clawblox.engine.rounding import hundredths, shortest


@pytest.mark.parametrize("write", [shortest, hundredths])
def test_minus_zero_is_zero_whatever_was_written_before(write):
    assert [repr(write(value)) for value in (-0.0, 0.0, -0.0)] == ["0.0"] * 3


def test_a_32_bit_number_has_no_more_digits_than_it_needs():
    assert shortest(0.6000000238418579) == 0.6
    assert shortest(0.1234) == 0.1234
