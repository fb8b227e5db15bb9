"""One content of the scan: a file, or what is inside a container.

Its bytes pass once, in windows. Each window is searched, and containers in it are decoded into
further contents.
"""

from __future__ import annotations

from typing import Final

from clawblox.checkpoint.secrets.containers.decoder import Refusal
from clawblox.checkpoint.secrets.containers.parts import Parts
from clawblox.checkpoint.secrets.matching import MAX_DEPTH
from clawblox.checkpoint.secrets.windows import FindingCollector, Windows
from clawblox.results import Finding

UNSCANNABLE: Final = "unscannable"
"""The rule of findings that are not secrets but containers that cannot be searched."""


class ScannedContent:
    """A file, or what is inside a container.

    Args:
        path: Its path in findings.
        findings: Collects what is found.
        depth: Number of containers around it.
    """

    def __init__(self, path: str, findings: FindingCollector, depth: int = 0) -> None:
        self._path = path
        self._findings = findings
        self._depth = depth
        self._parts = Parts(self)
        self._windows = Windows(path, findings, depth, self._child, self._parts)
        self._is_opened = False
        self._refused: str | None = None

    @property
    def decoded_bytes(self) -> int:
        """Return the number of bytes decoded from the whole file so far."""
        return self._findings.decoded_bytes

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        if self._depth:
            self._findings.count_decoded(len(data))
        self._windows.feed(data)

    def close(self) -> None:
        """Search the rest, and report what could not be searched."""
        self._windows.close()
        self._parts.close()
        if self._refused:
            self._findings.add(
                Finding(
                    path=self._path,
                    rule=UNSCANNABLE,
                    fingerprint=self._parts.fingerprint,
                    preview=self._refused,
                )
            )

    def spawn(self, name: str) -> ScannedContent:
        """Return the content of something inside, for a decoder.

        Raises:
            Refusal: Too many containers are inside one another.
        """
        if self._depth >= MAX_DEPTH:
            raise Refusal(f"more than {MAX_DEPTH} containers inside one another")
        if not self._is_opened:
            self._is_opened = True
            self._findings.count_containers(1)
        return self._child(name)

    def refuse(self, reason: str) -> None:
        """Record that something inside cannot be searched; the first reason counts."""
        self._refused = self._refused or reason

    def _child(self, name: str) -> ScannedContent:
        return ScannedContent(f"{self._path}!{name}", self._findings, self._depth + 1)
