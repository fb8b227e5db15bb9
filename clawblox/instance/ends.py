"""How instances end, in the words of their records and manifests. Pure."""

from __future__ import annotations

from typing import Final

import attrs

from clawblox.rundir.manifest_updates import RunStatus
from clawblox.rundir.records import RecordState

FAILED_START_GRACE_S: Final = 1.0
"""Seconds between TERM and KILL for an instance whose start failed or was given up."""


@attrs.frozen(kw_only=True)
class End:
    """The end of an instance.

    Attributes:
        was_begun: Whether its start had begun, so that something of it exists.
        was_ready: Whether it was ever ready.
        has_died: Whether it ended by itself, or was ended because it hung or had halted.
        has_finished: Whether it ended by itself, with status 0.
        is_on_purpose: Whether it was stopped on request, so that a resume leaves it alone.
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
        """How far its run is."""
        if not self.was_ready or (self.has_died and not self.has_finished):
            return "failed"
        return "complete" if self.has_finished or self.is_on_purpose else "interrupted"
