"""Other readings of bytes: without NULs (UTF-16, UTF-32), and with escapes replaced.

Pure. A view maps each of its bytes to its position in the original.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import attrs

_COLOUR: Final = rb"\[[0-9;]{0,20}[mK]"
_HEX: Final = rb"(?P<hex>[2-7][0-9A-Fa-f]|0[9AaDd])"
_SHORT_HEX: Final = rb"[2-7][0-9A-Fa-f]|[9AaDd]"
_HTML: Final = (
    rb"&(?:amp;){0,4}(?:(?P<quote>quot);"
    rb"|#(?:[xX]0{0,6}(?P<hex>" + _SHORT_HEX + rb")(?![0-9A-Fa-f])"
    rb"|0{0,6}(?P<decimal>9|1[03]|3[2-9]|[4-9][0-9]|1[01][0-9]|12[0-6])(?![0-9]));?)"
)
_ESCAPES: Final = {
    pair.encode(): re.compile(pattern)
    for pairs, pattern in (
        ("\x1b[", rb"\x1b" + _COLOUR),
        ("\\x", rb"\\x(?:1[bB]" + _COLOUR + rb"|" + _HEX + rb")"),
        ("\\0", rb"\\(?:033" + _COLOUR + rb"|(?P<octal>01[125]|0[4-7][0-7]))"),
        ("\\1", rb"\\(?P<octal>1[0-7][0-7])"),
        ("\\u", rb"\\u(?:001[bB]" + _COLOUR + rb"|00(?P<hex>[0-7][0-9A-Fa-f])"
                rb"|\{0{0,6}?(?P<braced>" + _SHORT_HEX + rb")\})"),
        ("\\U", rb"\\U000000" + _HEX),
        ("\\/", rb"\\/"),
        ("%0 %2 %3 %4 %5 %6 %7", rb"%(?:25){0,4}" + _HEX),
        ("&# &a &q", _HTML),
        ("=\n =\r =3", rb"(?:(?<=[\w/+.~-])=\r?\n(?=[\w/+.~-])|=(?P<hex>3D))"),
    )
    for pair in pairs.split(" ")
}  # fmt: skip
"""Patterns of escapes by their first two bytes: in JSON, programs, URLs, HTML, mail
(quoted-printable) and terminal colours."""

# The first bytes and the second bytes of the pairs are character classes, so a single search finds
# all pairs.
_MARK: Final = re.compile(rb"AB")
_MARKS: Final = bytes(
    ord("A" if byte in {pair[0] for pair in _ESCAPES} else "B" if byte in seconds else " ")
    for seconds in [{pair[1] for pair in _ESCAPES}]
    for byte in range(256)
)
_MAX_BACKSLASHES: Final = 64
_NEAR: Final = 6 << 10
"""Bytes around an escape that the view includes: more than the longest secret. A secret without an
escape is found without the view."""


@attrs.frozen
class _Escape:
    start: int
    end: int
    meaning: bytes


def find_views(text: bytes) -> Iterator[WithoutNuls | Unescaped]:
    """Yield all other readings of a text that must also be searched."""
    if b"\0" in text:
        yield WithoutNuls(text)
    if escapes := list(_escapes_in(text)):
        yield _unescaped(text, escapes)


class WithoutNuls:
    """The text without NULs, which decodes UTF-16 and UTF-32 of ASCII in either byte order."""

    def __init__(self, original: bytes) -> None:
        self._original = original
        self.text = original.replace(b"\0", b"")

    def origin(self, at: int) -> int:
        """Return the position in the original of the byte at position ``at``."""
        low, high = at, len(self._original)
        while low < high:  # the first prefix with more than `at` bytes of the text
            middle = (low + high) // 2
            if middle + 1 - self._original.count(b"\0", 0, middle + 1) > at:
                high = middle
            else:
                low = middle + 1
        return low


@attrs.frozen
class Unescaped:
    """The text around escapes, with escapes replaced and terminal colours removed."""

    text: bytes = attrs.field(repr=False)
    _starts: Sequence[int]
    _origins: Sequence[int]

    def origin(self, at: int) -> int:
        """Return the position in the original of the byte at position ``at``."""
        part = bisect_right(self._starts, at) - 1
        return self._origins[part] + at - self._starts[part]


def _unescaped(original: bytes, escapes: Iterable[_Escape]) -> Unescaped:
    parts: list[bytes] = []
    starts: list[int] = []
    origins: list[int] = []
    length = at = 0

    def add(part: bytes, origin: int) -> None:
        nonlocal length
        starts.append(length)
        origins.append(origin)
        parts.append(part)
        length += len(part)

    for escape in escapes:
        if escape.start - at > 2 * _NEAR:
            if at:
                add(original[at : at + _NEAR] + b"\n", at)
            at = escape.start - _NEAR
        add(original[at : escape.start], at)
        add(escape.meaning, escape.start)
        at = escape.end
    add(original[at : at + _NEAR], at)
    return Unescaped(b"".join(parts), starts, origins)


def _escapes_in(text: bytes) -> Iterator[_Escape]:
    end = 0
    for mark in _MARK.finditer(text.translate(_MARKS)):
        at = mark.start()
        pattern = _ESCAPES.get(text[at : at + 2])
        if pattern and at >= end and (escape := pattern.match(text, at)):
            start, end = _start(text, at, end), escape.end()
            yield _Escape(start, end, _meaning(escape))


def _start(text: bytes, at: int, least: int) -> int:
    """Return the start of an escape, including the backslashes of text that was quoted again."""
    start = at
    if text[at] == ord("\\"):
        least = max(least, at - _MAX_BACKSLASHES)
        while start > least and text[start - 1] == ord("\\"):
            start -= 1
    return start


def _meaning(escape: re.Match[bytes]) -> bytes:
    if escape[0] == b"\\/":
        return b"/"
    kind = escape.lastgroup
    if kind is None:
        return b""
    if kind == "quote":
        return b'"'
    return bytes((int(escape[kind], {"decimal": 10, "octal": 8}.get(kind, 16)),))
