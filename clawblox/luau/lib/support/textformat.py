"""The work of ``string.format``."""

from __future__ import annotations

import math
import re

from clawblox.luau.core.errors import RuntimeFault
from clawblox.luau.core.iteration import charge_work
from clawblox.luau.core.operators import join, to_text
from clawblox.luau.lib.support import arguments as arg

_SPEC = re.compile(r"%([-+ #0]*)(\d*)(?:(\.)(\d*))?(.?)", re.DOTALL)
_STEPS_PER_ITEM = 8
_MAX_FLAGS = 5
_MAX_PADDED = 100  # longer strings exceed any width
_QUOTED = str.maketrans({'"': '\\"', "\\": "\\\\", "\n": "\\\n", "\r": "\\r", "\0": "\\000"})


def format_text(args: arg.Arguments) -> str:
    """Return the text that ``string.format`` returns.

    Raises:
        RuntimeFault: The format is malformed, or a value does not fit it.
    """
    form = arg.string(args, 0, "format")
    charge_work(form.count("%") * _STEPS_PER_ITEM)
    pieces: list[str] = []
    at, next_argument = 0, 1
    while True:
        percent = form.find("%", at)
        if percent < 0:
            pieces.append(form[at:])
            return join(pieces)
        pieces.append(form[at:percent])
        if form.startswith("%%", percent):
            pieces.append("%")
            at = percent + 2
            continue
        if next_argument >= len(args):
            raise RuntimeFault(f"missing argument #{next_argument + 1}")
        spec = _SPEC.match(form, percent)
        assert spec is not None
        _check(spec)
        pieces.append(_convert(spec, args, next_argument))
        next_argument += 1
        at = spec.end()


def _check(spec: re.Match[str]) -> None:
    if len(spec[1]) > _MAX_FLAGS:
        raise RuntimeFault("invalid format (repeated flags)")
    if len(spec[2]) > 2 or len(spec[4] or "") > 2:
        raise RuntimeFault("invalid format (width or precision too long)")
    if spec[5] == "*" and spec[0] != "%*":
        raise RuntimeFault("'%*' does not take a form")
    if not spec[5] or spec[5] not in "cdiouxXeEfgGqs*":
        raise RuntimeFault(f"invalid option '%{spec[5]}' to 'format'")


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
    return _float(spec, value, letter)


def _string(spec: re.Match[str], text: str) -> str:
    if spec[0] == "%s" or (spec[3] is None and len(text) >= _MAX_PADDED):
        return text
    if spec[3] is not None:
        text = text[: int(spec[4] or 0)]
    return _pad(text.partition("\0")[0], spec)  # as in the reference, which leaves these to C


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
    return _fill(sign + prefix, digits, spec, zeros=spec[3] is None)


def _sign(negative: bool, flags: str) -> str:
    if negative:
        return "-"
    return "+" if "+" in flags else " " if " " in flags else ""


def _fill(prefix: str, digits: str, spec: re.Match[str], *, zeros: bool) -> str:
    width = int(spec[2] or 0)
    missing = width - len(prefix) - len(digits)
    if missing > 0 and "-" not in spec[1] and "0" in spec[1] and zeros:
        return prefix + "0" * missing + digits
    return _pad(prefix + digits, spec)


def _float(spec: re.Match[str], value: float, letter: str) -> str:
    negative = math.copysign(1.0, value) < 0
    sign = _sign(negative, spec[1])
    if value != value or math.isinf(value):
        word = "nan" if value != value else "inf"
        return _fill(sign, word.upper() if letter.isupper() else word, spec, zeros=False)
    precision = int(spec[4] or 0) if spec[3] is not None else 6
    alternate = "#" if "#" in spec[1] else ""
    return _fill(sign, format(abs(value), f"{alternate}.{precision}{letter}"), spec, zeros=True)


def _quote(text: str) -> str:
    charge_work(len(text) // 64)
    return f'"{text.translate(_QUOTED)}"'
