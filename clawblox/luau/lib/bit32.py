"""The ``bit32`` library."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from clawblox.luau.core.errors import RuntimeFault
from clawblox.luau.lib.support import arguments as arg
from clawblox.luau.lib.support.registry import install

_MASK = 0xFFFFFFFF


def _bits(args: arg.Arguments, at: int, function: str) -> int:
    """Return a number truncated to an integer modulo 2 ^ 32."""
    value = arg.number(args, at, function)
    return int(value) & _MASK if math.isfinite(value) else 0


# All arguments combined into one number


def _add_combination(
    name: str, start: int, combine: Callable[[int, int], int], finish: Callable[[int], Any] = float
) -> None:
    def apply(*args: Any) -> Any:
        arg.charge(args)
        result = start
        for at in range(len(args)):
            result = combine(result, _bits(args, at, name))
        return finish(result)

    install(f"bit32.{name}", apply)


_add_combination("band", _MASK, operator.and_)
_add_combination("bor", 0, operator.or_)
_add_combination("bxor", 0, operator.xor)
_add_combination("btest", _MASK, operator.and_, bool)


# One number


def _add_unary(name: str, change: Callable[[int], int]) -> None:
    def apply(*args: Any) -> float:
        return float(change(_bits(args, 0, name)))

    install(f"bit32.{name}", apply)


_add_unary("bnot", lambda bits: ~bits & _MASK)
_add_unary("countlz", lambda bits: 32 - bits.bit_length())
_add_unary("countrz", lambda bits: (bits & -bits).bit_length() - 1 if bits else 32)
_add_unary("byteswap", lambda bits: int.from_bytes(bits.to_bytes(4, "little"), "big"))


# Shifts and rotations


def _add_shift(name: str, move: Callable[[int, int], int]) -> None:
    def apply(*args: Any) -> float:
        return float(move(_bits(args, 0, name), arg.integer(args, 1, name)) & _MASK)

    install(f"bit32.{name}", apply)


def _shift_left(bits: int, by: int) -> int:
    if by < 0:
        return bits >> -by if by > -32 else 0
    return bits << by if by < 32 else 0


def _shift_arithmetically(bits: int, by: int) -> int:
    if by < 0 or not bits & 0x80000000:
        return _shift_left(bits, -by)
    return bits - 2**32 >> min(by, 31)


def _rotate_left(bits: int, by: int) -> int:
    by &= 31
    return bits << by | bits >> (32 - by)


_add_shift("lshift", _shift_left)
_add_shift("rshift", lambda bits, by: _shift_left(bits, -by))
_add_shift("arshift", _shift_arithmetically)
_add_shift("lrotate", _rotate_left)
_add_shift("rrotate", lambda bits, by: _rotate_left(bits, -by))


# Fields


def _field(args: arg.Arguments, at: int, function: str) -> tuple[int, int]:
    """Return the first bit of a field, and the mask of its width."""
    start = arg.integer(args, at, function)
    width = arg.optional_integer(args, at + 1, function, 1)
    if start < 0:
        arg.wrong(at, function, "field cannot be negative")
    if width < 1:
        arg.wrong(at + 1, function, "width must be positive")
    if start + width > 32:
        raise RuntimeFault("trying to access non-existent bits")
    return start, (1 << width) - 1


def extract(*args: Any) -> float:
    """Return a field of bits.

    Raises:
        RuntimeFault: An argument is not a number, or the field lies outside the 32 bits.
    """
    bits = _bits(args, 0, "extract")
    start, mask = _field(args, 1, "extract")
    return float(bits >> start & mask)


def replace(*args: Any) -> float:
    """Return a number with a field of bits replaced.

    Raises:
        RuntimeFault: An argument is not a number, or the field lies outside the 32 bits.
    """
    bits, value = _bits(args, 0, "replace"), _bits(args, 1, "replace")
    start, mask = _field(args, 2, "replace")
    return float(bits & ~(mask << start) | (value & mask) << start)
