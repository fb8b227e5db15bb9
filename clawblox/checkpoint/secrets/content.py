"""One content on its way through the scan: a file, or what is inside a container.

Its bytes pass once, in windows. Each is searched, and what is compressed in it is fed, decoded,
into further contents.
"""

from __future__ import annotations

from typing import Final

from clawblox.checkpoint.secrets.containers.decoder import Refusal
from clawblox.checkpoint.secrets.containers.parts import Parts
from clawblox.checkpoint.secrets.matching import MAX_DEPTH
from clawblox.checkpoint.secrets.windows import Report, Windows
from clawblox.results import Finding

__all__ = ["UNSCANNABLE", "Content"]

UNSCANNABLE: Final = "unscannable"
"""The rule of a finding that is no secret, but a container that cannot be searched."""


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
        self._parts = Parts(self)
        self._windows = Windows(path, report, depth, self._child, self._parts)
        self._is_opened = False
        self._refused: str | None = None

    @property
    def decoded_bytes(self) -> int:
        """Return how many bytes have been found inside the whole file so far."""
        return self._report.decoded_bytes

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        if self._depth:
            self._report.count_decoded(len(data))
        self._windows.feed(data)

    def close(self) -> None:
        """Search what is left, and tell what could not be searched."""
        self._windows.close()
        self._parts.close()
        if self._refused:
            self._report.add(
                Finding(
                    path=self._path,
                    rule=UNSCANNABLE,
                    fingerprint=self._parts.fingerprint,
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
