"""The shapes of the parts of a snapshot, used to refuse a damaged snapshot early.

A shape is one of the functions or classes below, or nested like the JSON that it describes:
``[shape]`` is a list of such values, ``(first, second)`` a list of exactly two, ``{"key": shape}``
an object with exactly these keys, and ``{str: shape}`` an object with any keys. A key whose shape
is an `Omittable` may be absent.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import attrs

_LARGEST: Final = 1 << 62
_SHOWN: Final = 40

Shape: TypeAlias = Any
Check = Callable[[Any], str | None]
"""Returns a description of the expected value; None if the value matches."""


@attrs.frozen
class Omittable:
    """The shape of a member of an object that may be absent.

    Attributes:
        shape: The shape of the member if it is present.
    """

    shape: Shape


def anything(value: Any) -> str | None:
    """Accept every JSON value."""
    return None


def flag(value: Any) -> str | None:
    """Accept true and false."""
    return None if value.__class__ is bool else "true or false"


def text(value: Any) -> str | None:
    """Accept a string."""
    return None if value.__class__ is str else "a string"


def integer(value: Any) -> str | None:
    """Accept an integer with magnitude below 2**62."""
    is_one = value.__class__ is int and -_LARGEST <= value <= _LARGEST
    return None if is_one else "a number without a fraction"


def whole(value: Any) -> str | None:
    """Accept a non-negative integer below 2**62."""
    is_one = value.__class__ is int and 0 <= value <= _LARGEST
    return None if is_one else "a whole number"


def mask(value: Any) -> str | None:
    """Accept a 32-bit mask as a number."""
    return None if value.__class__ is int and 0 <= value < 1 << 32 else "a number of 32 bits"


def number(value: Any) -> str | None:
    """Accept a finite number."""
    if value.__class__ is int:
        return integer(value)
    return None if value.__class__ is float and math.isfinite(value) else "a finite number"


def optional(shape: Shape) -> Check:
    """Return the shape of null or a value of another shape."""

    def check(value: Any) -> str | None:
        if value is None:
            return None
        fault = _find_fault(value, shape)
        return None if fault is None else f"null, or {fault[1]}"

    return check


def constant(wanted: str) -> Check:
    """Return the shape of a fixed string."""
    return lambda value: None if value == wanted else repr(wanted)


def one_of(*shapes: Shape) -> Check:
    """Return the shape of a value that has one of some shapes."""

    def check(value: Any) -> str | None:
        faults = [_find_fault(value, shape) for shape in shapes]
        return None if None in faults else " or ".join(fault[1] for fault in faults if fault)

    return check


def check_shape(value: Any, shape: Shape, place: str) -> None:
    """Check that a value has a shape.

    Args:
        value: A JSON value.
        shape: The expected shape.
        place: The name of the value in the error.

    Raises:
        ValueError: The value does not match; the message states where.
    """
    fault = _find_fault(value, shape)
    if fault is not None:
        path, wanted, actual = fault
        shown = repr(actual)
        shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
        raise ValueError(f"the snapshot is damaged at {place}{path}: {shown} is not {wanted}")


Fault = tuple[str, str, Any]
"""A mismatch: its place, the expected value and the actual value."""


def _find_fault(value: Any, shape: Shape) -> Fault | None:
    if isinstance(shape, Omittable):
        shape = shape.shape
    if isinstance(shape, dict):
        return _find_in_object(value, shape)
    if isinstance(shape, list):
        if value.__class__ is not list:
            return "", "a list", value
        return _first((at, each, shape[0]) for at, each in enumerate(value))
    if isinstance(shape, tuple):
        if value.__class__ is not list or len(value) != len(shape):
            return "", f"a list of {len(shape)}", value
        return _first(zip(range(len(shape)), value, shape, strict=True))
    wanted = shape(value)
    return None if wanted is None else ("", wanted, value)


def _find_in_object(value: Any, shape: dict[Any, Shape]) -> Fault | None:
    if value.__class__ is not dict:
        return "", "an object", value
    if str in shape:
        return _first((f".{key}", member, shape[str]) for key, member in value.items())
    required = {key for key, member in shape.items() if not isinstance(member, Omittable)}
    if not required <= value.keys() <= shape.keys():
        return "", f"an object with the keys {', '.join(shape)}", list(value)
    return _first((f".{key}", value[key], member) for key, member in shape.items() if key in value)


def _first(parts: Any) -> Fault | None:
    for at, value, shape in parts:
        fault = _find_fault(value, shape)
        if fault is not None:
            place = at if at.__class__ is str else f"[{at}]"
            return place + fault[0], fault[1], fault[2]
    return None
