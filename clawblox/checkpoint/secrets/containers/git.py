"""Decodes the objects and deltas of git pack files; see gitformat-pack(5)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from clawblox.checkpoint.secrets.containers.decoder import (
    CompressedStream,
    Damaged,
    EntryDecoder,
    Inflate,
    Sink,
    UnsearchableContainer,
    is_zlib,
)

_HEADER_SIZE: Final = 12
_OFFSET_DELTA: Final = 6
_NAMED_DELTA: Final = 7
_NAME_SIZES: Final = (20, 32)
"""Sizes of the name of a delta's base: SHA-1 and SHA-256; the pack does not record the hash."""
_ZLIB_HEADER: Final = 3
_MORE: Final = 0x80
_MAX_VARIABLE: Final = 10
"""Maximum bytes of a number of variable length."""


def is_pack_header(head: bytes) -> bool:
    """Return whether ``head`` is the start of a pack."""
    return head[:4] == b"PACK" and head[4:8] in (b"\0\0\0\2", b"\0\0\0\3")


class PackDecoder(EntryDecoder):
    """Decodes the entries of a pack.

    Args:
        outer: The content that contains the pack.
        where: Suffix for the names of entries.
    """

    def _decode(self) -> Iterator[None]:
        header = yield from self._read(_HEADER_SIZE)
        for _ in range(int.from_bytes(header[8:], "big")):
            while not 0 < (size := _entry_header_size(self._data)) <= len(self._data):
                yield
            inside = self._outer.spawn(f"entry {self._fed - len(self._data)}{self._where}")
            is_delta = self._data[0] >> 4 & 7 in (_OFFSET_DELTA, _NAMED_DELTA)
            self._data = self._data[size:]
            self._entry = Inserts(inside) if is_delta else inside
            try:
                yield from self._decompress(CompressedStream(Inflate(), self._entry))
            except Damaged:
                raise UnsearchableContainer("damaged") from None
            self.close()


def first_entry_stream(pack: bytes) -> bytes:
    """Return the part in ``pack`` of the first entry's compressed stream.

    Args:
        pack: The first bytes of a pack.

    Returns:
        The first bytes of the stream; empty if the header of the entry is incomplete or damaged.
    """
    try:
        size = _entry_header_size(pack[_HEADER_SIZE:])
    except UnsearchableContainer:
        return b""
    return pack[_HEADER_SIZE + size :] if size else b""


def _entry_header_size(data: bytes) -> int:
    """Return the size of an entry's header; 0 if it is incomplete."""
    size = _variable_size(data)
    kind = data[0] >> 4 & 7 if data else 0
    if size and kind == _OFFSET_DELTA:
        base = _variable_size(data[size : size + _MAX_VARIABLE])
        return size + base if base else 0
    return size + _name_size(data[size:]) if size and kind == _NAMED_DELTA else size


def _name_size(data: bytes) -> int:
    """Return the size of the name before a zlib stream."""
    short, long = _NAME_SIZES
    if len(data) < short + _ZLIB_HEADER:
        return short + _ZLIB_HEADER  # incomplete
    return short if is_zlib(data[short:]) else long


def _variable_size(data: bytes) -> int:
    for at, byte in enumerate(data[:_MAX_VARIABLE]):
        if not byte & _MORE:
            return at + 1
    if len(data) >= _MAX_VARIABLE:
        raise UnsearchableContainer("damaged")
    return 0


class Inserts:
    """Passes on the insertions of a delta; copies from the base become line ends.

    Args:
        inside: Receives the bytes.
    """

    def __init__(self, inside: Sink) -> None:
        self._inside = inside
        self._numbers = 2  # sizes of base and result come first
        self._left = 0  # bytes of an insertion or of a copy's operands
        self._is_copy = False

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the delta."""
        at = 0
        inserted: list[bytes] = []
        while at < len(data):
            if self._left:
                piece = data[at : at + self._left]
                self._left -= len(piece)
                inserted.append(b"" if self._is_copy else piece)
                at += len(piece)
            else:
                inserted.append(self._instruct(data[at]))
                at += 1
        self._inside.feed(b"".join(inserted))

    def close(self) -> None:
        """End the content."""
        self._inside.close()

    def _instruct(self, byte: int) -> bytes:
        if self._numbers:
            self._numbers -= not byte & _MORE
            return b""
        self._is_copy = bool(byte & _MORE)
        self._left = (byte & 0x7F).bit_count() if self._is_copy else byte
        return b"\n" if self._is_copy else b""


_HEADER: Final = re.compile(rb"(?:blob|commit|tag|tree) \d{1,20}\0")
_MAX_OBJECT_HEADER: Final = 32
"""Maximum length of an object's header."""


class ObjectContent:
    """Passes on a git object without its header, and other content unchanged.

    Args:
        inside: Receives the bytes.
    """

    def __init__(self, inside: Sink) -> None:
        self._inside = inside
        self._head: bytes | None = b""

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the object."""
        if self._head is None:
            self._inside.feed(data)
            return
        self._head += data
        if len(self._head) >= _MAX_OBJECT_HEADER:
            self._begin(self._head)

    def close(self) -> None:
        """End the content."""
        if self._head is not None:
            self._begin(self._head)
        self._inside.close()

    def _begin(self, head: bytes) -> None:
        self._head = None
        header = _HEADER.match(head)
        self._inside.feed(head[header.end() :] if header else head)
