"""Where Claude Code keeps the conversations of a working directory."""

from __future__ import annotations

from typing import Final

_MAX_SLUG: Final = 200
_BASE36: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


def project_slug(path: str) -> str:
    """Return the name of Claude Code's project directory for a working directory.

    Every UTF-16 unit other than an ASCII letter or digit becomes a dash. A long name is cut and
    ends in Java's string hash of the path, in base 36.

    Args:
        path: The working directory, absolute and with its links resolved.
    """
    encoded = path.encode("utf-16-le", "surrogatepass")
    units = [low | high << 8 for low, high in zip(encoded[::2], encoded[1::2], strict=True)]
    slug = "".join(chr(unit) if unit < 128 and chr(unit).isalnum() else "-" for unit in units)
    if len(slug) <= _MAX_SLUG:
        return slug
    value = 0
    for unit in units:
        value = (value * 31 + unit) & 0xFFFFFFFF
    return f"{slug[:_MAX_SLUG]}-{_base36(min(value, 2**32 - value))}"


def _base36(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = _BASE36[digit] + digits
    return digits or "0"
