"""What agents have used: tokens and cost by experiment, model and day."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import attrs

from clawblox.agents.run_agent import read_run_agent
from clawblox.agents.values import Usage, sum_usage
from clawblox.errors import ClawbloxError
from clawblox.printable import printable
from clawblox.views.formatting import count_words, format_cost
from clawblox.views.html import Markup, element, join
from clawblox.web.page import Ask, Page, Part
from clawblox.web.pieces import cost, count, table
from clawblox.web.site import RunSummary

_MAX_ROWS: Final = 500
_NOT_KNOWN: Final = "not known"


@attrs.frozen
class _Used:
    """The usage of one agent in one run directory."""

    experiment: str
    model: str
    day: str
    own: Usage
    inherited: Usage


def make_page(ask: Ask) -> Page:
    """Return the page of usage."""
    used = [one for run in ask.site.runs() for one in _read(ask, run)]
    own, inherited = (
        sum_usage(getattr(one, name) for one in used) for name in ("own", "inherited")
    )
    words = [
        count_words(len(used), "agent"),
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
        *(
            Part(name, _draw(used, name, heading))
            for name, heading in (("experiment", "Experiment"), ("model", "Model"), ("day", "Day"))
        ),
        Part("notes", join(element("p", note, class_="muted") for note in notes)),
    ]
    return Page("Usage", ((ask.site.root.name, ask.links.to()),), parts)


def _read(ask: Ask, run: RunSummary) -> Iterator[_Used]:
    experiment = "" if run.part is None else run.part.experiment.name
    models = _find_models(ask, run)
    for agent in run.agents:
        model = models.get(agent.name) or _NOT_KNOWN
        yield _Used(
            experiment or "other runs",
            f"{agent.driver}, {model}",
            agent.time[:10],
            agent.own_usage,
            agent.inherited,
        )


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


def _draw(used: list[_Used], name: str, heading: str) -> Markup:
    groups: dict[str, list[_Used]] = {}
    for one in used:
        groups.setdefault(getattr(one, name), []).append(one)
    totals = {key: sum_usage(one.own for one in group) for key, group in groups.items()}
    order = sorted(totals, key=lambda key: (totals[key].cost_usd or 0.0, totals[key].tokens))[::-1]
    if name == "day":
        order = sorted(totals, reverse=True)
    headings = (heading, "Agents", "Turns", "Input", "Cached", "Output", "Cost")
    rows = [
        (
            printable(key),
            count(len(groups[key])),
            count(totals[key].turns),
            count(totals[key].input_tokens),
            count(totals[key].cached_tokens),
            count(totals[key].output_tokens),
            cost(totals[key].cost_usd),
        )
        for key in order[:_MAX_ROWS]
    ]
    return join((element("h2", f"By {name}"), table(f"Usage by {name}", headings, rows)))
