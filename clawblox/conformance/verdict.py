"""The verdict about the restore of a world, from the results of its checks. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

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


def judge(results: Sequence[CheckResult], *, obstacle: str = "") -> Verdict:
    """Return the verdict.

    Args:
        results: The results of the checks that ran.
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
    shown = [result.findings for result in by_id.values()]
    gaps = [limit for findings in shown for limit in findings.limits] + _find_gaps(by_id)
    if gaps:
        return Verdict("exact_as_far_as_seen", f"Exact restore, as far as seen: {'; '.join(gaps)}.")
    named = "".join(findings.places for findings in shown)
    places = f"; also in a life with {named}" if named else ""
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
