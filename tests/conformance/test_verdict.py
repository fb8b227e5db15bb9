"""The verdict about a restore follows from the results of the checks alone."""

from __future__ import annotations

import attrs
import pytest

from clawblox.conformance.report import CheckResult
from clawblox.conformance.verdict import Findings, judge

IDS = (
    "restore.trace",
    "restore.second",
    "restore.again",
    "restore.fresh_places",
    "restore.save_changes_nothing",
    "restore.sessions",
)


def passed(*ids: str) -> list[CheckResult]:
    return [CheckResult(name, "must", "passed", "It does.", "seen", 0.1) for name in ids]


def test_equal_bytes_are_an_exact_restore() -> None:
    verdict = judge(passed(*IDS), Findings(equal_answers=44))
    assert verdict.grade == "exact"
    assert "44 answers" in verdict.sentence


def test_the_places_of_a_life_in_fresh_ones_are_named() -> None:
    with_bytes = judge(passed(*IDS), Findings(equal_answers=44, places="its own home"))
    assert with_bytes.sentence.endswith("; also in a life with its own home.")
    with_times = judge(
        passed(*IDS), Findings(equal_times=91, equal_landings=3, places="its own home")
    )
    assert with_times.sentence.endswith("; also in a life with its own home.")


def test_equal_times_and_landings_are_exact_in_simulated_time() -> None:
    verdict = judge(passed(*IDS), Findings(equal_times=91, equal_landings=3))
    assert verdict.grade == "exact_in_simulated_time"
    assert "91 times" in verdict.sentence
    assert "3 pairs" in verdict.sentence
    single = judge(passed(*IDS), Findings(equal_times=91, equal_landings=1))
    assert "1 pair of" in single.sentence


@pytest.mark.parametrize("missing", IDS[1:])
def test_a_check_that_was_not_run_weakens_the_verdict(missing: str) -> None:
    results = passed(*(name for name in IDS if name != missing))
    verdict = judge(results, Findings(equal_answers=44))
    assert verdict.grade == "exact_as_far_as_seen"
    assert missing in verdict.sentence


def test_a_check_that_could_not_run_weakens_the_verdict() -> None:
    unlucky = CheckResult("restore.landings", "must", "could_not_run", "It does.", "no pair", 1.0)
    verdict = judge([*passed(*IDS), unlucky], Findings(equal_times=91))
    assert verdict.grade == "exact_as_far_as_seen"
    assert "restore.landings could not run" in verdict.sentence


def test_one_failure_of_a_requirement_is_no_exact_restore() -> None:
    results = passed(*IDS)
    results[2] = attrs.evolve(results[2], status="failed", evidence="it differs", path="body.x")
    verdict = judge(results, Findings(equal_answers=44))
    assert verdict.grade == "not_exact"
    assert "restore.again failed: it differs, at body.x" in verdict.sentence


def test_nothing_is_shown_without_a_trace() -> None:
    assert judge(passed(*IDS[1:]), Findings()).grade == "not_shown"
    unlucky = CheckResult("restore.trace", "must", "could_not_run", "It does.", "too few", 1.0)
    assert judge([unlucky, *passed(*IDS[1:])], Findings()).grade == "not_shown"
