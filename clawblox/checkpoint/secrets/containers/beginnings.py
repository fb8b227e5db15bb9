"""Where something compressed begins in a piece of content, wherever that is. Pure.

Behind a script, in a PDF, a picture, a database or a pickle nothing says where a compressed part
begins, only how. What begins like one is therefore decoded a little, and counts when that works.
"""

from __future__ import annotations

import codecs
import functools
import re
import zlib
from collections.abc import Callable, Iterator
from typing import Final

import attrs

from clawblox.checkpoint.secrets.containers.decoder import Decoder, Host, Refusal
from clawblox.checkpoint.secrets.containers.detect import (
    HEAD_SIZE,
    Opener,
    is_bzip2,
    is_doubtful,
    is_gzip,
    is_xz,
    is_zstd,
    open_bzip2,
    open_gzip,
    open_xz,
    open_zlib,
    open_zstd,
    opener_for,
)
from clawblox.checkpoint.secrets.containers.git_packs import (
    PackDecoder,
    is_pack_header,
    stream_of_first_entry,
)
from clawblox.checkpoint.secrets.containers.pngs import PngDecoder, is_png
from clawblox.checkpoint.secrets.containers.streams import is_zlib
from clawblox.checkpoint.secrets.containers.zips import Member

__all__ = ["beginnings", "opener_at"]

_BEGINNING: Final = 4096
"""This many bytes tell whether something begins here; windows overlap by more."""

_A_WHILE: Final = 512
"""This many bytes of deflate are decoded. Noise can decode to much, but not for that long."""

_MOST: Final = 16 << 10
"""No more is decoded of it, however small it was made."""

_LEAST: Final = 64
"""What a stream must decode to that does not end in these bytes."""


def beginnings(
    text: bytes, begin: int, end: int, *, is_start: bool, is_deepest: bool
) -> tuple[int, ...]:
    """Return where a container begins.

    Args:
        text: A piece of content, with what follows it.
        begin: Where the search begins.
        end: Where it ends.
        is_start: Whether the content itself begins at ``begin``.
        is_deepest: Whether nothing more can be opened, so that doubtful containers are none.
    """
    found = dict.fromkeys(() if _is_text(text) else _inner_beginnings(text, begin, end))
    head = text[begin : begin + HEAD_SIZE]
    if is_start and opener_for(head) and not (is_deepest and is_doubtful(head)):
        found[begin] = None
    return tuple(sorted(found))


def opener_at(text: bytes, at: int, *, is_start: bool) -> Opener | None:
    """Return what opens the container that begins somewhere; None where none does.

    Args:
        text: A piece of content.
        at: One of its :func:`beginnings`.
        is_start: Whether the content itself begins there.
    """
    if is_start and (opener := opener_for(text[at : at + HEAD_SIZE])):
        return opener
    head = text[at : at + _BEGINNING]
    return next((opener for kind in _KINDS if (opener := kind.opener(head))), None)


def _is_text(text: bytes) -> bool:
    """Return whether there is nothing compressed: that is never UTF-8, and an archive has NULs."""
    if text.isascii():
        return b"\0" not in text
    # The piece may begin and end within a character.
    first = next((at for at, byte in enumerate(text[:4]) if byte & 0xC0 != 0x80), 0)
    try:
        codecs.utf_8_decode(text[first:], "strict", False)
    except UnicodeDecodeError:
        return False
    return b"\0" not in text


def _inner_beginnings(text: bytes, begin: int, end: int) -> Iterator[int]:
    for mark in _MARK.finditer(text.translate(_MARKS), max(0, begin - _FURTHEST), end + _FURTHEST):
        at = mark.start()
        for kind in _BY_PAIR.get(text[at : at + 2], ()):
            start = at - kind.before
            if begin <= start < end and kind.opener(text[start : start + _BEGINNING]):
                yield start


@attrs.frozen
class _Kind:
    """Something that can begin anywhere.

    Attributes:
        pair: Two bytes at or near its beginning.
        before: How many bytes of it stand before them; less than 0 when it begins later.
        opener: Returns what opens that which begins with these bytes; None when it is no such
            thing.
    """

    pair: bytes
    before: int
    opener: Callable[[bytes], Opener | None]


def _gzip(head: bytes) -> Opener | None:
    return open_gzip if is_gzip(head) and _is_stream(head, 31) else None


