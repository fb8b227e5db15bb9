"""Which container a content is, told by its first bytes and never by its name."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final

from clawblox.checkpoint.secrets.container import Decoder, Host, Refusal, StreamDecoder
from clawblox.checkpoint.secrets.objects import ObjectContent
from clawblox.checkpoint.secrets.packs import PackDecoder, is_pack_header
from clawblox.checkpoint.secrets.streams import Inflate, bunzip2, unxz, zstd_codec
from clawblox.checkpoint.secrets.tars import TarDecoder, is_tar_header
from clawblox.checkpoint.secrets.zips import ZipDecoder

__all__ = ["HEAD_SIZE", "decoder_for", "is_doubtful"]

HEAD_SIZE: Final = 512
"""So many first bytes tell every container that is known."""

Opener = Callable[[Host], Decoder]

_GZIP: Final = b"\x1f\x8b\x08"
_XZ: Final = b"\xfd7zXZ\0"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_BZIP2: Final = b"BZh"
_BZIP2_BLOCKS: Final = (b"1AY&SY", b"\x17\x72\x45\x38\x50\x90")
_PROGRAMS: Final = (b"#!", b"\x7fELF", b"MZ")
_CLOSED: Final = {
    b"7z\xbc\xaf\x27\x1c": "7z archive",
    b"Rar!\x1a\x07": "rar archive",
    b"\x04\x22\x4d\x18": "lz4 stream",
    b"LZIP\x01": "lzip stream",
}
_SURE_ZLIB: Final = 1024
"""Two bytes are no proof of a zlib stream; so many decoded ones are."""


def decoder_for(head: bytes) -> Opener | None:
    """Return what opens the container that begins so; None when it begins like none.

    Args:
        head: The first :data:`HEAD_SIZE` bytes, or all when there are fewer.
    """
    return _stream(head) or _archive(head) or _closed(head)


def is_doubtful(head: bytes) -> bool:
    """Return whether what :func:`decoder_for` takes for a container may be none.

    Args:
        head: As for :func:`decoder_for`.
    """
    if not _is_zlib(head):
        return False
    inflate = zlib.decompressobj()
    try:
        decoded = inflate.decompress(head, _SURE_ZLIB)
    except zlib.error:
        return True
    return not inflate.eof and len(decoded) < _SURE_ZLIB and len(head) < HEAD_SIZE


def _archive(head: bytes) -> Opener | None:
    if head.startswith((b"PK\x03\x04", b"PK\x07\x08PK\x03\x04", *_PROGRAMS)):
        return ZipDecoder
    if is_pack_header(head):
        return PackDecoder
    return TarDecoder if is_tar_header(head) else None


def _stream(head: bytes) -> Opener | None:
    if _is_gzip(head):
        return lambda host: StreamDecoder(host.spawn("gzip"), lambda: Inflate(31), magic=_GZIP)
    if head.startswith(_BZIP2) and head[4:10] in _BZIP2_BLOCKS:
        return lambda host: StreamDecoder(host.spawn("bzip2"), bunzip2, magic=_BZIP2)
    if _is_xz(head):
        return lambda host: StreamDecoder(host.spawn("xz"), unxz, magic=_XZ)
    if head.startswith(_ZSTD):
        return _zstd
    if _is_zlib(head):
        return _zlib
    return None


def _is_gzip(head: bytes) -> bool:
    # Known flags, deflate's own extra flags, a known system (RFC 1952).
    return (
        head.startswith(_GZIP)
        and len(head) >= 10
        and head[3] < 0x20
        and head[8] in (0, 2, 4)
        and (head[9] <= 13 or head[9] == 255)
    )


def _is_xz(head: bytes) -> bool:
    flags, checksum = head[6:8], head[8:12]
    return head.startswith(_XZ) and zlib.crc32(flags) == int.from_bytes(checksum, "little")


def _is_zlib(head: bytes) -> bool:
    # Method deflate, window of at most 32 KiB, no preset dictionary, a multiple of 31 (RFC 1950).
    return (
        len(head) > 2
        and head[0] & 0x8F == 0x08
        and not head[1] & 0x20
        and int.from_bytes(head[:2], "big") % 31 == 0
    )


def _zlib(host: Host) -> Decoder:
    inside = ObjectContent(host.spawn("zlib"))  # the loose objects of git are zlib streams
    return StreamDecoder(inside, Inflate, sure_after=_SURE_ZLIB)


def _zstd(host: Host) -> Decoder:
    codec = zstd_codec()
    if codec is None:
        raise Refusal("zstd stream; Python 3.14 or the package zstandard can decode it")
    return StreamDecoder(host.spawn("zstd"), codec, magic=_ZSTD)


def _closed(head: bytes) -> Opener | None:
    for magic, what in _CLOSED.items():
        if head.startswith(magic):
            return lambda _: _refuse(what)
    return None


def _refuse(what: str) -> Decoder:
    raise Refusal(what)
