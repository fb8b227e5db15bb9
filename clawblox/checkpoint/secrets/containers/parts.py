"""Decodes the containers inside a content, in turn as its windows pass."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

from clawblox.checkpoint.secrets.containers.beginnings import opener_at
from clawblox.checkpoint.secrets.containers.decoder import Decoder, OuterContent, Refusal

MAX_DECODED_BYTES: Final = 8 << 30
"""Maximum number of bytes decoded from the containers of a file."""


class Parts:
    """Decodes the containers in a content and reports those that cannot be searched.

    Args:
        outer: The content.
    """

    def __init__(self, outer: OuterContent) -> None:
        self._outer = outer
        self._part: Decoder | None = None
        self._digest: hashlib._Hash | None = None

    @property
    def fingerprint(self) -> str:
        """Return a digest of the content from the beginning of its first part."""
        return self._digest.hexdigest()[:16] if self._digest else ""

    def take(self, text: bytes, begin: int, end: int, offset: int, starts: Iterable[int]) -> None:
        """Take the next window.

        Args:
            text: The window and the bytes around it.
            begin: Start of the new bytes in ``text``.
            end: End of the new bytes.
            offset: Position of ``begin`` in the content.
            starts: Positions in ``text`` at which parts begin, in order.
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
        """Open a part; return the position up to which it has been decoded."""
        opener = opener_at(text, start, is_start=not offset)
        try:
            part = opener(self._outer, f" at {offset}" if offset else "") if opener else None
        except Refusal as refusal:
            self._outer.refuse(str(refusal))
            return start
        return self._feed(part, text, start, end) if part else start

    def _feed(self, part: Decoder, text: bytes, start: int, end: int) -> int:
        self._part = part
        try:
            if self._outer.decoded_bytes > MAX_DECODED_BYTES:
                raise Refusal("decodes to too many bytes")
            rest = part.feed(text[start:end])
        except Refusal as refusal:
            self._outer.refuse(str(refusal))
            rest = b""
        if rest is None:
            return end
        part.close()
        self._part = None
        return max(start, end - len(rest))
