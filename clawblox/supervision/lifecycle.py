"""States with a table of legal moves, and restarts within a budget. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

import msgspec

S = TypeVar("S", bound=str)


class IllegalMoveError(AssertionError):
    """A move that is not in the table, which is a bug in clawblox."""


class Lifecycle(msgspec.Struct, Generic[S], eq=False):
    """The current state of a supervised process or task.

    Args:
        moves: The legal moves from each state; a state without moves is final.
        state: The initial state.
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


class RestartBudget:
    """Limits the restarts within a sliding window.

    Args:
        max_restarts: Number of restarts allowed within the window.
        window: Length of the window in seconds.
    """

    def __init__(self, max_restarts: int, window: float) -> None:
        self._max_restarts = max_restarts
        self._window = window
        self._times: list[float] = []

    def take(self, now: float) -> int | None:
        """Use up one restart.

        Args:
            now: Monotonic time in seconds.

        Returns:
            The number of earlier restarts in the window; None if no restart is left in it.
        """
        self._times = [time for time in self._times if time > now - self._window]
        before = len(self._times)
        if before >= self._max_restarts:
            return None
        self._times.append(now)
        return before


def exponential_delay(before: int, first: float, last: float) -> float:
    """Return the next delay: the first delay, doubled for each earlier attempt, up to the longest.

    Args:
        before: Number of earlier attempts.
        first: The first delay in seconds.
        last: The longest delay in seconds.
    """
    return min(first * 2.0 ** min(before, 16), last)
