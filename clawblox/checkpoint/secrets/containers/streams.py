"""Compressed streams, decoded piece by piece in bounded memory."""

from __future__ import annotations

import bz2
import contextlib
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from clawblox.checkpoint.zstd import Frame, find_zstandard

__all__ = ["Codec", "Damaged", "Inflate", "bunzip2", "is_zlib", "unxz", "zstd_codec"]

_PIECE: Final = 1 << 17
_MORSEL: Final = 512  # at most 128 KiB come out of four bytes of Zstandard
_ERRORS: Final = (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError)


def is_zlib(head: bytes) -> bool:
    """Return whether a zlib stream may begin so.

    That is: method deflate, a window of at most 32 KiB, no preset dictionary, and as a number a
    multiple of 31 (RFC 1950).
    """
    return (
        len(head) > 2
        and head[0] & 0x8F == 0x08
        and not head[1] & 0x20
        and int.from_bytes(head[:2], "big") % 31 == 0
    )


class Damaged(Exception):  # noqa: N818 - says the condition
    """What claims to be compressed cannot be decoded."""


class Codec(Protocol):
    """Decodes one stream."""

    def decode(self, data: bytes) -> Iterator[bytes]:
        """Yield what the next bytes of the stream decode to, in pieces of bounded size.

        Raises:
            Damaged: They are no continuation of such a stream.
        """

    @property
    def is_finished(self) -> bool:
        """Return whether the stream has come to its end."""

    @property
    def rest(self) -> bytes:
        """Return what followed the end of the stream in the last bytes."""


class Inflate:
    """Deflate with a zlib header, a gzip header, or none.

    Args:
        window_bits: 15 for a zlib header, 31 for a gzip header, -15 for none.
    """

    def __init__(self, window_bits: int = 15) -> None:
        self._inflate = zlib.decompressobj(window_bits)

    def decode(self, data: bytes) -> Iterator[bytes]:
        """Yield what the next bytes of the stream decode to."""
        piece = b"-"
        # After the end zlib would give what follows it once more with every call.
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
        """Return whether the stream has come to its end."""
        return self._inflate.eof

    @property
    def rest(self) -> bytes:
        """Return what followed the end of the stream in the last bytes."""
        return self._inflate.unused_data


def _decodable(inflate: zlib._Decompress, data: bytes) -> bytes:
    """Return what comes before the damage, which zlib does not give when it raises."""
    decoded = bytearray()
    with contextlib.suppress(zlib.error):
        for byte in data:
            decoded += inflate.decompress(bytes((byte,)), _PIECE - len(decoded))
            if len(decoded) >= _PIECE:
                break  # the call that raised would not have given more
    return bytes(decoded)


class _Blockwise:
    """What bz2, lzma and Zstandard have in common."""

    def __init__(self, decompressor: Frame, errors: tuple[type[Exception], ...] = _ERRORS) -> None:
        self._decompressor = decompressor
        self._errors = errors
        self.rest = b""

    def decode(self, data: bytes) -> Iterator[bytes]:
        # Morsels, because a call that raises gives nothing of what it has decoded.
        for at in range(0, len(data), _MORSEL):
            yield from self._decode(data[at : at + _MORSEL])
            if self.is_finished:
                self.rest = self._decompressor.unused_data + data[at + _MORSEL :]
                return

    def _decode(self, morsel: bytes) -> Iterator[bytes]:
        while not self.is_finished:
            try:
                yield self._decompressor.decompress(morsel, max_length=_PIECE)
            except self._errors as error:
                raise Damaged from error
            if self._decompressor.needs_input:
                return
            morsel = b""

    @property
    def is_finished(self) -> bool:
        return self._decompressor.eof


def bunzip2() -> Codec:
    """Return a decoder of bzip2."""
    return _Blockwise(bz2.BZ2Decompressor())


def unxz() -> Codec:
    """Return a decoder of xz."""
    return _Blockwise(lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=1 << 30))


def zstd_codec() -> Callable[[], Codec] | None:
    """Return what makes a decoder of Zstandard; None where neither Python nor a package has it."""
    zstandard = find_zstandard()
    if zstandard is None:
        return None
    errors = (*_ERRORS, zstandard.error)
    return lambda: _Blockwise(zstandard.open_frame(), errors)
