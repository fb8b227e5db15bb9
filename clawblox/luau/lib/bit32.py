"""The ``bit32`` library."""

from __future__ import annotations

import math
from typing import Any

from clawblox.luau.core.errors import RuntimeFault
from clawblox.luau.lib.support import arguments as arg
from clawblox.luau.lib.support.registry import builtin

_MASK = 0xFFFFFFFF


def _bits(args: arg.Arguments, at: int, function: str) -> int:
    """Return a number cut to an integer modulo 2 ^ 32."""
    value = arg.number(args, at, function)
    return int(value) & _MASK if math.isfinite(value) else 0


def _signed(args: arg.Arguments, at: int, function: str) -> int:
    return arg.integer(args, at, function)


def _all(args: arg.Arguments, function: str) -> list[int]:
    if len(args) > arg.FEW:
        arg.charge(args)
    return [_bits(args, at, function) for at in range(len(args))]


@builtin("bit32.band")
def band(*args: Any) -> float:
    """Return the bits that are set in all arguments.

    Raises:
        RuntimeFault: An argument is not a number.
    """
    result = _MASK
    for bits in _all(args, "band"):
        result &= bits
    return float(result)


@builtin("bit32.bor")
def bor(*args: Any) -> float:
    """Return the bits that are set in any argument.

    Raises:
        RuntimeFault: An argument is not a number.
    """
    result = 0
    for bits in _all(args, "bor"):
        result |= bits
    return float(result)


@builtin("bit32.bxor")
def bxor(*args: Any) -> float:
    """Return the bits that are set in an odd number of arguments.

    Raises:
        RuntimeFault: An argument is not a number.
    """
    result = 0
    for bits in _all(args, "bxor"):
        result ^= bits
    return float(result)


@builtin("bit32.bnot")
def bnot(*args: Any) -> float:
    """Return the bits that are not set.

    Raises:
        RuntimeFault: The argument is not a number.
    """
    return float(~_bits(args, 0, "bnot") & _MASK)


@builtin("bit32.btest")
def btest(*args: Any) -> bool:
    """Return whether some bit is set in all arguments.

    Raises:
        RuntimeFault: An argument is not a number.
    """
    result = _MASK
    for bits in _all(args, "btest"):
        result &= bits
    return result != 0


def _shift_left(bits: int, by: int) -> int:
    if by < 0:
        return bits >> -by if by > -32 else 0
    return (bits << by) & _MASK if by < 32 else 0


@builtin("bit32.lshift")
def lshift(*args: Any) -> float:
    """Shift to the left.

    Raises:
        RuntimeFault: An argument is not a number.
    """
    return float(_shift_left(_bits(args, 0, "lshift"), _signed(args, 1, "lshift")))


@builtin("bit32.rshift")
def rshift(*args: Any) -> float:
    """Shift to the right, filling with zeros.

    Raises:
        RuntimeFault: An argument is not a number.
    """
    return float(_shift_left(_bits(args, 0, "rshift"), -_signed(args, 1, "rshift")))


@builtin("bit32.arshift")
def arshift(*args: Any) -> float:
    """Shift to the right, filling with the sign bit.

    Raises:
        RuntimeFault: An argument is not a number.
    """
    bits, by = _bits(args, 0, "arshift"), _signed(args, 1, "arshift")
    if by < 0 or not bits & 0x80000000:
        return float(_shift_left(bits, -by))
    return float((bits - 2**32 >> min(by, 31)) & _MASK)


def _rotate(bits: int, by: int) -> float:
    by &= 31
    return float((bits << by | bits >> (32 - by)) & _MASK)


@builtin("bit32.lrotate")
def lrotate(*args: Any) -> float:
    """Rotate to the left.

    Raises:
        RuntimeFault: An argument is not a number.
    """
    return _rotate(_bits(args, 0, "lrotate"), _signed(args, 1, "lrotate"))


@builtin("bit32.rrotate")
def rrotate(*args: Any) -> float:
    """Rotate to the right.

    Raises:
        RuntimeFault: An argument is not a number.
    """
    return _rotate(_bits(args, 0, "rrotate"), -_signed(args, 1, "rrotate"))


def _field(args: arg.Arguments, at: int, function: str) -> tuple[int, int]:
    start = _signed(args, at, function)
    width = arg.optional_integer(args, at + 1, function, 1)
    if start < 0:
        arg.wrong(at, function, "field cannot be negative")
    if width < 1:
        arg.wrong(at + 1, function, "width must be positive")
    if start + width > 32:
        raise RuntimeFault("trying to access non-existent bits")
    return start, (1 << width) - 1


@builtin("bit32.extract")
def extract(*args: Any) -> float:
    """Return a field of bits.

    Raises:
        RuntimeFault: An argument is not a number, or the field lies outside the 32 bits.
    """
    bits = _bits(args, 0, "extract")
    start, mask = _field(args, 1, "extract")
    return float(bits >> start & mask)


@builtin("bit32.replace")
def replace(*args: Any) -> float:
    """Return a number with a field of bits replaced.

    Raises:
        RuntimeFault: An argument is not a number, or the field lies outside the 32 bits.
    """
    bits, value = _bits(args, 0, "replace"), _bits(args, 1, "replace")
    start, mask = _field(args, 2, "replace")
    return float(bits & ~(mask << start) | (value & mask) << start)


@builtin("bit32.countlz")
def countlz(*args: Any) -> float:
    """Return the number of leading zeros.

    Raises:
        RuntimeFault: The argument is not a number.
    """
    return float(32 - _bits(args, 0, "countlz").bit_length())


@builtin("bit32.countrz")
def countrz(*args: Any) -> float:
    """Return the number of trailing zeros.

    Raises:
        RuntimeFault: The argument is not a number.
    """
    bits = _bits(args, 0, "countrz")
    return float((bits & -bits).bit_length() - 1 if bits else 32)


@builtin("bit32.byteswap")
def byteswap(*args: Any) -> float:
    """Return the bytes in the opposite order.

    Raises:
        RuntimeFault: The argument is not a number.
    """
    return float(int.from_bytes(_bits(args, 0, "byteswap").to_bytes(4, "little"), "big"))
