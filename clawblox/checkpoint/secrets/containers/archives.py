"""Members of zip archives (also wheels, jars, office documents) and of tar archives.

Members of a zip archive are found by their local headers rather than by the directory at the end.
This also finds members missing in the directory, and an archive after a script. A stored member is
searched as part of the archive, and again as separate content.

The bytes of a tar archive's members are searched as part of the archive. Each member is also
searched as separate content, so that containers in it are recognised.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final

import attrs

from clawblox.checkpoint.secrets.containers.decoder import (
    Codec,
    CompressedStream,
    Damaged,
    Decoder,
    EntryDecoder,
    Inflate,
    OuterContent,
    UnsearchableContainer,
    bunzip2,
    unxz,
    zstd_codec,
)

_MAGIC: Final = b"PK\x03\x04"
_FIXED: Final = struct.Struct("<4s5H3I2H")
_SATURATED: Final = 0xFFFFFFFF
_IS_ENCRYPTED: Final = 0x1
_SIZE_FOLLOWS: Final = 0x8
_RESERVED: Final = 0xC780
_MAX_VERSION: Final = 63
_STORED: Final = 0
_METHODS: Final = frozenset((*range(15), 16, 18, 19, *range(93, 100)))
_CODECS: Final[dict[int, Callable[[], Codec]]] = {
    8: lambda: Inflate(-15),
    12: bunzip2,
    95: unxz,
}
_ZSTD: Final = 93


@attrs.frozen
class ZipMember:
    """A member according to its local header.

    Attributes:
        header_size: Size of the header in bytes.
        name: Name of the member, perhaps truncated.
        is_encrypted: Whether it needs a password.
        method: Compression method.
        content_size: Compressed size in bytes; None if the header does not contain it.
    """

    header_size: int
    name: str
    is_encrypted: bool
    method: int
    content_size: int | None

    @classmethod
    def parse(cls, data: bytes) -> ZipMember | None:
        """Parse a header; return None if the bytes are not a header or the member is empty."""
        if len(data) < _FIXED.size or not data.startswith(_MAGIC):
            return None
        _, version, flags, method, _, _, _, packed, full, name_size, extra_size = (
            _FIXED.unpack_from(data)
        )
        name = data[_FIXED.size : _FIXED.size + name_size]
        is_plausible = (
            version & 0xFF <= _MAX_VERSION
            and method in _METHODS
            and not flags & _RESERVED
            and name
            and min(name) >= ord(" ")
        )
        size = _FIXED.size + name_size + extra_size
        if packed == _SATURATED:
            packed = _packed_size(data[_FIXED.size + name_size : size], full)
        content_size = None if flags & _SIZE_FOLLOWS and not packed else packed
        # A stored member of unknown size is searched only as part of the archive.
        has_content = content_size or (content_size is None and method != _STORED)
        if not is_plausible or not has_content:
            return None
        is_encrypted = bool(flags & _IS_ENCRYPTED)
        return cls(size, name.decode(errors="replace"), is_encrypted, method, content_size)

    def open(self, outer: OuterContent, _where: str) -> Decoder:
        """Return a decoder of the member.

        Raises:
            Refusal: The member is encrypted, its compression method is unknown, or too many
                containers are nested.
        """
        codec = zstd_codec() if self.method == _ZSTD else _CODECS.get(self.method)
        if self.is_encrypted:
            raise UnsearchableContainer("encrypted member")
        if not codec and self.method != _STORED:
            raise UnsearchableContainer(f"compression method {self.method}")
        return _MemberDecoder(outer, self, codec)


class _MemberDecoder(EntryDecoder):
    """Decodes a member.

    Args:
        outer: The content that contains the archive.
        member: The member.
        codec: Returns a decoder of its content; None for a stored member.
    """

    def __init__(
        self, outer: OuterContent, member: ZipMember, codec: Callable[[], Codec] | None
    ) -> None:
        super().__init__(outer)
        self._member = member
        self._entry = inside = outer.spawn(member.name)
        self._stream = CompressedStream(codec(), inside) if codec else None

    def _decode(self) -> Iterator[None]:
        yield from self._pass(self._member.header_size)
        try:
            if self._member.content_size is not None:
                yield from self._pass(self._member.content_size, self._stream or self._entry)
            else:
                assert self._stream, "a member without a size is compressed"
                yield from self._decompress(self._stream)
        except Damaged:
            raise UnsearchableContainer("damaged member") from None


def _packed_size(extra: bytes, full: int) -> int:
    # zip64 contains only the fields that are saturated in the header, starting with the full size.
    while len(extra) >= 4:
        kind, size = struct.unpack_from("<2H", extra)
        at = 8 if full == _SATURATED else 0
        if kind == 1 and size >= at + 8:
            return int.from_bytes(extra[4 + at : 12 + at], "little")
        extra = extra[4 + size :]
    return 0


BLOCK: Final = 512
_CHECKSUM: Final = slice(148, 156)
_FILES: Final = b"\0" + b"07S"


def is_tar_header(block: bytes) -> bool:
    """Return whether a block is the header of a member, according to its checksum."""
    if len(block) < BLOCK or not block[0]:
        return False
    digits = block[_CHECKSUM].strip(b" \0")
    if not digits or digits.translate(None, b"01234567"):
        return False
    unsigned = sum(block[:148]) + sum(block[156:BLOCK]) + 8 * ord(" ")
    return int(digits, 8) == unsigned


class TarDecoder(EntryDecoder):
    """Decodes the members of a tar archive.

    Args:
        outer: The content that contains the archive.
        where: Suffix for the names of members.
    """

    def _decode(self) -> Iterator[None]:
        is_ending = False  # two blocks of NULs end an archive
        while True:
            block = yield from self._read(BLOCK)
            if is_tar_header(block):
                size = _number(block[124:136])
                if size and block[156] in _FILES:
                    self._entry = self._outer.spawn(_name(block) + self._where)
                yield from self._pass(size, self._entry)
                self.close()
                yield from self._pass(-size % BLOCK)
            elif is_ending:
                return
            elif any(block):
                self._data = block + self._data
                return
            is_ending = not any(block)


def _number(field: bytes) -> int:
    if field[0] & 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field.strip(b" \0")
    return 0 if digits.translate(None, b"01234567") or not digits else int(digits, 8)


def _name(block: bytes) -> str:
    parts = [block[:100]]
    if block[257:262] == b"ustar" and block[345]:
        parts.insert(0, block[345:500])
    return "/".join(part.split(b"\0")[0].decode(errors="replace") for part in parts)
