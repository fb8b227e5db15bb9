"""The ``utf8`` library."""

from __future__ import annotations

from typing import Any

from clawblox.luau.core.errors import RuntimeFault
from clawblox.luau.core.iteration import charge_work
from clawblox.luau.core.machine import current
from clawblox.luau.core.numbers import to_number
from clawblox.luau.core.values import as_result
from clawblox.luau.lib.support import arguments as arg
from clawblox.luau.lib.support.graphemes import Cluster
from clawblox.luau.lib.support.registry import BUILTINS

CONSTANTS: dict[str, Any] = {"utf8.charpattern": "[\0-\x7f\xc2-\xf4][\x80-\xbf]*"}
_MAX_CODE = 0x10FFFF
_BYTES_PER_CHARGE = 64
_STEPS_PER_CLUSTER = 4
_BYTES_PER_STEP = 2  # of a cluster


def _decode(text: str, at: int) -> tuple[int, int] | None:
    """Return the code point at a byte and its end; None if malformed."""
    lead = ord(text[at])
    if lead < 0x80:
        return lead, at + 1
    size = 2 if lead & 0xE0 == 0xC0 else 3 if lead & 0xF0 == 0xE0 else 4
    try:
        return ord(text[at : at + size].encode("latin-1").decode()), at + size
    except UnicodeDecodeError:
        return None


def _is_continuation(text: str, at: int) -> bool:
    return at < len(text) and ord(text[at]) & 0xC0 == 0x80


