"""PNG pictures: the texts and profiles that are compressed in them.

The pixels are left alone: they are noise to a search, and decoding them would cost far more than
everything else. Chunks as the PNG specification lays them out.
"""

from __future__ import annotations

from typing import Final

from clawblox.checkpoint.secrets.containers.decoder import Host, Refusal, Sink, StreamDecoder
from clawblox.checkpoint.secrets.containers.streams import Inflate

__all__ = ["PngDecoder", "is_png"]

_MAGIC: Final = b"\x89PNG\r\n\x1a\n"
_HEADER_SIZE: Final = 8
_CHECKSUM_SIZE: Final = 4
_LAST: Final = b"IEND"
_TEXTS: Final = (b"zTXt", b"iCCP", b"iTXt")
_MAX_NAMES: Final = 64 << 10
"""More than the names before a text can sensibly be."""


def is_png(head: bytes) -> bool:
    """Return whether these are the first bytes of a PNG picture."""
    return head.startswith(_MAGIC)


class PngDecoder:
    """Finds the compressed texts of a picture.

    Args:
        host: The content.
        where: What to add to their names.
    """

    def __init__(self, host: Host, where: str = "") -> None:
        self._host = host
        self._where = where
        self._header = b""
        self._left = 0  # bytes of the chunk's data
        self._skipped = len(_MAGIC)  # bytes after it, or at first before it
        self._text: Sink | None = None
        self._is_last = False

    def feed(self, data: bytes) -> bytes | None:
        """Take the next bytes; return those that follow the picture."""
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

    def close(self) -> None:
        """Close the text that is open."""
        if self._text:
            self._text.close()
            self._text = None

    def _begin(self) -> bool:
        size, kind = int.from_bytes(self._header[:4], "big"), self._header[4:]
        self._header = b""
        self._left = size
        self._is_last = kind == _LAST
        if kind in _TEXTS:
            self._text = _Text(self._host, kind, self._where)
        if not size:
            self._end()
        return kind.isalpha()

    def _read(self, data: bytes) -> bytes:
        piece, data = data[: self._left], data[self._left :]
        self._left -= len(piece)
        if self._text:
            self._text.feed(piece)
        if not self._left:
            self._end()
        return data

    def _end(self) -> None:
        self.close()
        self._skipped = _CHECKSUM_SIZE


class _Text:
    """The data of a chunk: some names, then perhaps a zlib stream.

    Args:
        host: The content.
        kind: Of the chunk.
        where: What to add to the kind, as a name for what is inside.
    """

    def __init__(self, host: Host, kind: bytes, where: str) -> None:
        self._host = host
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
            # A flag, the method, a language, the keyword in that language.
            self._is_plain = parts[1][:1] == b"\0"
            parts = parts[1][2:].split(b"\0", 2)[1:]
        elif len(parts) == 2:
            parts = [b"", parts[1][1:]]
        if len(parts) == 2 and parts[1] and not self._is_plain:
            name = self._kind.decode() + self._where
            self._stream = StreamDecoder(self._host.spawn(name), Inflate, sure_after=1)
            self._stream.feed(parts[1])
        elif len(self._names) > _MAX_NAMES:
            raise Refusal("picture with a text of an endless name")
