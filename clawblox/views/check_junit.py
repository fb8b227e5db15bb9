"""The report of ``clawblox check`` as JUnit XML, the common format of CI systems. Pure.

The format is the XML of JUnit's Ant task: it has failures, errors and skipped tests, but neither
recommendations nor warnings. Results that make the exit status 1 are failures or errors; all other
results that did not pass are skipped, with their reasons.
"""

from __future__ import annotations

from typing import Final
from xml.etree import ElementTree

from clawblox.conformance.failure_text import describe_failure
from clawblox.conformance.report import CheckResult, Report, is_counted
from clawblox.printable import printable_lines
from clawblox.views.check_report import STATUS_WORDS

_VALUE_CHARS: Final = 2000
_OUTCOMES: Final = {"failures": "failure", "errors": "error", "skipped": "skipped"}
"""Names of the counted elements, by the attribute that holds their number."""


def render_junit(report: Report, *, strict: bool) -> str:
    """Return a report as an XML document, a test case for each check.

    Args:
        report: The report.
        strict: Whether recommendations, and checks that could not run, count as failures.
    """
    cases = [_case(report, result, strict=strict) for result in report.checks]
    suite = ElementTree.Element("testsuite", name=_text(f"clawblox check {report.world}"))
    suite.set("tests", str(len(cases)))
    for attribute, name in _OUTCOMES.items():
        suite.set(attribute, str(sum(case.find(name) is not None for case in cases)))
    suite.set("time", f"{report.seconds:.3f}")
    properties = ElementTree.SubElement(suite, "properties")
    facts = {"verdict": report.verdict.sentence, "seed": str(report.seed), "world": report.target}
    facts |= {"obstacle": report.obstacle} if report.obstacle else {}
    for name, value in facts.items():
        ElementTree.SubElement(properties, "property", name=name, value=_text(value))
    suite.extend(cases)
    suites = ElementTree.Element("testsuites")
    suites.append(suite)
    ElementTree.indent(suites)
    text = ElementTree.tostring(suites, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _case(report: Report, result: CheckResult, *, strict: bool) -> ElementTree.Element:
    area, _, name = result.id.partition(".")
    case = ElementTree.Element("testcase", classname=area, name=name, time=f"{result.seconds:.3f}")
    if result.status == "passed":
        return case
    if result.is_own_error:
        outcome, message = "error", result.evidence
    elif is_counted(result, strict=strict):
        outcome, message = "failure", result.evidence
    else:
        outcome, message = "skipped", f"{_reason(result)}: {result.evidence}"
    element = ElementTree.SubElement(case, outcome, message=_text(message), type=result.level)
    if result.status == "failed":
        facts = describe_failure(report, result, width=_VALUE_CHARS)
        element.text = _text("\n".join(f"{fact.label}: {fact.text}" for fact in facts))
    return case


def _reason(result: CheckResult) -> str:
    if result.status != "failed":
        return STATUS_WORDS[result.status]
    return "expected failure" if result.is_expected else "recommendation not met"


def _text(text: str) -> str:
    """Return a text with characters that XML forbids replaced by escapes."""
    return printable_lines(text)
