"""The states of an agent, the legal moves between them, and what is tried again. Pure.

``owner`` makes the moves; this module only defines them.
"""

from __future__ import annotations

from typing import Final

from clawblox.agents.values import AgentState, ErrorKind
from clawblox.supervision.lifecycle import exponential_delay

MOVES: Final[dict[AgentState, frozenset[AgentState]]] = {
    "new": frozenset({"starting"}),
    "starting": frozenset({"working", "stopped", "failed"}),
    "working": frozenset({"idle", "stopped", "failed"}),
    "idle": frozenset({"working", "stopped", "failed"}),
    "stopped": frozenset({"starting"}),
    "failed": frozenset({"starting"}),
}
"""Every legal move. A restart after a crash is a part of working."""

_HOPELESS: Final[frozenset[ErrorKind]] = frozenset({"auth", "invalid", "resume", "limit"})
_BUSY: Final[frozenset[ErrorKind]] = frozenset({"rate_limit", "overloaded"})

_FIRST_DELAY_S: Final = 1.0
_FIRST_BUSY_DELAY_S: Final = 15.0
_LAST_DELAY_S: Final = 120.0

_SHORT_TURN_S: Final = 1.0
_FREE_SHORT_TURNS: Final = 5
_FIRST_PACE_S: Final = 0.1
_LAST_PACE_S: Final = 10.0


def is_hopeless(kind: ErrorKind) -> bool:
    """Return whether another try would fail in the same way."""
    return kind in _HOPELESS


def retry_delay(kind: ErrorKind, before: int) -> float:
    """Return how long to wait before another try, in seconds.

    Args:
        kind: What failed. A busy model needs longer than a crashed program.
        before: Number of other tries in the restart window.
    """
    first = _FIRST_BUSY_DELAY_S if kind in _BUSY else _FIRST_DELAY_S
    return exponential_delay(before, first, _LAST_DELAY_S)


class Pace:
    """Slows down an agent whose turns end as soon as they begin, and so would run hot for ever."""

    def __init__(self) -> None:
        self._short_turns = 0

    def delay_after(self, turn_s: float) -> float:
        """Return how long to wait before the next nudge, in seconds.

        Args:
            turn_s: How long the turn took that has just ended.
        """
        if turn_s >= _SHORT_TURN_S:
            self._short_turns = 0
            return 0.0
        self._short_turns += 1
        before = self._short_turns - _FREE_SHORT_TURNS
        return exponential_delay(before, _FIRST_PACE_S, _LAST_PACE_S) if before >= 0 else 0.0
