"""What a plan would do, as text: chains, hours, disk, tokens and money. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from clawblox.agents.usage import Budget
from clawblox.experiment.plan.plan import Chain, Plan
from clawblox.experiment.state import ExperimentState
from clawblox.experiment.status import make_status
from clawblox.printable import printable
from clawblox.system.clock import utc_now
from clawblox.views.formatting import (
    count_words,
    format_bytes,
    format_count,
    format_rough_seconds,
)


def describe_plan(
    plan: Plan,
    *,
    template_bytes: Mapping[Path, int] | None = None,
    free_bytes: int | None = None,
    facts: Sequence[str] = (),
) -> list[str]:
    """Return what an experiment with a plan would do.

    Args:
        plan: The plan.
        template_bytes: Sizes of the templates; None if they are not known.
        free_bytes: Free space where the experiment would be; None if it is not known.
        facts: Further facts, a line for each, such as versions of programs.
    """
    chains = plan.chains()
    parts = [_describe_time(plan, chains), _describe_disk(chains, template_bytes or {}, free_bytes)]
    lines = [" ".join(filter(None, parts)), " ".join(_describe_limits(plan, chains))]
    return [printable(line) for line in [*lines, *facts]]


def _describe_time(plan: Plan, chains: Sequence[Chain]) -> str:
    durations = sorted({chain.plan.duration for chain in chains})
    each = " to ".join(map(format_rough_seconds, dict.fromkeys((durations[0], durations[-1]))))
    status = make_status(Path(), plan, ExperimentState(), now=utc_now())
    worlds = count_words(min(plan.limits.worlds, len(chains)), "world")
    return (
        f"{count_words(len(chains), 'chain')} of {count_words(plan.generations, 'generation')}"
        f" of {each}, {worlds} at a time: at least {format_rough_seconds(status.forecast_s)}."
    )


def _describe_disk(
    chains: Iterable[Chain], template_bytes: Mapping[Path, int], free_bytes: int | None
) -> str:
    """Return how much space the copies of the templates need: workspaces, and archives of them."""
    needed = sum(
        chain.plan.generations * (1 + _count_archives(chain.plan)) * template_bytes[agent.template]
        for chain in chains
        for agent in chain.plan.agents
        if agent.template is not None and agent.template in template_bytes
    )
    free = "" if free_bytes is None else f"{format_bytes(free_bytes)} free"
    if not needed:
        return f"Disk: {free}." if free else ""
    return f"Disk: at least {format_bytes(needed)}{f' of {free}' if free else ''}."


def _count_archives(plan: Plan) -> int:
    """Return how many archives of a generation are kept."""
    policy = plan.checkpoint
    periodic = 0.0 if policy.every is None else plan.duration // policy.every
    kept = periodic if policy.keep is None else min(periodic, policy.keep)
    return int(kept) + policy.boundary + policy.end


def _describe_limits(plan: Plan, chains: Sequence[Chain]) -> Iterator[str]:
    working = _sum_tokens(
        (chain.plan.generations, agent.budget) for chain in chains for agent in chain.plan.agents
    )
    saves = [
        (chain.plan.generations * len(chain.plan.agents), chain.plan.save.budget)
        for chain in chains
        if chain.plan.save is not None
    ]
    if math.isinf(working):
        yield "No limit of output tokens, as not every agent has such a budget."
    else:
        yield f"At most {_describe_tokens(working, _sum_tokens(saves))}."
    if plan.limits.dollars is not None:
        yield f"Starts no generation beyond ${plan.limits.dollars:g}."
    if plan.limits.wall is not None:
        yield f"Ends after {format_rough_seconds(plan.limits.wall)}."


def _describe_tokens(working: float, saving: float) -> str:
    if not saving:
        return f"{_tokens(working)} output tokens"
    if math.isinf(saving):
        return f"{_tokens(working)} output tokens, and those of the save prompts"
    parts = f"{_tokens(working)} working, {_tokens(saving)} saving"
    return f"{_tokens(working + saving)} output tokens ({parts})"


def _tokens(number: float) -> str:
    return format_count(int(number)) or "0"


def _sum_tokens(budgets: Iterable[tuple[int, Budget | None]]) -> float:
    """Return the sum of budgets, each that often; infinite if one has no limit of output tokens."""
    limits = [
        (count, None if budget is None else budget.output_tokens) for count, budget in budgets
    ]
    return sum(math.inf if limit is None else count * limit for count, limit in limits)
