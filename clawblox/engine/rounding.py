"""Numbers in the JSON that leaves a world."""

from __future__ import annotations

import struct
from functools import lru_cache

_SINGLE = struct.Struct("f")


def hundredths(value: float) -> float:
    """Return a number rounded to two decimals, never minus zero."""
    return round(value, 2) + 0.0


def hundredths_of_vector(vector: object) -> list[float]:
    """Return the components of a Vector3, rounded to two decimals."""
    x, y, z = vector.x, vector.y, vector.z  # type: ignore[attr-defined]
    return [round(x, 2) + 0.0, round(y, 2) + 0.0, round(z, 2) + 0.0]


@lru_cache(4096)
def shortest(value: float) -> float:
    """Return the number with the fewest digits that has the same 32-bit form, never minus zero.

    So 0.6, kept as a 32-bit float, is 0.6 in JSON and not 0.6000000238418579.
    """
    for digits in range(6, 10):
        short = float(f"{value:.{digits}g}") + 0.0  # the cache knows one zero only
        if _SINGLE.unpack(_SINGLE.pack(short))[0] == value:
            return short
    return value
