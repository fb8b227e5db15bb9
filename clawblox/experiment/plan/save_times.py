"""Checks that the time for saving leaves time for work. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from clawblox.config.arguments import mismatch
from clawblox.errors import ConfigError
from clawblox.experiment.plan.plan import Chain, Plan

PAUSE_IDLE_WAIT_S: Final = 5.0
"""Seconds to wait for a moment between turns before a pause."""


def find_long_saves(plan: Plan, recorded: Plan | None = None) -> Iterator[ConfigError]:
    """Yield an error for each ``save.before`` of a plan that leaves no time for work.

    A recorded plan may have such times, because earlier versions and the public scripts accepted
    them; then one second is left for work.

    Args:
        plan: The plan.
        recorded: The recorded plan, whose times stay allowed; None for a new experiment.
    """
    known = set() if recorded is None else set(map(_times, recorded.chains()))
    chains = plan.chains()
    for chain in chains:
        before, duration = times = _times(chain)
        if before is None or before < duration or times in known:
            continue
        known.add(times)
        name = "" if len(chains) == 1 else f" in the chain {chain.name}"
        yield mismatch(
            _find_key(plan, chain),
            f"less than the duration{name}, {duration:g} s",
            before,
            hint="without it, the time is 300 s, or a quarter of a shorter duration",
        )


def require_time_to_work(plan: Plan, recorded: Plan | None = None) -> None:
    """Check that saving leaves time for work; see :func:`find_long_saves`.

    Raises:
        ConfigError: Saving leaves no time for work.
    """
    for error in find_long_saves(plan, recorded):
        raise error


def _times(chain: Chain) -> tuple[float | None, float]:
    save = chain.plan.save
    return None if save is None else save.before, chain.plan.duration


def _find_key(plan: Plan, chain: Chain) -> str:
    """Return the key that sets the saving time of a chain."""
    path = "save.before"
    if path not in chain.condition:
        return path
    for index, condition in enumerate(plan.conditions):
        if condition.set == chain.condition:
            return f"conditions.{index}.set.{path}"
    return f"sweep.{path}"
