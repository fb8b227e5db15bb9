"""Counts the bytes that a save or a check has done, and reports them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from clawblox.concurrency.progress import Report


class Progress:
    """Counts bytes.

    Args:
        report: Called after each count; None for no calls.
        total: The number of bytes to come, as far as it is known.
    """

    def __init__(self, report: Report | None, total: int) -> None:
        self._report = report
        self._total = total
        self._done = 0

    def advance(self, amount: int) -> None:
        """Count ``amount`` more bytes, never beyond the total: a file may have grown."""
        self._done = min(self._done + amount, self._total)
        if self._report is not None:
            self._report(self._done, self._total)

    def finish(self) -> None:
        """Count the rest."""
        self.advance(self._total)

    def counted(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield ``chunks``; count each when the consumer asks for the next."""
        for chunk in chunks:
            size = len(chunk)
            yield chunk
            del chunk  # a traceback from the hook may print locals
            self.advance(size)
