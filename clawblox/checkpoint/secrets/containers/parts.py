"""The compressed parts of a content, one after another, while its windows pass."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

from clawblox.checkpoint.secrets.containers.beginnings import opener_at
from clawblox.checkpoint.secrets.containers.decoder import Decoder, Host, Refusal

__all__ = ["Parts"]

MAX_DECODED_BYTES: Final = 8 << 30
"""The most that may be inside one file."""


class Parts:
    """Opens what is compressed in a content, and remembers why something could not be.

    Args:
        host: The content.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._part: Decoder | None = None
        self._digest: hashlib._Hash | None = None

    @property
    def fingerprint(self) -> str:
        """Return a digest of the content, from where the first part begins in it."""
        return self._digest.hexdigest()[:16] if self._digest else ""

    def take(self, text: bytes, begin: int, end: int, offset: int, starts: Iterable[int]) -> None:
        """Take the next window.

        Args:
            text: The window, with what follows it.
            begin: Where in ``text`` what is new begins.
            end: Where it ends.
            offset: Where in the content ``begin`` is.
            starts: Where parts begin in what is new, in order.
        """
        if self._digest:
            self._digest.update(text[begin:end])
        at = self._feed(self._part, text, begin, end) if self._part else begin
        for start in starts:
            if not self._part and start >= at:
                if not self._digest:
                    self._digest = hashlib.sha256(text[start:end])
                at = self._open(text, start, end, offset + start - begin)

    def close(self) -> None:
        """Close the part that is open."""
        if self._part:
            self._part.close()

    def _open(self, text: bytes, start: int, end: int, offset: int) -> int:
        """Open a part and return up to where it has been decoded."""
        opener = opener_at(text, start, is_start=not offset)
        try:
            part = opener(self._host, f" at {offset}" if offset else "") if opener else None
        except Refusal as refusal:
            self._host.refuse(str(refusal))
            return start
        return self._feed(part, text, start, end) if part else start

    def _feed(self, part: Decoder, text: bytes, start: int, end: int) -> int:
        self._part = part
        try:
            if self._host.decoded_bytes > MAX_DECODED_BYTES:
                raise Refusal("decodes to too many bytes")
            rest = part.feed(text[start:end])
        except Refusal as refusal:
            self._host.refuse(str(refusal))
            rest = b""
        if rest is None:
            return end
        part.close()
        self._part = None
        return max(start, end - len(rest))
