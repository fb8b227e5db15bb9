"""A run in fresh places detects worlds that keep state outside their snapshots."""

from __future__ import annotations

import os
import socket
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from clawblox.conformance import CheckResult, Report, check_world
from clawblox.conformance.fresh import lives
from clawblox.conformance.fresh.places import FreshPlace, make_place
from clawblox.conformance.fresh.views import DirectoryView, TooMuch
from tests.conformance.cheats import PLACES, WATCHES, cheating_world
from tests.support.sampling import usually

pytestmark = pytest.mark.anyio

FRESH = "restore.fresh_places"
COMPARED = ("restore.trace", FRESH)
ALL = ("restore",)
SHARED = ("tmp", "shm", "daemon")
"""Places that count as left behind, even for an honest world."""


async def check(
    parent: Path, *flags: str, clock: str = "lockstep", ids: Sequence[str] = (), seed: int = 1
) -> Report:
    with cheating_world(parent, clock=clock, flags=flags) as world:
        return await check_world(world, ids or COMPARED, seed=seed)


def find(report: Report, check_id: str = FRESH) -> CheckResult:
    return next(result for result in report.checks if result.id == check_id)


@pytest.fixture
def without_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lives, "find_bubblewrap", lambda: None)


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))


@pytest.mark.needs("bwrap")
@pytest.mark.parametrize("place", usually(PLACES, "daemon"))
async def test_state_outside_the_snapshot_fails_the_check(tmp_path: Path, place: str) -> None:
    report = await check(tmp_path, "--place", place)
    assert [result.id for result in report.checks if result.status == "failed"] == [FRESH]
    assert report.verdict.grade == "not_exact"
    assert find(report).path == "body.you.position"


@pytest.mark.thorough
@pytest.mark.needs("bwrap")
async def test_state_missing_only_in_later_saves_fails_the_check(tmp_path: Path) -> None:
    report = await check(tmp_path, "--place", "tmp", "--part", "carrying", seed=2)
    assert [result.id for result in report.checks if result.status == "failed"] == [FRESH]
    assert find(report).path == "body.you.carrying"


@pytest.mark.needs("bwrap")
@pytest.mark.thorough
@pytest.mark.parametrize("place", ["tmp", "above"])
async def test_state_outside_of_the_snapshot_is_found_in_real_time(
    tmp_path: Path, place: str
) -> None:
    report = await check(tmp_path, "--place", place, clock="realtime")
    assert find(report).status == "failed"
    assert report.verdict.grade == "not_exact"


@pytest.mark.thorough
@pytest.mark.needs("bwrap")
@pytest.mark.parametrize("place", PLACES)
async def test_copy_of_the_state_outside_the_snapshot_is_allowed(
    tmp_path: Path, place: str
) -> None:
    report = await check(tmp_path, "--place", place, "--honest", ids=ALL)
    assert [result for result in report.checks if result.status == "failed"] == []
    assert "(bubblewrap)" in find(report).evidence
    if place in SHARED:
        assert report.verdict.grade == "exact_as_far_as_seen"
        assert "the world left" in report.verdict.sentence
    else:
        assert report.verdict.grade == "exact"
        assert "also in a run with its own /tmp, /dev/shm, home" in report.verdict.sentence


NOT_FOUND = ("passwd-home", "daemon")
"""Places that are not found without bubblewrap."""


@pytest.mark.thorough
@pytest.mark.usefixtures("without_bubblewrap")
@pytest.mark.parametrize("place", PLACES)
async def test_most_state_outside_is_found_without_bubblewrap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    # Other programs may make listeners in the meantime.
    monkeypatch.setattr(lives, "_SHOWN", 10_000)
    ids = ALL if place in NOT_FOUND else COMPARED
    report = await check(tmp_path, "--place", place, ids=ids)
    if place == "daemon":
        assert "@orchard-" in find(report).evidence
    if place in NOT_FOUND:
        assert report.verdict.grade == "exact"
        assert "no bubblewrap" in report.verdict.sentence
    elif place in SHARED:
        assert report.verdict.grade == "exact_as_far_as_seen"
        assert "the world left" in report.verdict.sentence
    else:
        assert report.verdict.grade == "not_exact"
        assert find(report).status == "failed"


@pytest.mark.usefixtures("without_bubblewrap")
@pytest.mark.thorough
async def test_caches_are_allowed_without_bubblewrap(tmp_path: Path) -> None:
    report = await check(tmp_path, "--place", "home", "--honest", ids=ALL)
    assert report.verdict.grade == "exact", report


@pytest.mark.parametrize("watch", usually(WATCHES, "variable"))
async def test_world_cannot_detect_a_check(tmp_path: Path, watch: str) -> None:
    report = await check(tmp_path, "--watch", watch, ids=["restore.trace"])
    assert find(report, "restore.trace").status == "failed"


@pytest.mark.thorough
@pytest.mark.needs("bwrap")
async def test_world_that_does_not_start_in_fresh_places_does_not_fail(tmp_path: Path) -> None:
    needed = tmp_path / "needed"
    needed.touch()
    report = await check(tmp_path, "--reads", str(needed).removeprefix("/"))
    result = find(report)
    assert result.status == "could_not_run"
    assert f"{needed} is missing" in result.evidence
    assert report.verdict.grade == "exact_as_far_as_seen"
    assert f"{FRESH} could not run" in report.verdict.sentence


