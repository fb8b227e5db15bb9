"""Finds the starts of containers inside other content; also decodes PNG pictures.

After a script, or in a PDF, a picture, a database or a pickle, no mark precedes a compressed part.
A few bytes are therefore decoded at each apparent start; a start counts if this succeeds.

The compressed texts and profiles of PNG pictures are decoded. Pixels are skipped: they contain no
text, and decoding them would cost far more than everything else.
"""

from __future__ import annotations

import codecs
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import Final

import attrs

from clawblox.checkpoint.secrets.containers.archives import ZipMember
from clawblox.checkpoint.secrets.containers.decoder import (
    Decoder,
    EntryDecoder,
    Inflate,
    OuterContent,
    StreamDecoder,
    UnsearchableContainer,
    is_zlib,
)
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
    refusing_opener,
)
from clawblox.checkpoint.secrets.containers.git import (
    PackDecoder,
    first_entry_stream,
    is_pack_header,
)

_MAGIC: Final = b"\x89PNG\r\n\x1a\n"
_HEADER_SIZE: Final = 8
_CHECKSUM_SIZE: Final = 4
_LAST: Final = b"IEND"
_TEXTS: Final = (b"zTXt", b"iCCP", b"iTXt")
_MAX_NAMES: Final = 64 << 10
"""Maximum bytes of the names that precede a text."""


def is_png(head: bytes) -> bool:
    """Return whether ``head`` is the start of a PNG picture."""
    return head.startswith(_MAGIC)


class PngDecoder(EntryDecoder):
    """Decodes the compressed texts of a picture.

    Args:
        outer: The content that contains the picture.
        where: Suffix for the names of the texts.
    """

    def _decode(self) -> Iterator[None]:
        yield from self._pass(len(_MAGIC))
        kind = b""
        while kind != _LAST:
            header = yield from self._read(_HEADER_SIZE)
            size, kind = int.from_bytes(header[:4], "big"), header[4:]
            if not kind.isalpha():
                return
            if kind in _TEXTS:
                self._entry = _Text(self._outer, kind, self._where)
            yield from self._pass(size, self._entry)
            self.close()
            yield from self._pass(_CHECKSUM_SIZE)


class _Text(Decoder):
    """The data of a text chunk: its names, then a zlib stream or plain text.

    Args:
        outer: The content that contains the picture.
        kind: Kind of the chunk.
        where: Suffix for the name of the text, which is the kind of the chunk.
    """

    def __init__(self, outer: OuterContent, kind: bytes, where: str) -> None:
        super().__init__()
        self._outer = outer
        self._kind = kind
        self._where = where

    def _decode(self) -> Iterator[None]:
        yield from self._skip_name()
        if self._kind == b"iTXt":
            flags = yield from self._read(2)
            if not flags[0]:  # the text is not compressed
                yield from self._pass(sys.maxsize)
            yield from self._skip_name()  # the language
            yield from self._skip_name()  # the keyword in that language
        else:
            yield from self._read(1)  # the method
        while not self._data:
            yield
        inside = self._outer.spawn(self._kind.decode() + self._where)
        self._entry = StreamDecoder(inside, Inflate, sure_after=1)
        yield from self._pass(sys.maxsize, self._entry)

    def _skip_name(self) -> Iterator[None]:
        while b"\0" not in self._data:
            if len(self._data) > _MAX_NAMES:
                raise UnsearchableContainer("picture with a text of an endless name")
            yield
        self._data = self._data.partition(b"\0")[2]


_BEGINNING: Final = 4096
"""Number of bytes that show whether a container starts here; windows overlap by more."""

_A_WHILE: Final = 512
"""Number of deflate bytes in a trial; noise may decode to many bytes, but not for this long."""

_MOST: Final = 16 << 10
"""Maximum decoded bytes of a trial."""

_LEAST: Final = 64
"""Minimum decoded bytes of a stream that does not end within the trial."""


def beginnings(
    text: bytes, begin: int, end: int, *, is_start: bool, is_deepest: bool
) -> tuple[int, ...]:
    """Return the positions at which containers start, in order.

    Args:
        text: A piece of content, and the bytes after it.
        begin: Start of the search.
        end: End of the search.
        is_start: Whether the content itself starts at ``begin``.
        is_deepest: Whether no further container may be opened; uncertain starts are then ignored.
    """
    starts = set() if _is_text(text) else set(_inner_beginnings(text, begin, end))
    head = text[begin : begin + HEAD_SIZE]
    if is_start and opener_for(head) and not (is_deepest and is_doubtful(head)):
        starts.add(begin)
    return tuple(sorted(starts))


def opener_at(text: bytes, at: int, *, is_start: bool) -> Opener | None:
    """Return the opener for the container at a position; None if no container starts there.

    Args:
        text: A piece of content.
        at: A position from :func:`beginnings`.
        is_start: Whether the content itself starts there.
    """
    if is_start and (opener := opener_for(text[at : at + HEAD_SIZE])):
        return opener
    head = text[at : at + _BEGINNING]
    return next((opener for kind in _KINDS if (opener := kind.opener(head))), None)


