"""Recognises containers by their first bytes, never by their names."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from typing import Final

from clawblox.checkpoint.secrets.containers.archives import TarDecoder, is_tar_header
from clawblox.checkpoint.secrets.containers.decoder import (
    Decoder,
    Inflate,
    OuterContent,
    StreamDecoder,
    UnsearchableContainer,
    bunzip2,
    is_zlib,
    unxz,
    zstd_codec,
)
from clawblox.checkpoint.secrets.containers.git import ObjectContent, PackDecoder, is_pack_header

HEAD_SIZE: Final = 512
"""Number of first bytes that suffice to recognise every known container."""

Opener = Callable[[OuterContent, str], Decoder]
"""Returns a decoder, given the outer content and a suffix for the names of its parts."""

_GZIP: Final = b"\x1f\x8b\x08"
_XZ: Final = b"\xfd7zXZ\0"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_BZIP2: Final = b"BZh"
_BZIP2_BLOCKS: Final = (b"1AY&SY", b"\x17\x72\x45\x38\x50\x90")
_CLOSED: Final = {
    b"7z\xbc\xaf\x27\x1c": "7z archive",
    b"Rar!\x1a\x07": "rar archive",
    b"\x04\x22\x4d\x18": "lz4 stream",
    b"LZIP\x01": "lzip stream",
}
_MAGIC: Final = re.compile(
    b"|".join(map(re.escape, (_GZIP, _XZ, _ZSTD, _BZIP2, b"PACK", *_CLOSED)))
    + rb"|[\x08\x18\x28\x38\x48\x58\x68\x78][^\x20-\x3f\x60-\x7f\xa0-\xbf\xe0-\xff]"
)
"""Pattern of the first bytes of all containers except tar; other content rarely matches."""

_SURE_ZLIB: Final = 1024
"""Number of decoded bytes that prove a zlib stream; its first two bytes do not."""


def opener_for(head: bytes) -> Opener | None:
    """Return the opener for a container; None if the content is not a container.

    Args:
        head: The first :data:`HEAD_SIZE` bytes of the content, or all bytes of shorter content.
    """
    if not _MAGIC.match(head):
        return TarDecoder if is_tar_header(head) else None
    if opener := next((opener for is_kind, opener in _KINDS if is_kind(head)), None):
        return opener
    closed = next((what for magic, what in _CLOSED.items() if head.startswith(magic)), None)
    return refusing_opener(closed) if closed else None


def is_doubtful(head: bytes) -> bool:
    """Return whether a container recognised by :func:`opener_for` is uncertain.

    Args:
        head: As in :func:`opener_for`.
    """
    if not is_zlib(head):
        return False
    inflate = zlib.decompressobj()
    try:
        decoded = inflate.decompress(head, _SURE_ZLIB)
    except zlib.error:
        return True
    return not inflate.eof and len(decoded) < _SURE_ZLIB and len(head) < HEAD_SIZE


def is_gzip(head: bytes) -> bool:
    """Return whether ``head`` is the start of a gzip stream (RFC 1952)."""
    return (
        head.startswith(_GZIP)
        and len(head) >= 10
        and head[3] < 0x20
        and head[8] in (0, 2, 4)
        and (head[9] <= 13 or head[9] == 255)
    )


def is_bzip2(head: bytes) -> bool:
    """Return whether ``head`` is the start of a bzip2 stream."""
    return head.startswith(_BZIP2) and head[4:10] in _BZIP2_BLOCKS


def is_xz(head: bytes) -> bool:
    """Return whether ``head`` is the start of an xz stream, with the correct checksum."""
    flags, checksum = head[6:8], head[8:12]
    return head.startswith(_XZ) and zlib.crc32(flags) == int.from_bytes(checksum, "little")


def is_zstd(head: bytes) -> bool:
    """Return whether ``head`` is the start of a Zstandard frame (RFC 8878)."""
    if not head.startswith(_ZSTD) or len(head) < 16:
        return False
    descriptor = head[4]
    single = descriptor >> 5 & 1
    sizes = (not single, (0, 1, 2, 4)[descriptor & 3], (single, 2, 4, 8)[descriptor >> 6])
    at = 5 + sum(sizes)
    block = int.from_bytes(head[at : at + 3], "little")
    return not descriptor & 8 and block >> 1 & 3 != 3 and block >> 3 <= 128 << 10


def open_gzip(outer: OuterContent, where: str = "") -> Decoder:
    """Return a decoder of gzip streams.

    Raises:
        Refusal: Too many containers are nested.
    """
    return StreamDecoder(outer.spawn(f"gzip{where}"), lambda: Inflate(31), magic=_GZIP)


def open_bzip2(outer: OuterContent, where: str = "") -> Decoder:
    """Return a decoder of bzip2 streams; in inner content, damage before decoded bytes is ignored.

    Raises:
        Refusal: Too many containers are nested.
    """
    inside = outer.spawn(f"bzip2{where}")
    return StreamDecoder(inside, bunzip2, magic=_BZIP2, sure_after=1 if where else 0)


def open_xz(outer: OuterContent, where: str = "") -> Decoder:
    """Return a decoder of xz streams.

    Raises:
        Refusal: Too many containers are nested.
    """
    return StreamDecoder(outer.spawn(f"xz{where}"), unxz, magic=_XZ)


def open_zlib(outer: OuterContent, where: str = "") -> Decoder:
    """Return a decoder of a zlib stream, perhaps a loose object of git.

    Raises:
        Refusal: Too many containers are nested.
    """
    inside = ObjectContent(outer.spawn(f"zlib{where}"))
    return StreamDecoder(inside, Inflate, sure_after=_SURE_ZLIB)


def open_zstd(outer: OuterContent, where: str = "") -> Decoder:
    """Return a decoder of Zstandard frames.

    Raises:
        Refusal: This Python cannot decode them, or too many containers are nested.
    """
    codec = zstd_codec()
    if codec is None:
        raise UnsearchableContainer(
            "zstd stream; Python 3.14 or the package zstandard can decode it"
        )
    sure_after = 1 if where else 0
    return StreamDecoder(outer.spawn(f"zstd{where}"), codec, magic=_ZSTD, sure_after=sure_after)


def refusing_opener(what: str) -> Opener:
    """Return an opener that refuses a container without a decoder.

    Args:
        what: Name of the container for findings.

    Raises:
        Refusal: Always; raised by the opener itself.
    """

    def refuse(_outer: OuterContent, _where: str) -> Decoder:
        raise UnsearchableContainer(what)

    return refuse


_KINDS: Final[tuple[tuple[Callable[[bytes], bool], Opener], ...]] = (
    (is_pack_header, PackDecoder),
    (is_gzip, open_gzip),
    (is_bzip2, open_bzip2),
    (is_xz, open_xz),
    (lambda head: head.startswith(_ZSTD), open_zstd),
    (is_zlib, open_zlib),
    (is_tar_header, TarDecoder),
)
