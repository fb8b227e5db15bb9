"""The states of one instance and the legal moves between them, as a pure state machine.

``supervisor`` makes the moves; this module only defines them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from clawblox.supervision.lifecycle import exponential_delay


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


_FIRST_RESTART_DELAY_S = 0.1
_LAST_RESTART_DELAY_S = 5.0


def restart_delay(before: int) -> float:
    """Return the seconds to wait before a restart; the first in the window does not wait.

    Args:
        before: Number of earlier restarts in the window.
    """
    if not before:
        return 0.0
    return exponential_delay(before - 1, _FIRST_RESTART_DELAY_S, _LAST_RESTART_DELAY_S)
