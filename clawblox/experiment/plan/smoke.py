"""The plan of a smoke run: one short generation of each condition of another plan. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from clawblox.experiment.plan.naming import NAMINGS
from clawblox.experiment.plan.parts import Condition
from clawblox.experiment.plan.plan import Chain, Plan

SMOKE_S: Final = 60.0
"""Seconds of each generation of a smoke run."""
_NAME: Final = "smoke"
_TIMES: Final = ("duration", "save.before")
"""Fields of a condition that a smoke run overrides."""


def make_smoke_plan(plan: Plan) -> Plan:
    """Return the plan of a smoke run; its chains are those of :func:`first_chains`, in that order.

    The plan keeps everything that may fail at a start: worlds, agents, prompts, saves, checkpoints
    and the score. It has no retries, and no pause is waited out.

    Args:
        plan: The plan.

    Raises:
        ConfigError: The plan cannot be shortened.
    """
    conditions = [
        Condition(chain.name.rpartition("-")[0], dict(_without_times(chain.condition)))
        for chain in first_chains(plan)
        if plan.sweep or plan.conditions
    ]
    return plan.but(
        name=_NAME,
        naming=NAMINGS[-1],
        generations=1,
        duration=SMOKE_S,
        repeats=1,
        seeds=plan.seeds[:1],
        sweep={},
        conditions=conditions,
        save=None if plan.save is None else attrs.evolve(plan.save, before=None),
        limits=attrs.evolve(plan.limits, wall=None),
        retry=attrs.evolve(plan.retry, attempts=0, pause_after=SMOKE_S, longest_pause=1.0),
        run_prefix=None,
        layout="chains",
        tmux=None,
        on_pause=None,
        on_failure=None,
        on_done=None,
    )


def first_chains(plan: Plan) -> list[Chain]:
    """Return the first chain of each condition."""
    return [chain for chain in plan.chains() if chain.repeat == 1]


def _without_times(condition: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for path, value in condition.items():
        if path == "save" and isinstance(value, Mapping):
            yield path, {key: item for key, item in value.items() if key != "before"}
        elif path not in _TIMES:
            yield path, value
