"""Reports as a web page and as JUnit XML: failures come first, and foreign text is escaped."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawblox.conformance import Report
from clawblox.conformance.report import is_counted
from clawblox.printable import printable_lines
from clawblox.views.check_junit import render_junit
from clawblox.views.check_page import render_page
from clawblox.views.html import read_rules
from tests.cli.test_hostile_text import unsafe
from tests.conformance.reports import (
    REPORTS,
    failing_report,
    failures_with_one_cause,
    make_report,
    make_result,
)
from tests.views.test_html import Reader

LEAST_CONTRAST = 4.9
TAGS = {"html", "meta", "title", "style", "body", "main", "section", "div", "details", "summary"}
TAGS |= {"h1", "h2", "h3", "p", "pre", "code", "span", "mark", "b"}
TAGS |= {"table", "tbody", "tr", "th", "td"}


# ------------------------------------------------------------------------------------------- page


def test_check_page_lists_failures_by_severity() -> None:
    order = (
        "Not exact: restore.trace failed.",
        "1 requirement not met, 1 recommendation not met, 1 check could not run.",
        "Not verified: a skip is not a pass (1)",
        "? restore.chatthere is no second agent",
        "Failed (1)",
        "✗ restore.traceA restored world continues.it differs in answer 17 of 44at body.x",
        "expected0.25got0.75",
        "requestcurl -i -X POST http://127.0.0.1:20001/input",
        "repeatclawblox check worlds/panda restore.trace --seed 7",
        "Recommendations that are not met (1)",
        "! contract.alias",
        "Expected failures (1 check)hygiene.growthit grew",
        "Not applicable (1 check)restore.landingsit stands still",
        "Passed (1 check)static.world_tomlseen",
    )
    text = Reader(render_page(failing_report())).texts["body"]
    places = [text.find(part) for part in order]
    assert -1 not in places, order[places.index(-1)]
    assert all(one < next_one for one, next_one in pairwise(places))


def test_passed_checks_are_collapsed() -> None:
    folded = [
        attributes
        for tag, attributes in Reader(render_page(failing_report())).elements
        if tag == "details"
    ]
    assert folded == [{}, {}, {}]


def test_the_part_of_the_values_that_differs_is_marked() -> None:
    page = render_page(failing_report())
    assert "0.<mark>2</mark>5" in page
    assert "0.<mark>7</mark>5" in page
    fields = {"path": "body.x", "expected": {"a": 1, "b": 2}, "got": {"a": 1}}
    page = render_page(make_report(make_result("restore.trace", "failed", **fields)))
    assert '{"a": 1<mark>, "b": 2</mark>}' in page
    assert '{"a": 1}' in page


def test_failures_with_a_common_cause_share_a_card() -> None:
    page = render_page(make_report(*failures_with_one_cause()))
    assert page.count("<section") == 2
    assert '<p class="where">also <code>contract.chat, gate.sessions</code></p>' in page
    assert "Failed (3)" in page


@settings(max_examples=50)
@given(REPORTS)
def test_text_of_a_report_is_escaped_in_its_page(report: Report) -> None:
    page = render_page(report)
    reader = Reader(page)
    assert {tag for tag, _ in reader.elements} <= TAGS
    assert reader.comments == []
    assert printable_lines(report.verdict.sentence) in reader.texts["body"]
    assert not unsafe(page)
    page.encode()


def luminance(colour: str) -> float:
    """Return the relative luminance of a colour, as WCAG 2 defines it."""
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("ground", ["page", "panel", "mark"])
def test_every_text_colour_has_enough_contrast(theme: int, ground: str) -> None:
    root = re.findall(r"html\{([^}]*)\}", read_rules("page"))[theme]
    colours = dict(re.findall(r"--(\w+):(#\w{6})", root))
    assert len(colours) == 10
    inks = {"ink"} if ground == "mark" else colours.keys() - {"page", "panel", "line", "mark"}
    for ink in inks:
        pair = sorted(luminance(colours[name]) for name in (ink, ground))
        assert (pair[1] + 0.05) / (pair[0] + 0.05) >= LEAST_CONTRAST, (ink, ground)


# ------------------------------------------------------------------------------------------ JUnit


def cases(report: Report, *, strict: bool = False) -> dict[str, ElementTree.Element | None]:
    """Return the outcome of each test case by the id of its check; None if it passed."""
    suites = ElementTree.fromstring(render_junit(report, strict=strict))
    return {
        f"{case.get('classname')}.{case.get('name')}": next(iter(case), None)
        for case in suites.iter("testcase")
    }


def outcomes(report: Report, *, strict: bool = False) -> dict[str, str]:
    found = cases(report, strict=strict)
    return {name: "passed" if one is None else one.tag for name, one in found.items()}


def test_junit_case_fails_if_the_exit_status_counts_it() -> None:
    assert outcomes(failing_report()) == {
        "static.world_toml": "passed",
        "contract.alias": "skipped",
        "restore.trace": "failure",
        "restore.landings": "skipped",
        "restore.chat": "skipped",
        "hygiene.growth": "skipped",
    }
    strict = outcomes(failing_report(), strict=True)
    assert (strict["contract.alias"], strict["restore.chat"]) == ("failure", "failure")
    assert (strict["restore.landings"], strict["hygiene.growth"]) == ("skipped", "skipped")


def test_junit_failure_has_its_facts_and_skip_its_reason() -> None:
    found = cases(failing_report())
    trace, chat, alias = found["restore.trace"], found["restore.chat"], found["contract.alias"]
    assert trace is not None
    assert chat is not None
    assert alias is not None
    assert trace.get("message") == "it differs in answer 17 of 44"
    assert "repeat: clawblox check worlds/panda restore.trace --seed 7" in (trace.text or "")
    assert chat.get("message") == "not verified: there is no second agent"
    assert alias.get("message") == "recommendation not met: 404 Not Found"


@settings(max_examples=50)
@given(REPORTS, st.booleans())
def test_every_report_is_valid_xml_that_agrees_with_the_exit_status(
    report: Report, strict: bool
) -> None:
    ids = ("a.x", "b.x", "c.x", "d.x")
    checks = [attrs.evolve(result, id=one) for one, result in zip(ids, report.checks, strict=False)]
    report = attrs.evolve(report, checks=tuple(checks))
    text = render_junit(report, strict=strict)
    suite = ElementTree.fromstring(text.encode()).find("testsuite")
    assert suite is not None
    tags = outcomes(report, strict=strict)
    assert [suite.get(name) for name in ("tests", "failures", "errors", "skipped")] == [
        str(len(tags)),
        *(str([*tags.values()].count(tag)) for tag in ("failure", "error", "skipped")),
    ]
    for result in report.checks:
        if result.status != "passed" and not result.is_own_error:
            counted = is_counted(result, strict=strict)
            assert (tags[result.id] == "failure") == counted
    assert not unsafe(text)
