"""States with a table of legal moves, and restarts within a budget. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Generic, TypeVar

import attrs

S = TypeVar("S", bound=str)


class IllegalMoveError(AssertionError):
    """A move that is not in the table: a defect of this package."""


@attrs.define(eq=False)
class Lifecycle(Generic[S]):
    """The current state of something that is supervised.

    Args:
        moves: The legal moves from each state; a state without any is final.
        state: The first state.
    """

    _moves: Mapping[S, frozenset[S]]
    state: S

    def move(self, to: S) -> None:
        """Change the state to ``to``.

        Raises:
            IllegalMoveError: The move is not in the table.
        """
        if to not in self._moves[self.state]:
            raise IllegalMoveError(f"{self.state} -> {to}")
        self.state = to

    @property
    def is_over(self) -> bool:
        """True if the state is final."""
        return not self._moves[self.state]


@attrs.define(eq=False)
class RestartBudget:
    """Limits the restarts within a sliding window.

    Args:
        max_restarts: Number of restarts allowed within the window.
        window: Length of the window in seconds.
    """

    _max_restarts: int
    _window: float
    _times: deque[float] = attrs.field(factory=deque, init=False)

    def take(self, now: float) -> int | None:
        """Use up one restart.

        Args:
            now: Monotonic time in seconds.

        Returns:
            The number of earlier restarts in the window; None if no restart is left in it.
        """
        while self._times and self._times[0] <= now - self._window:
            self._times.popleft()
        before = len(self._times)
        if before >= self._max_restarts:
            return None
        self._times.append(now)
        return before


def exponential_delay(before: int, first: float, last: float) -> float:
    """Return how long to wait: the first delay, doubled for each earlier time, up to the last.

    Args:
        before: Number of earlier times.
        first: The first delay in seconds.
        last: The longest delay in seconds.
    """
    return min(first * 2.0 ** min(before, 16), last)
