"""PNG pictures: the compressed texts and profiles in them.

Pixels are not decoded: they hold no text, and decoding them would cost far more than everything
else. The layout of chunks is that of the PNG specification.
"""

from __future__ import annotations

from typing import Final

from clawblox.checkpoint.secrets.containers.decoder import (
    EntryDecoder,
    OuterContent,
    Refusal,
    StreamDecoder,
)
from clawblox.checkpoint.secrets.containers.streams import Inflate

_MAGIC: Final = b"\x89PNG\r\n\x1a\n"
_HEADER_SIZE: Final = 8
_CHECKSUM_SIZE: Final = 4
_LAST: Final = b"IEND"
_TEXTS: Final = (b"zTXt", b"iCCP", b"iTXt")
_MAX_NAMES: Final = 64 << 10
"""Most bytes of the names that precede a text."""


def is_png(head: bytes) -> bool:
    """Return whether these are the first bytes of a PNG picture."""
    return head.startswith(_MAGIC)


class PngDecoder(EntryDecoder):
    """Decodes the compressed texts of a picture.

    Args:
        outer: The content that the picture is in.
        where: Suffix for the names of the texts.
    """

    def __init__(self, outer: OuterContent, where: str = "") -> None:
        super().__init__(outer, where)
        self._header = b""
        self._left = 0  # bytes of the chunk's data
        self._skipped = len(_MAGIC)  # bytes to skip before the next header
        self._is_last = False

    def feed(self, data: bytes) -> bytes | None:
        """Take the next bytes; return those after the picture, None while it continues.

        Raises:
            Refusal: A text cannot be searched to its end.
        """
        while data:
            if self._skipped:
                skipped = min(self._skipped, len(data))
                self._skipped -= skipped
                data = data[skipped:]
            elif self._left:
                data = self._read(data)
            elif self._is_last:
                return data
            else:
                missing = _HEADER_SIZE - len(self._header)
                self._header += data[:missing]
                data = data[missing:]
                if len(self._header) == _HEADER_SIZE and not self._begin():
                    return data
        return None

    def _begin(self) -> bool:
        size, kind = int.from_bytes(self._header[:4], "big"), self._header[4:]
        self._header = b""
        self._left = size
        self._is_last = kind == _LAST
        if kind in _TEXTS:
            self._entry = _Text(self._outer, kind, self._where)
        if not size:
            self._end()
        return kind.isalpha()

    def _read(self, data: bytes) -> bytes:
        piece, data = data[: self._left], data[self._left :]
        self._left -= len(piece)
        if self._entry:
            self._entry.feed(piece)
        if not self._left:
            self._end()
        return data

    def _end(self) -> None:
        self.close()
        self._skipped = _CHECKSUM_SIZE


class _Text:
    """The data of a text chunk: its names, then a zlib stream or plain text.

    Args:
        outer: The content that the picture is in.
        kind: Kind of the chunk.
        where: Suffix for the name of the text, which is the kind.
    """

    def __init__(self, outer: OuterContent, kind: bytes, where: str) -> None:
        self._outer = outer
        self._kind = kind
        self._where = where
        self._names = b""
        self._is_plain = False
        self._stream: StreamDecoder | None = None

    def feed(self, data: bytes) -> None:
        if self._stream:
            self._stream.feed(data)
        elif not self._is_plain:
            self._read_names(data)

    def close(self) -> None:
        if self._stream:
            self._stream.close()

    def _read_names(self, data: bytes) -> None:
        self._names += data
        parts = self._names.split(b"\0", 1)
        if len(parts) == 2 and self._kind == b"iTXt":
            # A flag, the method, the language, and the keyword in that language.
            self._is_plain = parts[1][:1] == b"\0"
            parts = parts[1][2:].split(b"\0", 2)[1:]
        elif len(parts) == 2:
            parts = [b"", parts[1][1:]]
        if len(parts) == 2 and parts[1] and not self._is_plain:
            name = self._kind.decode() + self._where
            self._stream = StreamDecoder(self._outer.spawn(name), Inflate, sure_after=1)
            self._stream.feed(parts[1])
        elif len(self._names) > _MAX_NAMES:
            raise Refusal("picture with a text of an endless name")
