"""Requests to close or pause an attempt."""

from __future__ import annotations

from datetime import datetime
from typing import TypeAlias

import attrs

from clawblox.experiment.history.lines import PauseReason
from clawblox.experiment.schedule.ports import AgentFailed, Signal
from clawblox.system.clock import format_utc


@attrs.frozen(kw_only=True)
class Close:
    """Asks an attempt to close its generation now.

    Attributes:
        reason: The reason.
    """

    reason: str


@attrs.frozen(kw_only=True)
class PauseRequest:
    """Asks an attempt to make a checkpoint and stop; its line records the attributes.

    Attributes:
        reason: The kind of reason.
        text: The reason, for people.
        until: UTC time at which the pause should end; None if unknown.
        account: The limited account; None for other pauses.
    """

    reason: PauseReason
    text: str
    until: str | None = None
    account: str | None = None


def blame_journal(error: OSError) -> PauseRequest:
    """Return the pause for an error in writing a line of the journal."""
    return PauseRequest(reason="disk", text=f"the journal cannot be written: {error}")


Message: TypeAlias = Signal | Close | PauseRequest
"""Messages to the task that runs an attempt."""


class PauseError(Exception):
    """An attempt must make a checkpoint and pause.

    Args:
        pause: The request.
    """

    def __init__(self, pause: PauseRequest) -> None:
        super().__init__(pause.text)
        self.pause = pause


def blame_provider(failure: AgentFailed, now: datetime, node: str) -> PauseRequest:
    """Return the pause of an attempt whose agent cannot work now.

    Args:
        failure: The reason.
        now: The time, in UTC.
        node: Node of the attempt, where a login may have expired; empty for this machine.
    """
    if (until := failure.retry_at) is not None and until <= now:
        until = None  # one of the two clocks is wrong
    where = f" on node {node}" if failure.kind == "auth" and node else ""
    return PauseRequest(
        reason="auth" if failure.kind == "auth" else "limit",
        text=f"{failure.name}{where}: {failure.text}",
        until=None if until is None else format_utc(until),
        account=failure.account,
    )
