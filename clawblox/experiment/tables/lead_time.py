"""Computes how long before its end a batch job needs the signal to pause an experiment. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

import attrs

from clawblox.config.options import DEFAULT_GRACE_S
from clawblox.experiment.history.lines import JournalLine
from clawblox.experiment.plan.plan import Plan
from clawblox.experiment.plan.save_times import PAUSE_IDLE_WAIT_S

_USUAL_LEAD_S: Final = 300
_STEP_S: Final = 60
"""Lead times are whole minutes, the resolution of batch systems."""


@attrs.frozen(kw_only=True)
class LeadTime:
    """The time that a job needs between its signal and its end.

    Attributes:
        pause_s: Maximum seconds of a pause; None before a checkpoint has been measured.
        lead_s: Seconds before its end at which a job should get the signal: twice ``pause_s`` in
            whole minutes, or the default of 300.
    """

    pause_s: float | None
    lead_s: int


def find_lead_time(plan: Plan, lines: Iterable[JournalLine]) -> LeadTime:
    """Return the lead time, from the longest save so far.

    A pause waits for a moment between turns, saves all worlds concurrently to the same disk, and
    stops world and agents, which may take the grace period.

    Args:
        plan: The plan in force.
        lines: The lines of the journal; none for a new experiment.
    """
    saves = [line.data["save_s"] for line in lines if line.data.get("save_s") is not None]
    if not saves:
        return LeadTime(pause_s=None, lead_s=_USUAL_LEAD_S)
    worlds = min(plan.limits.worlds, len(plan.chains()))
    pause_s = PAUSE_IDLE_WAIT_S + worlds * max(saves) + DEFAULT_GRACE_S
    return LeadTime(pause_s=pause_s, lead_s=_STEP_S * math.ceil(2 * pause_s / _STEP_S))
