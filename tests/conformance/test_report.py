"""A report as values and JSON: exit statuses, expected failures, the form of the document."""

from __future__ import annotations

import json
from typing import Any

import attrs
import msgspec
import pytest
from hypothesis import given

from clawblox.conformance import CHECKS, Report
from clawblox.conformance.failure_text import describe_failure, excerpt_pair
from clawblox.conformance.report import (
    count_statuses,
    is_counted,
    mark_expected,
    parse_expected,
    parse_report,
)
from clawblox.errors import ConfigError
from clawblox.views.check_page import render_page
from clawblox.views.check_report import render_report
from tests.conformance.reports import REPORTS, failing_report, make_report, make_result

OF_REPORT = {"world", "verdict", "grade", "seed", "seconds", "checks"}
OF_SOME_REPORTS = {"obstacle", "in_place"}
OF_RESULT = {"id", "level", "status", "requirement", "evidence", "seconds"}
OF_SOME = {"request", "path", "expected", "got", "expected_failure", "own_error"}
IDS = [check.id for check in CHECKS]


@pytest.mark.parametrize(
    ("result", "status", "strict_status"),
    [
        ({}, 0, 0),
        ({"status": "not_applicable"}, 0, 0),
        ({"status": "could_not_run"}, 0, 1),
        ({"status": "failed", "level": "should"}, 0, 1),
        ({"status": "failed"}, 1, 1),
        ({"status": "failed", "is_expected": True}, 0, 0),
        ({"status": "could_not_run", "is_own_error": True}, 3, 3),
    ],
)
def test_the_exit_status_follows_from_the_worst_result(
    result: dict[str, Any], status: int, strict_status: int
) -> None:
    report = make_report(make_result("restore.again"), make_result("restore.trace", **result))
    assert report.exit_status() == status
    assert report.exit_status(strict=True) == strict_status
    for strict in (False, True):
        counted = any(is_counted(one, strict=strict) for one in report.checks)
        assert counted == bool(report.exit_status(strict=strict))


@given(REPORTS)
def test_every_report_is_a_document_that_json_can_write(report: Report) -> None:
    document = report.document()
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert document.keys() >= OF_REPORT
    assert document.keys() - OF_REPORT <= OF_SOME_REPORTS
    assert ("obstacle" in document) == bool(report.obstacle)
    for result in document["checks"]:
        assert result.keys() >= OF_RESULT
        assert result.keys() - OF_RESULT <= OF_SOME


@given(REPORTS)
def test_every_report_is_read_back_from_its_document(report: Report) -> None:
    document = report.document()
    read = parse_report(json.loads(json.dumps(document)), target="here")
    assert read.target == "here"
    assert read.document() == document
    assert read.exit_status(strict=True) == report.exit_status(strict=True)
    assert read.in_place == report.in_place


def test_report_read_from_its_document_has_the_same_page_and_text() -> None:
    report = attrs.evolve(failing_report(), in_place=True)
    gone = make_result("restore.again", "failed", path="body.x", expected=1, absent="got")
    own = make_result("restore.joins", "could_not_run", is_own_error=True)
    report = attrs.evolve(report, checks=(*report.checks, gone, own))
    read = parse_report(report.document(), target=report.target)
    assert read == report
    assert render_page(read) == render_page(report)
    assert render_report(read, width=100) == render_report(report, width=100)


@pytest.mark.parametrize(
    "change",
    [
        {"checks": None},
        {"checks": {}},
        {"checks": [1]},
        {"checks": [{}]},
        {"grade": "best"},
        {"verdict": 1},
        {"seed": "7"},
        {"seconds": None},
        {"world": ["panda"]},
        {"in_place": "yes"},
    ],
)
def test_invalid_report_document_is_refused(change: dict[str, object]) -> None:
    document = {**failing_report().document(), **change}
    with pytest.raises(msgspec.ValidationError):
        parse_report(document, target="here")


def test_absent_value_is_left_out_of_the_document() -> None:
    fields = {"path": "body.x", "expected": 1, "got": None}
    absent = make_result("restore.trace", "failed", **fields, absent="got").document()
    assert "got" not in absent
    assert make_result("restore.trace", "failed", **fields).document()["got"] is None


def test_expected_failures_do_not_count_but_unexpected_passes_do() -> None:
    report = make_report(make_result("restore.trace", "failed"), make_result("restore.again"))
    assert mark_expected(report, ["restore.trace"]).exit_status() == 0
    outdated = mark_expected(report, ["restore.trace", "restore.again"])
    assert outdated.exit_status() == 1
    assert "remove it there" in outdated.checks[1].evidence


def test_a_file_of_expected_failures_has_an_id_on_each_line() -> None:
    text = "# of ours\nrestore.trace  # soon\n\nrestore.chat\n"
    assert parse_expected(text, IDS, path="known.txt") == ("restore.trace", "restore.chat")
    with pytest.raises(ConfigError, match=r"known.txt, line 2: must be the id[^$]*'restore'"):
        parse_expected("restore.trace\nrestore", IDS, path="known.txt")


def test_repeat_command_of_a_check_is_quoted_for_a_shell() -> None:
    report = attrs.evolve(failing_report(), target="my worlds/panda", in_place=True)
    facts = {fact.label: fact.text for fact in describe_failure(report, report.checks[2], width=80)}
    assert facts["repeat"] == "clawblox check 'my worlds/panda' restore.trace --seed 7 --in-place"


def test_long_values_are_cut_around_their_first_difference() -> None:
    same = "x" * 500
    expected, got = excerpt_pair(f"{same}1{same}", f"{same}2{same}", width=60)
    assert len(expected) == len(got) == 60
    assert (expected.count("1"), got.count("2")) == (1, 1)
    assert expected.startswith("…")
    assert expected.endswith("…")
    assert excerpt_pair("1", "2", width=60) == ("1", "2")


def test_statuses_are_counted_with_the_most_urgent_first() -> None:
    assert list(count_statuses(failing_report().checks).items()) == [
        ("failed", 3),
        ("could_not_run", 1),
        ("not_applicable", 1),
        ("passed", 1),
    ]
