"""The interfaces of decoders, and what decoders have in common: codecs of compressed streams.

A decoder is fed the bytes of a container and passes the decoded bytes to further contents, in
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
    """Return the bytes that can be decoded before the damage; zlib drops it when it raises."""
    decoded = bytearray()
    with contextlib.suppress(zlib.error):
        for byte in data:
            decoded += inflate.decompress(bytes((byte,)), _PIECE - len(decoded))
            if len(decoded) >= _PIECE:
                break  # the call that raised would not have returned more
    return bytes(decoded)


class _Blockwise:
    """A codec on a decompressor of bz2, lzma or Zstandard."""

    def __init__(
        self, decompressor: FrameDecompressor, errors: tuple[type[Exception], ...] = _ERRORS
    ) -> None:
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


# -- decoders ----------------------------------------------------------------------------------

MAX_RATIO: Final = 1100
"""Maximum number of bytes decoded from a compressed byte; deflate reaches at most 1032."""

_FREE_BYTES: Final = 64 << 20
"""Up to this size any ratio is allowed: a small file of a single repeated letter is harmless."""


class UnsearchableContainer(Exception):  # noqa: N818 - names the condition
    """A container cannot be searched to its end; the message is the reason."""


class Sink(Protocol):
    """Takes content piece by piece."""

    def feed(self, data: bytes) -> object:
        """Take the next bytes."""

    def close(self) -> None:
        """Finish: nothing follows."""


class OuterContent(Protocol):
    """The content whose bytes a decoder is fed."""

    @property
    def decoded_bytes(self) -> int:
        """Return the number of bytes decoded from the whole file so far."""

    def spawn(self, name: str) -> Sink:
        """Return the content of something inside, under its name there.

        Raises:
            Refusal: Too many containers are nested.
        """

    def refuse(self, reason: str) -> None:
        """Record that something inside cannot be searched; the first reason counts."""


class CompressedStream:
    """A compressed stream, decoded into a sink.

    Args:
        codec: Decodes the stream.
        inside: Takes the decoded bytes.

    Attributes:
        given: Number of decoded bytes so far.
    """

    def __init__(self, codec: Codec, inside: Sink) -> None:
        self.given = 0
        self._taken = 0
        self._codec = codec
        self._inside = inside

    def feed(self, data: bytes) -> bytes | None:
        """Take the next bytes; return those after the stream, None while it continues.

        Raises:
            Damaged: The stream cannot be decoded further.
            Refusal: It decodes to too much.
        """
        self._taken += len(data)
        for piece in self._codec.decode(data):
            self.given += len(piece)
            if self.given > max(_FREE_BYTES, MAX_RATIO * self._taken):
                raise UnsearchableContainer("decodes to far more than its size")
            self._inside.feed(piece)
        return self._codec.rest if self._codec.is_finished else None


class Decoder(ABC):
    """Decodes a container that comes in pieces.

    Subclasses read it as a program reads a file, from start to end. A container that merely ends
    too soon is not an error: everything in it has been decoded.
    """

    def __init__(self) -> None:
        self._entry: Sink | None = None
        self._data = b""
        self._fed = 0
        self._steps = self._decode()

    def feed(self, data: bytes) -> bytes | None:
        """Take the next bytes; return those after the container, None while it continues.

        Raises:
            Refusal: The container cannot be searched to its end.
        """
        self._fed += len(data)
        self._data += data
        for _ in self._steps:
            return None
        return self._data

    def close(self) -> None:
        """Close the entry that is open."""
        if self._entry:
            self._entry.close()
            self._entry = None

    @abstractmethod
    def _decode(self) -> Iterator[None]:
        """Decode the container; yield whenever there are too few bytes."""

    def _read(self, size: int) -> Generator[None, None, bytes]:
        """Return the next bytes, exactly ``size``."""
        while len(self._data) < size:
            yield
        piece, self._data = self._data[:size], self._data[size:]
        return piece

    def _pass(self, size: int, inside: Sink | CompressedStream | None = None) -> Iterator[None]:
        """Pass on the next bytes piece by piece; None skips them."""
        while size:
            while not self._data:
                yield
            piece, self._data = self._data[:size], self._data[size:]
            size -= len(piece)
            if inside:
                inside.feed(piece)

    def _decompress(self, stream: CompressedStream) -> Iterator[None]:
        """Pass on the next bytes up to the end of the compressed stream that they are."""
        while (rest := stream.feed(self._data)) is None:
            self._data = b""
            yield
        self._data = rest


class EntryDecoder(Decoder):
    """Base of decoders for containers with one entry after another.

    Args:
        outer: The content that the container is in.
        where: Suffix for the names of entries.
    """

    def __init__(self, outer: OuterContent, where: str = "") -> None:
        super().__init__()
        self._outer = outer
        self._where = where


class StreamDecoder(Decoder):
    """Decodes a container of one compressed stream, or of several streams in a row.

    Args:
        inside: Takes the decoded bytes.
        codec: Returns a decoder for a stream.
        magic: First bytes of a further stream; None if the container has a single stream.
        sure_after: Damage before this many decoded bytes means that it is not such a stream.
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
