"""Requests to close or to pause an attempt, and pauses as the journal records them."""

from __future__ import annotations

from typing import TypeAlias

import attrs

from clawblox.experiment.history.lines import PauseReason
from clawblox.experiment.schedule.ports import Signal


@attrs.frozen(kw_only=True)
class Close:
    """Asks an attempt to close its generation now.

    Attributes:
        reason: Why.
    """

    reason: str


@attrs.frozen(kw_only=True)
class Pause:
    """Asks an attempt to make a checkpoint and to stop.

    Attributes:
        reason: Why.
        text: Why, for people.
    """

    reason: PauseReason
    text: str


def blame_journal(error: OSError) -> Pause:
    """Return the pause for an error that kept a line out of the journal."""
    return Pause(reason="disk", text=f"the journal cannot be written: {error}")


Message: TypeAlias = Signal | Close | Pause
"""What reaches the task that runs an attempt."""


@attrs.frozen(kw_only=True)
class Paused:
    """A pause, as its line records it.

    Attributes:
        reason: Why.
        text: Why, for people.
        until: UTC time at which it should end; None if it is not known.
        account: The account that is limited; None for other pauses.
    """

    reason: PauseReason
    text: str
    until: str | None = None
    account: str | None = None


class PauseError(Exception):
    """An attempt must make a checkpoint and pause.

    Args:
        paused: Why.
    """

    def __init__(self, paused: Paused) -> None:
        super().__init__(paused.text)
        self.paused = paused