def _bzip2(head: bytes) -> Opener | None:
    return open_bzip2 if is_bzip2(head) else None


def _xz(head: bytes) -> Opener | None:
    return open_xz if is_xz(head) else None


def _zstd(head: bytes) -> Opener | None:
    return open_zstd if is_zstd(head) else None


def _zlib(head: bytes) -> Opener | None:
    return open_zlib if is_zlib(head) and _is_stream(head, 15) else None


def _zip(head: bytes) -> Opener | None:
    member = Member.parse(head)
    return member.open if member else None


def _pack(head: bytes) -> Opener | None:
    stream = stream_of_first_entry(head) if is_pack_header(head) else b""
    return PackDecoder if is_zlib(stream) and _is_stream(stream, 15) else None


def _png(head: bytes) -> Opener | None:
    return PngDecoder if is_png(head) else None


def _seven_zip(head: bytes) -> Opener | None:
    is_real = head.startswith(_SEVEN_ZIP) and _has_checksum(head[8:12], head[12:32], 32)
    return functools.partial(_refuse, "7z archive") if is_real else None


def _rar(head: bytes) -> Opener | None:
    if head.startswith(b"Rar!\x1a\x07\x01\x00"):
        is_real = _has_checksum(head[8:12], head[12 : 13 + head[12]] if len(head) > 12 else b"", 32)
    else:
        size = int.from_bytes(head[12:14], "little")
        is_real = head.startswith(_RAR) and _has_checksum(head[7:9], head[9 : 7 + size], 16)
    return functools.partial(_refuse, "rar archive") if is_real else None


def _is_stream(head: bytes, window_bits: int) -> bool:
    inflate = zlib.decompressobj(window_bits)
    beginning = head[:_A_WHILE]
    try:
        decoded = inflate.decompress(beginning, _MOST)
        if not inflate.eof and decoded[-_LEAST:] in beginning:
            # A block that is not compressed is five bytes that fit, and searched as it stands.
            # Only a checksum that is right makes it a stream.
            decoded += inflate.decompress(head[_A_WHILE:], _MOST)
            return inflate.eof
    except zlib.error:
        return False
    return len(decoded) > 0 if inflate.eof else len(decoded) >= _LEAST


def _has_checksum(checksum: bytes, data: bytes, bits: int) -> bool:
    return bool(data) and zlib.crc32(data) % (1 << bits) == int.from_bytes(checksum, "little")


def _refuse(what: str, _host: Host, _where: str) -> Decoder:
    raise Refusal(what)


_SEVEN_ZIP: Final = b"7z\xbc\xaf\x27\x1c"
_RAR: Final = b"Rar!\x1a\x07\x00"

_KINDS: Final = (
    _Kind(b"PN", 1, _png),
    _Kind(b"PK", 0, _zip),
    _Kind(b"PA", 0, _pack),
    _Kind(b"\x1f\x8b", 0, _gzip),
    _Kind(b"BZ", 0, _bzip2),
    _Kind(b"7z", 1, _xz),
    _Kind(b"7z", 0, _seven_zip),
    _Kind(b"!\x1a", 3, _rar),
    _Kind(b"\x28\xb5", 0, _zstd),
    # Windows of less than 32 KiB are as rare as their first bytes are frequent. They are looked
    # for where a stream of a PDF begins, behind a line that ends in "stream".
    *(_Kind(bytes((0x78, flags)), 0, _zlib) for flags in (0x01, 0x5E, 0x9C, 0xDA)),
    _Kind(b"m\n", -2, _zlib),
    _Kind(b"m\r", -3, _zlib),
)
_FURTHEST: Final = max(abs(kind.before) for kind in _KINDS)
_BY_PAIR: Final[dict[bytes, list[_Kind]]] = {}
for _kind in _KINDS:
    _BY_PAIR.setdefault(_kind.pair, []).append(_kind)

# Every pair is a byte of one class and a byte of another, so that one step finds all of them.
_FIRST: Final = frozenset(kind.pair[0] for kind in _KINDS)
_SECOND: Final = frozenset(kind.pair[1] for kind in _KINDS)
_MARK: Final = re.compile(rb"AB")
_MARKS: Final = bytes(
    ord("A") if byte in _FIRST else ord("B") if byte in _SECOND else ord(" ") for byte in range(256)
)
