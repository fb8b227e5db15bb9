"""Compressed streams, decoded in pieces of bounded size."""

from __future__ import annotations

import bz2
import contextlib
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from clawblox.zstd import Frame, find_zstandard

_PIECE: Final = 1 << 17
_SLICE: Final = 512  # four bytes of Zstandard decode to 128 KiB at most
_ERRORS: Final = (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError)


def is_zlib(head: bytes) -> bool:
    """Return whether a zlib stream may begin with these bytes (RFC 1950).

    Its method is deflate, its window at most 32 KiB, it has no preset dictionary, and its first
    two bytes are a multiple of 31.
    """
    return (
        len(head) > 2
        and head[0] & 0x8F == 0x08
        and not head[1] & 0x20
        and int.from_bytes(head[:2], "big") % 31 == 0
    )


class Damaged(Exception):  # noqa: N818 - names the condition
    """A compressed stream cannot be decoded further."""


class Inflate:
    """Deflate with a zlib header, a gzip header, or none.

    Args:
        window_bits: 15 for a zlib header, 31 for a gzip header, -15 for none.
    """

    def __init__(self, window_bits: int = 15) -> None:
        self._inflate = zlib.decompressobj(window_bits)

    def decode(self, data: bytes) -> Iterator[bytes]:
        """Decode the next bytes of the stream; yield pieces of bounded size.

        Raises:
            Damaged: The stream cannot be decoded further.
        """
        piece = b"-"
        # After the end zlib would return the bytes after it again with every call.
        while piece and not self._inflate.eof:
            before = self._inflate.copy()
            try:
                piece = self._inflate.decompress(data, _PIECE)
            except zlib.error as error:
                yield _decodable(before, data)
                raise Damaged from error
            yield piece
            data = self._inflate.unconsumed_tail

    @property
    def is_finished(self) -> bool:
        """Return whether the stream has ended."""
        return self._inflate.eof

    @property
    def rest(self) -> bytes:
        """Return the bytes after the end of the stream, from the last call of ``decode``."""
        return self._inflate.unused_data


def _decodable(inflate: zlib._Decompress, data: bytes) -> bytes:
    """Return what can be decoded before the damage; zlib drops it when it raises."""
    decoded = bytearray()
    with contextlib.suppress(zlib.error):
        for byte in data:
            decoded += inflate.decompress(bytes((byte,)), _PIECE - len(decoded))
            if len(decoded) >= _PIECE:
                break  # the call that raised would not have returned more
    return bytes(decoded)


class _Blockwise:
    """A codec on a decompressor of bz2, lzma or Zstandard."""

    def __init__(self, decompressor: Frame, errors: tuple[type[Exception], ...] = _ERRORS) -> None:
        self._decompressor = decompressor
        self._errors = errors
        self.rest = b""

    def decode(self, data: bytes) -> Iterator[bytes]:
        # Small slices, because a call that raises drops the bytes it has decoded.
        for at in range(0, len(data), _SLICE):
            yield from self._decode(data[at : at + _SLICE])
            if self.is_finished:
                self.rest = self._decompressor.unused_data + data[at + _SLICE :]
                return

    def _decode(self, piece: bytes) -> Iterator[bytes]:
        while not self.is_finished:
            try:
                yield self._decompressor.decompress(piece, max_length=_PIECE)
            except self._errors as error:
                raise Damaged from error
            if self._decompressor.needs_input:
                return
            piece = b""

    @property
    def is_finished(self) -> bool:
        return self._decompressor.eof


Codec: TypeAlias = Inflate | _Blockwise
"""Decodes a compressed stream piece by piece."""


def bunzip2() -> Codec:
    """Return a codec for bzip2."""
    return _Blockwise(bz2.BZ2Decompressor())


def unxz() -> Codec:
    """Return a codec for xz."""
    return _Blockwise(lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=1 << 30))


def zstd_codec() -> Callable[[], Codec] | None:
    """Return a function that makes a Zstandard codec; None if this Python has no decoder."""
    zstandard = find_zstandard()
    if zstandard is None:
        return None
    errors = (*_ERRORS, zstandard.error)
    return lambda: _Blockwise(zstandard.open_frame(), errors)