def _leave(text: str, at: int, step: int) -> int:
    """Skip continuation bytes in a direction; return the position of the first other byte."""
    start = at
    while at > 0 and _is_continuation(text, at):
        at += step
        if not (at - start) % _BYTES_PER_CHARGE:
            charge_work(_BYTES_PER_CHARGE // 4)
    return at


def char(*args: Any) -> str:
    """Return the UTF-8 text of code points.

    Raises:
        RuntimeFault: An argument is not a number, or a code point is out of range.
    """
    arg.charge(args)
    pieces = []
    for at in range(len(args)):
        code = arg.integer(args, at, "char")
        if not 0 <= code <= _MAX_CODE:
            arg.wrong(at, "char", "value out of range")
        pieces.append(chr(code).encode("utf-8", "surrogatepass").decode("latin-1"))
    return "".join(pieces)


def len_(*args: Any) -> Any:
    """Return the number of code points, or nil and the position of malformed text.

    Raises:
        RuntimeFault: An argument is missing or of the wrong type, or a position is out of range.
    """
    text = arg.string(args, 0, "len")
    at = arg.position(arg.optional_integer(args, 1, "len", 1), len(text)) - 1
    end = arg.position(arg.optional_integer(args, 2, "len", -1), len(text)) - 1
    if not 0 <= at <= len(text):
        arg.wrong(1, "len", "initial position out of string")
    if end >= len(text):
        arg.wrong(2, "len", "final position out of string")
    charge_work(max(end - at, 0) // 2)
    count = 0
    while at <= end:
        decoded = _decode(text, at)
        if decoded is None:
            return None, float(at + 1)
        at = decoded[1]
        count += 1
    return float(count)


def codepoint(*args: Any) -> Any:
    """Return the code points of a range of bytes.

    Raises:
        RuntimeFault: An argument is missing or of the wrong type, a position is out of range, or
            the text is not UTF-8.
    """
    text = arg.string(args, 0, "codepoint")
    start = arg.position(arg.optional_integer(args, 1, "codepoint", 1), len(text))
    end = arg.position(arg.optional_integer(args, 2, "codepoint", start), len(text))
    if start < 1:
        arg.wrong(1, "codepoint", "out of range")
    if end > len(text):
        arg.wrong(2, "codepoint", "out of range")
    arg.check_results(args, end - start + 1, "string slice too long")
    charge_work((end - start) // 2)
    codes, at = [], start - 1
    while at < end:
        decoded = _decode(text, at)
        if decoded is None:
            raise RuntimeFault("invalid UTF-8 code")
        codes.append(float(decoded[0]))
        at = decoded[1]
    return as_result(tuple(codes))


def offset(*args: Any) -> float | None:
    """Return the position of the n-th code point, counted from a position.

    Raises:
        RuntimeFault: An argument is missing or of the wrong type, the position is out of range, or
            inside a character.
    """
    text = arg.string(args, 0, "offset")
    n = arg.integer(args, 1, "offset")
    default = 1 if n >= 0 else len(text) + 1
    at = arg.position(arg.optional_integer(args, 2, "offset", default), len(text)) - 1
    if not 0 <= at <= len(text):
        arg.wrong(2, "offset", "position out of range")
    charge_work(min(abs(n), len(text)) // 2)
    if n == 0:
        return float(_leave(text, at, -1) + 1)
    if _is_continuation(text, at):
        raise RuntimeFault("initial position is a continuation byte")
    while n < 0 and at > 0:
        at = _leave(text, at - 1, -1)
        n += 1
    n -= n > 0
    while n > 0 and at < len(text):
        at = _leave(text, at + 1, 1)
        n -= 1
    return float(at + 1) if n == 0 else None


def _next_code(*args: Any) -> Any:
    """Return the next position and its code point.

    Raises:
        RuntimeFault: The first argument is not a string, or the text is not UTF-8.
    """
    text = arg.string(args, 0, "codes")
    position = to_number(args[1]) if len(args) > 1 else None
    at = (0 if position is None else arg.to_integer(position)) - 1
    if at < 0:
        at = 0
    elif at < len(text):
        at = _leave(text, at + 1, 1)
    if at >= len(text):
        return ()
    decoded = _decode(text, at)
    if decoded is None or _is_continuation(text, decoded[1]):
        raise RuntimeFault("invalid UTF-8 code")
    return float(at + 1), float(decoded[0])


def codes(*args: Any) -> Any:
    """Return an iterator over positions and code points.

    Raises:
        RuntimeFault: The argument is not a string.
    """
    return _next_code, arg.string(args, 0, "codes"), 0.0


def _cluster_end(text: str, start: int) -> int:
    """Return the end of the cluster that starts at a byte.

    Raises:
        RuntimeFault: The text is not UTF-8.
    """
    charge_work(_STEPS_PER_CLUSTER)
    cluster, end = Cluster(), start
    while end < len(text):
        decoded = _decode(text, end)
        if decoded is None:
            raise RuntimeFault("invalid UTF-8 code")
        if not cluster.takes(decoded[0]):
            break
        charge_work((decoded[1] - end) // _BYTES_PER_STEP)
        end = decoded[1]
    return end


def _next_cluster(*args: Any) -> Any:
    """Return the first and last byte of the cluster after the cluster that starts at a byte.

    A negative position stands for the cluster that starts there.

    Raises:
        RuntimeFault: An argument is of the wrong type, or the text is not UTF-8.
    """
    text = arg.string(args, 0, "graphemes")
    position = arg.integer(args, 1, "graphemes")
    start = -position - 1 if position < 0 else _cluster_end(text, max(position - 1, 0))
    if start >= len(text):
        return ()
    return float(start + 1), float(_cluster_end(text, start))


def graphemes(*args: Any) -> Any:
    """Return an iterator over the first and last bytes of the grapheme clusters in a range.

    Raises:
        RuntimeFault: An argument is missing or of the wrong type, or a position is out of range.
    """
    text = arg.string(args, 0, "graphemes")
    start = arg.position(arg.optional_integer(args, 1, "graphemes", 1), len(text))
    end = arg.position(arg.optional_integer(args, 2, "graphemes", -1), len(text))
    if start < 1:
        arg.wrong(1, "graphemes", "position out of range")
    if end > len(text):
        arg.wrong(2, "graphemes", "position out of range")
    current.vm.allocate(end if end < len(text) else 0)
    return _next_cluster, text[:end], -float(start)


BUILTINS.add("utf8.codes.next", _next_code, internal=True)
BUILTINS.add("utf8.graphemes.next", _next_cluster, internal=True)
