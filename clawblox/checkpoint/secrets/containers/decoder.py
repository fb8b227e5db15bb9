"""The interfaces of decoders, and the codecs of compressed streams.

A decoder receives the bytes of a container and passes the decoded bytes to inner contents, in
pieces of bounded size.
"""

from __future__ import annotations

import bz2
import contextlib
import lzma
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator
from typing import Final, Protocol, TypeAlias

from clawblox.zstd import FrameDecompressor, find_zstandard

_PIECE: Final = 1 << 17
_SLICE: Final = 512  # four bytes of Zstandard decode to at most 128 KiB
_ERRORS: Final = (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError)


def is_zlib(head: bytes) -> bool:
    """Return whether a zlib stream may start with these bytes (RFC 1950).

    The method must be deflate, the window at most 32 KiB, there must be no preset dictionary, and
    the first two bytes must be a multiple of 31.
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
    """Decodes deflate with a zlib header, a gzip header, or no header.

    Args:
        window_bits: 15 for a zlib header, 31 for a gzip header, -15 for no header.
    """

    def __init__(self, window_bits: int = 15) -> None:
        self._inflate = zlib.decompressobj(window_bits)

    def decode(self, data: bytes) -> Iterator[bytes]:
        """Decode the next bytes of the stream; yield pieces of bounded size.

        Raises:
            Damaged: The stream cannot be decoded further.
        """
        piece = b"-"
        # After the end of the stream, zlib would return the same rest with every call.
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
        """True if the stream has ended."""
        return self._inflate.eof

    @property
    def rest(self) -> bytes:
        """Bytes after the end of the stream, from the last call of ``decode``."""
        return self._inflate.unused_data


def _decodable(inflate: zlib._Decompress, data: bytes) -> bytes:
    """Return the bytes decoded before the damage, which zlib drops when it raises."""
    decoded = bytearray()
    with contextlib.suppress(zlib.error):
        for byte in data:
            decoded += inflate.decompress(bytes((byte,)), _PIECE - len(decoded))
            if len(decoded) >= _PIECE:
                break  # the failed call would not have returned more
    return bytes(decoded)


class _Blockwise:
    """A codec with a decompressor of bz2, lzma or Zstandard."""

    def __init__(
        self, decompressor: FrameDecompressor, errors: tuple[type[Exception], ...] = _ERRORS
    ) -> None:
        self._decompressor = decompressor
        self._errors = errors
        self.rest = b""

    def decode(self, data: bytes) -> Iterator[bytes]:
        # Small slices, because a call that raises drops its decoded bytes.
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
    """Return a function that creates a Zstandard codec; None if this Python has no decoder."""
    zstandard = find_zstandard()
    if zstandard is None:
        return None
    errors = (*_ERRORS, zstandard.error)
    return lambda: _Blockwise(zstandard.open_frame(), errors)


# -- decoders ----------------------------------------------------------------------------------

MAX_RATIO: Final = 1100
"""Maximum number of decoded bytes per compressed byte; deflate reaches at most 1032."""

_FREE_BYTES: Final = 64 << 20
"""Maximum decoded size with any ratio, because a small file of a repeated letter is harmless."""


class UnsearchableContainer(Exception):  # noqa: N818 - names the condition
    """A container cannot be searched to its end; the message is the reason."""


class Sink(Protocol):
    """Receives content piece by piece."""

    def feed(self, data: bytes) -> object:
        """Take the next bytes."""

    def close(self) -> None:
        """End the content."""


class OuterContent(Protocol):
    """The content from which a decoder receives bytes."""

    @property
    def decoded_bytes(self) -> int:
        """Number of bytes decoded from the whole file so far."""

    def spawn(self, name: str) -> Sink:
        """Return a sink for inner content, under a name within this content.

        Raises:
            Refusal: Too many containers are nested.
        """

    def refuse(self, reason: str) -> None:
        """Record that inner content cannot be searched; the first reason counts."""


class CompressedStream:
    """A compressed stream, decoded into a sink.

    Args:
        codec: Decodes the stream.
        inside: Receives the decoded bytes.

    Attributes:
        given: Number of decoded bytes so far.
    """

    def __init__(self, codec: Codec, inside: Sink) -> None:
        self.given = 0
        self._taken = 0
        self._codec = codec
        self._inside = inside

    def feed(self, data: bytes) -> bytes | None:
        """Take the next bytes; return the bytes after the stream, None while the stream continues.

        Raises:
            Damaged: The stream cannot be decoded further.
            Refusal: The stream decodes to too many bytes.
        """
        self._taken += len(data)
        for piece in self._codec.decode(data):
            self.given += len(piece)
            if self.given > max(_FREE_BYTES, MAX_RATIO * self._taken):
                raise UnsearchableContainer("decodes to far more than its size")
            self._inside.feed(piece)
        return self._codec.rest if self._codec.is_finished else None


class Decoder(ABC):
    """Decodes a container that arrives in pieces.

    Subclasses read it from start to end, like a file. A truncated container is not an error,
    because everything in it has been decoded.
    """

    def __init__(self) -> None:
        self._entry: Sink | None = None
        self._data = b""
        self._fed = 0
        self._steps = self._decode()

    def feed(self, data: bytes) -> bytes | None:
        """Take the next bytes; return the bytes after the container, None while it continues.

        Raises:
            Refusal: The container cannot be searched to its end.
        """
        self._fed += len(data)
        self._data += data
        for _ in self._steps:
            return None
        return self._data

    def close(self) -> None:
        """Close the open entry."""
        if self._entry:
            self._entry.close()
            self._entry = None

    @abstractmethod
    def _decode(self) -> Iterator[None]:
        """Decode the container; yield when more bytes are needed."""

    def _read(self, size: int) -> Generator[None, None, bytes]:
        """Return the next ``size`` bytes."""
        while len(self._data) < size:
            yield
        piece, self._data = self._data[:size], self._data[size:]
        return piece

    def _pass(self, size: int, inside: Sink | CompressedStream | None = None) -> Iterator[None]:
        """Pass the next bytes to ``inside``, piece by piece; None skips them."""
        while size:
            while not self._data:
                yield
            piece, self._data = self._data[:size], self._data[size:]
            size -= len(piece)
            if inside:
                inside.feed(piece)

    def _decompress(self, stream: CompressedStream) -> Iterator[None]:
        """Pass the next bytes to a compressed stream, up to its end."""
        while (rest := stream.feed(self._data)) is None:
            self._data = b""
            yield
        self._data = rest


class EntryDecoder(Decoder):
    """Base class of decoders for containers with consecutive entries.

    Args:
        outer: The content that contains the container.
        where: Suffix for the names of entries.
    """

    def __init__(self, outer: OuterContent, where: str = "") -> None:
        super().__init__()
        self._outer = outer
        self._where = where


class StreamDecoder(Decoder):
    """Decodes a container of one or several consecutive compressed streams.

    Args:
        inside: Receives the decoded bytes.
        codec: Returns a decoder for a stream.
        magic: First bytes of the next stream; None if the container has a single stream.
        sure_after: Number of decoded bytes that prove the stream; with earlier damage, it is
            another kind of content.
    """

    def __init__(
        self,
        inside: Sink,
        codec: Callable[[], Codec],
        *,
        magic: bytes | None = None,
        sure_after: int = 0,
    ) -> None:
        super().__init__()
        self._entry = self._inside = inside
        self._codec = codec
        self._magic = magic
        self._sure_after = sure_after

    def _decode(self) -> Iterator[None]:
        magic, is_next = self._magic, True
        while is_next:
            stream = CompressedStream(self._codec(), self._inside)
            try:
                yield from self._decompress(stream)
            except Damaged:
                if stream.given >= self._sure_after:
                    raise UnsearchableContainer("damaged") from None
                self._data = self._data[1:]
                return
            while magic and len(self._data) < len(magic) and magic.startswith(self._data):
                yield
            is_next = magic is not None and self._data.startswith(magic)
