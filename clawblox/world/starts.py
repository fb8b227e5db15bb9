"""The starts of one batch: when they are settled, and what an aborted one is told."""

from __future__ import annotations

import anyio

from clawblox.errors import WorldStartError
from clawblox.instance.supervisor import Supervisor

__all__ = ["Starts", "given_up"]


class Starts:
    """How far the starts of a batch are.

    Args:
        count: How many there are.
        stop_all: Whether all depend on each.

    Attributes:
        is_decided: Set when every start is settled, or one has failed that all depend on.
        failed: The names of those that failed, the first cause first.
    """

    def __init__(self, count: int, *, stop_all: bool) -> None:
        self.is_decided = anyio.Event()
        self.failed: list[str] = []
        self._left = count
        self._stop_all = stop_all
        if not count:
            self.is_decided.set()

    def note(self, supervisor: Supervisor) -> None:
        """Count a start that is settled."""
        self._left -= 1
        if supervisor.started is None:
            self.failed.append(supervisor.instance.name)
        if not self._left or self.is_aborted:
            self.is_decided.set()

    @property
    def is_aborted(self) -> bool:
        """Whether one has failed that all depend on."""
        return self._stop_all and bool(self.failed)


def given_up(name: str, failed: str) -> WorldStartError:
    """Return the error of a start that was aborted because another one failed."""
    message = f"instance {name!r} was given up, since {failed!r} failed"
    return WorldStartError(message, instance=name)
