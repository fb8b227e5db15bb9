"""``clawblox check`` finds and names each defect of the bad worlds, and passes the good worlds.

By default each check must find one of its defects, with one clock.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from random import Random

import anyio
import pytest

from clawblox.concurrency.threads import run_blocking
from clawblox.conformance import CHECKS, CheckResult, Report, check_world
from clawblox.conformance.disguise import draw_names, draw_variable
from tests.support.provable import make_provable_world
from tests.support.sampling import usually
from tests.worlds.defects import CLOCKS, DEFECTS

pytestmark = pytest.mark.anyio

SEED = 1
FIRST, SECOND, _ = draw_names(Random(f"{SEED}/names"))
VARIABLE = draw_variable(Random(f"{SEED}/variable"), ())

EVIDENCE: Mapping[str, str] = {
    "broken-world-toml": "max_players: must be a whole number above 0",
    "api-empty": "the served document is empty",
    "api-mentions-snapshot": "mentions /snapshot in line",
    "api-without-actions": "no inputs are known",
    "misspelled-key": "descripton: did you mean description?",
    "alias-missing": "GET /skill.md was not accepted: 404",
    "observation-without-time": "neither key exists; the keys are: you",
    "listens-everywhere": "it listens on 127.0.0.2 as well",
    "snapshot-without-identity": "no text at its top level looks like a hash",
    "sessions-count": "two sessions differ in only 1 of 32 characters",
    "empty-starts-fresh": "the snapshot was empty: the world became ready with it",
    "refuses-without-error": "the world ended with exit status 0, as if nothing was wrong",
    "log-has-token": "the log has the value of WORLD_OPERATOR_TOKEN",
    "exits-at-start": "ORCHARD_HOME is not set",
    "join-shares-session": f"{FIRST} and {SECOND} got the same session",
    "rejoin-is-new": "has another session than the first join",
    "observation-nan": "it has NaN",
    "input-answers-text": "is not strict JSON: 200 ok",
    "malformed-ends-world": "an input that is cut off was not refused with 4xx",
    "malformed-is-500": "an input that is cut off was not refused with 4xx: 500",
    "chat-is-private": "the other agent did not get the message",
    "leave-keeps-session": "an observation after the agent left was accepted with 200",
    "refused-body-unread": "after POST /input with",
    "join-body-unread": "after POST /join with",
    "ignores-base-path": "with WORLD_BASE_PATH=/worlds/w1 it was not ready",
    "ignores-port-flag": "it served on WORLD_PORT=",
    "snapshot-without-format": "its format is None",
    "snapshot-without-time": "its time is None",
    "snapshot-has-nan": "the snapshot is not strict JSON: it has NaN",
    "snapshot-open": "a request without a token was accepted with 200",
    "any-token-accepted": "a wrong token was accepted with 200",
    "token-in-query": "the token was accepted as token= in the query",
    "token-as-bearer": "the token in Authorization was accepted with 200",
    "observe-without-session": "GET /observe without a session was accepted with 200",
    "observe-unknown-session": "GET /observe with an unknown session was accepted with 200",
    "input-unknown-session": "POST /input with an unknown session was accepted with 200",
    "unknown-joins": "the world adopted a session that it had never issued",
    "sessions-from-saved-key": "issued the same session",
    "foreign-host-accepted": "with Host: rebound.example was accepted with 200",
    "foreign-origin-accepted": "with Origin: http://elsewhere.example was accepted with 200",
    "no-max-players": "a join after 8 agents was accepted with 200",
    "unbounded-body": "was accepted with 200",
    "corrupt-starts-fresh": "were overwritten: the world became ready with it",
    "refuses-late": "were overwritten: the world",
    "truncated-starts-fresh": "were cut off: the world became ready with it",
    "foreign-accepted": "scene_hash changed: the world became ready with it",
    "newer-accepted": "version was raised from 1 to 2: the world became ready with it",
    "missing-starts-fresh": "which does not exist: the world became ready with it",
    "date-header": "has a header Date / headers.Date",
    "request-counter": "two equal requests got different values of X-Request-Id",
    "chat-host-time": "has the host's time in seconds / body.created_at",
    "observation-host-time": "has the host's time in ms / body.server_time_ms",
    "observation-host-date": "has the host's time as ISO 8601 / body.as_of",
    "observation-pid": "an id of the process / body.server",
    "observation-launch-id": "an id of the process / body.world_id",
    "observation-path": "orchard.log / body.log",
    "observation-token": "has the value of WORLD_OPERATOR_TOKEN / body.debug.operator",
    "snapshot-keeps-history": "the snapshot grew by more than 20 bytes an input in every block",
    "snapshot-has-token": "the snapshot has the value of WORLD_OPERATOR_TOKEN / body.operator",
    "snapshot-has-environment": f"the snapshot has the value of {VARIABLE}",
    "snapshot-has-path": "assets / body.assets",
    "file-had-token": "orchard.cache has the value of WORLD_OPERATOR_TOKEN",
    "observation-too-large": "bytes, and at most 4194304 are read",
    "ignores-sigterm": "it ignored SIGTERM, and was killed after",
    "leaves-file": "these were made or changed: orchard.lock",
    "leaves-daemon": "these ignored SIGTERM, and were killed after",
    "script-errors": "a run reported 1 script error, the last: trees.lua:3: no apple",
    "loses-chance": "the restored world",
    "reseeds-on-restore": "the second restore",
    "rounds-floats": "the restored world",
    "loses-impulse": "the restored world",
    "restores-late": "the restored world",
    "unsaved-fatigue": "restore",
    "luck-by-entropy": "restore",
    "loses-streak": "the world restored before step",
    "loses-carried": "the world restored before step",
    "doubles-count": "the restore",
    "stale-agents": "the restore",
    "reverses-sessions": "sessions[0].session",
    "save-draws": "a restored world that was saved in between",
    "save-ticks": "a restored world that was saved in between",
    "save-steps": "a restored world that was saved in between",
    "save-clears-pending": "while the input waited",
    "loses-pending": "while the input waited",
    "loses-last-session": f"the session of {SECOND} was refused",
    "needs-rejoin": f"the session of {FIRST} was refused",
    "loses-chat": f"{FIRST} gets other messages than before",
    "restarts-chat-ids": "a message after the restore has the id of another: 1",
    "joiner-by-entropy": "an agent that joined after the restore",
    "restarts-agent-ids": "an agent that joined after the restore got the id of another: 'agent-1'",
}
"""Words of the evidence, by defect."""

CASES = [(name, clock) for name in DEFECTS for clock in CLOCKS if DEFECTS[name].check(clock)]
SLOW = {"loses-carried", "loses-pending", "loses-streak", "save-clears-pending"}
"""Defects whose checks restore many times."""
SLOW_IN_REALTIME = {"observation-launch-id", "sessions-from-saved-key"}
"""Defects that are found late in real time, like the defects of the restore checks."""
MAY_MISS = {"lockstep": set(), "realtime": {"restore.landings", "restore.pending"}}
"""Checks whose success is random, and may fail on a busy machine."""
ATTEMPTS = 4
"""Maximum number of runs in real time of a check whose success is random."""
DECISIVE = {"restore.landings"}
IDS = {check.id for check in CHECKS}


def is_usual(name: str, clock: str) -> bool:
    """Return whether this is the clock with which a defect is cheap to find."""
    checks = {clock: DEFECTS[name].check(clock) for clock in CLOCKS}
    if name in SLOW or None in checks.values():
        return name not in SLOW
    if name in SLOW_IN_REALTIME or (checks["lockstep"] or "").startswith("restore."):
        return clock == "lockstep"
    return clock == CLOCKS[[*DEFECTS].index(name) % 2]


CHOSEN = {
    DEFECTS[name].check(clock): (name, clock) for name, clock in CASES if is_usual(name, clock)
}
"""The defect and the clock with which each check is tested by default."""


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clawblox.conformance.instances.STOP_GRACE_S", 0.5)


async def check(
    parent: Path, clock: str, defect: str | None = None, ids: Sequence[str] = ()
) -> Report:
    make = partial(make_provable_world, parent, clock=clock, defect=defect)
    world = await run_blocking(make)
    return await check_world(world, ids, seed=SEED, bodies_dir=parent / "bodies")


@pytest.mark.parametrize(
    ("name", "clock"),
    [
        pytest.param(
            name, clock, marks=[] if (name, clock) in CHOSEN.values() else pytest.mark.thorough
        )
        for name, clock in CASES
    ],
)
async def test_defect_is_found_by_its_check(tmp_path: Path, name: str, clock: str) -> None:
    check_id = DEFECTS[name].check(clock)
    assert check_id is not None
    for number in range(ATTEMPTS if clock == "realtime" else 1):
        parent = tmp_path / str(number)
        await anyio.Path(parent).mkdir()
        result = (await check(parent, clock, name, [check_id])).checks[0]
        saw_little = check_id in MAY_MISS[clock] and result.status == "could_not_run"
        if not saw_little and "no snapshots among them" not in result.evidence:
            break
    assert result.status == "failed", result
    assert EVIDENCE[name] in describe(result)


def describe(result: CheckResult) -> str:
    return f"{result.evidence} / {result.path}: {result.expected!r}, {result.got!r}"


def test_every_defect_is_found_by_a_check_that_exists() -> None:
    assert {defect.check(clock) for defect in DEFECTS.values() for clock in CLOCKS} <= IDS | {None}
    assert EVIDENCE.keys() == DEFECTS.keys()


COMPANIONS: Mapping[str, Sequence[str]] = {
    "loses-last-session": ["invisible.process_ids", "gate.fresh_sessions"],
    "needs-rejoin": ["invisible.process_ids", "gate.fresh_sessions"],
    "sessions-count": ["gate.fresh_sessions"],
    "observation-host-date": ["invisible.process_ids"],
    "observation-host-time": ["invisible.process_ids"],
    "restarts-chat-ids": ["invisible.process_ids"],
    "restarts-agent-ids": ["invisible.process_ids"],
    "snapshot-open": ["gate.token_forms"],
    "observe-unknown-session": ["contract.leave"],
    "input-unknown-session": ["gate.sessions"],
    "corrupt-starts-fresh": ["refuse.truncated", "refuse.empty"],
    "refuses-late": ["refuse.*"],
    "refuses-without-error": ["refuse.*"],
    "api-empty": ["static.actions"],
    "join-shares-session": ["contract.leave", "gate.*"],
    "observation-nan": ["contract.input"],
    "observation-token": ["invisible.process_ids"],
    "snapshot-has-environment": ["hygiene.paths"],
    "malformed-ends-world": ["contract.*"],
    "file-had-token": ["hygiene.files"],
}
"""Further checks that a defect may fail, by defect."""

VISIBLE_AREAS = ("restore", "invisible", "hygiene")
"""Areas whose defects may also differ from run to run, which the restore checks detect."""


@pytest.mark.thorough
@pytest.mark.parametrize("name", [name for name in DEFECTS if DEFECTS[name].lockstep])
async def test_no_other_check_fails_for_a_defect(tmp_path: Path, name: str) -> None:
    own = DEFECTS[name].lockstep
    assert own is not None
    report = await check(tmp_path, "lockstep", name)
    failed = {result.id for result in report.checks if result.status == "failed"}
    assert own in failed
    may_fail = [own, *COMPANIONS.get(name, ())]
    may_fail += ["restore.*"] if own.startswith(VISIBLE_AREAS) or name in COMPANIONS else []
    assert [each for each in failed if not any(fnmatch(each, one) for one in may_fail)] == []
    own_errors = [result for result in report.checks if result.is_own_error]
    assert own_errors == [] or name == "exits-at-start"


@pytest.mark.parametrize("clock", usually(CLOCKS, "lockstep"))
async def test_oversized_answer_fails_one_check_and_explains_the_others(
    tmp_path: Path, clock: str
) -> None:
    report = await check(tmp_path, clock, "observation-too-large")
    failed = [result.id for result in report.checks if result.status == "failed"]
    assert failed == ["contract.answer_size"]
    reasons = {result.id: result.evidence for result in report.unverified}
    assert {"contract.observe", "restore.trace", "restore.landings", "gate.sessions"} <= {*reasons}
    named = r"the answer to (GET /observe|POST /input) has \d+ bytes, and at most 4194304 are read"
    assert [reason for reason in reasons.values() if not re.search(named, reason)] == []
    assert not any(result.is_own_error for result in report.checks)


@pytest.mark.thorough
@pytest.mark.parametrize("clock", CLOCKS)
async def test_a_world_without_defects_passes_every_check(tmp_path: Path, clock: str) -> None:
    report = await check(tmp_path, clock)
    statuses = {result.id: result.status for result in report.checks}
    assert [result for result in report.checks if result.status == "failed"] == []
    could_not_run = {name for name, status in statuses.items() if status == "could_not_run"}
    assert could_not_run <= MAY_MISS[clock], report.checks
    grade = {"lockstep": "exact", "realtime": "exact_in_simulated_time"}[clock]
    grade = "exact_as_far_as_seen" if could_not_run & DECISIVE else grade
    assert report.verdict.grade == grade, report.verdict


@pytest.mark.parametrize("defect", [None, "chat-is-private"])
async def test_chat_check_does_not_apply_to_a_world_for_one_agent(
    tmp_path: Path, defect: str | None
) -> None:
    directory = make_provable_world(tmp_path, clock="lockstep", defect=defect)
    toml = directory / "world.toml"
    toml.write_text(toml.read_text().replace("max_players = 8", "max_players = 1"))
    (result,) = (await check_world(directory, ["contract.chat"], seed=1)).checks
    assert (result.status, result.is_own_error) == ("not_applicable", False)
    assert "max_players is 1" in result.evidence
