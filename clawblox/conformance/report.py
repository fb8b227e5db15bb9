"""The results of the checks of a world, and the verdict about its restore, also as JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import attrs

from clawblox.conformance.registry import Findings, Level
from clawblox.errors import ConfigError
from clawblox.foreign_values import clean_value
from clawblox.typed_values import converter

Status: TypeAlias = Literal["passed", "failed", "not_applicable", "could_not_run"]
STATUSES: Final[tuple[Status, ...]] = ("failed", "could_not_run", "not_applicable", "passed")
"""All statuses, most urgent first."""
Grade: TypeAlias = Literal[
    "exact", "exact_in_simulated_time", "exact_as_far_as_seen", "not_exact", "not_shown"
]

PASSED, FAILED, BROKEN = 0, 1, 3
"""Exit statuses; 2 is an error in the command line.

No check of level *must* failed; a check failed; the world could not be started, or a check itself
failed.
"""

_MAX_VALUE_CHARS: Final = 2000
_ALWAYS: Final = (
    "restore.trace",
    "restore.second",
    "restore.again",
    "restore.fresh_places",
    "restore.save_changes_nothing",
    "restore.sessions",
)
"""Checks that are necessary to show that a restore is exact, for either clock."""
_DECISIVE: Final = frozenset({*_ALWAYS, "restore.landings"})
"""Checks that weaken the verdict if they cannot run."""


@attrs.frozen
class CheckResult:
    """The result of one check.

    Attributes:
        id: The id of the check.
        level: Whether a world must or should meet the requirement.
        status: The outcome of the check.
        requirement: The requirement, a sentence.
        evidence: The observation, or why the check could not run or does not apply.
        seconds: Duration in seconds of real time; checks run concurrently and share work.
        request: The request that showed the failure, as a curl command that is never cut, since a
            long body is in a file; None if there was none.
        path: Path of the first difference; None without a difference.
        expected: The expected value at the path, as JSON.
        got: The actual value at the path, as JSON.
        absent: The value that does not exist; None if both exist.
        is_own_error: Whether the check itself failed, not the world.
        is_expected: Whether a failure is listed as expected.
        findings: The evidence for the verdict, if the check passed.
    """

    id: str
    level: Level
    status: Status
    requirement: str
    evidence: str
    seconds: float
    request: str | None = None
    path: str | None = None
    expected: Any = None
    got: Any = None
    absent: Literal["expected", "got"] | None = None
    is_own_error: bool = False
    is_expected: bool = False
    findings: Findings = attrs.field(default=Findings(), repr=False, eq=False)

    def document(self) -> dict[str, Any]:
        """Return the result as a JSON object; members without a value are left out."""
        document: dict[str, Any] = {
            "id": self.id,
            "level": self.level,
            "status": self.status,
            "requirement": self.requirement,
            "evidence": self.evidence,
            "seconds": round(self.seconds, 3),
        }
        if self.path is not None:
            document |= {"path": self.path, "expected": self.expected, "got": self.got}
            document.pop(self.absent or "", None)
        if self.is_expected:
            document["expected_failure"] = True
        if self.is_own_error:
            document["own_error"] = True
        cleaned: dict[str, Any] = clean_value(document, max_chars=_MAX_VALUE_CHARS)
        if self.request is not None:  # never cut, because people paste it
            cleaned["request"] = clean_value(self.request)
        return cleaned


@attrs.frozen
class Verdict:
    """The verdict about the restore of a world.

    Attributes:
        grade: The verdict as a word.
        sentence: The verdict, a sentence.
    """

    grade: Grade
    sentence: str


@attrs.frozen
class Report:
    """The results of the checks of a world.

    Attributes:
        world: Name or address of the world.
        target: The directory or address that was checked, as given.
        verdict: The verdict about its restore.
        seed: The seed of all choices; the same seed makes the same choices.
        checks: The results, in the order of the checks.
        seconds: Total duration, in seconds of real time.
        in_place: Whether the world ran in its own directory instead of a private copy.
        obstacle: Why no instance could be started, with the last lines of the log; empty if an
            instance could.
    """

    world: str
    target: str
    verdict: Verdict
    seed: int
    checks: tuple[CheckResult, ...]
    seconds: float
    in_place: bool = False
    obstacle: str = ""

    def having(self, *statuses: Status) -> tuple[CheckResult, ...]:
        """Return the results with one of these statuses."""
        return tuple(result for result in self.checks if result.status in statuses)

    @property
    def unverified(self) -> tuple[CheckResult, ...]:
        """The checks that could not run, so that their requirements are unverified."""
        return self.having("could_not_run")

    def repeat_words(self, check_id: str) -> tuple[str, ...]:
        """Return the words of the command line that repeats a check with the same choices."""
        options = ("--seed", str(self.seed), *(["--in-place"] if self.in_place else []))
        return ("clawblox", "check", self.target, check_id, *options)

    def exit_status(self, *, strict: bool = False) -> int:
        """Return the exit status of a command that made this report.

        Args:
            strict: Whether failures of level *should*, and checks that could not run, also count.
        """
        if any(result.is_own_error for result in self.checks):
            return BROKEN
        has_failed = any(is_counted(result, strict=strict) for result in self.checks)
        return FAILED if has_failed else PASSED

    def document(self) -> dict[str, Any]:
        """Return the report as a JSON object, with the results in ``checks``."""
        return {
            "world": clean_value(self.world),
            "verdict": clean_value(self.verdict.sentence),
            "grade": self.verdict.grade,
            "seed": self.seed,
            **({"in_place": True} if self.in_place else {}),
            "seconds": round(self.seconds, 3),
            **({"obstacle": clean_value(self.obstacle)} if self.obstacle else {}),
            "checks": [result.document() for result in self.checks],
        }


_to_report = converter(Report)


def parse_report(document: Mapping[str, Any], *, target: str) -> Report:
    """Parse a document of :meth:`Report.document`.

    Args:
        document: The document, with any content.
        target: The directory or address that was checked.

    Raises:
        msgspec.ValidationError: The document is not the document of a report.
    """
    verdict = {"grade": document.get("grade"), "sentence": document.get("verdict")}
    checks = document.get("checks")
    if isinstance(checks, list):
        checks = [_parse_result(result) for result in checks]
    return _to_report({**document, "target": target, "verdict": verdict, "checks": checks})


def _parse_result(document: object) -> object:
    """Return the fields of a result; invalid values are left unchanged and refused later."""
    if not isinstance(document, dict):
        return document
    missing = [side for side in ("expected", "got") if side not in document]
    return {
        **document,
        "absent": missing[0] if "path" in document and missing else None,
        "is_own_error": document.get("own_error", False),
        "is_expected": document.get("expected_failure", False),
    }


def judge(results: Sequence[CheckResult], *, obstacle: str = "") -> Verdict:
    """Return the verdict.

    Args:
        results: The results of the checks that ran.
        obstacle: Why no instance of the world could be started; empty if an instance could.
    """
    if obstacle:
        return Verdict("not_shown", f"Restore not shown: {obstacle}.")
    by_id = {result.id: result for result in results if result.id.startswith("restore.")}
    failed = [
        result for result in by_id.values() if result.status == "failed" and result.level == "must"
    ]
    if failed:
        reason = f"{failed[0].id} failed: {_locate(failed[0])}"
        return Verdict("not_exact", f"Restore not exact: {reason}.")
    trace = by_id.get("restore.trace")
    if trace is None:
        return Verdict("not_shown", "Restore not shown: restore.trace was not run.")
    if trace.status != "passed":
        return Verdict("not_shown", f"Restore not shown: {trace.evidence}.")
    shown = [result.findings for result in by_id.values()]
    gaps = [limit for findings in shown for limit in findings.limits] + _find_gaps(by_id)
    if gaps:
        return Verdict("exact_as_far_as_seen", f"Exact restore, as far as seen: {'; '.join(gaps)}.")
    named = "".join(findings.places for findings in shown)
    places = f"; also in a run with {named}" if named else ""
    if answers := trace.findings.equal_answers:
        return Verdict(
            "exact",
            f"Exact restore: {answers} answers of the restored world were equal to"
            f" the byte, headers included{places}.",
        )
    times = trace.findings.equal_times
    count = sum(findings.equal_landings for findings in shown)
    pairs = "1 pair" if count == 1 else f"{count} pairs"
    return Verdict(
        "exact_in_simulated_time",
        f"Exact restore in simulated time: equal at {times} times, and in"
        f" {pairs} of runs whose inputs landed together{places}.",
    )


def _find_gaps(by_id: Mapping[str, CheckResult]) -> list[str]:
    """Return the checks of the restore that did not or could not run, which weakens a verdict."""
    missing = [f"{check_id} was not run" for check_id in _ALWAYS if check_id not in by_id]
    could_not = [
        f"{result.id} could not run"
        for result in by_id.values()
        if result.status == "could_not_run" and result.id in _DECISIVE
    ]
    return missing + could_not


def _locate(result: CheckResult) -> str:
    if result.path is None:
        return result.evidence
    return f"{result.evidence}, at {result.path}"


def is_counted(result: CheckResult, *, strict: bool) -> bool:
    """Return whether a result makes the whole check fail.

    Args:
        result: The result of a check.
        strict: Whether failures of level *should*, and checks that could not run, also count.
    """
    if result.status == "failed":
        return not result.is_expected and (strict or result.level == "must")
    return result.is_own_error or (strict and result.status == "could_not_run")


def mark_expected(report: Report, expected: Iterable[str]) -> Report:
    """Return a report with some failures marked as expected.

    A listed check that passes counts as a failure, because the list is out of date.

    Args:
        report: The report.
        expected: Ids of the checks that are expected to fail.
    """
    listed = set(expected)

    def mark(result: CheckResult) -> CheckResult:
        if result.id not in listed:
            return result
        if result.status == "passed":
            evidence = "it passed, although it is listed as an expected failure: remove it there"
            return attrs.evolve(result, status="failed", evidence=evidence)
        return attrs.evolve(result, is_expected=result.status == "failed")

    return attrs.evolve(report, checks=tuple(map(mark, report.checks)))


def parse_expected(text: str, known: Sequence[str], *, path: str) -> tuple[str, ...]:
    """Parse a file of expected failures: one id per line, ``#`` starts a comment.

    Args:
        text: The content of the file.
        known: The ids of all checks.
        path: Its path, for messages.

    Raises:
        ConfigError: A line is not the id of a check.
    """
    ids = []
    for number, line in enumerate(text.splitlines(), 1):
        name = line.partition("#")[0].strip()
        if name and name not in known:
            message = "must be the id of a check on each line"
            hint = "list them: clawblox check --list"
            raise ConfigError(message, key=f"{path}, line {number}", value=name, hint=hint)
        if name:
            ids.append(name)
    return tuple(ids)


def count_statuses(results: Iterable[CheckResult]) -> Mapping[Status, int]:
    """Return the number of results of each status, most urgent first, without zeros."""
    statuses = [result.status for result in results]
    return {status: statuses.count(status) for status in STATUSES if status in statuses}
