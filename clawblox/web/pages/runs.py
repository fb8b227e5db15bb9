"""The first page: what runs, and what has run, below the directory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from clawblox.agents.values import Usage, sum_usage
from clawblox.experiment.overview import ExperimentOverview
from clawblox.results import format_label
from clawblox.rundir.status import InstanceStatus
from clawblox.views.formatting import count_words
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
    section,
    moment,
    state_mark,
)
from clawblox.web.run_history import list_subjects
from clawblox.web.site import RunSummary

_RUNS_A_PAGE: Final = 200
_MAX_NAMED: Final = 6
_OF_ATTEMPTS: Final = ("chain", "experiment", "generation")
"""Labels that every attempt of an experiment has."""
_MAX_EXPERIMENTS: Final = 200


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
    return Page(ask.site.root.name, (), parts, is_live=True, is_of_site=True)


def _summarise(runs: Sequence[RunSummary]) -> Markup:
    """Say what runs and whether it is healthy."""
    dead = sum(status.has_died for run in runs for status in run.run.instances)
    health = element("span", "no instance died", class_="muted")
    if dead:
        health = element("span", f"✕ {count_words(dead, 'instance')} died", class_="bad")
    states = Counter(agent.state for run in runs for agent in run.agents if not agent.is_over)
    live = count_words(sum(run.is_live for run in runs), "live run")
    words = (f"{number} {state}" for state, number in states.items())
    return element("p", join((f"{live} of {len(runs)}", *words, health), " · "), class_="summary")


def _draw_experiments(ask: Ask) -> Markup:
    def name(one: ExperimentOverview) -> Markup:
        return link(one.name, ask.links.to("experiment", ask.site.identify(one.directory)))

    columns: Columns[ExperimentOverview] = {
        "Experiment": name,
        "State": lambda one: state_mark(one.state),
        "Generations": lambda one: Cell(f"{one.committed}/{one.generations}", is_number=True),
        "Chains": lambda one: count(one.chains),
        "Failed": lambda one: count(one.failed),
        "Cost": lambda one: cost(one.spent_usd),
        "Changed": lambda one: moment(one.changed_at),
        "Why": lambda one: one.error,
    }
    return section("Experiments", ask.site.experiments(), columns, most=_MAX_EXPERIMENTS)


def _draw_filter(ask: Ask) -> Markup:
    pages = ("search", "usage", "lineage", "reports")
    links = (link(page.capitalize(), ask.links.to(page)) for page in pages)
    more = element("span", *links, class_="right")
    choices = {"state": ("", *_STATES), "sort": ("latest", *_ORDERS)}
    return filters(ask, ask.links.to(), "runs", "name, world, agent, label=value", choices, more)


def _choose(ask: Ask) -> Sequence[RunSummary]:
    """Return the runs that are asked for, in the order that is asked for."""
    is_in_state = _STATES.get(ask.query.get("state", ""))
    runs = [
        run
        for run in ask.site.runs()
        if (is_in_state is None or is_in_state(run)) and has_words(ask, _searched(run))
    ]
    order = _ORDERS.get(ask.query.get("sort", ""))
    return runs if order is None else sorted(runs, key=order)


def _searched(run: RunSummary) -> Iterator[str]:
    """Yield the words by which a run is found."""
    yield run.name
    for status in run.run.instances:
        yield from (status.name, status.world, status.state, *_labels(status))
    for agent in run.agents:
        yield from (agent.name, agent.driver, agent.state, agent.reason)


def _labels(status: InstanceStatus, hidden: Collection[str] = ()) -> Iterator[str]:
    labels = ((name, value) for name, value in status.labels.items() if name not in hidden)
    return (f"{name}={format_label(value)}" for name, value in labels)


def _draw_runs(ask: Ask, runs: Sequence[RunSummary]) -> Markup:
    total = len(ask.site.runs())
    if not total:
        return element("p", "Nothing has run in this directory or below.", class_="muted")
    start = (ask.whole("start") or 0) // _RUNS_A_PAGE * _RUNS_A_PAGE
    kept = {name: ask.query[name] for name in ("q", "state", "sort") if ask.query.get(name)}
    others = (
        link(f"{at + 1} to {min(at + _RUNS_A_PAGE, len(runs))}", ask.links.to(**kept, start=at))
        for at in range(0, len(runs), _RUNS_A_PAGE)
        if at != start
    )
    of = f" of {total}" if len(runs) < total else ""
    page = runs[start : start + _RUNS_A_PAGE]
    table = section(count_words(len(runs), "run") + of, page, _columns(ask), most=_RUNS_A_PAGE)
    return join((table, element("p", join(others, " · "), class_="muted")))


def _columns(ask: Ask) -> Columns[RunSummary]:
    return {
        "Run": lambda run: link(_name(run), ask.links.to("run", run.ident), title=run.name),
        "State": _states,
        "World": lambda run: ", ".join(sorted({one.world for one in run.run.instances})),
        "Agents": lambda run: lines(_agents(ask, run)),
        "Turns": lambda run: count(_usage(run).turns),
        "Tokens": lambda run: count(_usage(run).tokens),
        "Cost": lambda run: cost(_usage(run).cost_usd),
        "Labels": _describe_labels,
        "Latest": lambda run: moment(run.latest),
    }


def _usage(run: RunSummary) -> Usage:
    return sum_usage(agent.own_usage for agent in run.agents)


def _has_died(run: RunSummary) -> bool:
    return any(status.has_died for status in run.run.instances)


_STATES: Final[Mapping[str, Callable[[RunSummary], bool]]] = {
    "live": lambda run: run.is_live,
    "ended": lambda run: not run.is_live,
    "bad": _has_died,
}
_ORDERS: Final[Mapping[str, Callable[[RunSummary], Any]]] = {
    "name": lambda run: run.name,
    "cost": lambda run: -(_usage(run).cost_usd or 0.0),
    "tokens": lambda run: -_usage(run).tokens,
    "turns": lambda run: -_usage(run).turns,
}


def _describe_labels(run: RunSummary) -> str:
    hidden = _OF_ATTEMPTS if run.part else ()  # its name has them
    labels = {label for status in run.run.instances for label in _labels(status, hidden)}
    return ", ".join(sorted(labels)[:_MAX_NAMED])


def _name(run: RunSummary) -> str:
    """Return a short name: attempts have those of their experiment and their own."""
    part = run.part
    return run.name if part is None else f"{part.experiment.name} {part.attempt}"


def _states(run: RunSummary) -> Markup:
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
