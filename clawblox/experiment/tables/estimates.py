"""Estimates from a few numbers: mean, standard error, median, quantiles, t-intervals. Pure.

The t distribution is that of Abramowitz and Stegun, *Handbook of Mathematical Functions* (1964),
formulas 26.7.3 and 26.7.4: finite series that are exact for whole degrees of freedom.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import attrs

LEVEL: Final = 0.95
"""Probability with which an interval covers the true mean."""
_HALVINGS: Final = 60
"""Number of bisections that reduce the error to the rounding of a float."""


@attrs.frozen(kw_only=True)
class Estimate:
    """The summary of a few numbers.

    Attributes:
        n: Number of values.
        mean: Their mean; None without numbers.
        standard_error: The sample standard deviation divided by the square root of ``n``; None for
            fewer than two numbers.
        median: Their median; None without numbers.
    """

    n: int
    mean: float | None
    standard_error: float | None
    median: float | None


def estimate(values: Sequence[float]) -> Estimate:
    """Return the summary of some finite numbers."""
    n = len(values)
    if not n:
        return Estimate(n=0, mean=None, standard_error=None, median=None)
    return Estimate(
        n=n,
        mean=statistics.fmean(values),
        standard_error=statistics.stdev(values) / math.sqrt(n) if n > 1 else None,
        median=float(statistics.median(values)),
    )


def find_interval(estimate: Estimate) -> tuple[float, float] | None:
    """Return the t-interval that covers the true mean with the probability :data:`LEVEL`.

    Args:
        estimate: The mean, with its standard error.

    Returns:
        Its ends; None for fewer than two numbers.
    """
    if estimate.mean is None or estimate.standard_error is None:
        return None
    reach = find_t(estimate.n - 1) * estimate.standard_error
    return estimate.mean - reach, estimate.mean + reach


@lru_cache(maxsize=256)
def find_t(degrees: int, level: float = LEVEL) -> float:
    """Return the bound of a Student variable's absolute value for a probability.

    Args:
        degrees: Degrees of freedom, from 1.
        level: The probability, between 0 and 1.
    """
    low, high = 0.0, math.pi / 2
    for _ in range(_HALVINGS):
        angle = (low + high) / 2
        low, high = (angle, high) if _coverage(angle, degrees) < level else (low, angle)
    return math.sqrt(degrees) * math.tan(low)


def _coverage(angle: float, degrees: int) -> float:
    """Return the probability of ``|T| < sqrt(degrees) tan(angle)``, by 26.7.3 and 26.7.4."""
    sine, cosine = math.sin(angle), math.cos(angle)
    is_odd = degrees % 2
    term = cosine if is_odd else 1.0
    total = 0.0
    for power in range(is_odd, degrees - 1, 2):  # the exponent of the cosine
        total += term
        term *= cosine * cosine * (power + 1) / (power + 2)
    return 2 / math.pi * (angle + sine * total) if is_odd else sine * total


def find_quantiles(values: Sequence[float], shares: Sequence[float]) -> list[float]:
    """Return the linearly interpolated quantiles of some numbers.

    Args:
        values: The numbers, at least one.
        shares: The shares, from 0 to 1.
    """
    ordered = sorted(values)
    found = []
    for share in shares:
        place = share * (len(ordered) - 1)
        below, above = ordered[math.floor(place)], ordered[math.ceil(place)]
        found.append(below + (above - below) * (place - math.floor(place)))
    return found