def _is_text(text: bytes) -> bool:
    """Return whether bytes are plain text: compressed data is not UTF-8, and archives have NULs."""
    if text.isascii():
        return b"\0" not in text
    # The piece may start and end within a character.
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
    """A kind of container that can start anywhere.

    Attributes:
        pair: Two bytes at or near its start.
        before: Number of its bytes before the pair; negative if the container starts after the
            pair.
        opener: Returns the opener for a container with these first bytes; None if they are of
            another kind.
    """

    pair: bytes
    before: int
    opener: Callable[[bytes], Opener | None]


def _if(is_kind: Callable[[bytes], bool], opener: Opener) -> Callable[[bytes], Opener | None]:
    return lambda head: opener if is_kind(head) else None


def _gzip(head: bytes) -> Opener | None:
    return open_gzip if is_gzip(head) and _is_stream(head, 31) else None


def _zlib(head: bytes) -> Opener | None:
    return open_zlib if is_zlib(head) and _is_stream(head, 15) else None


def _zip(head: bytes) -> Opener | None:
    member = ZipMember.parse(head)
    return member.open if member else None


def _pack(head: bytes) -> Opener | None:
    stream = first_entry_stream(head) if is_pack_header(head) else b""
    return PackDecoder if is_zlib(stream) and _is_stream(stream, 15) else None


def _seven_zip(head: bytes) -> Opener | None:
    is_real = head.startswith(_SEVEN_ZIP) and _has_checksum(head[8:12], head[12:32], 32)
    return refusing_opener("7z archive") if is_real else None


def _rar(head: bytes) -> Opener | None:
    if head.startswith(b"Rar!\x1a\x07\x01\x00"):
        is_real = _has_checksum(head[8:12], head[12 : 13 + head[12]] if len(head) > 12 else b"", 32)
    else:
        size = int.from_bytes(head[12:14], "little")
        is_real = head.startswith(_RAR) and _has_checksum(head[7:9], head[9 : 7 + size], 16)
    return refusing_opener("rar archive") if is_real else None


def _is_stream(head: bytes, window_bits: int) -> bool:
    inflate = zlib.decompressobj(window_bits)
    beginning = head[:_A_WHILE]
    try:
        decoded = inflate.decompress(beginning, _MOST)
        if not inflate.eof and decoded[-_LEAST:] in beginning:
            # Five matching bytes may start an uncompressed block, which is searched unchanged. Only
            # a correct checksum proves a stream.
            decoded += inflate.decompress(head[_A_WHILE:], _MOST)
            return inflate.eof
    except zlib.error:
        return False
    return len(decoded) > 0 if inflate.eof else len(decoded) >= _LEAST


def _has_checksum(checksum: bytes, data: bytes, bits: int) -> bool:
    return bool(data) and zlib.crc32(data) % (1 << bits) == int.from_bytes(checksum, "little")


_SEVEN_ZIP: Final = b"7z\xbc\xaf\x27\x1c"
_RAR: Final = b"Rar!\x1a\x07\x00"

_KINDS: Final = (
    _Kind(b"PN", 1, _if(is_png, PngDecoder)),
    _Kind(b"PK", 0, _zip),
    _Kind(b"PA", 0, _pack),
    _Kind(b"\x1f\x8b", 0, _gzip),
    _Kind(b"BZ", 0, _if(is_bzip2, open_bzip2)),
    _Kind(b"7z", 1, _if(is_xz, open_xz)),
    _Kind(b"7z", 0, _seven_zip),
    _Kind(b"!\x1a", 3, _rar),
    _Kind(b"\x28\xb5", 0, _if(is_zstd, open_zstd)),
    # Zlib windows of less than 32 KiB are rare, but their first bytes are common. They are expected
    # only at the start of a stream in a PDF, after a line that ends with "stream".
    *(_Kind(bytes((0x78, flags)), 0, _zlib) for flags in (0x01, 0x5E, 0x9C, 0xDA)),
    _Kind(b"m\n", -2, _zlib),
    _Kind(b"m\r", -3, _zlib),
)
_FURTHEST: Final = max(abs(kind.before) for kind in _KINDS)
_BY_PAIR: Final[dict[bytes, list[_Kind]]] = {}
for _kind in _KINDS:
    _BY_PAIR.setdefault(_kind.pair, []).append(_kind)

# The first bytes and the second bytes of the pairs are character classes, so a single search finds
# all pairs.
_FIRST: Final = frozenset(kind.pair[0] for kind in _KINDS)
_SECOND: Final = frozenset(kind.pair[1] for kind in _KINDS)
_MARK: Final = re.compile(rb"AB")
_MARKS: Final = bytes(
    ord("A") if byte in _FIRST else ord("B") if byte in _SECOND else ord(" ") for byte in range(256)
)
