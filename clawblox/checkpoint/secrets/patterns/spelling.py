"""The spellings of a known value whose characters are escaped. Pure.

Letters and digits are not escaped in JSON, URLs, HTML and strings of programs. Any other character
may be, and again when the text around it is quoted. A value has endless spellings, but one pattern
matches all of them.
"""

from __future__ import annotations

import html.entities
import re
from collections.abc import Iterator, Sequence
from typing import Final

_PLAIN: Final = re.compile(r"[A-Za-z0-9]+")
_UNESCAPED: Final = re.compile(r"[A-Za-z0-9_.~-]*")
_MIN_ANCHOR: Final = 3
_BACKSLASHES: Final = rb"\\{0,32}"
"""Backslashes double with every level of quoting; 32 allow five levels."""

_LETTERS: Final = {
    "\a": b"a", "\b": b"b", "\t": b"t", "\n": b"n", "\v": b"v", "\f": b"f", "\r": b"r",
}  # fmt: skip
_NAMES: Final = {
    meaning: name.encode()
    for name, meaning in html.entities.html5.items()
    if len(meaning) == 1 and name.endswith(";")
}


def is_plain(value: str) -> bool:
    """Return whether a value has no character that is usually escaped."""
    return _UNESCAPED.fullmatch(value) is not None


def find_anchors(value: str) -> tuple[bytes, ...]:
    """Return literals; every spelling of a value contains at least one of them."""
    plain = max(_PLAIN.findall(value), key=len, default="")
    if len(plain) >= _MIN_ANCHOR:
        return (plain.encode(),)
    char = max(value)
    utf8, codes = char.encode(), _hexadecimal(_utf16(char)[:1], 4)
    numbers = (
        b"%d" % ord(char),
        *_cases(b"%x" % ord(char)),
        *_hexadecimal([utf8[0]], 2),
        b"%03o" % utf8[0],
    )
    named = (_NAMES[char],) if char in _NAMES else ()
    return (utf8, char.encode("latin-1", errors="ignore") or utf8, *codes, *numbers, *named)


def spelling_pattern(value: str) -> re.Pattern[bytes]:
    """Return a pattern that matches every spelling of a value."""
    return re.compile(b"".join(b"(?:" + b"|".join(_spellings(char)) + b")" for char in value))


def _spellings(char: str) -> Iterator[bytes]:
    utf8, code = char.encode(), ord(char)
    if _PLAIN.fullmatch(char):
        yield utf8
        return
    yield _BACKSLASHES + re.escape(utf8)
    if 0x80 <= code < 0x100:
        yield re.escape(bytes((code,)))  # Latin-1
    if char in _LETTERS:
        yield rb"\\" + _BACKSLASHES + _LETTERS[char]
    if char == "\n":
        yield rb"\r\n|\\" + _BACKSLASHES + rb"r\\" + _BACKSLASHES + b"n"
    yield _numbered(rb"\\" + _BACKSLASHES + b"u", _utf16(char), b"%04x")
    yield _numbered(rb"\\" + _BACKSLASHES + b"x", utf8, b"%02x")
    if 0x80 <= code < 0x100:
        yield _numbered(rb"\\" + _BACKSLASHES + b"x", [code], b"%02x")
    yield _numbered(rb"\\" + _BACKSLASHES, utf8, b"%03o")
    yield rb"\\" + _BACKSLASHES + b"(?:U|u\\{)0{0,6}(?i:%x)}?" % code
    yield _numbered(b"%(?:25){0,4}", utf8, b"%02x")
    yield _numbered(b"=", utf8, b"%02x")
    ampersand = b"&(?:amp;){0,4}"
    yield ampersand + b"#(?:0{0,6}%d|[xX]0{0,6}(?i:%x));?" % (code, code)
    if char in _NAMES:
        yield ampersand + _NAMES[char]
    if char == " ":
        yield rb"\+"


def _numbered(prefix: bytes, units: Sequence[int], form: bytes) -> bytes:
    return b"".join(prefix + b"(?i:" + form % unit + b")" for unit in units)


def _utf16(char: str) -> Sequence[int]:
    units = char.encode("utf-16-be")
    return [int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2)]


def _hexadecimal(units: Sequence[int], digits: int) -> tuple[bytes, ...]:
    return _cases(b"%0*x" % (digits, units[0]))


def _cases(number: bytes) -> tuple[bytes, bytes]:
    return number.lower(), number.upper()
