"""Checks of hostile worlds end in time, with a helpful report and without leftovers."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import anyio
import pytest

from clawblox.concurrency.threads import run_blocking
from clawblox.conformance import CheckResult, Report, check_world
from clawblox.errors import ConfigError
from clawblox.views.check_page import render_page
from clawblox.views.check_report import render_report

pytestmark = pytest.mark.anyio

HOSTILE = Path(__file__).parents[1] / "worlds" / "hostile.py"
CALL_TIMEOUT = "clawblox.conformance.live.CALL_TIMEOUT_S"
LIMIT_S = 240.0
"""Seconds of real time after which a check of a world counts as hanging."""

GRADES: Mapping[str, str] = {
    "deep-observations": "exact_as_far_as_seen",
    "repeated-key": "exact_as_far_as_seen",
    "time-as-text": "exact",
    "evil-ids": "exact",
    "leaves-link": "exact",
    "leaves-pipe": "exact",
    "leaves-large-file": "exact",
    "leaves-deep-directories": "exact",
    "forks": "exact",
    "ignores-stop": "exact",
    "closes-every-fifth": "",
    "tiny-times": "not_shown",
    "join-refused": "not_shown",
    "join-of-other-types": "not_shown",
    "huge-session": "not_shown",
    "session-with-lines": "not_shown",
    "no-snapshot": "not_shown",
    "no-agent-ids": "exact",
    "no-inputs": "not_shown",
    "no-answer-to-hearing": "not_shown",
    "hangs": "not_shown",
    "hangs-at-fourth-request": "not_shown",
    "errors": "not_shown",
    "endless-bodies": "not_shown",
    "endless-headers": "not_shown",
    "redirects": "not_shown",
    "dies-at-third-request": "not_shown",
    "refuses-own-save": "not_exact",
}
"""The grade of each hostile world; empty if the grade is random."""


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clawblox.conformance.instances.STOP_GRACE_S", 0.5)
    monkeypatch.setattr("clawblox.conformance.instances.SAVE_TIMEOUT_S", 5.0)
    monkeypatch.setattr(CALL_TIMEOUT, 5.0)


def make_world(parent: Path, way: str) -> Path:
    directory = parent / "hostile"
    directory.mkdir()
    command = json.dumps([sys.executable, "-I", "-S", str(HOSTILE), way])
    (directory / "world.toml").write_text(f'name = "Hostile"\n[run]\ncommand = {command}\n')
    return directory


async def check(parent: Path, way: str, *ids: str, in_place: bool = False) -> Report:
    with anyio.fail_after(LIMIT_S):
        world = await run_blocking(partial(make_world, parent, way))
        bodies_dir = parent / "bodies"
        return await check_world(world, ids, seed=1, bodies_dir=bodies_dir, in_place=in_place)


def find(report: Report, check_id: str) -> CheckResult:
    return next(result for result in report.checks if result.id == check_id)


@pytest.mark.thorough
@pytest.mark.parametrize("way", GRADES)
async def test_hostile_world_gets_a_report_and_leaves_no_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    scratch = tmp_path / "tmp"
    await run_blocking(scratch.mkdir)
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    if way.startswith("hangs"):
        monkeypatch.setattr(CALL_TIMEOUT, 1.0)
    report = await check(tmp_path, way)
    assert [result for result in report.checks if result.is_own_error] == []
    assert report.verdict.grade == (GRADES[way] or report.verdict.grade)
    assert await run_blocking(lambda: list(scratch.iterdir())) == []
    page = await run_blocking(render_page, report)
    for text in (render_report(report, width=100, is_verbose=True), page):
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert "<script>" not in text or text.startswith("Hostile")


async def test_world_that_agents_cannot_join_fails_no_other_check(tmp_path: Path) -> None:
    report = await check(tmp_path, "join-refused", "contract.join", "gate", "restore", "invisible")
    assert find(report, "contract.join").status == "failed"
    others = [result for result in report.checks if result.id != "contract.join"]
    statuses = Counter(result.status for result in others)
    assert statuses["failed"] == 0
    assert find(report, "gate.sessions").status == "could_not_run"
    assert find(report, "restore.trace").status == "could_not_run"
    assert report.verdict.grade == "not_shown"


async def test_a_world_that_refuses_its_own_save_is_not_exact(tmp_path: Path) -> None:
    report = await check(tmp_path, "refuses-own-save", "restore.trace")
    result = find(report, "restore.trace")
    assert result.status == "failed"
    assert "did not start from its own save" in result.evidence
    assert "this save is from another world" in result.evidence
    assert report.verdict.grade == "not_exact"
    assert report.exit_status() == 1


@pytest.mark.thorough
async def test_a_restore_that_differs_once_is_not_exact(tmp_path: Path) -> None:
    result = find(await check(tmp_path, "differs-once", "restore.cut_points"), "restore.cut_points")
    assert result.status == "failed"
    assert "answered differently at step" in result.evidence
    assert result.evidence.endswith("another restore of the same save did not show this")


async def test_a_check_that_takes_too_long_is_not_verified(tmp_path: Path) -> None:
    world = await run_blocking(make_world, tmp_path, "hangs")
    report = await check_world(world, ["contract.join"], seed=1, check_timeout=0.2)
    result = find(report, "contract.join")
    assert result.status == "could_not_run"
    assert result.evidence.startswith("it took longer than 0.2 s: give each check more time")
    assert report.exit_status() == 0
    assert report.exit_status(strict=True) == 1


async def test_bytecode_is_cached_across_starts_if_python_writes_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    code = "import sys; sys.exit(f'{sys.dont_write_bytecode} {sys.pycache_prefix}')"
    command = json.dumps([sys.executable, "-c", code])
    (tmp_path / "world.toml").write_text(f'name = "Ends"\n[run]\ncommand = {command}\n')
    result = find(await check_world(tmp_path, ["contract.ready"]), "contract.ready")
    assert re.search(r"False /\S+/bytecode", result.evidence)


async def test_verdict_is_not_shown_without_snapshots(tmp_path: Path) -> None:
    report = await check(tmp_path, "no-snapshot", "restore", "gate.snapshot_token")
    assert find(report, "gate.snapshot_token").status == "failed"
    assert find(report, "restore.trace").status == "could_not_run"
    assert report.verdict.grade == "not_shown"


@pytest.mark.thorough
async def test_checks_of_agent_ids_do_not_pass_without_ids(tmp_path: Path) -> None:
    ids = ("contract.join", "restore.joins", "invisible.process_ids")
    report = await check(tmp_path, "no-agent-ids", *ids)
    assert [result.status for result in report.checks] == ["failed", "passed", "could_not_run"]


async def test_malformed_inputs_are_not_checked_without_inputs(tmp_path: Path) -> None:
    result = find(await check(tmp_path, "no-inputs", "contract.malformed"), "contract.malformed")
    assert result.status == "could_not_run"


@pytest.mark.thorough
async def test_hanging_world_gets_only_a_few_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CALL_TIMEOUT, 1.0)
    ids = ("hygiene.secrets", "contract.observe", "gate.sessions")
    report = await check(tmp_path, "hangs-at-fourth-request", *ids)
    assert Counter(result.status for result in report.checks)["passed"] == 0
    assert max(result.seconds for result in report.checks) < LIMIT_S / 10


async def test_full_disk_does_not_fail_the_world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path, *, max_bytes: int) -> bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr("clawblox.conformance.checks.refuse.read_regular", fail)
    report = await check(tmp_path, "behaves", "refuse.corrupt")
    result = find(report, "refuse.corrupt")
    assert (result.status, result.is_own_error) == ("could_not_run", True)
    assert "the check itself failed: [Errno 28] No space left on device" in result.evidence
    assert report.exit_status() == 3


async def test_answers_missing_in_both_runs_are_not_equal(tmp_path: Path) -> None:
    report = await check(tmp_path, "no-answer-to-hearing", "restore.trace")
    result = find(report, "restore.trace")
    assert result.status == "could_not_run"
    assert "got no answer" in result.evidence


async def test_oversized_snapshots_prove_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clawblox.conformance.instances.MAX_SNAPSHOT_BYTES", 64)
    report = await check(tmp_path, "behaves", "restore.trace")
    assert find(report, "restore.trace").status == "could_not_run"
    assert report.verdict.grade == "not_shown"


async def test_repeated_key_in_a_large_object_fails_the_check(tmp_path: Path) -> None:
    result = find(await check(tmp_path, "repeated-key", "contract.observe"), "contract.observe")
    assert result.status == "failed"
    assert "the key 'k19999' twice" in result.evidence


@pytest.mark.parametrize("in_place", [False, True])
async def test_links_left_by_a_world_are_a_finding(tmp_path: Path, in_place: bool) -> None:
    ids = ("hygiene.files", "contract.flags")
    report = await check(tmp_path, "leaves-link", *ids, in_place=in_place)
    assert "latest" in find(report, "hygiene.files").evidence
    flags = find(report, "contract.flags")  # the copy is made from the original
    assert (flags.status == "could_not_run") == in_place
    assert ("latest" in flags.evidence) == in_place
    assert report.exit_status() == 0


@pytest.mark.parametrize("in_place", [False, True])
async def test_large_file_left_by_a_world_is_not_read(tmp_path: Path, in_place: bool) -> None:
    ids = ("hygiene.files", "contract.flags")
    report = await check(tmp_path, "leaves-large-file", *ids, in_place=in_place)
    for result in map(partial(find, report), ids[: 1 + in_place]):
        assert result.status == "could_not_run"
        assert re.search(r"large.* is larger than|is larger than .*large", result.evidence)


@pytest.mark.parametrize("in_place", [False, True])
async def test_a_large_file_in_the_directory_is_refused(tmp_path: Path, in_place: bool) -> None:
    directory = await run_blocking(partial(make_world, tmp_path, "behaves"))
    await run_blocking((directory / "large").touch)
    await run_blocking(os.truncate, directory / "large", 8 << 40)
    with pytest.raises(ConfigError, match=r"large.* is larger than"):
        await check_world(directory, ["static"], in_place=in_place)


async def test_link_in_the_world_directory_is_refused_with_a_hint(tmp_path: Path) -> None:
    directory = await run_blocking(partial(make_world, tmp_path, "behaves"))
    await run_blocking((directory / "assets").symlink_to, "/usr/share")
    with pytest.raises(ConfigError, match="assets") as caught:
        await check_world(directory, ["static"])
    assert "in_place=True" in (caught.value.hint or "")
