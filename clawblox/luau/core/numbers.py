"""Arithmetic as Luau defines it, and conversion between numbers and text."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from typing import Any

from clawblox.luau.core.machine import current

_DECIMAL = re.compile(
    r"[ \t\n\v\f\r]*([+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)[ \t\n\v\f\r]*"
)
_HEXADECIMAL = re.compile(
    r"[ \t\n\v\f\r]*"
    r"([+-]?0[xX](?:[0-9a-fA-F]++(?:\.[0-9a-fA-F]*+)?|\.[0-9a-fA-F]++)(?:[pP][+-]?[0-9]++)?)"
    r"[ \t\n\v\f\r]*"
)
_SPECIAL = re.compile(r"[ \t\n\v\f\r]*([+-]?(?:inf(?:inity)?|nan))[ \t\n\v\f\r]*", re.IGNORECASE)
_MAX_PLAIN_EXPONENT = 20
_MIN_PLAIN_EXPONENT = -6
_CHARACTERS_PER_STEP = 256  # of a text read as a number
_MOST_DIGITS = 64  # digits that a 64-bit number can have
_SINGLE = struct.Struct("f")  # native: numbers that are too large become infinite
pack_single, unpack_single = _SINGLE.pack, _SINGLE.unpack


def single(value: float) -> float:
    """Return a number rounded to 32 bits."""
    rounded: float = unpack_single(pack_single(value))[0]
    return rounded


def rounding(compute: Callable[[float], float]) -> Callable[[float], float]:
    """Return a function that rounds finite numbers and keeps their sign, even for zero."""
    return lambda value: math.copysign(compute(value), value) if math.isfinite(value) else value


def modulo(left: float, right: float) -> float:
    """Return Luau's ``%``: ``a - floor(a / b) * b``, rounded at every step."""
    try:
        quotient = left / right
    except ZeroDivisionError:
        return math.nan
    if quotient - quotient != 0.0:
        return left - quotient * right
    floored = math.floor(quotient) or math.copysign(0.0, quotient)
    return left - floored * right


def divide(left: float, right: float) -> float:
    """Return ``a / b`` as IEEE 754 defines it."""
    try:
        return left / right
    except ZeroDivisionError:
        if left == 0.0 or left != left:
            return math.nan
        return math.copysign(math.inf, left) * math.copysign(1.0, right)


def floor_divide(left: float, right: float) -> float:
    """Return ``floor(a / b)``."""
    quotient = divide(left, right)
    if quotient - quotient != 0.0 or quotient == 0.0:
        return quotient
    floored = float(math.floor(quotient))
    return floored if floored else math.copysign(floored, quotient)


def raise_to(left: float, right: float) -> float:
    """Return ``a ^ b`` as C's ``pow`` computes it."""
    if right == 2.0:
        return left * left
    try:
        return math.pow(left, right)
    except (OverflowError, ValueError) as error:
        if left != 0.0 and isinstance(error, ValueError):
            return math.nan
        is_odd = right.is_integer() and right % 2.0 == 1.0
        return math.copysign(math.inf, left) if is_odd else math.inf


def format_number(value: float) -> str:
    """Return the ``tostring`` form of a number: the shortest digits that read back the same."""
    if -1e15 < value < 1e15:
        whole = int(value)
        if whole == value:
            if whole:
                return str(whole)
            return "0" if math.copysign(1.0, value) > 0 else "-0"
    mantissa, _, power = repr(value).partition("e")
    exponent = int(power or 0)
    first, _, fraction = mantissa.partition(".")
    if 0 < exponent <= _MAX_PLAIN_EXPONENT:
        return first + fraction.ljust(exponent, "0")
    if _MIN_PLAIN_EXPONENT <= exponent < 0:
        return f"{value:.{len(fraction) - exponent}f}"
    return repr(value).removesuffix(".0")


def parse_number(text: str) -> float | None:
    """Return the number that a string contains, or None."""
    if match := _DECIMAL.fullmatch(text):
        return float(match[1])
    if match := _HEXADECIMAL.fullmatch(text):
        try:
            return float.fromhex(match[1])
        except OverflowError:
            return -math.inf if match[1].startswith("-") else math.inf
    if match := _SPECIAL.fullmatch(text):
        return float(match[1])
    return None


def parse_in_base(text: str, base: int) -> float | None:
    """Return the unsigned integer that a string contains in a base from 2 to 36, or None."""
    body = text.strip(" \t\n\v\f\r")
    negative = body.startswith("-")
    body = body.lstrip("+-") if body[:1] in "+-" and body[1:2] not in "+-" else body
    if base == 16 and body[:2] in ("0x", "0X"):
        body = body[2:]
    if not body.isalnum() or not body.isascii():
        return None
    if any(int(digit, 36) >= base for digit in set(body)):
        return None
    body = body.lstrip("0")
    number = 2**64 - 1 if len(body) > _MOST_DIGITS else min(int(body or "0", base), 2**64 - 1)
    return float((2**64 - number) % 2**64 if negative else number)


def to_number(value: Any) -> float | None:
    """Return a number, or the number in a string; None for other values.

    Raises:
        LuaError: The call has used up its steps or its memory, or the host has interrupted it.
    """
    if value.__class__ is float:
        return float(value)
    if value.__class__ is not str:
        return None
    if len(value) >= _CHARACTERS_PER_STEP:
        current.vm.charge_work(len(value) // _CHARACTERS_PER_STEP)
    return parse_number(value)
