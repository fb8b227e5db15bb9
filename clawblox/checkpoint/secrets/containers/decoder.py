"""The interfaces of decoders, and what decoders have in common.

A decoder is fed the bytes of a container and passes the decoded bytes to further contents.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import attrs

from clawblox.checkpoint.secrets.containers.streams import Codec, Damaged

MAX_RATIO: Final = 1100
"""Maximum number of bytes decoded from a compressed byte; deflate reaches at most 1032."""

_FREE_BYTES: Final = 64 << 20
"""Up to this size any ratio is allowed: a small file of a single repeated letter is harmless."""


class Refusal(Exception):  # noqa: N818 - names the condition
    """A container cannot be searched to its end; the message is the reason."""


class Sink(Protocol):
    """Takes content piece by piece."""

    def feed(self, data: bytes) -> None:
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


class Decoder(Protocol):
    """Decodes a container that comes in pieces.

    A container that merely ends too soon is not an error: everything in it has been decoded.
    """

    def feed(self, data: bytes) -> bytes | None:
        """Take the next bytes; return those after the container, None while it continues.

        Raises:
            Refusal: The container cannot be searched to its end.
        """

    def close(self) -> None:
        """Close the open entry."""


class EntryDecoder:
    """Base of decoders for containers with one entry after another.

    Args:
        outer: The content that the container is in.
        where: Suffix for the names of entries.
    """

    def __init__(self, outer: OuterContent, where: str = "") -> None:
        self._outer = outer
        self._where = where
        self._entry: Sink | None = None

    def close(self) -> None:
        """Close the entry that is open."""
        if self._entry:
            self._entry.close()
            self._entry = None


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
                raise Refusal("decodes to far more than its size")
            self._inside.feed(piece)
        return self._codec.rest if self._codec.is_finished else None


@attrs.define(eq=False, repr=False)
class StreamDecoder:
    """Decodes a container of one compressed stream, or of several streams in a row.

    Args:
        inside: Takes the decoded bytes.
        codec: Returns a decoder for a stream.
        magic: First bytes of a further stream; None if the container has a single stream.
        sure_after: Damage before this many decoded bytes means that it is not such a stream.
    """

    _inside: Sink
    _codec: Callable[[], Codec]
    _magic: bytes | None = attrs.field(default=None, kw_only=True)
    _sure_after: int = attrs.field(default=0, kw_only=True)
    _stream: CompressedStream | None = attrs.field(init=False)
    _between: bytes = attrs.field(default=b"", init=False)

    def __attrs_post_init__(self) -> None:
        self._stream = CompressedStream(self._codec(), self._inside)

    def feed(self, data: bytes) -> bytes | None:
        """Take the next bytes; return those after the last stream, None while it continues.

        Raises:
            Refusal: A stream is damaged, or decodes to too much.
        """
        data, self._between = self._between + data, b""
        while stream := self._stream or self._next_stream(data):
            rest = self._decode(stream, data)
            if rest is None:
                return None
            data = rest
        if self._magic and len(data) < len(self._magic) and self._magic.startswith(data):
            self._between = data
            return None
        return data

    def close(self) -> None:
        """Close the decoded content."""
        self._inside.close()

    def _next_stream(self, data: bytes) -> CompressedStream | None:
        if self._magic and data.startswith(self._magic):
            self._stream = CompressedStream(self._codec(), self._inside)
        return self._stream

    def _decode(self, stream: CompressedStream, data: bytes) -> bytes | None:
        try:
            rest = stream.feed(data)
        except Damaged:
            if stream.given >= self._sure_after:
                raise Refusal("damaged") from None
            self._magic = None
            rest = data[1:]
        if rest is not None:
            self._stream = None
        return rest
