"""The first page: what runs, and what has run, below the directory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from clawblox.agents.values import sum_usage
from clawblox.experiment.overview import ExperimentOverview
from clawblox.printable import printable
from clawblox.results import format_label
from clawblox.rundir.status import InstanceStatus
from clawblox.views.formatting import count_words
from clawblox.views.html import Child, Markup, element, join, link
from clawblox.web.page import Ask, Page, Part
from clawblox.web.pieces import (
    Cell,
    comparison,
    cost,
    count,
    filter_field,
    lines,
    moment,
    selection,
    state_mark,
    table,
)
from clawblox.web.run_history import list_subjects
from clawblox.web.site import RunSummary

_RUNS_A_PAGE: Final = 200
_MAX_NAMED: Final = 6
_OF_ATTEMPTS: Final = ("chain", "experiment", "generation")
"""Labels that every attempt of an experiment has."""
_STATES: Final = ("live", "ended", "bad")
_ORDERS: Final = ("latest", "name", "cost", "tokens", "turns")


def make_page(ask: Ask) -> Page:
    """Return the page of all runs and experiments."""
    runs = ask.site.runs()
    shown = _sort(ask, [run for run in runs if _is_wanted(ask, run)])
    experiments = ask.site.experiments()
    parts = [
        Part("summary", _summarise(runs)),
        Part("experiments", _draw_experiments(ask, experiments)),
        Part("filter", _draw_filter(ask)),
        Part("runs", _draw_runs(ask, shown, len(runs))),
        Part("compare", _draw_comparison(ask, shown)),
    ]
    return Page(ask.site.root.name, (), parts, is_live=True, is_of_site=True)


def _summarise(runs: Sequence[RunSummary]) -> Markup:
    """Say what runs and whether it is healthy."""
    instances = [status for run in runs for status in run.run.instances]
    agents = [agent for run in runs for agent in run.agents]
    live = sum(run.is_live for run in runs)
    bad = sum(status.has_died for status in instances)
    states = Counter(agent.state for agent in agents if not agent.is_over)
    words = [
        f"{count_words(live, 'live run')} of {len(runs)}",
        *(f"{number} {state}" for state, number in states.items()),
    ]
    health = (
        element("span", f"✕ {count_words(bad, 'instance')} died", class_="bad")
        if bad
        else element("span", "no instance died", class_="muted")
    )
    return element("p", join([*words, health], " · "), class_="summary")


def _draw_experiments(ask: Ask, experiments: Iterable[ExperimentOverview]) -> Markup:
    rows = [
        (
            link(printable(one.name), ask.links.to("experiment", ask.site.identify(one.directory))),
            state_mark(one.state),
            Cell(f"{one.committed}/{one.generations}", is_number=True),
            count(one.chains),
            count(one.failed),
            cost(one.spent_usd),
            moment(one.changed_at),
            printable(one.error),
        )
        for one in experiments
    ]
    if not rows:
        return join(())
    headings = ("Experiment", "State", "Generations", "Chains", "Failed", "Cost", "Changed", "Why")
    return join((element("h2", "Experiments"), table("Experiments", headings, rows)))


def _draw_filter(ask: Ask) -> Markup:
    return element(
        "form",
        filter_field("runs", ask.query.get("q", ""), "name, world, agent, label=value"),
        selection("state", "State", ("", *_STATES), ask.query.get("state", "")),
        selection("sort", "Sort by", _ORDERS, ask.query.get("sort", "")),
        element("button", "Show", type="submit"),
        element("span", *_more(ask), class_="right"),
        method="get",
        action=ask.links.to(),
        class_="row",
    )


def _more(ask: Ask) -> Iterator[Markup]:
    pages = {"search": "Search", "usage": "Usage", "lineage": "Lineage", "reports": "Reports"}
    return (link(words, ask.links.to(path)) for path, words in pages.items())


def _is_wanted(ask: Ask, run: RunSummary) -> bool:
    state = ask.query.get("state", "")
    is_bad = any(status.has_died for status in run.run.instances)
    if state and not {"live": run.is_live, "ended": not run.is_live, "bad": is_bad}.get(
        state, True
    ):
        return False
    words = ask.query.get("q", "").lower().split()
    text = _searched(run)
    return all(word in text for word in words)


def _searched(run: RunSummary) -> str:
    """Return the words by which a run is found."""
    pieces = [run.name]
    for status in run.run.instances:
        pieces += [status.name, status.world, status.state, *_labels(status)]
    for agent in run.agents:
        pieces += [agent.name, agent.driver, agent.state, agent.reason]
    return " ".join(pieces).lower()


def _labels(status: InstanceStatus, hidden: Collection[str] = ()) -> Iterator[str]:
    labels = ((name, value) for name, value in status.labels.items() if name not in hidden)
    return (f"{name}={format_label(value)}" for name, value in labels)


def _sort(ask: Ask, runs: Sequence[RunSummary]) -> Sequence[RunSummary]:
    order = ask.query.get("sort", "")
    if order == "name":
        return sorted(runs, key=lambda run: run.name)
    if order in ("cost", "tokens", "turns"):

        def amount(run: RunSummary) -> float:
            usage = sum_usage(agent.own_usage for agent in run.agents)
            return {"cost": usage.cost_usd or 0.0, "tokens": usage.tokens}.get(order, usage.turns)

        return sorted(runs, key=amount, reverse=True)
    return runs


def _draw_runs(ask: Ask, runs: Sequence[RunSummary], total: int) -> Markup:
    if not total:
        return element("p", "Nothing has run in this directory or below.", class_="muted")
    start = (ask.whole("start") or 0) // _RUNS_A_PAGE * _RUNS_A_PAGE
    page = runs[start : start + _RUNS_A_PAGE]
    headings = ("Run", "State", "World", "Agents", "Turns", "Tokens", "Cost", "Labels", "Latest")
    rows = [_draw_run(ask, run) for run in page]
    more = [
        link(
            f"{first + 1} to {min(first + _RUNS_A_PAGE, len(runs))}",
            ask.links.to(**_kept(ask), start=first),
        )
        for first in range(0, len(runs), _RUNS_A_PAGE)
        if first != start
    ]
    heading = f"{count_words(len(runs), 'run')}" + (f" of {total}" if len(runs) < total else "")
    return join(
        (
            element("h2", heading),
            table("Runs", headings, rows),
            element("p", join(more, " · "), class_="muted") if more else None,
        )
    )


def _draw_run(ask: Ask, run: RunSummary) -> Sequence[Cell | Child]:
    usage = sum_usage(agent.own_usage for agent in run.agents)
    worlds = sorted({status.world for status in run.run.instances})
    hidden = _OF_ATTEMPTS if run.part else ()  # its name has them
    labels = sorted({label for status in run.run.instances for label in _labels(status, hidden)})
    return (
        link(_name(run), ask.links.to("run", run.ident), title=run.name),
        _states(run),
        printable(", ".join(worlds)),
        lines(_agents(ask, run)),
        count(usage.turns),
        count(usage.tokens),
        cost(usage.cost_usd),
        printable(", ".join(labels[:_MAX_NAMED])),
        moment(run.latest),
    )


def _name(run: RunSummary) -> str:
    """Return a short name: attempts have those of their experiment and their own."""
    part = run.part
    return printable(run.name if part is None else f"{part.experiment.name} {part.attempt}")


def _states(run: RunSummary) -> Markup:
    counts = Counter((status.state, status.has_died) for status in run.run.instances)
    marks = []
    for (state, is_bad), number in counts.items():
        times = f" {number}" if number > 1 else ""
        marks.append(join((state_mark(state, is_bad=is_bad), times)))
    return join(marks, ", ")


def _agents(ask: Ask, run: RunSummary) -> Iterator[Markup]:
    for agent in run.agents[:_MAX_NAMED]:
        to = ask.links.to("run", run.ident, "agent", ask.site.identify(agent.dir))
        turn = f" turn {agent.turn}" if agent.turn else ""
        yield join((link(printable(agent.name), to), " ", state_mark(agent.state), turn))
    if len(run.agents) > _MAX_NAMED:
        yield element("span", f"and {len(run.agents) - _MAX_NAMED} more", class_="muted")


def _draw_comparison(ask: Ask, runs: Sequence[RunSummary]) -> Markup:
    """Return the form that sets two runs beside each other."""
    if not runs:
        return join(())
    form = comparison(ask.links, [*list_subjects(ask, runs)])
    return join((element("h2", "Compare two runs"), form))


def _kept(ask: Ask) -> dict[str, str]:
    return {name: ask.query[name] for name in ("q", "state", "sort") if ask.query.get(name)}
