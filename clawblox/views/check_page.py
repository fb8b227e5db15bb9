"""The report of ``clawblox check`` as a web page in a single file. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from clawblox.conformance.failure_text import Fact, describe_failure
from clawblox.conformance.report import CheckResult, Report
from clawblox.differences import common_length
from clawblox.views.check_report import (
    FAILURE_SECTIONS,
    MOST_NAMED,
    UNVERIFIED_TITLE,
    count_results,
    describe_obstacle,
    explain_unverified,
    group_failures,
    group_unverified,
    name_others,
    name_unverified,
    sum_up,
)
from clawblox.views.formatting import count_words, format_seconds
from clawblox.views.html import Child, Markup, document, element, join, style

_VALUE_CHARS: Final = 2000


def render_page(report: Report) -> str:
    """Return a report as an HTML document. Blocks."""
    title = f"{report.world}: {report.verdict.sentence}"
    body = element("main", draw_report(report), class_="alone")
    return document(title, style("page", "check"), body)


def draw_report(report: Report) -> Markup:
    """Return a report as a part of a page."""
    return element("div", *_parts(report), class_="check")


def _parts(report: Report) -> Iterator[Child]:
    yield from _head(report)
    yield from _unverified(report)
    for level, kind, title, sign in FAILURE_SECTIONS:
        groups = group_failures(report, level)
        if groups:
            count = sum(map(len, groups))
            yield element("h2", f"{title} ({count})", class_=kind)
        yield from (_failure(report, group, kind, sign) for group in groups)
    expected = [result for result in report.having("failed") if result.is_expected]
    yield _folded("Expected failures", expected)
    yield _folded("Not applicable", report.having("not_applicable"))
    yield _folded("Passed", report.having("passed"))


def _head(report: Report) -> Iterator[Child]:
    kind = "good" if report.verdict.grade.startswith("exact") else "bad"
    yield element("p", report.world, class_="world")
    yield element("h1", report.verdict.sentence, class_=kind)
    if obstacle := describe_obstacle(report):
        yield element("pre", obstacle, class_="box")
    yield element("p", sum_up(report), class_="summary")
    yield element("p", count_results(report), ", ", element("code", report.target), class_="muted")


def _unverified(report: Report) -> Iterator[Child]:
    if report.unverified:
        yield element("h2", f"{UNVERIFIED_TITLE} ({len(report.unverified)})", class_="lost")
    for reason, results in group_unverified(report):
        names = element("h3", "? ", name_unverified(results))
        text = explain_unverified(report, reason)
        reason_lines = element("pre" if "\n" in text else "p", text)
        ids = _ids(results) if len(results) > MOST_NAMED else None
        yield element("section", names, reason_lines, ids, class_="card lost")


def _ids(results: Iterable[CheckResult]) -> Markup:
    """Return the ids of many checks, initially collapsed."""
    ids = ", ".join(result.id for result in results)
    return element("details", element("summary", "Their ids"), element("p", ids))


def _failure(report: Report, group: Sequence[CheckResult], kind: str, sign: str) -> Markup:
    result, others = group[0], name_others(group)
    facts = {fact.label: fact for fact in describe_failure(report, result, width=_VALUE_CHARS)}
    return element(
        "section",
        element("h3", element("span", sign, class_=kind), " ", result.id),
        element("p", facts["requirement"].text),
        element("p", facts["seen"].text, class_="seen"),
        element("p", "also ", element("code", others), class_="where") if others else None,
        *_values(facts),
        *(_labelled(label, facts[label].text) for label in ("request", "repeat") if label in facts),
        class_=f"card {kind}",
    )


def _values(facts: Mapping[str, Fact]) -> Iterator[Markup]:
    if "where" not in facts:
        return
    yield element("p", "at ", element("code", facts["where"].text), class_="where")
    labels = ("expected", "got")
    marked = _mark_difference(*(facts[label].text for label in labels))
    yield element("div", *map(_labelled, labels, marked), class_="sides")


def _mark_difference(first: str, second: str) -> Iterator[Markup]:
    """Yield two texts with the differing parts marked."""
    start = common_length(first, second)
    end = common_length(first[start:][::-1], second[start:][::-1])
    for side in (first, second):
        middle = side[start : len(side) - end]
        marked = element("mark", middle) if middle else None
        yield join((side[:start], marked, side[len(side) - end :]))


def _labelled(label: str, content: Child) -> Markup:
    box = element("pre", content, class_="box")
    return element("div", element("span", label, class_="label"), box)


def _folded(title: str, results: Sequence[CheckResult]) -> Markup | None:
    """Return results as an initially collapsed table; None without results."""
    if not results:
        return None
    summary = element("summary", f"{title} ({count_words(len(results), 'check')})")
    return element("details", summary, _table(results))


def _table(results: Iterable[CheckResult]) -> Markup:
    rows = []
    for result in results:
        name = element("th", element("code", result.id), scope="row")
        took = element("td", format_seconds(result.seconds), class_="number muted")
        rows.append(element("tr", name, element("td", result.evidence), took))
    return element("table", element("tbody", *rows))
