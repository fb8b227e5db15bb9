"""A preview of a plan as text: chains, hours, disk, tokens and money. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from clawblox.agents.usage import Budget
from clawblox.columns import shorten
from clawblox.experiment.history.plans import Plans
from clawblox.experiment.history.state import ExperimentState
from clawblox.experiment.live.survey import Survey
from clawblox.experiment.plan.naming import original_name
from clawblox.experiment.plan.parts import USUAL_SAVING_S
from clawblox.experiment.plan.plan import Chain, Plan
from clawblox.experiment.plan.values import to_plain
from clawblox.experiment.tables.lead_time import LeadTime
from clawblox.experiment.tables.status import make_status
from clawblox.printable import printable
from clawblox.system.amounts import format_bytes
from clawblox.system.clock import utc_now
from clawblox.views.formatting import (
    count_words,
    format_count,
    format_rough_seconds,
)

_MAX_CHAINS: Final = 100
_MAX_VALUE_CHARS: Final = 60


def describe_plan(plan: Plan, survey: Survey, lead_time: LeadTime) -> list[str]:
    """Describe an experiment with a plan before it is run.

    Args:
        plan: The plan.
        survey: The resources that the experiment would use.
        lead_time: Time that a pause takes, and the lead of the signal that requests it.
    """
    chains = plan.chains()
    return [
        printable(line)
        for line in (
            f"{_describe_time(plan, chains)} {_describe_disk(survey)}",
            " ".join(_describe_limits(plan, chains)),
            "   ".join(_describe_inputs(plan, survey)),
            _describe_lead_time(lead_time),
            *_describe_cluster(plan, survey),
            *survey.notes,
            "",
            *_describe_chains(chains),
        )
    ]


def _describe_lead_time(time: LeadTime) -> str:
    """Return the duration of a pause, and the time at which a batch system should request it."""
    took = "not measured yet;"
    if time.pause_s is not None:
        took = f"about {math.ceil(time.pause_s)} s, so"
    when = f"{time.lead_s} s before the end (--signal=B:TERM@{time.lead_s})"
    return f"Pause: {took} ask the batch system for the signal {when}."


def _describe_cluster(plan: Plan, survey: Survey) -> list[str]:
    """Return how many attempts fit on each node, and the source of the agents' keys."""
    if plan.cluster is None:
        return []
    rooms = ", ".join(f"{name} {count}" for name, count in survey.rooms.items())
    names = sorted(
        {name for chain in plan.chains() for spec in chain.plan.agents for name in spec.env}
    )
    keys = f" {', '.join(names)}: from the {plan.cluster.keys}." if names else ""
    return [f"Cluster: attempts that fit on each node: {rooms or 'none'}.{keys}"]


def _describe_chains(chains: Sequence[Chain]) -> list[str]:
    """Return a line for each of the first chains, with the values of its condition."""
    shown, hidden = chains[:_MAX_CHAINS], chains[_MAX_CHAINS:]
    width = max(len(chain.name) for chain in shown)
    lines = []
    for chain in shown:
        seed = {} if chain.seed is None else {"seed": chain.seed}
        values = {**to_plain(chain.condition), **seed}
        texts = [f"{path} = {_format_value(value)}" for path, value in values.items()]
        lines.append(f"{chain.name:{width}}  {', '.join(texts)}".rstrip())
    return [*lines, *([f"… and {len(hidden)} more (--json has all)"] if hidden else [])]


def _format_value(value: object) -> str:
    return shorten(json.dumps(value, ensure_ascii=False), _MAX_VALUE_CHARS, "middle")


def _describe_time(plan: Plan, chains: Sequence[Chain]) -> str:
    durations = sorted({chain.plan.duration for chain in chains})
    each = " to ".join(map(format_rough_seconds, dict.fromkeys((durations[0], durations[-1]))))
    status = make_status(Path(), Plans([plan], ExperimentState()), now=utc_now())
    worlds = count_words(min(plan.limits.worlds, len(chains)), "world")
    return (
        f"{count_words(len(chains), 'chain')} of {count_words(plan.generations, 'generation')}"
        f" of {each}, {worlds} at a time: at least {format_rough_seconds(status.forecast_s)}."
    )


def _describe_disk(survey: Survey) -> str:
    """Return the space for workspaces and archives, as estimated from templates."""
    needed = f"at least {format_bytes(survey.disk_bytes)} of " if survey.disk_bytes else ""
    return f"Disk: {needed}{format_bytes(survey.free_bytes)} free."


def _describe_inputs(plan: Plan, survey: Survey) -> Iterator[str]:
    yield f"world {plan.world.dir_name} {survey.world}"
    for driver, version in survey.programs.items():
        yield f"{driver} {version}" if version else driver
    if not survey.has_costs:
        yield "costs are unknown without [prices]"
    if plan.score is not None:
        yield f"score {Path(plan.score).name}"
    if survey.missing_env:
        yield f"a run needs values of {', '.join(survey.missing_env)}"
    agents = [agent for chain in plan.chains() for agent in chain.plan.agents]
    paths = [path for agent in agents for path in (agent.system_prompt, agent.template) if path]
    if paths:
        yield f"copied: {', '.join(dict.fromkeys(original_name(path.name) for path in paths))}"


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
    shares = {
        chain.plan.saving_s
        for chain in chains
        if chain.plan.save is not None and chain.plan.save.before is None
    }
    if short := sorted(seconds for seconds in shares if seconds < USUAL_SAVING_S):
        times = " to ".join(map(format_rough_seconds, dict.fromkeys((short[0], short[-1]))))
        yield f"The save prompt comes {times} before the end, a quarter of the duration."


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
    """Return the sum of budgets, each multiplied by its count; infinite if one is unlimited."""
    limits = [
        (count, None if budget is None else budget.output_tokens) for count, budget in budgets
    ]
    return sum(math.inf if limit is None else count * limit for count, limit in limits)
