"""The page of an experiment: chains and generations with their reasons, money, and results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias

from clawblox.experiment.reading.overview import find_status
from clawblox.experiment.tables.estimates import Estimate
from clawblox.experiment.tables.groups import GroupDifference
from clawblox.experiment.tables.results import Results
from clawblox.experiment.tables.rows import Row
from clawblox.experiment.tables.status import ChainStatus, ExperimentStatus
from clawblox.experiment.tables.text_tables import format_cell
from clawblox.views.experiments import (
    describe_counts,
    describe_last,
    describe_money,
    describe_node,
    describe_time,
    suggest_resume,
)
from clawblox.views.formatting import count_words, format_labels, format_node, format_rough_seconds
from clawblox.views.html import Child, Markup, PageAddress, element, join, link
from clawblox.views.score_svg import draw_scores
from clawblox.web.page import Ask, Page, Part
from clawblox.web.pieces import (
    Cell,
    Columns,
    code,
    comparison,
    cost,
    count,
    filters,
    find_sign,
    has_words,
    listing,
    moment,
    section,
    state_mark,
    table,
)
from clawblox.web.run_history import list_subjects

_MAX_GENERATIONS: Final = 60
_MAX_ROWS: Final = 2000
_MAX_SCORES: Final = 12
_MAX_CHARS: Final = 300
_LEGEND: Final = (
    "■ committed · □ imported · ● under way · ◐ starting or paused · ✕ failed · ◇ interrupted · "
    "■ 2 after two attempts"
)

_Pages: TypeAlias = Mapping[str, PageAddress]
"""The pages of existing runs, by their directories in the experiment."""


def make_page(ask: Ask, ident: str) -> Page:
    """Return the page of an experiment."""
    site = ask.site
    found = site.find(site.experiments(), lambda one: one.directory, ident, "experiment")
    record = site.read_record(found.directory)
    status = find_status(record)
    results = record.results()
    own = [run for run in ask.site.runs() if run.part and run.part.experiment == record.dir]
    place, to = record.dir, ask.links.to
    pages = {str(run.directory.relative_to(place)): to("run", run.ident) for run in own}
    rows = results.rows()
    choices = {"state": ("", *sorted({row.status for row in rows}))}
    searched = "chain, condition, reason"
    parts = [
        Part("summary", _summarise(status)),
        Part("chains", _draw_chains(status, rows, pages)),
        Part("results", _draw_results(results)),
        Part("filter", filters(ask, to("experiment", ident), "rows", searched, choices)),
        Part("rows", _draw_rows([*_choose(ask, rows)], pages)),
        Part("compare", comparison(ask.links, [*list_subjects(ask, own)])),
    ]
    return Page(record.plan.name, ask.crumbs(), parts, is_live=status.pid is not None)


def _summarise(status: ExperimentStatus) -> Markup:
    state = None if status.pid is None else state_mark("running")
    facts = (describe_counts(status).plain, describe_money(status), describe_time(status))
    said = [element("p", join(filter(None, (state, *facts)), " · "), class_="summary")]
    needed = [chain for chain in status.chains if chain.state in ("failed", "paused")]
    for chain in needed[:_MAX_SCORES]:
        mark, why = state_mark(chain.state), describe_last(chain)
        said.append(element("p", f"{chain.name} ", mark, ": ", why))
    for account in status.accounts:
        words = f"The account {account.name} is limited: {account.reason}"
        said.append(element("p", words, class_="warning"))
    if status.pid is None and (resume := suggest_resume(status)):
        said.append(element("p", "Continue: ", code(resume)))
    return join(said)


def _draw_chains(status: ExperimentStatus, rows: Sequence[Row], pages: _Pages) -> Markup:
    """Return the chains, each with a sign for every generation."""
    by_place = {(row.chain, row.generation): row for row in rows}
    most = min(max((chain.generations for chain in status.chains), default=0), _MAX_GENERATIONS)
    labels = {row.chain: format_labels(row.labels) for row in rows}

    def mark(number: int, chain: ChainStatus) -> Child:
        return _mark(by_place.get((chain.name, number)), pages)

    columns: Columns[ChainStatus] = {
        "Chain": lambda chain: chain.name,
        "Condition": lambda chain: labels.get(chain.name),
        "State": lambda chain: state_mark(chain.state),
        "Node": describe_node,
        "Why": lambda chain: describe_last(chain)[:_MAX_CHARS],
        **{str(number): partial(mark, number) for number in range(1, most + 1)},
        "Score": lambda chain: _scores(chain.scores),
        "Cost": lambda chain: cost(chain.cost_usd),
    }
    heading = f"{count_words(len(status.chains), 'chain')} and their generations"
    chains = listing(heading, status.chains, columns, most=_MAX_ROWS)
    grid = element("div", chains, class_="scroll grid", tabindex="0")
    return join((element("h2", heading), grid, element("p", _LEGEND, class_="muted")))


def _mark(row: Row | None, pages: _Pages) -> Child:
    if row is None:
        return "·"
    sign, kind = find_sign(row.status)
    place = f"{row.chain} generation {row.generation}: {row.status}"
    tried = count_words(row.attempts, "attempt")
    words = (place, row.ended_by, row.error[:_MAX_CHARS], tried, _format_scores(row.scores))
    title = ", ".join(filter(None, words))
    tries = f" {row.attempts}" if row.attempts > 1 else ""
    shown = element("span", sign, tries, class_=kind, title=title)
    return _link(shown, row, pages, label=title)


def _link(words: Child, row: Row, pages: _Pages, label: str | None = None) -> Child:
    to = pages.get(row.run_dir)
    return words if to is None else link(words, to, aria_label=label)


def _format_scores(scores: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in list(scores.items())[:_MAX_SCORES])


def _scores(scores: Mapping[str, float]) -> Cell:
    first_score = next(iter(scores.values()), 0.0)
    return Cell(_format_scores(scores), is_number=True, sort=f"{first_score:.9g}")


# -- results ------------------------------------------------------------------------------------


def _draw_results(results: Results) -> Markup:
    names = sorted({name for row in results.rows() if row.is_over for name in row.scores})
    names = names[:_MAX_SCORES]
    if not names:
        return join(())
    differences = [(name, one) for name in names for one in results.differences(name)]
    listed = section("Branches and controls", differences, _DIFFERENCES, most=_MAX_ROWS)
    pictures = (draw_scores(results, name, title=name).part() for name in names)
    plots = (element("div", picture, class_="scroll", tabindex="0") for picture in pictures)
    return join((_draw_groups(results, names), listed, *plots))


def _draw_groups(results: Results, names: Sequence[str]) -> Markup:
    by = results.conditions() or ["chain"]
    groups = zip(*(results.summary(name, by=by) for name in names), strict=True)
    rows: list[Sequence[Cell | Child]] = []
    for of_scores in groups:
        values = map(format_cell, of_scores[0].by.values())
        rows.append((*values, *(_estimate(group.estimate) for group in of_scores)))
    heading = "Results by condition"
    return join((element("h2", heading), table(heading, (*by, *names), rows)))


def _estimate(found: Estimate | None) -> Cell:
    if found is None or found.mean is None:
        return Cell("", is_number=True)
    error = "" if found.standard_error is None else f" ± {found.standard_error:.3g}"
    return Cell(f"{found.mean:.4g}{error} (n {found.n})", is_number=True, sort=f"{found.mean:.9g}")


_DIFFERENCES: Final[Columns[tuple[str, GroupDifference]]] = {
    "Branches": lambda one: ", ".join(f"{key}={value}" for key, value in one[1].by.items()),
    "Score": lambda one: one[0],
    "Control": lambda one: Cell("" if one[1].control is None else f"{one[1].control:.4g}", True),
    "Difference": lambda one: _estimate(one[1].estimate),
    "95 % interval": lambda one: " to ".join(f"{end:.3g}" for end in one[1].interval or ()),
}
"""Shown parts of a score difference between branches."""


# -- rows ---------------------------------------------------------------------------------------


def _seconds(seconds: float) -> Cell:
    return Cell(format_rough_seconds(seconds), is_number=True, sort=f"{seconds:.1f}")


def _choose(ask: Ask, rows: Sequence[Row]) -> Iterator[Row]:
    """Yield the requested generations."""
    for row in rows:
        words = row.chain, format_labels(row.labels), row.status, row.ended_by, row.error
        if ask.query.get("state", "") in ("", row.status) and has_words(ask, words):
            yield row


def _draw_rows(rows: Sequence[Row], pages: _Pages) -> Markup:
    columns: Columns[Row] = {
        "Generation": lambda row: _link(f"{row.chain}/g{row.generation:03}", row, pages),
        "Condition": lambda row: format_labels(row.labels),
        "State": lambda row: state_mark(row.status),
        "Node": lambda row: format_node(row.node, row.differs),
        "Why": lambda row: ": ".join(filter(None, (row.ended_by, row.error)))[:_MAX_CHARS],
        "Attempts": lambda row: count(row.attempts),
        "Turns": lambda row: count(row.turns),
        "Output": lambda row: count(row.output_tokens),
        "Cost": lambda row: cost(row.cost_usd),
        "All attempts": lambda row: cost(row.spent_usd),
        "Active": lambda row: _seconds(row.active_s),
        "Score": lambda row: _scores(row.scores),
        "Ended": lambda row: moment(row.ended_at),
    }
    heading, nothing = count_words(len(rows), "generation"), "No generation matches."
    return section(heading, rows, columns, most=_MAX_ROWS, nothing=nothing)
