"""The text of a report: failures come first, and foreign text is escaped."""

from __future__ import annotations

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st

from clawblox.conformance import CHECKS, Report, Verdict
from clawblox.views.check_junit import render_junit
from clawblox.views.check_page import render_page
from clawblox.views.check_report import render_list, render_report
from tests.cli.test_hostile_text import unsafe
from tests.conformance.reports import (
    REPORTS,
    failing_report,
    failures_with_one_cause,
    make_report,
    make_result,
)


def test_check_report_lists_failures_by_severity() -> None:
    text = render_report(failing_report(), width=100)
    order = (
        "panda: Not exact: restore.trace failed.",
        "1 requirement not met, 1 recommendation not met, 1 check could not run.",
        "Not verified: a skip is not a pass",
        "restore.chat",
        "there is no second agent",
        "✗ restore.trace",
        "A restored world continues.",
        "seen      it differs in answer 17 of 44",
        "where     body.x",
        "expected  0.25",
        "got       0.75",
        "request   curl -i -X POST http://127.0.0.1:20001/input",
        "repeat    clawblox check worlds/panda restore.trace --seed 7",
        "! contract.alias",
        "hygiene.growth: it grew",
        "Passed: static 1/1, contract 0/1, restore 0/2, hygiene 0/1",
        "6 checks in 1.5s, seed 7: 1 passed, 1 not applicable, 1 not verified, 3 failed, 1 failure",
    )
    places = [text.find(part) for part in order]
    assert -1 not in places, order[places.index(-1)]
    assert places == sorted(places)


def test_verbose_report_lists_passed_and_inapplicable_checks() -> None:
    text = render_report(failing_report(), width=100, is_verbose=True)
    assert "✓ static.world_toml: seen" in text
    assert "- restore.landings: it stands still" in text


def test_a_reason_that_many_checks_share_is_shown_once() -> None:
    reason = "the world did not start: no\nlast log lines:\n  | Traceback"
    results = [
        make_result(f"restore.{name}", "could_not_run", evidence=reason, is_own_error=True)
        for name in ("trace", "again")
    ]
    lines = render_report(make_report(*results), width=100).splitlines()
    assert lines.count("  ? restore.trace, restore.again") == 1
    assert lines.count("      | Traceback") == 1


def report_without_a_start() -> Report:
    sentence = "the world did not start: status 1: No module named 'mujoco'"
    names = [f"{area}.{number}" for area in ("contract", "restore") for number in range(10)]
    results = [
        make_result(name, "could_not_run", evidence=sentence, is_own_error=True) for name in names
    ]
    log = "last log lines:\n  | No module named 'mujoco'\nhint: install it"
    return make_report(
        *results,
        verdict=Verdict("not_shown", f"Restore not shown: {sentence}."),
        obstacle=f"{sentence}\n{log}",
    )


def test_report_of_a_world_that_does_not_start_is_short() -> None:
    report = report_without_a_start()
    lines = render_report(report, width=100).splitlines()
    assert lines[:4] == [
        "panda: Restore not shown: the world did not start: status 1: No module named 'mujoco'.",
        "last log lines:",
        "  | No module named 'mujoco'",
        "hint: install it",
    ]
    assert "  ? 20 checks: contract 10, restore 10" in lines
    assert len(lines) < 15
    assert "restore.9" in render_report(report, width=100, is_verbose=True)


def test_a_page_and_an_xml_file_have_the_log_of_a_failed_start_once() -> None:
    report = report_without_a_start()
    for text in (render_page(report), render_junit(report, strict=False)):
        assert text.count("last log lines") == 1
        assert text.count("hint: install it") == 1
    assert "20 checks: contract 10, restore 10" in render_page(report)


def test_failures_with_a_common_cause_are_shown_once() -> None:
    lines = render_report(make_report(*failures_with_one_cause()), width=100).splitlines()
    assert [line for line in lines if line.startswith("  ✗")] == ["  ✗ contract.join"]
    assert lines.count("    also      contract.chat, gate.sessions") == 1
    assert sum("no agent could join" in line for line in lines) == 2
    other = attrs.evolve(failures_with_one_cause()[1], expected=1, path="status")
    text = render_report(make_report(failures_with_one_cause()[0], other), width=100)
    assert "also" not in text


def test_request_command_in_a_report_is_never_cut() -> None:
    request = f"curl --data-raw '{'x' * 300}; touch owned; {'x' * 3000}' http://127.0.0.1:1/input"
    report = make_report(make_result("gate.limits", "failed", request=request))
    assert f"    request   {request}" in render_report(report, width=80).splitlines()
    assert f"request: {request}" in render_junit(report, strict=False)
    assert f">{request}<" in render_page(report)
    assert report.document()["checks"][0]["request"] == request


def test_a_report_without_findings_is_short() -> None:
    lines = render_report(make_report(make_result("restore.trace")), width=100).splitlines()
    assert lines[1] == "Every check that applies passed."
    assert len(lines) == 6


@settings(max_examples=50)
@given(REPORTS, st.integers(0, 200), st.booleans())
def test_check_report_escapes_hostile_text(report: Report, width: int, verbose: bool) -> None:
    assert not unsafe(render_report(report, width=width, is_verbose=verbose))


def test_report_fits_the_terminal_except_for_commands() -> None:
    report = failing_report()
    long = [attrs.evolve(result, evidence="word " * 40, got="y" * 300) for result in report.checks]
    for line in render_report(attrs.evolve(report, checks=tuple(long)), width=60).splitlines():
        assert len(line) <= 60 or line.split()[0] in ("request", "repeat"), line


def test_the_list_has_every_check_with_its_level_and_requirement() -> None:
    text = " ".join(render_list(CHECKS, width=80).split())
    for check in CHECKS:
        assert f"{check.id} ({check.level}) {check.requirement}" in text
