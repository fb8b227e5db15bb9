"""Zip archives, member by member as their bytes pass: wheels, jars, office documents.

Members are found by their local headers, not by the directory at the end: what no directory
names is found too, and so is an archive behind a script. Stored members are content of the
archive itself; they are searched once more for what they contain.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

import attrs

from clawblox.checkpoint.secrets.container import Host, Refusal, Sink, Stream
from clawblox.checkpoint.secrets.streams import Codec, Damaged, Inflate, bunzip2, unxz, zstd_codec

__all__ = ["ZipDecoder"]

_MAGIC: Final = b"PK\x03\x04"
_FIXED: Final = struct.Struct("<4s5H3I2H")
_SATURATED: Final = 0xFFFFFFFF
_IS_ENCRYPTED: Final = 0x1
_SIZE_FOLLOWS: Final = 0x8
_MAX_VERSION: Final = 63
_STORED: Final = 0
_METHODS: Final = frozenset((*range(15), 16, 18, 19, *range(93, 100)))
_CODECS: Final[dict[int, Callable[[], Codec]]] = {
    8: lambda: Inflate(-15),
    12: bunzip2,
    95: unxz,
}
_ZSTD: Final = 93


class ZipDecoder:
    """Finds the members of a zip archive.

    Args:
        host: The content.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._member: _Member | None = None
        self._pending = b""

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the archive."""
        rest: bytes | None = data
        while rest:
            rest = self._read(self._member, rest) if self._member else self._find(rest)

    def close(self) -> None:
        """Close the member that is open."""
        if self._member:
            self._member.inside.close()

    def _find(self, data: bytes) -> bytes | None:
        data = self._pending + data
        at = data.find(_MAGIC)
        if at < 0:
            self._pending = data[-len(_MAGIC) + 1 :]
            return None
        data = data[at:]
        header = _Header.parse(data)
        self._pending = b"" if header else data
        if not header:
            return None
        if not header.is_plausible:
            return data[len(_MAGIC) :]
        self._member = self._open(header)
        return data[header.size :]

    def _open(self, header: _Header) -> _Member | None:
        codec = zstd_codec() if header.method == _ZSTD else _CODECS.get(header.method)
        if header.flags & _IS_ENCRYPTED:
            self._host.refuse("encrypted member")
        elif codec:
            inside = self._host.spawn(header.name)
            return _Member(inside, Stream(codec(), inside), header.content_size)
        elif header.method != _STORED:
            self._host.refuse(f"compression method {header.method}")
        elif header.content_size:
            return _Member(self._host.spawn(header.name), None, header.content_size)
        return None  # the next header is found wherever it is

    def _read(self, member: _Member, data: bytes) -> bytes | None:
        try:
            rest = member.feed(data)
        except Damaged:
            rest = self._refuse("damaged member")
        except Refusal as refusal:
            rest = self._refuse(str(refusal))
        if rest is not None:
            member.inside.close()
            self._member = None
        return rest

    def _refuse(self, reason: str) -> bytes:
        self._host.refuse(reason)
        return b""


class _Member:
    def __init__(self, inside: Sink, stream: Stream | None, size: int | None) -> None:
        self.inside = inside
        self._stream = stream
        self._left = size  # None: until its stream ends

    def feed(self, data: bytes) -> bytes | None:
        if self._left is None:
            assert self._stream
            return self._stream.feed(data)
        piece, rest = data[: self._left], data[self._left :]
        self._left -= len(piece)
        if not self._stream:
            self.inside.feed(piece)
        elif self._stream.feed(piece) is not None:
            self._stream = None
        return None if self._left else rest


@attrs.frozen
class _Header:
    """A local header.

    Attributes:
        size: Of the header itself.
        name: Of the member.
        flags: As they are there.
        method: How it is compressed.
        content_size: Of the compressed member; None when the header does not say it.
        is_plausible: Whether it is a header, and not the same four bytes by chance.
    """

    size: int
    name: str
    flags: int
    method: int
    content_size: int | None
    is_plausible: bool

    @classmethod
    def parse(cls, data: bytes) -> _Header | None:
        """Read a header; return None where it is not complete."""
        if len(data) < _FIXED.size:
            return None
        _, version, flags, method, _, _, _, packed, full, name_size, extra_size = (
            _FIXED.unpack_from(data)
        )
        is_plausible = version & 0xFF <= _MAX_VERSION and method in _METHODS and name_size > 0
        size = _FIXED.size + name_size + extra_size
        if is_plausible and len(data) < size:
            return None
        name = data[_FIXED.size : _FIXED.size + name_size].decode(errors="replace")
        if packed == _SATURATED:
            packed = _packed_size(data[_FIXED.size + name_size : size], full)
        content_size = None if flags & _SIZE_FOLLOWS and not packed else packed
        return cls(size, name, flags, method, content_size, is_plausible)


def _packed_size(extra: bytes, full: int) -> int:
    # Fields of zip64 are there only when they are saturated, the full size first.
    while len(extra) >= 4:
        kind, size = struct.unpack_from("<2H", extra)
        at = 8 if full == _SATURATED else 0
        if kind == 1 and size >= at + 8:
            return int.from_bytes(extra[4 + at : 12 + at], "little")
        extra = extra[4 + size :]
    return 0
