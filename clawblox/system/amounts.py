"""Amounts as short texts for people. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def format_bytes(size: int | None) -> str:
    """Return a size as ``512 B``, ``9.8 MB``, ``31 MB`` or ``1.2 GB``.

    Args:
        size: Bytes; None gives an empty text.
    """
    return "" if size is None else scale(size, ("B", "kB", "MB", "GB"), " ")


def scale(number: int, units: Sequence[str], gap: str) -> str:
    """Return a number with two or three digits and a unit.

    Args:
        number: The number, in the first unit.
        units: The units; each is 1000 of the one before it.
        gap: Text before the unit.
    """
    value, unit = float(number), units[0]
    for larger in units[1:]:
        if value >= 999.5:
            value, unit = value / 1000, larger
    digits = 1 if value < 9.95 and unit != units[0] else 0
    return f"{value:.{digits}f}{gap}{unit}"
