"""The states of one instance and the legal moves between them, as a pure state machine.

``supervisor`` makes the moves; this module only defines them.
"""

from __future__ import annotations

from collections import deque
from enum import StrEnum
from typing import Final

from clawblox.config.options import SharedOptions

__all__ = ["MOVES", "IllegalMove", "Lifecycle", "RestartBudget", "State"]


class State(StrEnum):
    """The state of an instance."""

    LEASING = "leasing"
    """Waits for its name and its port."""
    SPAWNING = "spawning"
    """Its files are written and its processes are being started."""
    PROBING = "probing"
    """Its process runs, but is not known to be ready yet."""
    READY = "ready"
    """It serves."""
    RESTARTING = "restarting"
    """It died, and is being brought back."""
    STOPPING = "stopping"
    """The stop ladder runs."""
    FAILED = "failed"
    """It never became ready, and nothing of it is left."""
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
"""Every legal move. A failed start becomes FAILED once its processes have ended. A start that lost
its port to another process begins again. A restarted instance is RESTARTING until it serves."""


class IllegalMove(AssertionError):  # noqa: N818 - says the condition
    """A move that is not in the table: a bug in this package."""


class Lifecycle:
    """The current state of one instance."""

    def __init__(self) -> None:
        self.state = State.LEASING

    def move(self, to: State) -> None:
        """Change the state to ``to``.

        Raises:
            IllegalMove: The move is not in the table.
        """
        if to not in MOVES[self.state]:
            raise IllegalMove(f"{self.state} -> {to}")
        self.state = to

    @property
    def is_over(self) -> bool:
        """Whether the state is final."""
        return not MOVES[self.state]


_FIRST_RESTART_DELAY_S = 0.1
_LAST_RESTART_DELAY_S = 5.0


class RestartBudget:
    """Limits the restarts of one instance to what its options allow."""

    def __init__(self, options: SharedOptions) -> None:
        self._options = options
        self._times: deque[float] = deque()

    def take(self, now: float) -> float | None:
        """Use up one restart.

        Args:
            now: Monotonic time in seconds.

        Returns:
            Seconds to wait before it, more with each earlier restart in the window; None if no
            restart is left in the window.
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
