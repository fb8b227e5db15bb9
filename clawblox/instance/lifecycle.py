"""The states of an instance, their legal transitions, and its end. Pure.

``supervisor`` carries out the transitions; this module only defines them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from clawblox.rundir.manifest_updates import RunStatus
from clawblox.rundir.records import RecordState
from clawblox.supervision.lifecycle import exponential_delay

FAILED_START_GRACE_S: Final = 1.0
"""Seconds between TERM and KILL for an instance whose start failed or was abandoned."""


class LifecycleState(StrEnum):
    """The state of an instance."""

    LEASING = "leasing"
    """Waiting for its name and its port."""
    SPAWNING = "spawning"
    """Its files and processes are being created."""
    PROBING = "probing"
    """Its process is running, but its readiness is not confirmed."""
    READY = "ready"
    """It is serving."""
    RESTARTING = "restarting"
    """It has ended, and is being restarted."""
    STOPPING = "stopping"
    """The stop ladder is running."""
    FAILED = "failed"
    """It never became ready, and all its processes have ended."""
    EXITED = "exited"
    """It was ready once, and all its processes have ended."""


MOVES: Final[dict[LifecycleState, frozenset[LifecycleState]]] = {
    LifecycleState.LEASING: frozenset({LifecycleState.SPAWNING, LifecycleState.FAILED}),
    LifecycleState.SPAWNING: frozenset({LifecycleState.PROBING, LifecycleState.FAILED}),
    LifecycleState.PROBING: frozenset(
        {LifecycleState.READY, LifecycleState.LEASING, LifecycleState.FAILED}
    ),
    LifecycleState.READY: frozenset({LifecycleState.RESTARTING, LifecycleState.STOPPING}),
    LifecycleState.RESTARTING: frozenset({LifecycleState.READY, LifecycleState.STOPPING}),
    LifecycleState.STOPPING: frozenset({LifecycleState.EXITED}),
    LifecycleState.FAILED: frozenset(),
    LifecycleState.EXITED: frozenset(),
}
"""All legal transitions. A failed start becomes FAILED after its processes have ended. A start that
lost its port to another process starts again. A restarted instance is RESTARTING until
it serves."""


_FIRST_RESTART_DELAY_S = 0.1
_LAST_RESTART_DELAY_S = 5.0


def restart_delay(before: int) -> float:
    """Return the delay of a restart in seconds; 0 for the first restart in the window.

    Args:
        before: Number of earlier restarts in the window.
    """
    if not before:
        return 0.0
    return exponential_delay(before - 1, _FIRST_RESTART_DELAY_S, _LAST_RESTART_DELAY_S)


class InstanceEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The end of an instance.

    Attributes:
        was_begun: Whether its start had begun.
        was_ready: Whether it was ever ready.
        has_died: Whether it ended without a request, or because it hung or had halted.
        has_finished: Whether it ended without a request, with status 0.
        is_on_purpose: Whether it was stopped on request, which excludes it from a resume.
    """

    was_begun: bool
    was_ready: bool
    has_died: bool
    has_finished: bool
    is_on_purpose: bool

    @property
    def state(self) -> RecordState:
        """The state of its record."""
        if self.was_ready:
            return "exited"
        return "failed" if self.was_begun or self.is_on_purpose else "interrupted"

    @property
    def run_status(self) -> RunStatus:
        """The stage of its run."""
        if not self.was_ready or (self.has_died and not self.has_finished):
            return "failed"
        return "complete" if self.has_finished or self.is_on_purpose else "interrupted"
