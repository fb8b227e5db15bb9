"""How far a save or a check is, told to whoever wants to know, who may end it by raising."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

__all__ = ["Progress", "Report"]

Report: TypeAlias = Callable[[int, int], object]
"""Takes bytes done and bytes in all. What it raises ends the operation, which leaves nothing."""


class Progress:
    """Counts bytes.

    Args:
        report: Who is told; None for nobody.
        total: How many bytes there will be, as far as that is known.
    """

    def __init__(self, report: Report | None, total: int) -> None:
        self._report = report
        self._total = total
        self._done = 0

    def advance(self, amount: int) -> None:
        """Count ``amount`` bytes more; at most all of them, for a file may have grown."""
        self._done = min(self._done + amount, self._total)
        if self._report is not None:
            self._report(self._done, self._total)

    def finish(self) -> None:
        """Count whatever is left."""
        self.advance(self._total)

    def counted(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield ``chunks``, and count each when it is done with."""
        for chunk in chunks:
            size = len(chunk)
            yield chunk
            del chunk  # what is raised now must not show it to who prints locals
            self.advance(size)