@pytest.mark.thorough
@pytest.mark.needs("bwrap")
async def test_world_that_depends_on_the_network_does_not_fail(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=4096) as server:
        report = await check(tmp_path, "--asks-port", str(server.getsockname()[1]))
    result = find(report)
    assert result.status == "could_not_run"
    assert "network" in result.evidence
    assert report.verdict.grade == "exact_as_far_as_seen"


@pytest.mark.needs("bwrap")
@pytest.mark.thorough
async def test_cheating_world_that_depends_on_the_network_fails(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=4096) as server:
        port = str(server.getsockname()[1])
        report = await check(tmp_path, "--asks-port", port, "--place", "tmp")
    assert find(report).status == "failed"


@pytest.mark.needs("bwrap")
@pytest.mark.thorough
async def test_world_checked_in_place_is_shown_in_its_initial_state(tmp_path: Path) -> None:
    with cheating_world(tmp_path, flags=["--place", "bytecode"]) as world:
        report = await check_world(world, [FRESH, "restore.trace"], seed=1, in_place=True)
    assert find(report, "restore.trace").status == "passed"
    assert find(report).status == "failed"


@pytest.mark.thorough
@pytest.mark.needs("bwrap")
async def test_run_index_in_a_temporary_home_is_not_attributed_to_the_world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CLAWBLOX_HOME")
    with tempfile.TemporaryDirectory() as home:
        monkeypatch.setenv("HOME", home)
        report = await check(tmp_path, "--honest", ids=[FRESH])
    assert "(bubblewrap)" in find(report).evidence
    assert "left" not in find(report).evidence


@pytest.mark.thorough
async def test_silently_killed_run_in_fresh_places_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(*args: Any, **options: Any) -> FreshPlace:
        return attrs.evolve(make_place(*args, **options), command=["sh", "-c", "kill -9 $$"])

    monkeypatch.setattr(lives, "make_place", make)
    result = find(await check(tmp_path, "--place", "recordings"))
    assert result.status == "could_not_run"
    assert "the world could not run in fresh places" in result.evidence
    assert "killed by SIGKILL" in result.evidence


@pytest.mark.thorough
async def test_world_with_constant_answers_weakens_the_verdict(tmp_path: Path) -> None:
    report = await check(tmp_path, "--frozen", ids=["restore.trace"])
    assert report.verdict.grade == "exact_as_far_as_seen"
    assert "no answer to an accepted input ever changed" in report.verdict.sentence


# -- views ------------------------------------------------------------------------------------


def passed_ctime(path: Path) -> float:
    """Wait until a time after the change of a path, and return the time."""
    since = path.stat().st_ctime + 0.05
    while time.time() < since:  # the clock of files is coarse
        path.stat()
    return since


def test_unchanged_directory_is_bound_directly(tmp_path: Path) -> None:
    (tmp_path / "old").touch()
    since = passed_ctime(tmp_path / "old")
    assert DirectoryView(str(tmp_path), since).arguments() == [
        "--ro-bind",
        str(tmp_path),
        str(tmp_path),
    ]


def test_names_of_new_files_are_hidden(tmp_path: Path) -> None:
    (tmp_path / "kept" / "deep").mkdir(parents=True)
    (tmp_path / "kept" / "deep" / "old").touch()
    (tmp_path / "still").mkdir()
    os.symlink("still", tmp_path / "link")
    since = passed_ctime(tmp_path / "link")
    (tmp_path / "kept" / "deep" / "zzz").touch()
    (tmp_path / "zzz" / "er").mkdir(parents=True)
    arguments = DirectoryView(str(tmp_path), since).arguments()
    assert not [word for word in arguments if "zzz" in word]
    old, still = str(tmp_path / "kept" / "deep" / "old"), str(tmp_path / "still")
    assert ["--ro-bind", old, old] in [arguments[at : at + 3] for at in range(len(arguments))]
    assert ["--ro-bind", still, still] in [arguments[at : at + 3] for at in range(len(arguments))]
    assert ["--symlink", "still", str(tmp_path / "link")] in [
        arguments[at : at + 3] for at in range(len(arguments))
    ]


def test_sockets_and_pipes_of_any_age_are_covered(tmp_path: Path) -> None:
    for name in ("bound", "rebuilt"):
        (tmp_path / name).mkdir()
        os.mkfifo(tmp_path / name / "pipe")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(tmp_path / name / "socket"))
    since = passed_ctime(tmp_path / "rebuilt" / "socket")
    (tmp_path / "rebuilt" / "new").touch()
    bound, rebuilt = tmp_path / "bound", tmp_path / "rebuilt"
    arguments = DirectoryView(str(tmp_path), since).arguments()
    triples = [arguments[at : at + 3] for at in range(len(arguments))]
    assert triples.index(["--ro-bind", str(bound), str(bound)]) < min(
        triples.index(["--ro-bind", os.devnull, str(bound / name)]) for name in ("pipe", "socket")
    )
    assert not [word for word in arguments if word.startswith(f"{rebuilt}/")]


def test_a_directory_with_too_many_changes_is_not_shown(tmp_path: Path) -> None:
    for number in range(401):
        (tmp_path / str(number)).touch()
    since = passed_ctime(tmp_path / "400")
    (tmp_path / "new").touch()
    with pytest.raises(TooMuch):
        DirectoryView(str(tmp_path), since).arguments()
