"""Reports for tests of their output: a plain report, and random reports with hostile text."""

from __future__ import annotations

from typing import Any, get_args

from hypothesis import strategies as st

from clawblox.conformance import CheckResult, Report, Verdict
from clawblox.conformance.report import STATUSES, Grade

HOSTILE = "\x1b]0;title\x07\x9b2J\u202eder\u2066\u200b\x00</style><script>alert(1)</script>]]>&amp;"


def make_result(check_id: str, status: Any = "passed", **fields: Any) -> CheckResult:
    fields = {"level": "must", "requirement": "It does.", "evidence": "seen", **fields}
    return CheckResult(id=check_id, status=status, seconds=0.25, **fields)


def make_report(*results: CheckResult, **fields: Any) -> Report:
    verdict = Verdict("exact", "Exact: 44 answers were equal to the byte.")
    fields = {"world": "panda", "target": "worlds/panda", "verdict": verdict, "seed": 7, **fields}
    return Report(checks=results, seconds=1.5, **fields)


def failing_report() -> Report:
    """Return a report with a result of each kind."""
    return make_report(
        make_result("static.world_toml"),
        make_result("contract.alias", "failed", level="should", evidence="404 Not Found"),
        make_result(
            "restore.trace",
            "failed",
            requirement="A restored world continues.",
            evidence="it differs in answer 17 of 44",
            request="curl -i -X POST http://127.0.0.1:20001/input",
            path="body.x",
            expected=0.25,
            got=0.75,
        ),
        make_result("restore.landings", "not_applicable", evidence="it stands still"),
        make_result("restore.chat", "could_not_run", evidence="there is no second agent"),
        make_result("hygiene.growth", "failed", evidence="it grew", is_expected=True),
        verdict=Verdict("not_exact", "Not exact: restore.trace failed."),
    )


def failures_with_one_cause() -> list[CheckResult]:
    """Return three failures with the same cause, and an unmet recommendation."""
    fields = {"evidence": "no agent could join", "request": "curl -i http://127.0.0.1:1/join"}
    names = ("contract.join", "contract.chat", "gate.sessions")
    failures = [make_result(name, "failed", **fields) for name in names]
    return [*failures, make_result("contract.alias", "failed", level="should", **fields)]


_TEXT = st.one_of(st.just(HOSTILE), st.text(max_size=20), st.text("\x00\x1b\u202e\ud800<&\n\r\t "))
_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=5,
)
_RESULTS = st.builds(
    CheckResult,
    id=st.sampled_from(("static.world_toml", "gate.sessions", "restore.trace", "restore.chat")),
    level=st.sampled_from(("must", "should")),
    status=st.sampled_from(STATUSES),
    requirement=_TEXT,
    evidence=_TEXT,
    seconds=st.floats(0, 100),
    request=st.none() | _TEXT,
    path=st.none() | _TEXT,
    expected=_JSON,
    got=_JSON,
    absent=st.sampled_from((None, "expected", "got")),
    is_own_error=st.booleans(),
    is_expected=st.booleans(),
)
REPORTS = st.builds(
    Report,
    world=_TEXT,
    target=_TEXT,
    verdict=st.builds(Verdict, st.sampled_from(get_args(Grade)), _TEXT),
    seed=st.integers(0, 2**32),
    checks=st.lists(_RESULTS, max_size=4).map(tuple),
    seconds=st.floats(0, 100),
    obstacle=st.just("") | st.lists(_TEXT, min_size=2, max_size=3).map("\n".join),
)
"""Random reports: each text may be hostile, each value any JSON."""
