"""The implementation of ``string.format``."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from clawblox.luau.core.errors import RuntimeFault
from clawblox.luau.core.iteration import charge_work
from clawblox.luau.core.operators import join, to_text
from clawblox.luau.lib.support import arguments as arg
from clawblox.luau.lib.support.registry import install

_SPEC = re.compile(r"%(?:%|([-+ #0]*)(\d*)(?:(\.)(\d*))?(.?))", re.DOTALL)
_STEPS_PER_ITEM = 8
_MAX_FLAGS = 5
_MAX_PADDED = 100  # longer strings exceed any width
_SHORT_FORM = 200  # characters; longer formats are parsed each time
_EXACT = 2.0**53
_QUOTED = str.maketrans({'"': '\\"', "\\": "\\\\", "\n": "\\\n", "\r": "\\r", "\0": "\\000"})


Convert = Callable[[re.Match[str], arg.Arguments, int], str]
Plan = tuple[int, tuple[tuple[str, Convert, re.Match[str]], ...], str]
"""The steps, the conversions with the text before each, and the text after the last."""


def format_text(*args: Any) -> str:
    """Return the result of ``string.format``.

    Raises:
        RuntimeFault: The format is malformed, or a value does not fit it.
    """
    form = arg.string(args, 0, "format")
    steps, items, rest = _short_plan(form) if len(form) <= _SHORT_FORM else _read_plan(form)
    if steps:
        charge_work(steps)
    pieces: list[str] = []
    for at, (text, convert, spec) in enumerate(items, 1):
        pieces.append(text)
        if at >= len(args):
            raise RuntimeFault(f"missing argument #{at + 1}")
        pieces.append(convert(spec, args, at))
    pieces.append(rest)
    return join(pieces)


def _read_plan(form: str) -> Plan:
    """Return the plan for filling a format."""
    items: list[tuple[str, Convert, re.Match[str]]] = []
    text, at = "", 0
    for spec in _SPEC.finditer(form):
        text += form[at : spec.start()]
        at = spec.end()
        if spec[0] == "%%":
            text += "%"
        else:
            items.append((text, _choose(spec), spec))
            text = ""
    return form.count("%") * _STEPS_PER_ITEM, tuple(items), text + form[at:]


_short_plan = lru_cache(maxsize=256)(_read_plan)


def _choose(spec: re.Match[str]) -> Convert:
    """Return the function for a conversion; plain number formats have a fast function."""
    letter = spec[5]
    if _find_fault(spec):
        return _refuse
    if spec[0] == "%s":
        return _plain_string
    if letter in "eEfgG" or (letter in "di" and spec[3] is None):
        return _plain_number(spec[0])
    return _convert


def _refuse(spec: re.Match[str], args: arg.Arguments, at: int) -> str:
    raise RuntimeFault(_find_fault(spec))


def _plain_string(spec: re.Match[str], args: arg.Arguments, at: int) -> str:
    value = args[at]
    return value if value.__class__ is str else _convert(spec, args, at)


def _plain_number(form: str) -> Convert:
    def convert(spec: re.Match[str], args: arg.Arguments, at: int) -> str:
        value = args[at]
        if value.__class__ is float and -_EXACT < value < _EXACT:
            return form % value
        return _convert(spec, args, at)

    return convert


def _find_fault(spec: re.Match[str]) -> str:
    """Return the fault of a conversion; empty if it is valid."""
    if len(spec[1]) > _MAX_FLAGS:
        return "invalid format (repeated flags)"
    if len(spec[2]) > 2 or len(spec[4] or "") > 2:
        return "invalid format (width or precision too long)"
    if spec[5] == "*" and spec[0] != "%*":
        return "'%*' does not take a form"
    if not spec[5] or spec[5] not in "cdiouxXeEfgGqs*":
        return f"invalid option '%{spec[5]}' to 'format'"
    return ""


def _convert(spec: re.Match[str], args: arg.Arguments, at: int) -> str:
    letter = spec[5]
    if letter == "*":
        return to_text(args[at])
    if letter == "s":
        return _string(spec, arg.string(args, at, "format"))
    if letter == "q":
        return _quote(arg.string(args, at, "format"))
    value = arg.number(args, at, "format")
    if letter == "c":
        return _pad(chr(_cut(value, signed=True) & 255), spec)
    if letter in "di":
        return _integer(spec, _cut(value, signed=True), "d")
    if letter in "ouxX":
        return _integer(spec, _cut(value, signed=False), letter)
    if math.isfinite(value):
        return spec[0] % value
    sign = _sign(math.copysign(1.0, value) < 0, spec[1])
    word = "nan" if value != value else "inf"
    return _pad(sign + (word.upper() if letter.isupper() else word), spec)


def _string(spec: re.Match[str], text: str) -> str:
    if spec[0] == "%s" or (spec[3] is None and len(text) >= _MAX_PADDED):
        return text
    if spec[3] is not None:
        text = text[: int(spec[4] or 0)]
    return _pad(text.partition("\0")[0], spec)  # C formats these in the reference


def _cut(value: float, *, signed: bool) -> int:
    if value != value or math.isinf(value):
        return -(2**63) if signed else 0
    whole = int(value)
    if signed:
        return max(-(2**63), min(2**63 - 1, whole))
    return whole % 2**64 if whole < 0 else min(whole, 2**64 - 1)


def _pad(text: str, spec: re.Match[str]) -> str:
    width = int(spec[2] or 0)
    return text.ljust(width) if "-" in spec[1] else text.rjust(width)


def _integer(spec: re.Match[str], value: int, letter: str) -> str:
    digits = format(abs(value), "d" if letter == "u" else letter)
    if spec[3] is not None:
        precision = int(spec[4] or 0)
        digits = digits.rjust(precision, "0") if precision or value else ""
    prefix = ""
    if "#" in spec[1] and letter == "o":
        prefix = "" if digits.startswith("0") else "0"
    elif "#" in spec[1] and letter in "xX" and value:
        prefix = f"0{letter}"
    sign = _sign(value < 0, spec[1]) if letter == "d" else ""
    missing = int(spec[2] or 0) - len(sign + prefix + digits)
    if spec[3] is None and "0" in spec[1] and "-" not in spec[1]:
        digits = "0" * missing + digits
    return _pad(sign + prefix + digits, spec)


def _sign(negative: bool, flags: str) -> str:
    if negative:
        return "-"
    return "+" if "+" in flags else " " if " " in flags else ""


def _quote(text: str) -> str:
    charge_work(len(text) // 64)
    return f'"{text.translate(_QUOTED)}"'


install("string.format", format_text)
