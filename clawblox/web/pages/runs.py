"""The first page: running and ended runs below the directory, and their usage."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeAlias

from clawblox.agents.status import AgentStatus
from clawblox.agents.values import Usage, sum_usage
from clawblox.errors import ClawbloxError
from clawblox.experiment.reading.overview import ExperimentOverview
from clawblox.team.record import read_team
from clawblox.views.experiments import describe_driver
from clawblox.views.formatting import count_words, format_cost, format_labels
from clawblox.views.html import Child, Markup, element, join, link
from clawblox.web.page import Ask, Page, Part
from clawblox.web.pieces import (
    Cell,
    Columns,
    and_more,
    comparison,
    cost,
    count,
    filters,
    has_words,
    lines,
    moment,
    section,
    state_mark,
)
from clawblox.web.run_history import list_subjects
from clawblox.web.site import RunSummary

_RUNS_A_PAGE: Final = 200
_MAX_NAMED: Final = 6
_OF_ATTEMPTS: Final = ("chain", "experiment", "generation")
"""Labels that every attempt of an experiment has."""
_FAILED: Final = ("failed", "interrupted")
_MAX_ROWS: Final = 500
_GROUPS: Final = {"experiment": "Experiment or run", "model": "Model", "day": "Day"}
"""Groupings of agents on the page of usage, and the heading of each."""
_Group: TypeAlias = tuple[str, Sequence[AgentStatus], Usage]
"""The name of a group of agents, the agents, and their own usage."""


def make_page(ask: Ask) -> Page:
    """Return the page of all runs and experiments."""
    runs = _choose(ask)
    form = comparison(ask.links, [*list_subjects(ask, runs)])
    parts = [
        Part("summary", _summarise(ask.site.runs())),
        Part("experiments", _draw_experiments(ask)),
        Part("filter", _draw_filter(ask)),
        Part("runs", _draw_runs(ask, runs)),
        Part("compare", join((element("h2", "Compare two runs"), form) if runs else ())),
    ]
    return Page(ask.site.root.name, (), parts, is_live=True)


def _summarise(runs: Sequence[RunSummary]) -> Markup:
    """Return a summary of the live runs and their health."""
    bad = ", ".join(
        f"{sign}{count_words(number, noun)}{end}"
        for how_often, sign, noun, end in _TROUBLES
        if (number := sum(map(how_often, runs)))
    )
    words = bad or "no instance died, no agent failed"
    health = element("span", words, class_="bad" if bad else "muted")
    states = Counter(agent.state for run in runs for agent in run.agents if not agent.is_over)
    live = count_words(sum(run.is_live for run in runs), "live run")
    agents = (f"{number} {state}" for state, number in states.items())
    return element("p", join((f"{live} of {len(runs)}", *agents, health), " · "), class_="summary")


def _draw_experiments(ask: Ask) -> Markup:
    to, identify = partial(ask.links.to, "experiment"), ask.site.identify
    columns: Columns[ExperimentOverview] = {
        "Experiment": lambda one: link(one.name, to(identify(one.directory))),
        "State": lambda one: state_mark(one.state),
        "Generations": lambda one: Cell(f"{one.committed}/{one.generations}", is_number=True),
        "Chains": lambda one: count(one.chains),
        "Failed": lambda one: count(one.failed),
        "Cost": lambda one: cost(one.spent_usd),
        "Changed": lambda one: moment(one.changed_at),
        "Why": lambda one: describe_driver(one.host) if one.host else one.error,
    }
    return section("Experiments", ask.site.experiments(), columns, most=_MAX_ROWS)


def _draw_filter(ask: Ask) -> Markup:
    pages = ("search", "usage", "lineage", "reports")
    links = (link(page.capitalize(), ask.links.to(page)) for page in pages)
    more = element("span", *links, class_="right")
    choices = {"state": ("", *_STATES), "sort": ("latest", *_ORDERS)}
    return filters(ask, ask.links.to(), "runs", "name, world, agent, label=value", choices, more)


def _choose(ask: Ask) -> Sequence[RunSummary]:
    """Return the requested runs in the requested order."""
    is_in_state = _STATES.get(ask.query.get("state", ""), lambda _run: True)
    order = _ORDERS.get(ask.query.get("sort", ""))
    runs = [run for run in filter(is_in_state, ask.site.runs()) if has_words(ask, _searched(run))]
    return runs if order is None else sorted(runs, key=order)


def _searched(run: RunSummary) -> Iterator[str]:
    """Yield the words of a run that the filter searches."""
    yield run.name
    for status in run.run.instances:
        yield from (status.name, status.world, status.state, format_labels(status.labels))
    for agent in run.agents:
        yield from (agent.name, agent.driver, agent.state, agent.reason)


def _draw_runs(ask: Ask, runs: Sequence[RunSummary]) -> Markup:
    total = len(ask.site.runs())
    unmatched = f"None of {count_words(total, 'run')} matches."
    nothing = unmatched if total else "Nothing has run in this directory or below."
    start = (ask.whole("start") or 0) // _RUNS_A_PAGE * _RUNS_A_PAGE
    kept = {name: ask.query[name] for name in ("q", "state", "sort") if ask.query.get(name)}
    others = (
        link(f"{at + 1} to {min(at + _RUNS_A_PAGE, len(runs))}", ask.links.to(**kept, start=at))
        for at in range(0, len(runs), _RUNS_A_PAGE)
        if at != start
    )
    of = f" of {total}" if len(runs) < total else ""
    heading, page = count_words(len(runs), "run") + of, runs[start : start + _RUNS_A_PAGE]
    table = section(heading, page, _columns(ask), most=_RUNS_A_PAGE, nothing=nothing)
    return join((table, element("p", join(others, " · "), class_="muted")))


def _columns(ask: Ask) -> Columns[RunSummary]:
    return {
        "Run": lambda run: link(_name(run), ask.links.to("run", run.ident), title=run.name),
        "State": draw_states,
        "World": lambda run: ", ".join(sorted({one.world for one in run.run.instances})),
        "Agents": lambda run: lines(_agents(ask, run)),
        "Turns": lambda run: count(_sum(run.agents).turns),
        "Tokens": lambda run: count(_sum(run.agents).tokens),
        "Cost": lambda run: cost(_sum(run.agents).cost_usd),
        "Labels": _describe_labels,
        "Latest": lambda run: moment(run.latest),
    }


def _sum(agents: Iterable[AgentStatus]) -> Usage:
    return sum_usage(agent.own_usage for agent in agents)


_TROUBLES: Final[Sequence[tuple[Callable[[RunSummary], int], str, str, str]]] = (
    (lambda run: sum(one.has_died for one in run.run.instances), "✕ ", "instance", " died"),
    (lambda run: sum(one.restarts for one in run.run.instances), "", "restart", ""),
    (lambda run: sum(one.state in _FAILED for one in run.agents), "✕ ", "agent", " failed"),
)
"""Counts of problems of a run: function, sign, noun and verb."""
_STATES: Final[Mapping[str, Callable[[RunSummary], bool]]] = {
    "live": lambda run: run.is_live,
    "ended": lambda run: not run.is_live,
    "bad": lambda run: any(how_often(run) for how_often, *_ in _TROUBLES),
}
_ORDERS: Final[Mapping[str, Callable[[RunSummary], Any]]] = {
    "name": lambda run: run.name,
    "cost": lambda run: -(_sum(run.agents).cost_usd or 0.0),
    "tokens": lambda run: -_sum(run.agents).tokens,
    "turns": lambda run: -_sum(run.agents).turns,
}


def _describe_labels(run: RunSummary) -> str:
    hidden = _OF_ATTEMPTS if run.part else ()  # the name contains them
    pairs = (pair for status in run.run.instances for pair in status.labels.items())
    labels = {format_labels({name: value}) for name, value in pairs if name not in hidden}
    return ", ".join(sorted(labels)[:_MAX_NAMED])


def _name(run: RunSummary) -> str:
    """Return a short name; for an attempt, the names of its experiment and its own."""
    part = run.part
    return run.name if part is None else f"{part.experiment.name} {part.attempt}"


def draw_states(run: RunSummary) -> Markup:
    """Return the states of the instances of a run, each with the number of instances."""
    counts = Counter((status.state, status.has_died) for status in run.run.instances)
    marks = (
        join((state_mark(state, is_bad=is_bad), f" {number}" if number > 1 else None))
        for (state, is_bad), number in counts.items()
    )
    return join(marks, ", ")


def _agents(ask: Ask, run: RunSummary) -> Iterator[Child]:
    for agent in run.agents[:_MAX_NAMED]:
        to = ask.links.to("run", run.ident, "agent", ask.site.identify(agent.dir))
        turn = f" turn {agent.turn}" if agent.turn else ""
        yield join((link(agent.name, to), " ", state_mark(agent.state), turn))
    yield and_more(len(run.agents) - _MAX_NAMED)


# -- usage -----------------------------------------------------------------------------------------


def make_usage_page(ask: Ask) -> Page:
    """Return the page of usage."""
    runs = ask.site.runs()
    groups = {name: defaultdict[str, list[AgentStatus]](list) for name in _GROUPS}
    for run in runs:
        experiment = run.part.experiment.name if run.part else run.name
        models = _find_models(ask, run)
        for agent in run.agents:
            model = f"{agent.driver}, {models.get(agent.name) or 'model not chosen'}"
            for name, key in zip(_GROUPS, (experiment, model, agent.time[:10]), strict=True):
                groups[name][key].append(agent)
    agents = [agent for run in runs for agent in run.agents]
    own, inherited = _sum(agents), sum_usage(agent.inherited for agent in agents)
    money = format_cost(own.cost_usd) or "cost not reported"
    words = f"{count_words(len(agents), 'agent')} · {own.turns} turns · {money}"
    notes = [
        "Own usage: what a fork inherited from its parent is not counted again"
        + (f" ({inherited.tokens:,} tokens in all)." if inherited.tokens else "."),
        "A cost is what the programs reported; the day is that of an agent's latest event.",
    ]
    parts = [
        Part("summary", element("p", words, class_="summary")),
        *(Part(name, _draw_usage(name, found)) for name, found in groups.items()),
        Part("notes", join(element("p", note, class_="muted") for note in notes)),
    ]
    return Page("Usage", ask.crumbs(), parts)


def _find_models(ask: Ask, run: RunSummary) -> Mapping[str, str | None]:
    """Return the requested models, by agent name."""
    with suppress(ClawbloxError):
        if run.part is not None:
            rows = ask.site.read_record(run.part.experiment).results().agents()
            return {row.name: row.model for row in rows}
        if team := read_team(run.directory):
            return {agent.name: agent.model for agent in team.agents}
    return {}


def _draw_usage(name: str, found: Mapping[str, Sequence[AgentStatus]]) -> Markup:
    def rank(group: _Group) -> tuple[str, float, int]:
        key, _, usage = group
        return key if name == "day" else "", usage.cost_usd or 0, usage.tokens

    groups = [(key, agents, _sum(agents)) for key, agents in found.items()]
    columns: Columns[_Group] = {
        _GROUPS[name]: lambda group: group[0],
        "Agents": lambda group: count(len(group[1])),
        "Turns": lambda group: count(group[2].turns),
        "Input": lambda group: count(group[2].tokens - group[2].output_tokens),
        "Cached": lambda group: count(group[2].cached_tokens),
        "Output": lambda group: count(group[2].output_tokens),
        "Cost": lambda group: cost(group[2].cost_usd),
    }
    groups.sort(key=rank, reverse=True)
    return section(f"By {name}", groups, columns, most=_MAX_ROWS)
