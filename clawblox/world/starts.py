"""The starts of one batch: when all are over, and the error of those that were abandoned."""

from __future__ import annotations

import anyio

from clawblox.concurrency.batch import Advance
from clawblox.errors import WorldStartError
from clawblox.instance.supervisor import Supervisor

__all__ = ["Starts", "given_up"]


class Starts:
    """Counts the starts of a batch that are over.

    Args:
        count: Number of starts in the batch.
        stop_all: Whether the first failure aborts the batch.
        advance: Called for each start that is over.

    Attributes:
        is_decided: Set when every start is over, or the batch is aborted.
        failed: Names of the instances that failed, in the order in which they did.
    """

    def __init__(self, count: int, *, stop_all: bool, advance: Advance) -> None:
        self.is_decided = anyio.Event()
        self.failed: list[str] = []
        self._left = count
        self._stop_all = stop_all
        self._advance = advance
        if not count:
            self.is_decided.set()

    def note(self, supervisor: Supervisor) -> None:
        """Count a start that succeeded or failed."""
        self._left -= 1
        if supervisor.started is None:
            self.failed.append(supervisor.instance.name)
        self._advance(supervisor.started is None)
        if not self._left or self.is_aborted:
            self.is_decided.set()

    @property
    def is_aborted(self) -> bool:
        """Whether a failure has aborted the batch."""
        return self._stop_all and bool(self.failed)


def given_up(name: str, failed: str) -> WorldStartError:
    """Return the error for instance ``name``, abandoned because instance ``failed`` failed."""
    return WorldStartError(f"the start was abandoned because {failed!r} failed", instance=name)
