"""Rounding several numbers to 32 bits at once."""

from __future__ import annotations

import struct

_STRUCTS = [struct.Struct(f"{count}f") for count in range(13)]  # native: what is too large is inf


def singles(*values: float) -> tuple[float, ...]:
    """Return up to twelve numbers rounded to 32 bits."""
    packer = _STRUCTS[len(values)]
    return packer.unpack(packer.pack(*values))
