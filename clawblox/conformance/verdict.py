"""The verdict about the restore of a world, from the results of its checks. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from clawblox.conformance.report import CheckResult, Verdict

_ALWAYS: Final = (
    "restore.trace",
    "restore.second",
    "restore.again",
    "restore.fresh_places",
    "restore.save_changes_nothing",
    "restore.sessions",
)
"""Checks without which a restore is not shown to be exact, whatever the clock."""
_DECISIVE: Final = frozenset({*_ALWAYS, "restore.landings"})
"""Checks that weaken the verdict if they cannot run."""


@attrs.define
class Findings:
    """The amount of evidence for an exact restore, which the verdict states.

    Attributes:
        equal_answers: Answers of a restored lock-step world that were equal to the byte.
        equal_times: Simulated times at which the documents of two lives were equal.
        equal_landings: Pairs of restores whose inputs landed together and that continued equally.
        places: The places of the life in fresh ones, in words; empty without one.
        limits: Reasons why the evidence is weaker than it could be.
    """

    equal_answers: int = 0
    equal_times: int = 0
    equal_landings: int = 0
    places: str = ""
    limits: list[str] = attrs.field(factory=list)


def judge(results: Sequence[CheckResult], findings: Findings, *, obstacle: str = "") -> Verdict:
    """Return the verdict.

    Args:
        results: The results of the checks that ran.
        findings: The amount of their evidence.
        obstacle: Why no instance of the world could be started; empty if one could.
    """
    if obstacle:
        return Verdict("not_shown", f"Restore not shown: {obstacle}.")
    by_id = {result.id: result for result in results if result.id.startswith("restore.")}
    failed = [
        result for result in by_id.values() if result.status == "failed" and result.level == "must"
    ]
    if failed:
        reason = f"{failed[0].id} failed: {_describe(failed[0])}"
        return Verdict("not_exact", f"Restore not exact: {reason}.")
    trace = by_id.get("restore.trace")
    if trace is None:
        return Verdict("not_shown", "Restore not shown: restore.trace was not run.")
    if trace.status != "passed":
        return Verdict("not_shown", f"Restore not shown: {trace.evidence}.")
    gaps = [*findings.limits, *_find_gaps(by_id)]
    if gaps:
        return Verdict("exact_as_far_as_seen", f"Exact restore, as far as seen: {'; '.join(gaps)}.")
    places = f"; also in a life with {findings.places}" if findings.places else ""
    if findings.equal_answers:
        return Verdict(
            "exact",
            f"Exact restore: {findings.equal_answers} answers of the restored world were equal to"
            f" the byte, headers included{places}.",
        )
    count = findings.equal_landings
    pairs = "1 pair" if count == 1 else f"{count} pairs"
    return Verdict(
        "exact_in_simulated_time",
        f"Exact restore in simulated time: equal at {findings.equal_times} times, and in"
        f" {pairs} of lives whose inputs landed together{places}.",
    )


def _find_gaps(by_id: Mapping[str, CheckResult]) -> list[str]:
    """Return what weakens a verdict: checks of the restore that were not run or could not."""
    missing = [f"{check_id} was not run" for check_id in _ALWAYS if check_id not in by_id]
    could_not = [
        f"{result.id} could not run"
        for result in by_id.values()
        if result.status == "could_not_run" and result.id in _DECISIVE
    ]
    return missing + could_not


def _describe(result: CheckResult) -> str:
    if result.path is None:
        return result.evidence
    return f"{result.evidence}, at {result.path}"
