"""The states of an agent, the legal moves between them, and the delays of retries. Pure.

``owner`` makes the moves; this module only defines them.
"""

from __future__ import annotations

from typing import Final

from clawblox.agents.values import AgentState
from clawblox.errors.agent import ErrorKind
from clawblox.supervision.lifecycle import exponential_delay

MOVES: Final[dict[AgentState, frozenset[AgentState]]] = {
    "new": frozenset({"starting"}),
    "starting": frozenset({"working", "stopped", "failed"}),
    "working": frozenset({"idle", "stopped", "failed"}),
    "idle": frozenset({"working", "stopped", "failed"}),
    "stopped": frozenset({"starting"}),
    "failed": frozenset({"starting"}),
}
"""All legal moves. A restart after a crash is part of ``working``."""

HOPELESS: Final[frozenset[ErrorKind]] = frozenset({"auth", "invalid", "resume", "limit"})
"""Kinds of failures after which a retry would fail in the same way."""

BUSY: Final[frozenset[ErrorKind]] = frozenset({"rate_limit", "overloaded"})
"""Kinds of failures of a provider that will serve the agent later."""

_FIRST_DELAY_S: Final = 1.0
_FIRST_BUSY_DELAY_S: Final = 15.0
_LAST_DELAY_S: Final = 120.0


def retry_delay(kind: ErrorKind, before: int) -> float:
    """Return the seconds to wait before a retry.

    Args:
        kind: Kind of the failure. A busy model gets a longer delay than a crashed program.
        before: Number of earlier retries in the restart window.
    """
    first = _FIRST_BUSY_DELAY_S if kind in BUSY else _FIRST_DELAY_S
    return exponential_delay(before, first, _LAST_DELAY_S)
