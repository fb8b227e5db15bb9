"""What agents have used: tokens and cost by experiment, model and day."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from clawblox.agents.run_agent import read_run_agent
from clawblox.agents.status import AgentStatus
from clawblox.agents.values import Usage, sum_usage
from clawblox.errors import ClawbloxError
from clawblox.views.formatting import count_words, format_cost
from clawblox.views.html import Markup, element, join
from clawblox.web.page import Ask, Page, Part
from clawblox.web.pieces import Columns, cost, count, section
from clawblox.web.site import RunSummary

_MAX_ROWS: Final = 500
_Group: TypeAlias = tuple[str, Sequence[AgentStatus], Usage]
"""The name of a group, its agents, and their own usage."""


def make_page(ask: Ask) -> Page:
    """Return the page of usage."""
    agents: list[AgentStatus] = []
    groups: dict[str, defaultdict[str, list[AgentStatus]]] = {
        name: defaultdict(list) for name in ("experiment", "model", "day")
    }
    for run in ask.site.runs():
        agents += run.agents
        experiment = run.part.experiment.name if run.part else "other runs"
        models = _find_models(ask, run)
        for agent in run.agents:
            model = f"{agent.driver}, {models.get(agent.name) or 'not known'}"
            for name, key in zip(groups, (experiment, model, agent.time[:10]), strict=True):
                groups[name][key].append(agent)
    own, inherited = _sum(agents), sum_usage(agent.inherited for agent in agents)
    words = [
        count_words(len(agents), "agent"),
        f"{own.turns} turns",
        format_cost(own.cost_usd) or "cost not reported",
    ]
    notes = [
        "Own usage: what a fork inherited from its parent is not counted again"
        + (f" ({inherited.tokens} tokens in all)." if inherited.tokens else "."),
        "A cost is what the programs reported; the day is that of an agent's latest event.",
    ]
    parts = [
        Part("summary", element("p", " · ".join(words), class_="summary")),
        *(Part(name, _draw(name, found)) for name, found in groups.items()),
        Part("notes", join(element("p", note, class_="muted") for note in notes)),
    ]
    return Page("Usage", ((ask.site.root.name, ask.links.to()),), parts)


def _sum(agents: Sequence[AgentStatus]) -> Usage:
    return sum_usage(agent.own_usage for agent in agents)


def _find_models(ask: Ask, run: RunSummary) -> Mapping[str, str | None]:
    """Return the models that were asked for, by the names of the agents."""
    try:
        if run.part is not None:
            rows = ask.site.read_record(run.part.experiment).results().agents()
            return {row.name: row.model for row in rows}
        agent = read_run_agent(run.directory)
    except ClawbloxError:
        return {}
    return {} if agent is None else {agent.options.agent_name: agent.options.model}


def _draw(name: str, found: Mapping[str, Sequence[AgentStatus]]) -> Markup:
    groups = [(key, agents, _sum(agents)) for key, agents in found.items()]
    groups.sort(
        key=lambda group: (
            (group[0],) if name == "day" else (group[2].cost_usd or 0, group[2].tokens)
        ),
        reverse=True,
    )
    columns: Columns[_Group] = {
        name.capitalize(): lambda group: group[0],
        "Agents": lambda group: count(len(group[1])),
        "Turns": lambda group: count(group[2].turns),
        "Input": lambda group: count(group[2].input_tokens),
        "Cached": lambda group: count(group[2].cached_tokens),
        "Output": lambda group: count(group[2].output_tokens),
        "Cost": lambda group: cost(group[2].cost_usd),
    }
    return section(f"By {name}", groups, columns, most=_MAX_ROWS)
