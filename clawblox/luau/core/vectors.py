"""Arithmetic of vectors, whose components are 32-bit floats.

Every operation is rounded correctly, because the 64-bit result for two 32-bit floats rounds to the
same 32-bit float as the exact result.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any

from clawblox.luau.core.machine import current
from clawblox.luau.core.numbers import divide, pack_single, to_number, unpack_single
from clawblox.luau.core.values import Vector

Operator = Callable[[Any, Any], Any]
Compute = Callable[[float, float], float]

Blanks = Iterator[Vector]
"""Creates vectors without components, faster than calls of `Vector`."""

uncounted: Blanks = map(object.__new__, repeat(Vector))
_THREE = struct.Struct("fff")  # native, so numbers beyond 32 bits become infinite
_pack, _unpack = _THREE.pack, _THREE.unpack


def make_vector(x: float, y: float, z: float) -> Vector:
    """Return a vector, rounded to 32 bits, without accounting for its memory."""
    result = next(uncounted)
    result.x, result.y, result.z = _unpack(_pack(x, y, z))
    return result


def make_counted(x: float, y: float, z: float) -> Vector:
    """Return a vector, accounting for its memory to the running script."""
    result = next(current.vm.blanks)
    result.x, result.y, result.z = _unpack(_pack(x, y, z))
    return result


def adding(otherwise: Operator, blanks: Blanks) -> Operator:
    """Return the operator ``+`` for vectors; `otherwise` handles other operands."""

    def add(left: Any, right: Any) -> Any:
        if left.__class__ is Vector and right.__class__ is Vector:
            result = next(blanks)
            result.x, result.y, result.z = _unpack(
                _pack(left.x + right.x, left.y + right.y, left.z + right.z)
            )
            return result
        return otherwise(left, right)

    return add


def subtracting(otherwise: Operator, blanks: Blanks) -> Operator:
    """Return the operator ``-`` for vectors; `otherwise` handles other operands."""

    def sub(left: Any, right: Any) -> Any:
        if left.__class__ is Vector and right.__class__ is Vector:
            result = next(blanks)
            result.x, result.y, result.z = _unpack(
                _pack(left.x - right.x, left.y - right.y, left.z - right.z)
            )
            return result
        return otherwise(left, right)

    return sub


def multiplying(otherwise: Operator, blanks: Blanks) -> Operator:
    """Return the operator ``*`` for vectors and numbers; `otherwise` handles other operands."""
    slow = scaling(otherwise, float.__mul__)

    def mul(left: Any, right: Any) -> Any:
        if left.__class__ is Vector and right.__class__ is float:
            (scale,) = unpack_single(pack_single(right))
            result = next(blanks)
            result.x, result.y, result.z = _unpack(
                _pack(left.x * scale, left.y * scale, left.z * scale)
            )
            return result
        if left.__class__ is float and right.__class__ is Vector:
            (scale,) = unpack_single(pack_single(left))
            result = next(blanks)
            result.x, result.y, result.z = _unpack(
                _pack(scale * right.x, scale * right.y, scale * right.z)
            )
            return result
        return slow(left, right)

    return mul


def dividing(otherwise: Operator, blanks: Blanks) -> Operator:
    """Return the operator ``/`` for vectors and numbers; `otherwise` handles other operands."""
    slow = scaling(otherwise, divide)

    def div(left: Any, right: Any) -> Any:
        if left.__class__ is Vector and right.__class__ is float:
            (scale,) = unpack_single(pack_single(right))
            if scale:
                result = next(blanks)
                result.x, result.y, result.z = _unpack(
                    _pack(left.x / scale, left.y / scale, left.z / scale)
                )
                return result
        return slow(left, right)

    return div


def scaling(otherwise: Operator, compute: Compute) -> Operator:
    """Return an operator on two vectors, or a vector and a number.

    Args:
        otherwise: The operator for other operands.
        compute: The operation on the components.
    """

    def operate(left: Any, right: Any) -> Any:
        if left.__class__ is Vector or right.__class__ is Vector:
            a, b = _scale(left), _scale(right)
            if a is not None and b is not None:
                return make_vector(compute(a.x, b.x), compute(a.y, b.y), compute(a.z, b.z))
        return otherwise(left, right)

    return operate


def _scale(value: Any) -> Vector | None:
    """Return an operand as a vector; None if it is neither a vector nor a number."""
    if value.__class__ is Vector:
        vector: Vector = value
        return vector
    number = to_number(value)
    return None if number is None else make_vector(number, number, number)
