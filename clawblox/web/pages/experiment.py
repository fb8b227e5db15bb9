"""An experiment: its chains and generations, why each is as it is, money, and results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from clawblox.errors import ClawbloxError, ConfigError
from clawblox.experiment.tables.estimates import Estimate
from clawblox.experiment.tables.results import Results
from clawblox.experiment.tables.rows import Row
from clawblox.experiment.tables.status import ExperimentStatus
from clawblox.experiment.tables.text_tables import format_cell
from clawblox.printable import printable
from clawblox.rundir.experiments import find_experiment_owner
from clawblox.views.experiments import (
    describe_counts,
    describe_last,
    describe_money,
    describe_time,
)
from clawblox.views.formatting import (
    count_words,
    format_labels,
    format_rough_seconds,
    suggest,
)
from clawblox.views.html import Address, Child, Markup, element, join, link
from clawblox.views.score_svg import draw_scores
from clawblox.web.page import Ask, Page, Part
from clawblox.web.pieces import (
    Cell,
    code,
    comparison,
    cost,
    count,
    filter_field,
    moment,
    selection,
    state_mark,
    table,
)
from clawblox.web.run_history import list_subjects
from clawblox.web.site import NoSuchPage, first

_MAX_GENERATIONS: Final = 60
_MAX_ROWS: Final = 2000
_MAX_SCORES: Final = 12
_MAX_CHARS: Final = 300
_SIGNS: Final[Mapping[str, tuple[str, str]]] = {
    "committed": ("■", "muted"),
    "imported": ("□", "muted"),
    "failed": ("✕", "bad"),
    "paused": ("◐", "warning"),
    "interrupted": ("◇", "lost"),
}
_UNDER_WAY: Final = ("●", "good")

FindRun: TypeAlias = Callable[[Row], Address | None]
"""Returns the page of the run of a generation; None if its directory is gone."""


def make_page(ask: Ask, ident: str) -> Page:
    """Return the page of an experiment."""
    found = first(
        (one for one in ask.site.experiments() if ask.site.identify(one.directory) == ident),
        f"There is no experiment {ident} in {ask.site.root.name}",
    )
    try:
        record = ask.site.read_record(found.directory)
        status = record.status(pid=find_experiment_owner(record.directory))
        results = record.results()
    except ClawbloxError as error:
        raise NoSuchPage(f"{found.name} cannot be read: {error.headline}") from error
    own = [run for run in ask.site.runs() if run.part and run.part.experiment == record.directory]
    runs = {run.directory: run.ident for run in own}

    def address(row: Row) -> Address | None:
        run = runs.get(record.directory / row.run_dir) if row.run_dir else None
        return None if run is None else ask.links.to("run", run)

    rows = results.rows()
    parts = [
        Part("summary", _summarise(status)),
        Part("chains", _draw_chains(status, rows, address)),
        Part("results", _draw_results(ask, ident, results)),
        Part("filter", _draw_filter(ask, ident, rows)),
        Part("rows", _draw_rows(ask, rows, address)),
        Part("compare", comparison(ask.links, [*list_subjects(ask, own)])),
    ]
    crumbs = ((ask.site.root.name, ask.links.to()),)
    is_live = status.pid is not None
    return Page(printable(record.plan.name), crumbs, parts, is_live=is_live, is_of_site=True)


def _summarise(status: ExperimentStatus) -> Markup:
    state = None if status.pid is None else state_mark("running")
    facts = (describe_counts(status).plain, describe_money(status), describe_time(status))
    sentence = join((fact for fact in (state, *facts) if fact), " · ")
    needed = [
        element(
            "p", element("b", chain.name), " ", state_mark(chain.state), ": ", describe_last(chain)
        )
        for chain in status.chains
        if chain.state in ("failed", "paused")
    ][:_MAX_SCORES]
    limited = [
        element("p", f"The account {account.name} is limited: {account.reason}", class_="warning")
        for account in status.accounts
    ]
    words = ["--retry-failed"] if status.counts.get("failed") else []
    is_open = status.counts.get("committed", 0) < status.generations and status.pid is None
    resume = suggest("experiment resume", status.directory, *words) if is_open else ""
    return join(
        (
            element("p", sentence, class_="summary"),
            *needed,
            *limited,
            element("p", "Go on: ", code(resume)) if resume else None,
        )
    )


def _draw_chains(status: ExperimentStatus, rows: Sequence[Row], address: FindRun) -> Markup:
    """Return the chains, each with a sign for every generation."""
    by_place = {(row.chain, row.generation): row for row in rows}
    most = min(max((chain.generations for chain in status.chains), default=0), _MAX_GENERATIONS)
    labels = {row.chain: format_labels(row.labels) for row in rows}
    numbers = [str(number) for number in range(1, most + 1)]
    headings = ("Chain", "Condition", "State", "Why", *numbers, "Score", "Cost")
    body = [
        (
            printable(chain.name),
            printable(labels.get(chain.name, "")),
            state_mark(chain.state),
            _cut(describe_last(chain)),
            *(_mark(by_place.get((chain.name, int(number))), address) for number in numbers),
            _scores(chain.scores),
            cost(chain.cost_usd),
        )
        for chain in status.chains
    ]
    legend = " · ".join(f"{sign} {word}" for word, (sign, _) in _SIGNS.items())
    legend += " · ● under way · ■ 2 after two attempts"
    return join(
        (
            element("h2", f"{count_words(len(status.chains), 'chain')} and their generations"),
            element(
                "div",
                table("Chains and generations", headings, body),
                class_="scroll grid",
                tabindex="0",
            ),
            element("p", legend, class_="muted"),
        )
    )


def _mark(row: Row | None, address: FindRun) -> Child:
    if row is None:
        return "·"
    sign, kind = _SIGNS.get(row.status, _UNDER_WAY)
    scores = ", ".join(f"{name} {value:g}" for name, value in row.scores.items())
    words = ", ".join(
        filter(
            None,
            (
                f"{row.chain} generation {row.generation}: {row.status}",
                row.ended_by,
                _cut(row.error),
                count_words(row.attempts, "attempt"),
                scores,
            ),
        )
    )
    tries = f" {row.attempts}" if row.attempts > 1 else ""
    shown = element("span", sign, tries, class_=kind, title=words)
    to = address(row)
    return shown if to is None else link(shown, to, aria_label=words)


def _scores(scores: Mapping[str, float]) -> Cell:
    shown = ", ".join(f"{name} {value:g}" for name, value in list(scores.items())[:_MAX_SCORES])
    first = next(iter(scores.values()), 0.0)
    return Cell(printable(shown), is_number=True, sort=f"{first:.9g}")


# -- results ------------------------------------------------------------------------------------


def _draw_results(ask: Ask, ident: str, results: Results) -> Markup:
    names = sorted({name for row in results.rows() if row.is_over for name in row.scores})
    if not names:
        return join(())
    chosen = ask.query.get("score") if ask.query.get("score") in names else names[0]
    by = results.conditions() or ["chain"]
    links = [
        element("b", printable(name))
        if name == chosen
        else link(printable(name), ask.links.to("experiment", ident, score=name))
        for name in names[:_MAX_SCORES]
    ]
    try:
        picture = draw_scores(results, str(chosen), title=str(chosen)).part()
    except ConfigError as error:
        picture = element("p", error.headline, class_="muted")
    return join(
        (
            element("h2", "Results by condition"),
            element("p", join(links, " · ")) if len(links) > 1 else None,
            _draw_groups(results, names[:_MAX_SCORES], by),
            *_draw_differences(results, names[:_MAX_SCORES]),
            element("div", picture, class_="scroll", tabindex="0"),
        )
    )


def _draw_groups(results: Results, names: Sequence[str], by: Sequence[str]) -> Markup:
    estimates = {
        name: {tuple(group.by.values()): group.estimate for group in results.summary(name, by=by)}
        for name in names
    }
    groups = sorted({key for found in estimates.values() for key in found}, key=repr)
    rows: list[Sequence[Cell | Child]] = [
        (
            *(printable(format_cell(value)) for value in key),
            *(_estimate(estimates[name].get(key)) for name in names),
        )
        for key in groups
    ]
    return table("Results by condition", (*by, *map(printable, names)), rows)


def _estimate(found: Estimate | None) -> Cell:
    if found is None or found.mean is None:
        return Cell("", is_number=True)
    error = "" if found.standard_error is None else f" ± {found.standard_error:.3g}"
    return Cell(f"{found.mean:.4g}{error} (n {found.n})", is_number=True, sort=f"{found.mean:.9g}")


def _draw_differences(results: Results, names: Sequence[str]) -> Iterator[Markup]:
    """Yield how branches differ from the control branches of their checkpoints."""
    rows = []
    for name in names:
        for found in results.differences(name):
            interval = ""
            if found.interval is not None:
                interval = f"{found.interval[0]:.3g} to {found.interval[1]:.3g}"
            by = ", ".join(f"{key}={value}" for key, value in found.by.items())
            control = Cell(f"{found.control:.4g}" if found.control is not None else "", True)
            rows.append((by, name, control, _estimate(found.estimate), interval))
    if rows:
        headings = ("Branches", "Score", "Control", "Difference", "95 % interval")
        yield table("Branches and controls", headings, rows)


# -- rows ---------------------------------------------------------------------------------------


def _draw_filter(ask: Ask, ident: str, rows: Sequence[Row]) -> Markup:
    states = sorted({row.status for row in rows})
    return element(
        "form",
        filter_field("rows", ask.query.get("q", ""), "chain, condition, reason"),
        selection("state", "State", ("", *states), ask.query.get("state", "")),
        element("button", "Show", type="submit"),
        method="get",
        action=ask.links.to("experiment", ident),
        class_="row",
    )


def _draw_rows(ask: Ask, rows: Sequence[Row], address: FindRun) -> Markup:
    state, words = ask.query.get("state", ""), ask.query.get("q", "").lower().split()
    wanted = [
        row
        for row in rows
        if (not state or row.status == state) and all(word in _searched(row) for word in words)
    ]
    headings = (
        *("Generation", "Condition", "State", "Why", "Attempts", "Turns", "Output", "Cost"),
        *("All attempts", "Active", "Score", "Ended"),
    )
    body = [_draw_row(row, address) for row in wanted[:_MAX_ROWS]]
    more = len(wanted) - len(body)
    return join(
        (
            element("h2", count_words(len(wanted), "generation")),
            table("Generations", headings, body),
            element("p", f"and {more} more: filter them", class_="muted") if more else None,
        )
    )


def _draw_row(row: Row, address: FindRun) -> Sequence[Cell | Child]:
    name, to = printable(f"{row.chain}/g{row.generation:03}"), address(row)
    return (
        name if to is None else link(name, to),
        printable(format_labels(row.labels)),
        element("span", row.status, class_=_SIGNS.get(row.status, _UNDER_WAY)[1]),
        _cut(": ".join(filter(None, (row.ended_by, row.error)))),
        count(row.attempts),
        count(row.turns),
        count(row.output_tokens),
        cost(row.cost_usd),
        cost(row.spent_usd),
        Cell(format_rough_seconds(row.active_s), is_number=True, sort=f"{row.active_s:.1f}"),
        _scores(row.scores),
        moment(row.ended_at),
    )


def _searched(row: Row) -> str:
    pieces = (row.chain, format_labels(row.labels), row.status, row.ended_by, row.error)
    return " ".join(pieces).lower()


def _cut(text: str) -> str:
    shown = printable(text)
    return shown if len(shown) <= _MAX_CHARS else f"{shown[:_MAX_CHARS]}…"
