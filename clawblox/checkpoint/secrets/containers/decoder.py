"""What a decoder of a container stands between: the content it decodes and what it finds there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from clawblox.checkpoint.secrets.containers.streams import Codec, Damaged

__all__ = ["Decoder", "Host", "Refusal", "Sink", "Stream", "StreamDecoder"]

MAX_RATIO: Final = 1100
"""One compressed byte may become so many; deflate cannot do more than 1032."""

_FREE_BYTES: Final = 64 << 20
"""Below this no ratio is too large: a small file of one letter is no bomb."""


class Refusal(Exception):  # noqa: N818 - says what it is
    """A container cannot be searched to its end, and why."""


class Sink(Protocol):
    """Takes content piece by piece."""

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""

    def close(self) -> None:
        """Take note that nothing follows."""


class Host(Protocol):
    """The content whose bytes a decoder is given."""

    @property
    def decoded_bytes(self) -> int:
        """Return how many bytes have been found inside the whole file so far."""

    def spawn(self, name: str) -> Sink:
        """Return where the bytes of something inside go, under its name there."""

    def refuse(self, reason: str) -> None:
        """Take note that something inside cannot be searched; the first reason counts."""


class Decoder(Protocol):
    """Finds what is inside a container, while its bytes pass.

    ``feed`` raises :class:`Refusal` where it cannot go on. A container that merely ends too soon
    is none: everything that is there has been decoded then.
    """

    def feed(self, data: bytes) -> bytes | None:
        """Take the next bytes; return those that follow the container, None while it goes on."""

    def close(self) -> None:
        """Close what is open inside."""


class Stream:
    """One compressed stream on its way into a sink.

    Args:
        codec: Decodes it.
        inside: Where its content goes.
    """

    def __init__(self, codec: Codec, inside: Sink) -> None:
        self.given = 0
        self._taken = 0
        self._codec = codec
        self._inside = inside

    def feed(self, data: bytes) -> bytes | None:
        """Take the next bytes; return what follows the stream, None while it goes on.

        Raises:
            Damaged: They are no continuation of the stream.
            Refusal: It becomes too large.
        """
        self._taken += len(data)
        for piece in self._codec.decode(data):
            self.given += len(piece)
            if self.given > max(_FREE_BYTES, MAX_RATIO * self._taken):
                raise Refusal("decodes to far more than its size")
            self._inside.feed(piece)
        return self._codec.rest if self._codec.is_finished else None


class StreamDecoder:
    """A container that is one compressed stream, or several of a kind behind one another.

    Args:
        inside: Where what it decodes to goes.
        codec: Makes a decoder of one stream.
        magic: How a further stream begins; None when there can be none.
        sure_after: Damage before this many decoded bytes means that it never was such a stream.
    """

    def __init__(
        self,
        inside: Sink,
        codec: Callable[[], Codec],
        *,
        magic: bytes | None = None,
        sure_after: int = 0,
    ) -> None:
        self._inside = inside
        self._codec = codec
        self._magic = magic
        self._sure_after = sure_after
        self._stream: Stream | None = Stream(codec(), self._inside)
        self._between = b""

    def feed(self, data: bytes) -> bytes | None:
        """Take the next bytes; return those that follow the last stream."""
        data, self._between = self._between + data, b""
        while stream := self._stream or self._further(data):
            rest = self._decode(stream, data)
            if rest is None:
                return None
            data = rest
        if self._magic and len(data) < len(self._magic) and self._magic.startswith(data):
            self._between = data
            return None
        return data

    def close(self) -> None:
        """Close what is inside."""
        self._inside.close()

    def _further(self, data: bytes) -> Stream | None:
        if self._magic and data.startswith(self._magic):
            self._stream = Stream(self._codec(), self._inside)
        return self._stream

    def _decode(self, stream: Stream, data: bytes) -> bytes | None:
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
