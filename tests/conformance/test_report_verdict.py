"""The verdict about a restore follows from the results of the checks alone."""

from __future__ import annotations

import attrs
import pytest

from clawblox.conformance.registry import Findings
from clawblox.conformance.report import CheckResult, judge

IDS = (
    "restore.trace",
    "restore.second",
    "restore.again",
    "restore.fresh_places",
    "restore.save_changes_nothing",
    "restore.sessions",
)


def passed(*ids: str, **findings: Findings) -> list[CheckResult]:
    """Return results of checks that passed, with findings by the name of the check."""
    result = CheckResult("", "must", "passed", "It does.", "seen", 0.1)
    return [
        attrs.evolve(result, id=name, findings=findings.get(name.rpartition(".")[2], Findings()))
        for name in ids
    ]


BYTES = Findings(equal_answers=44)
TIMES = Findings(equal_times=91)
PLACES = Findings(places="its own home")


def test_equal_bytes_are_an_exact_restore() -> None:
    verdict = judge(passed(*IDS, trace=BYTES))
    assert verdict.grade == "exact"
    assert "44 answers" in verdict.sentence


@pytest.mark.parametrize("trace", [BYTES, TIMES])
def test_verdict_names_the_fresh_places_of_a_run(trace: Findings) -> None:
    verdict = judge(passed(*IDS, trace=trace, fresh_places=PLACES))
    assert verdict.sentence.endswith("; also in a run with its own home.")


@pytest.mark.parametrize(("count", "pairs"), [(3, "3 pairs of"), (1, "1 pair of")])
def test_equal_times_and_landings_are_exact_in_simulated_time(count: int, pairs: str) -> None:
    ids = (*IDS, "restore.landings")
    verdict = judge(passed(*ids, trace=TIMES, landings=Findings(equal_landings=count)))
    assert verdict.grade == "exact_in_simulated_time"
    assert "91 times" in verdict.sentence
    assert pairs in verdict.sentence


def test_the_limits_of_each_check_weaken_the_verdict_in_the_order_of_the_checks() -> None:
    limited = {
        "second": Findings(limits=("less",)),
        "trace": attrs.evolve(BYTES, limits=("a", "b")),
    }
    verdict = judge(passed(*IDS, **limited))
    assert verdict.sentence == "Exact restore, as far as seen: a; b; less."


@pytest.mark.parametrize("missing", IDS[1:])
def test_a_check_that_was_not_run_weakens_the_verdict(missing: str) -> None:
    verdict = judge(passed(*(name for name in IDS if name != missing), trace=BYTES))
    assert verdict.grade == "exact_as_far_as_seen"
    assert missing in verdict.sentence


def test_a_check_that_could_not_run_weakens_the_verdict() -> None:
    unlucky = CheckResult("restore.landings", "must", "could_not_run", "It does.", "no pair", 1.0)
    verdict = judge([*passed(*IDS, trace=TIMES), unlucky])
    assert verdict.grade == "exact_as_far_as_seen"
    assert "restore.landings could not run" in verdict.sentence


def test_single_failed_requirement_makes_the_restore_inexact() -> None:
    results = passed(*IDS, trace=BYTES)
    results[2] = attrs.evolve(results[2], status="failed", evidence="it differs", path="body.x")
    verdict = judge(results)
    assert verdict.grade == "not_exact"
    assert "restore.again failed: it differs, at body.x" in verdict.sentence


def test_verdict_is_not_shown_without_a_trace() -> None:
    assert judge(passed(*IDS[1:])).grade == "not_shown"
    unlucky = CheckResult("restore.trace", "must", "could_not_run", "It does.", "too few", 1.0)
    assert judge([unlucky, *passed(*IDS[1:])]).grade == "not_shown"
