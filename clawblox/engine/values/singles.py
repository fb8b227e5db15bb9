"""Rounding to 32-bit floats."""

from __future__ import annotations

import math
import struct

_MAX_SINGLE = 3.4028235677973366e38  # larger numbers round to infinity in 32 bits
_STRUCTS = [struct.Struct(f"<{count}f") for count in range(13)]


def single(value: float) -> float:
    """Return a number rounded to 32 bits."""
    return singles(value)[0]


def singles(*values: float) -> tuple[float, ...]:
    """Return up to twelve numbers rounded to 32 bits."""
    packer = _STRUCTS[len(values)]
    try:
        return packer.unpack(packer.pack(*values))
    except OverflowError:
        return packer.unpack(packer.pack(*map(_fit, values)))


def _fit(value: float) -> float:
    if -_MAX_SINGLE <= value <= _MAX_SINGLE or value != value:
        return value
    return math.copysign(math.inf, value)
