"""Other readings of the same bytes: without NULs (UTF-16, UTF-32), and with escapes replaced.

Pure. A view knows where each of its bytes stands in the original.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol

import attrs

__all__ = ["View", "views_of"]

# Each begins with a literal, so that searching a text without any is cheap.
_ESCAPES: Final = (
    re.compile(rb"\x1b\[[0-9;]{0,20}[mK]"),
    re.compile(rb"\\x1b\[[0-9;]{0,20}[mK]"),
    re.compile(rb"\\u001[bB]\[[0-9;]{0,20}[mK]"),
    re.compile(rb"\\u00(?P<hex>[0-7][0-9A-Fa-f])"),
    re.compile(rb"\\/"),
    re.compile(rb"%(?P<hex>2[0-9A-Fa-f])"),
    re.compile(rb"%(?P<hex>3[0-9A-Fa-f])"),
    re.compile(rb"%(?P<hex>40)"),
)


class View(Protocol):
    """A reading of some bytes."""

    @property
    def text(self) -> bytes:
        """Return what is read."""

    def origin(self, at: int) -> int:
        """Return where the byte at ``at`` of :attr:`text` stands in the original."""


def views_of(text: bytes) -> Iterator[View]:
    """Yield every other reading that is worth a search."""
    if b"\0" in text:
        yield WithoutNuls(text)
    if escapes := _escapes_in(text):
        yield unescaped(text, escapes)


class WithoutNuls:
    """The text without its NULs: what UTF-16 and UTF-32 make of ASCII, in either byte order."""

    def __init__(self, original: bytes) -> None:
        self._original = original
        self.text = original.replace(b"\0", b"")

    def origin(self, at: int) -> int:
        """Return where the byte at ``at`` of the text stands in the original."""
        low, high = at, len(self._original)
        while low < high:  # the first prefix that holds more than `at` bytes of the text
            middle = (low + high) // 2
            if middle + 1 - self._original.count(b"\0", 0, middle + 1) > at:
                high = middle
            else:
                low = middle + 1
        return low


@attrs.frozen
class Unescaped:
    """The text with percent and JSON escapes replaced and what colours a terminal removed."""

    text: bytes = attrs.field(repr=False)
    _starts: Sequence[int]
    _origins: Sequence[int]

    def origin(self, at: int) -> int:
        """Return where the byte at ``at`` of the text stands in the original."""
        part = bisect_right(self._starts, at) - 1
        return self._origins[part] + at - self._starts[part]


def unescaped(original: bytes, escapes: Iterable[re.Match[bytes]]) -> Unescaped:
    """Return the view of a text whose escapes are replaced, once."""
    parts: list[bytes] = []
    starts: list[int] = []
    origins: list[int] = []
    length = at = 0
    for escape in escapes:
        if escape.start() < at:
            continue
        for part, origin in (
            (original[at : escape.start()], at),
            (_meaning(escape), escape.start()),
        ):
            starts.append(length)
            origins.append(origin)
            parts.append(part)
            length += len(part)
        at = escape.end()
    return Unescaped(b"".join((*parts, original[at:])), (*starts, length), (*origins, at))


def _escapes_in(text: bytes) -> list[re.Match[bytes]]:
    found = [escape for pattern in _ESCAPES for escape in pattern.finditer(text)]
    return sorted(found, key=lambda escape: escape.start())


def _meaning(escape: re.Match[bytes]) -> bytes:
    if escape[0] == b"\\/":
        return b"/"
    digits = escape.groupdict().get("hex")
    return bytes.fromhex(digits.decode()) if digits else b""
