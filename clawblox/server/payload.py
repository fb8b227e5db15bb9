"""Strict JSON: the kit checks the input of agents once, and its own output is always valid.

A value that passes :func:`read_json` can go into a snapshot and a recording, and any JSON parser
can read it back: no NaN, no number beyond a double, no lone surrogate, no excessive nesting.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from itertools import accumulate
from typing import Final, NoReturn

from clawblox.server.simulation import Json

MAX_DEPTH: Final = 64
"""Maximum nesting of what agents send; every parser and encoder can handle more."""

_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_STEPS: Final = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_BRACKETS: Final = bytes(number for number in range(256) if number not in _STEPS)
_WALKED_DEPTH: Final = 4
_SLICE: Final = 1024
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def read_json(body: bytes) -> Json:
    """Parse the body of an agent's request as strict JSON in UTF-8.

    Raises:
        ValueError: It is not JSON, or contains a value that JSON cannot carry safely.
    """
    if _nesting(body) > MAX_DEPTH:
        raise ValueError("nested too deeply")
    value = json.loads(
        body.decode(),
        parse_float=_finite_float,
        parse_int=_finite_int,
        parse_constant=refuse_constant,
    )
    if b"\\u" in body:  # only an escape can be a lone surrogate: no encoding has it
        json.dumps(value, ensure_ascii=False).encode()
    return value


def encode_json(value: object) -> bytes:
    """Encode a value compactly, in ASCII.

    Raises:
        ValueError: A number is not finite, or the value contains itself.
        TypeError: The value is not a JSON value.
    """
    return _ENCODER.encode(value).encode("ascii")


def encode_large_json(value: object) -> bytes:
    """Encode like :func:`encode_json`, but in slices, so that other threads run in between.

    The encoder of the standard library is one call that no other thread can interrupt: half a
    second for 20 MB. Slices take as long in total, and the world keeps ticking.

    Raises:
        ValueError: A number is not finite, or the value contains itself.
        TypeError: The value is not a JSON value, or a dict has a key that is not a string.
    """
    return "".join(_pieces(value, _WALKED_DEPTH)).encode("ascii")


def _pieces(value: object, depth: int) -> Iterator[str]:
    if depth and isinstance(value, dict) and value:
        yield from _members_of_dict(value, depth)
    elif depth and isinstance(value, list | tuple) and value:
        yield from _members_of_list(value, depth)
    else:
        yield _ENCODER.encode(value)


def _members_of_dict(value: dict[object, object], depth: int) -> Iterator[str]:
    separator = "{"
    for key, member in value.items():
        if not isinstance(key, str):
            raise TypeError(f"keys must be strings, not {type(key).__name__}: {key!r}")
        yield f"{separator}{_ENCODER.encode(key)}:"
        yield from _pieces(member, depth - 1)
        separator = ","
    yield "}"


def _members_of_list(value: list[object] | tuple[object, ...], depth: int) -> Iterator[str]:
    separator = "["
    if len(value) > _SLICE:
        for start in range(0, len(value), _SLICE):
            yield separator + _ENCODER.encode(value[start : start + _SLICE])[1:-1]
            separator = ","
    else:
        for member in value:
            yield separator
            yield from _pieces(member, depth - 1)
            separator = ","
    yield "]"


def _nesting(body: bytes) -> int:
    """Return how deeply a JSON text may be nested at most, without building its values."""
    opened = body.count(b"[") + body.count(b"{")
    if opened <= MAX_DEPTH:
        return opened
    brackets = _STRING.sub(b"", body).translate(None, _NO_BRACKETS)
    return max(accumulate(map(_STEPS.__getitem__, brackets)), default=0)


def _finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text} is not finite")
    return value


def _finite_int(text: str) -> int:
    if len(text) > 308:  # noqa: PLR2004, RUF100 - digits that every double can hold
        raise ValueError("a whole number has more than 308 digits")
    return int(text)


def refuse_constant(text: str) -> NoReturn:
    """Refuse ``NaN`` and ``Infinity``: a ``parse_constant`` for :func:`json.loads`.

    Raises:
        ValueError: Always.
    """
    raise ValueError(f"{text} is not JSON")
