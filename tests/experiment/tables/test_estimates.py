"""Estimates from a few numbers."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawblox.experiment.tables.estimates import (
    estimate,
    find_interval,
    find_quantiles,
    find_t,
)

NUMBERS = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30)


@pytest.mark.parametrize(
    ("degrees", "level", "expected"),
    [
        (1, 0.95, 12.70620),
        (2, 0.95, 4.302653),
        (3, 0.95, 3.182446),
        (4, 0.90, 2.131847),
        (5, 0.99, 4.032143),
        (10, 0.95, 2.228139),
        (29, 0.99, 2.756386),
        (30, 0.95, 2.042272),
        (120, 0.95, 1.979930),
    ],
)
def test_t_quantiles_match_printed_tables(degrees: int, level: float, expected: float) -> None:
    assert find_t(degrees, level) == pytest.approx(expected, abs=1e-5)


def test_t_approaches_the_normal_distribution() -> None:
    normal = statistics.NormalDist().inv_cdf(0.975)
    assert normal < find_t(2000) < find_t(1999) < normal + 0.002


def test_estimate_matches_the_textbook() -> None:
    found = estimate([1, 2, 3, 6])
    assert (found.n, found.mean, found.median) == (4, 3.0, 2.5)
    assert found.standard_error == pytest.approx(math.sqrt(14 / 3) / 2)
    low, high = find_interval(found) or (0, 0)
    assert (low, high) == pytest.approx((-0.4374, 6.4374), abs=1e-3)


def test_single_number_has_no_error_or_interval() -> None:
    found = estimate([5.0])
    assert (found.mean, found.standard_error, find_interval(found)) == (5.0, None, None)
    nothing = estimate([])
    assert (nothing.n, nothing.mean, find_interval(nothing)) == (0, None, None)


@given(NUMBERS, st.floats(0, 1))
def test_a_quantile_is_between_the_least_and_the_greatest(
    values: list[float], share: float
) -> None:
    low, middle, high = find_quantiles(values, [0, share, 1])
    assert (low, high) == (min(values), max(values))
    assert low <= middle <= high or math.isclose(low, high)


def test_quantiles_match_the_standard_library() -> None:
    values = [3, 1, 4, 1, 5, 9, 2, 6]
    expected = statistics.quantiles(values, n=4, method="inclusive")
    assert find_quantiles(values, [0.25, 0.5, 0.75]) == pytest.approx(expected)
