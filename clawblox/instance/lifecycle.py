"""The life of one instance as a pure state machine: legal moves as a table.

Who moves an instance is ``supervisor``; this module only says which moves exist.
"""

from __future__ import annotations

from collections import deque
from enum import StrEnum
from typing import Final

from clawblox.config.options import SharedOptions

__all__ = ["MOVES", "IllegalMove", "Lifecycle", "RestartBudget", "State"]


class State(StrEnum):
    """Where an instance stands."""

    LEASING = "leasing"
    """Waits for its name and its port."""
    SPAWNING = "spawning"
    """Its files are written and its processes are being started."""
    PROBING = "probing"
    """Its process lives; it has not proven to be ready."""
    READY = "ready"
    """It serves."""
    RESTARTING = "restarting"
    """It died, and is being brought back."""
    STOPPING = "stopping"
    """The stop ladder runs."""
    FAILED = "failed"
    """It was never ready, and nothing of it is left."""
    EXITED = "exited"
    """It was ready once, and nothing of it is left."""


MOVES: Final[dict[State, frozenset[State]]] = {
    State.LEASING: frozenset({State.SPAWNING, State.FAILED}),
    State.SPAWNING: frozenset({State.PROBING, State.FAILED}),
    State.PROBING: frozenset({State.READY, State.LEASING, State.FAILED}),
    State.READY: frozenset({State.RESTARTING, State.STOPPING}),
    State.RESTARTING: frozenset({State.READY, State.STOPPING}),
    State.STOPPING: frozenset({State.EXITED}),
    State.FAILED: frozenset(),
    State.EXITED: frozenset(),
}
"""Every legal move. A start that fails goes to FAILED after its ladder ran; one that lost its port
to a stranger begins again. An instance that is brought back stays RESTARTING until it serves."""


class IllegalMove(AssertionError):  # noqa: N818 - says the condition
    """A move that the table does not have: a defect in this package."""


class Lifecycle:
    """The current state of one instance and the moves from it."""

    def __init__(self) -> None:
        self.state = State.LEASING

    def move(self, to: State) -> None:
        """Go to ``to``.

        Raises:
            IllegalMove: The table has no such move.
        """
        if to not in MOVES[self.state]:
            raise IllegalMove(f"{self.state} -> {to}")
        self.state = to

    @property
    def is_over(self) -> bool:
        """Whether no further move exists."""
        return not MOVES[self.state]


_FIRST_RESTART_DELAY_S = 0.1
_LAST_RESTART_DELAY_S = 5.0


class RestartBudget:
    """Counts the restarts of one instance against what its options allow."""

    def __init__(self, options: SharedOptions) -> None:
        self._options = options
        self._times: deque[float] = deque()

    def take(self, now: float) -> float | None:
        """Use up one restart.

        Args:
            now: Monotonic time in seconds.

        Returns:
            Seconds to wait before it, growing with those that went before in the window; None
            when the window has had all of its restarts.
        """
        while self._times and self._times[0] <= now - self._options.restart_window:
            self._times.popleft()
        if len(self._times) >= self._options.max_restarts:
            return None
        before = len(self._times)
        self._times.append(now)
        return (
            min(_FIRST_RESTART_DELAY_S * 2.0 ** min(before - 1, 16), _LAST_RESTART_DELAY_S)
            if before
            else 0.0
        )
