"""The life of one instance as a pure state machine: legal moves as a table.

Who moves an instance is ``supervisor``; this module only says which moves exist.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

__all__ = ["MOVES", "IllegalMove", "Lifecycle", "State"]


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
