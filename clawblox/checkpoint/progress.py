"""Counts the bytes that a save, a load or a check has processed, and reports them.

Also lists the running saves and loads of this process, for its displays.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from clawblox.concurrency.progress import Report


class Progress:
    """Counts bytes.

    Args:
        report: Called after each count; None makes no calls.
        total: The expected number of bytes.
    """

    def __init__(self, report: Report | None, total: int) -> None:
        self._report = report
        self._total = total
        self._done = 0

    def advance(self, amount: int) -> None:
        """Count ``amount`` more bytes, up to the total, because a file may have grown."""
        self._done = min(self._done + amount, self._total)
        if self._report is not None:
            self._report(self._done, self._total)

    def finish(self) -> None:
        """Count the remaining bytes."""
        self.advance(self._total)

    def counted(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield ``chunks``; count each when the consumer requests the next."""
        for chunk in chunks:
            size = len(chunk)
            yield chunk
            del chunk  # a traceback from the hook may print locals
            self.advance(size)


@attrs.define(eq=False)
class ArchiveWork:
    """A running save or load of an archive.

    Attributes:
        verb: The action: ``Saving`` or ``Loading``.
        name: Name of the archive's file.
        done: Number of processed bytes.
        total: Expected number of bytes.
        begun_at: Monotonic time of its start, in seconds.
    """

    verb: str
    name: str
    done: int = 0
    total: int = 0
    begun_at: float = attrs.field(factory=time.monotonic)


_under_way: list[ArchiveWork] = []


def archive_work() -> tuple[ArchiveWork, ...]:
    """Return the running saves and loads of this process, the oldest first."""
    return tuple(_under_way)


@contextmanager
def listed(verb: str, path: Path, report: Report | None) -> Iterator[Report]:
    """List a save or a load as running during the block.

    Args:
        verb: The action: ``Saving`` or ``Loading``.
        path: Path of the archive.
        report: Called with the bytes done and the total; None makes no calls.

    Yields:
        The function to call in place of ``report``.
    """
    work = ArchiveWork(verb, path.name)

    def note(done: int, total: int) -> None:
        work.done, work.total = done, total
        if report is not None:
            report(done, total)

    _under_way.append(work)
    try:
        yield note
    finally:
        _under_way.remove(work)
