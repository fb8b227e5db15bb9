"""One content on its way through the scan: a file, or what is inside a container.

Its bytes pass once. They are searched in windows, and when they are a container its decoder
feeds them, decoded, into further contents.
"""

from __future__ import annotations

import hashlib
from typing import Final

from clawblox.checkpoint.model import Finding
from clawblox.checkpoint.secrets.container import Decoder, Refusal
from clawblox.checkpoint.secrets.containers import HEAD_SIZE, decoder_for, is_doubtful
from clawblox.checkpoint.secrets.matching import MAX_DEPTH
from clawblox.checkpoint.secrets.windows import Report, Windows

__all__ = ["UNSCANNABLE", "Content"]

UNSCANNABLE: Final = "unscannable"
"""The rule of a finding that is no secret, but a container that cannot be searched."""

_MAX_DECODED_BYTES: Final = 8 << 30
"""So many bytes may be inside one file."""


class Content:
    """A file, or what is inside a container.

    Args:
        path: What findings call it.
        report: Where they go.
        depth: In how many containers it is.
    """

    def __init__(self, path: str, report: Report, depth: int = 0) -> None:
        self._path = path
        self._report = report
        self._depth = depth
        self._head: bytes | None = b""
        self._windows = Windows(path, report, depth, self._child)
        self._decoder: Decoder | None = None
        self._digest = hashlib.sha256()
        self._is_container = False
        self._is_opened = False
        self._refused: str | None = None

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        if self._head is not None:
            self._head += data
            if len(self._head) < HEAD_SIZE:
                return
            data = self._begin()
        self._take(data)

    def close(self) -> None:
        """Search what is left, and tell what could not be searched."""
        if self._head is not None:
            self._take(self._begin())
        self._windows.close()
        if self._decoder:
            self._decoder.close()
        if self._refused:
            self._report.add(
                Finding(
                    path=self._path,
                    rule=UNSCANNABLE,
                    fingerprint=self._digest.hexdigest()[:16],
                    preview=self._refused,
                )
            )

    def spawn(self, name: str) -> Content:
        """Return the content of something inside, for the decoder."""
        if self._depth >= MAX_DEPTH:
            raise Refusal(f"more than {MAX_DEPTH} containers inside one another")
        if not self._is_opened:
            self._is_opened = True
            self._report.count_containers(1)
        return self._child(name)

    def refuse(self, reason: str) -> None:
        """Take note that something inside cannot be searched; the first reason counts."""
        self._refused = self._refused or reason

    def _child(self, name: str) -> Content:
        return Content(f"{self._path}!{name}", self._report, self._depth + 1)

    def _begin(self) -> bytes:
        head = self._head or b""
        self._head = None
        opener = decoder_for(head[:HEAD_SIZE])
        if opener and not (self._depth >= MAX_DEPTH and is_doubtful(head[:HEAD_SIZE])):
            self._is_container = True
            try:
                self._decoder = opener(self)
            except Refusal as refusal:
                self.refuse(str(refusal))
        return head

    def _take(self, data: bytes) -> None:
        if self._is_container:
            self._digest.update(data)
        if self._depth:
            self._report.count_decoded(len(data))
        if self._decoder:
            self._decode(self._decoder, data)
        self._windows.feed(data)

    def _decode(self, decoder: Decoder, data: bytes) -> None:
        try:
            if self._report.decoded_bytes > _MAX_DECODED_BYTES:
                raise Refusal("decodes to too many bytes")
            decoder.feed(data)
        except Refusal as refusal:
            self.refuse(str(refusal))
            self._decoder = None
            decoder.close()
