"""The report of ``clawblox check`` as text, with the results that need action first. Pure."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Literal, TypeAlias

from clawblox.conformance.failure_text import Fact, describe_failure
from clawblox.conformance.registry import Check, Level
from clawblox.conformance.report import CheckResult, Report, Status, count_statuses
from clawblox.printable import printable, printable_lines, printable_name
from clawblox.views.formatting import count_words, format_seconds

Kind: TypeAlias = Literal["good", "bad", "warning", "strong", "dim"]
"""Kind of a piece of text, which decides its colour; colours only repeat the words."""
Paint: TypeAlias = Callable[[Kind, str], str]
"""Returns a piece of text in its colour."""

UNVERIFIED_TITLE: Final = "Not verified: a skip is not a pass"
STATUS_WORDS: Final[dict[Status, str]] = {
    "failed": "failed",
    "could_not_run": "not verified",
    "not_applicable": "not applicable",
    "passed": "passed",
}
FAILURE_SECTIONS: Final[tuple[tuple[Level, Kind, str, str], ...]] = (
    ("must", "bad", "Failed", "✗"),
    ("should", "warning", "Recommendations that are not met", "!"),
)
"""Level, kind, title and sign of the sections with failures."""
MOST_NAMED: Final = 12
"""Maximum number of checks to name for a reason; more checks are counted by area."""
_MIN_WIDTH: Final = 40
_MAX_WIDTH: Final = 110
_LABEL_WIDTH: Final = 10
_INDENT: Final = "    "


def plain(_kind: Kind, text: str) -> str:
    """Return the text unchanged."""
    return text


def select_failures(report: Report) -> list[CheckResult]:
    """Return the unexpected failures: *must* before *should*, otherwise in order."""
    failures = [result for result in report.having("failed") if not result.is_expected]
    return sorted(failures, key=lambda result: result.level != "must")


def group_failures(report: Report, level: Level) -> list[list[CheckResult]]:
    """Return the failures of a level, grouped by the answer that caused them.

    For example, a world that no agent can join fails half of the checks for the same reason.
    """
    groups: dict[tuple[str, str | None, str], list[CheckResult]] = {}
    for result in select_failures(report):
        if result.level == level:
            values = repr((result.path, result.expected, result.got))
            key = result.evidence, result.request, values
            groups.setdefault(key, []).append(result)
    return list(groups.values())


def name_others(group: Sequence[CheckResult]) -> str:
    """Return the ids of the other checks in a group; empty if there are no others."""
    return ", ".join(result.id for result in group[1:])


def group_unverified(report: Report) -> list[tuple[str, list[CheckResult]]]:
    """Return the reasons why checks could not run, with the checks; our own errors come first."""
    unverified = sorted(report.unverified, key=lambda result: not result.is_own_error)
    reasons: dict[str, list[CheckResult]] = {}
    for result in unverified:
        reasons.setdefault(result.evidence, []).append(result)
    return list(reasons.items())


def name_unverified(results: Sequence[CheckResult], *, is_whole: bool = False) -> str:
    """Return the ids of checks that could not run for the same reason.

    Args:
        results: The results of the checks.
        is_whole: Whether to list even many checks instead of counting them by area.
    """
    if is_whole or len(results) <= MOST_NAMED:
        return ", ".join(result.id for result in results)
    areas = (f"{area} {len(group)}" for area, group in _group_by_area(results))
    return f"{len(results)} checks: {', '.join(areas)}"


def explain_unverified(report: Report, reason: str) -> str:
    """Return why checks could not run, briefly if the verdict has the same reason."""
    is_said = bool(report.obstacle) and reason in report.verdict.sentence
    return "for the reason above" if is_said else reason


def describe_obstacle(report: Report) -> str:
    """Return the facts about a failed start that the verdict lacks; empty if there are none."""
    return report.obstacle.partition("\n")[2]


def sum_up(report: Report) -> str:
    """Return the finding that accompanies the verdict, as a sentence."""
    failures = Counter(result.level for result in select_failures(report))
    parts = []
    if failures["must"]:
        parts.append(f"{count_words(failures['must'], 'requirement')} not met")
    if failures["should"]:
        parts.append(f"{count_words(failures['should'], 'recommendation')} not met")
    if report.unverified:
        parts.append(f"{count_words(len(report.unverified), 'check')} could not run")
    if not parts:
        return "Every check that applies passed."
    return f"{', '.join(parts)}."


def count_results(report: Report) -> str:
    """Return the number of checks by status, with the elapsed time and the seed."""
    numbers = count_statuses(report.checks)
    counts = [f"{numbers[status]} {STATUS_WORDS[status]}" for status in reversed(list(numbers))]
    expected = sum(result.is_expected for result in report.checks)
    counts += [f"{count_words(expected, 'failure')} expected"] if expected else []
    checks = count_words(len(report.checks), "check")
    return f"{checks} in {format_seconds(report.seconds)}, seed {report.seed}: {', '.join(counts)}"


def render_report(
    report: Report, *, width: int, is_verbose: bool = False, paint: Paint = plain
) -> str:
    """Return a report as text, with foreign text made printable.

    Args:
        report: The report.
        width: Columns of the terminal. Command lines to copy are not wrapped.
        is_verbose: Whether to list the checks that passed or do not apply as well.
        paint: Colours the text.
    """
    page = _Page(report, min(max(width, _MIN_WIDTH), _MAX_WIDTH), paint)
    sections: list[Iterable[str]] = [page.head(), page.unverified(is_whole=is_verbose)]
    sections.append(page.failures())
    sections += [page.expected(), page.passed() if is_verbose else page.areas()]
    sections.append(page.counts())
    texts = ("\n".join(section).strip("\n") for section in sections)
    return "\n\n".join(filter(None, texts))


class _Page:
    def __init__(self, report: Report, width: int, paint: Paint) -> None:
        self._report = report
        self._width = width
        self._paint = paint

    def _wrap(self, text: str, indent: str = "", first: str | None = None) -> list[str]:
        lines: list[str] = []
        for line in printable_lines(text.strip()).expandtabs().split("\n"):
            begin = indent if first is None or lines else first
            wrapped = textwrap.wrap(
                line,
                self._width,
                initial_indent=begin,
                subsequent_indent=indent,
                break_on_hyphens=False,
            )
            lines += wrapped or [begin.rstrip()]
        return lines

    def head(self) -> Iterator[str]:
        verdict = self._report.verdict
        kind: Kind = "good" if verdict.grade.startswith("exact") else "bad"
        name, *rest = self._wrap(f"{printable(self._report.world)}: {printable(verdict.sentence)}")
        yield from (self._paint(kind, line) for line in (name, *rest))
        if obstacle := describe_obstacle(self._report):
            yield from self._wrap(obstacle)
        yield from self._wrap(sum_up(self._report))

    def unverified(self, *, is_whole: bool) -> Iterator[str]:
        reasons = group_unverified(self._report)
        if reasons:
            yield self._paint("warning", UNVERIFIED_TITLE)
        for reason, results in reasons:
            names = name_unverified(results, is_whole=is_whole)
            yield from (self._paint("strong", line) for line in self._wrap(names, "    ", "  ? "))
            yield from self._wrap(explain_unverified(self._report, reason), _INDENT)

    def failures(self) -> Iterator[str]:
        for level, kind, title, sign in FAILURE_SECTIONS:
            groups = group_failures(self._report, level)
            if groups:
                yield self._paint(kind, title)
            for group in groups:
                yield from self._failure(group, sign)
                yield ""

    def _failure(self, group: Sequence[CheckResult], sign: str) -> Iterator[str]:
        yield self._paint("strong", f"  {sign} {group[0].id}")
        room = self._width - len(_INDENT) - _LABEL_WIDTH
        requirement, *facts = describe_failure(self._report, group[0], width=2 * room)
        yield from self._wrap(requirement.text, _INDENT)
        if others := name_others(group):
            facts.insert(0, Fact("also", others))
        for fact in facts:
            label = _INDENT + fact.label.ljust(_LABEL_WIDTH)
            if fact.is_verbatim:
                yield self._paint("dim", label) + printable_name(fact.text)
            else:
                indent = " " * len(label)
                first, *rest = self._wrap(fact.text, indent) or [indent]
                yield self._paint("dim", label) + first.removeprefix(indent)
                yield from rest

    def expected(self) -> Iterator[str]:
        expected = [result for result in self._report.having("failed") if result.is_expected]
        if expected:
            yield "Expected failures"
        for result in expected:
            yield from self._wrap(f"{result.id}: {result.evidence}", _INDENT, "  - ")

    def areas(self) -> Iterator[str]:
        """Yield a line with the numbers of passed and applicable checks of each area."""
        applying = self._report.having("failed", "could_not_run", "passed")
        areas = [
            f"{area} {sum(result.status == 'passed' for result in results)}/{len(results)}"
            for area, results in _group_by_area(applying)
        ]
        if areas:
            yield from self._wrap(f"Passed: {', '.join(areas)}")

    def counts(self) -> list[str]:
        return self._wrap(count_results(self._report))

    def passed(self) -> Iterator[str]:
        for status, sign in (("passed", "✓"), ("not_applicable", "-")):
            results = [result for result in self._report.checks if result.status == status]
            if results:
                yield STATUS_WORDS[results[0].status].capitalize()
            for result in results:
                text = f"{result.id}: {result.evidence}"
                yield from self._wrap(text, _INDENT, f"  {sign} ")


def _group_by_area(results: Sequence[CheckResult]) -> list[tuple[str, list[CheckResult]]]:
    """Return results grouped by the area of their checks, in order."""
    areas: dict[str, list[CheckResult]] = {}
    for result in results:
        areas.setdefault(result.id.partition(".")[0], []).append(result)
    return list(areas.items())


def render_list(checks: Iterable[Check], *, width: int) -> str:
    """Return checks as text, with the id, level and requirement of each."""
    lines = []
    for check in checks:
        lines.append(f"{check.id} ({check.level})")
        requirement = textwrap.wrap(check.requirement, max(width, _MIN_WIDTH) - len(_INDENT))
        lines += [_INDENT + line for line in requirement]
    return "\n".join(lines)
