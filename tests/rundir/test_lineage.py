"""The lineage of real runs, and of manifests from other programs and people."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import attrs
import msgspec
import pytest
from anyio.to_thread import run_sync
from hypothesis import given, settings
from hypothesis import strategies as st

from clawblox import AsyncWorld, InstanceLineage, Lineage, ManifestError, ProcessExit, World
from clawblox.rundir.lineage import read_lineage
from clawblox.rundir.lives import Life
from clawblox.rundir.records import read_record
from tests.rundir.test_records import journal_path, record_of, written
from tests.support.crowd import act, join, join_all, until
from tests.support.lineages import (
    NAMES,
    listings,
    make_restart,
    manifests,
    run_of,
    save_of,
    write_manifest,
    write_run,
)
from tests.support.waiting import HANG_S
from tests.support.worlds import make_world


def by_name(lineage: Lineage) -> dict[str, InstanceLineage]:
    assert len({one.name for one in lineage.instances}) == len(lineage.instances)
    return {one.name: one for one in lineage.instances}


def depths(lineage: Lineage) -> list[tuple[str, int]]:
    return [(one.name, one.depth) for one in lineage.instances]


def times(life: Life) -> list[float | None]:
    return [save.time for save in life.saves]


def is_recorded_as(run: Path, name: str, state: str) -> bool:
    record = read_record(run, name)
    return record is not None and record.state == state


# ------------------------------------------------------------------------------- real runs


@pytest.mark.thorough
@pytest.mark.anyio
async def test_lineage_shows_forks_deaths_and_restarts_of_a_running_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        batch = await world.start_many(2, run_dir=run, restart="checkpoint")
        sessions = await join_all(world, batch)
        for started in batch:
            act(started.port, sessions[started.name], 5)
        first = await world.save_all()
        act(batch["w001"].port, sessions["w001"], 5)
        os.kill(batch["w001"].pid, signal.SIGKILL)
        await until(events, "restarting", ["w001"])
        await until(events, "ready", ["w001"])
        forks = await world.fork(first["w000"], 2)
        later = await world.save(instance="w002")
        await world.fork(later)
        os.kill(forks["w003"].pid, signal.SIGKILL)
        await until(events, "exited", ["w003"])
        with anyio.fail_after(HANG_S):
            while not await run_sync(is_recorded_as, run, "w003", "exited"):
                await anyio.sleep(0.01)

        lineage = await world.lineage()
        assert lineage == await run_sync(read_lineage, run)
        assert (lineage.run_dir, lineage.problems) == (run, ())
        found = by_name(lineage)
        order = [("w000", 0), ("w002", 1), ("w004", 2), ("w003", 1), ("w001", 0)]
        assert depths(lineage) == order
        assert {one.state for one in lineage.instances if one.name != "w003"} == {"ready"}

        for fork in (found["w002"], found["w003"]):
            assert fork.parent is not None
            assert fork.parent.instance == "w000"
            assert fork.parent.path == first["w000"].path
            assert fork.parent.sha256 == first["w000"].sha256
            assert fork.parent.time == first["w000"].time
            assert fork.lives[0].time == first["w000"].time
        grandchild = found["w004"].parent
        assert grandchild is not None
        assert (grandchild.instance, grandchild.path) == ("w002", later.path)
        (save,) = found["w002"].saves
        expected = {name: later[name] for name in ("path", "time", "created_at", "sha256")}
        assert {name: getattr(save, name) for name in expected} == expected
        assert (save.size_bytes, save.removed_at) == (later.size_bytes, None)

        before, after = found["w001"].lives
        assert (before.begun_by, before.origin, before.time) == ("start", None, 0.0)
        assert (before.ended_by, before.has_died) == ("restart", True)
        assert before.exit is not None
        assert before.exit.startswith("killed by SIGKILL")
        assert [one.path for one in before.saves] == [first["w001"].path]
        assert (after.begun_by, after.ended_by, after.saves) == ("policy", None, ())
        assert after.origin is not None
        assert (after.origin.instance, after.origin.path) == ("w001", first["w001"].path)
        assert after.begun_at == before.ended_at
        assert found["w001"].restarts == 1

        dead = found["w003"]
        assert (dead.state, dead.exit) == ("exited", ProcessExit(signal="SIGKILL"))
        assert dead.deaths == dead.lives
    ended = by_name(await run_sync(read_lineage, run))
    assert [(one.state, one.lives[-1].ended_by) for one in ended.values()] == [
        ("exited", "exit")
    ] * 5
    assert not ended["w000"].deaths

    # Paths in manifests stay those of the original place, while digests move along.
    moved = await run_sync(shutil.move, run, tmp_path / "moved")
    elsewhere = await run_sync(read_lineage, moved)
    assert depths(elsewhere) == order


@pytest.mark.thorough
@pytest.mark.anyio
async def test_lineage_shows_earlier_runs_under_a_name_by_their_saves(
    tmp_path: Path,
) -> None:
    run = tmp_path / "run"
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        started = await world.start(run_dir=run, name="lone")
        act(started.port, await join(world, started), 5)
        saved = await world.save()
        await world.stop()
        await world.start(run_dir=run, name="lone", resume=saved)
        again = await world.save()
        (lone,) = (await world.lineage()).instances
        earlier, latest = lone.lives
        assert [save.path for save in earlier.saves] == [saved.path]
        assert (earlier.ended_by, earlier.has_died) == ("another_run", False)
        assert [save.path for save in latest.saves] == [again.path]
        assert latest.origin is not None
        assert (latest.origin.instance, latest.origin.path) == ("lone", saved.path)
        assert (latest.run_id, lone.depth) == (lone.run_id, 0)
        assert earlier.run_id not in ("", latest.run_id)
        await world.start(run_dir=tmp_path / "other", name="far", resume=again)
        (far,) = (await world.lineage(tmp_path / "other")).instances
        assert far.parent is not None
        assert (far.parent.instance, far.parent.path) == (None, again.path)
        assert far.parent.time == again.time


def test_the_sync_world_reads_the_lineage(tmp_path: Path) -> None:
    world = World(dir=make_world(tmp_path))
    with pytest.raises(ManifestError):
        world.lineage(tmp_path / "nothing")
    written(tmp_path / "run", "w000", instance_dir=str(tmp_path / "run"), state="exited")
    assert depths(world.lineage(tmp_path / "run")) == [("w000", 0)]
    world.close()


# ------------------------------------------------------------------------ written manifests


def read_lives(run: Path, name: str = "w000") -> tuple[Life, ...]:
    return by_name(read_lineage(run))[name].lives


def write_lives(run: Path, saves: Iterable[Any], restarts: Iterable[Any], **more: Any) -> Path:
    document = {"run": run_of("w000", **more), "checkpoints": [*saves], "restarts": [*restarts]}
    return write_run(run, {"w000": document})


def test_a_save_belongs_to_the_life_of_its_time(tmp_path: Path) -> None:
    saves = [save_of("w000", number) for number in (1, 2, 5, 6, 9)]
    restarts = [make_restart("w000", 4, 2), make_restart("w000", 8, 6)]
    lives = read_lives(write_lives(tmp_path, saves, restarts))
    assert [times(life) for life in lives] == [[1, 2], [5, 6], [9]]
    assert [life.time for life in lives] == [0, 2, 6]


@pytest.mark.parametrize(
    ("saves", "source", "expected"),
    [
        ([(1, 10.0), (3, 11.0), (3, 12.0)], 1, [[10.0], [11.0, 12.0]]),
        ([(1, 10.0), (3, 11.0), (3, 12.0)], None, [[10.0, 11.0, 12.0], []]),
        ([(1, 10.0), (3, 11.0), (3, 2.0)], None, [[10.0, 11.0], [2.0]]),
    ],
    ids=["listed after the source", "fresh, time goes on", "fresh, time went back"],
)
def test_saves_in_the_same_second_as_a_restart_are_assigned_correctly(
    tmp_path: Path, saves: list[tuple[int, float]], source: int | None, expected: list[list[float]]
) -> None:
    entries = [
        save_of("w000", at, time, path=f"checkpoints/w000-{at if place == 0 else place + 50}.json")
        for place, (at, time) in enumerate(saves)
    ]
    lives = read_lives(write_lives(tmp_path, entries, [make_restart("w000", 3, source)]))
    assert [times(life) for life in lives] == expected


@pytest.mark.parametrize(
    ("by", "words", "begun_by", "ended_by", "has_died"),
    [
        (None, "killed by SIGKILL", "policy", "restart", True),
        ("policy", "exit status 0", "policy", "restart", True),
        ("request", "exit status 0", "request", "restart", False),
        ("resume", "killed by SIGKILL", "resume", "resume", True),
        ("resume", None, "resume", "resume", True),
        ("resume", "exit status 0", "resume", "resume", False),
        ("resume", "killed by SIGTERM", "resume", "resume", False),
        ("magic", "exit status 1", "policy", "restart", True),
    ],
)
def test_the_end_of_a_life_follows_from_the_cause_of_the_next_restart(
    tmp_path: Path, by: str, words: str, begun_by: str, ended_by: str, has_died: bool
) -> None:
    entry = {**make_restart("w000", 4, 1, by=by), "exit": words}
    before, after = read_lives(write_lives(tmp_path, [save_of("w000", 1)], [entry]))
    assert (after.begun_by, before.ended_by, before.has_died) == (begun_by, ended_by, has_died)
    assert (before.exit, after.exit) == (words, None)


def test_a_save_whose_path_was_reused_is_found_by_its_digest(tmp_path: Path) -> None:
    entry = make_restart("w000", 4, 1, parent_sha256="digest of another")
    _, after = read_lives(write_lives(tmp_path, [save_of("w000", 1)], [entry]))
    assert after.origin is not None
    assert (after.origin.instance, after.origin.time) == (None, None)


def test_entries_of_other_runs_come_first_and_do_not_affect_the_latest_run(tmp_path: Path) -> None:
    old = {"run_id": "older"}
    saves = [save_of("w000", 1, **old), save_of("w000", 4, **old), save_of("w000", 8)]
    restarts = [make_restart("w000", 3, 1, **old), make_restart("w000", 7, None)]
    lives = read_lives(write_lives(tmp_path, saves, restarts))
    told = [(life.run_id, times(life), life.ended_by) for life in lives]
    assert told == [
        ("older", [1], "restart"),
        ("older", [4], "another_run"),
        ("w000-run", [], "restart"),
        ("w000-run", [8], "exit"),
    ]


def test_siblings_are_sorted_by_latest_fork_then_name(tmp_path: Path) -> None:
    document = {"run": run_of("w000"), "checkpoints": [save_of("w000", n) for n in (1, 2)]}
    forks = {"w1": 1, "w10": 2, "w9": 2}
    children = {name: {"run": run_of(name, ("w000", at))} for name, at in forks.items()}
    lineage = read_lineage(write_run(tmp_path, {"w000": document, **children}))
    assert depths(lineage) == [("w000", 0), ("w9", 1), ("w10", 1), ("w1", 1)]


def test_a_cycle_of_parents_is_cut_and_every_instance_appears(tmp_path: Path) -> None:
    parents = {"w000": "w002", "w001": "w000", "w002": "w001", "own": "own", "root": None}
    documents = {
        name: {
            "run": run_of(name, (parent, 1) if parent else None),
            "checkpoints": [save_of(name, 1)],
        }
        for name, parent in parents.items()
    }
    lineage = read_lineage(write_run(tmp_path, documents))
    order = [("own", 0), ("root", 0), ("w000", 0), ("w001", 1), ("w002", 2)]
    assert depths(lineage) == order


@pytest.mark.thorough
def test_thousands_of_generations_do_not_exhaust_the_stack(tmp_path: Path) -> None:
    # With separate manifests, the files would cost more than the lineage.
    names = [f"w{number}" for number in range(2000)]
    write_manifest(tmp_path, {"checkpoints": [save_of(name, 1) for name in names]})
    journal = journal_path(tmp_path)
    journal.parent.mkdir(parents=True)
    with journal.open("wb") as lines:
        for parent, name in pairwise(names):
            options = {"resume": str(tmp_path / "checkpoints" / f"{parent}-1.json")}
            place = {"instance_dir": str(tmp_path), "state": "exited"}
            lines.write(msgspec.json.encode(record_of(name, options=options, **place)) + b"\n")
    lineage = read_lineage(tmp_path)
    assert [one.depth for one in lineage.instances] == [*range(2000)]


def test_an_unreadable_manifest_is_reported_as_a_problem(tmp_path: Path) -> None:
    run = write_run(tmp_path, {"w000": {"run": run_of("w000")}, "w001": {}, "w002": {}})
    (run / "worlds" / "w001" / ".clawblox" / "manifest.json").unlink()
    (run / "worlds" / "w002" / ".clawblox" / "manifest.json").write_text("{")
    lineage = read_lineage(run)
    assert depths(lineage) == [("w000", 0), ("w001", 0), ("w002", 0)]
    assert [Path("w001") in map(Path, one.split("/")) for one in lineage.problems] == [True, False]
    assert by_name(lineage)["w001"].state is None
    assert "not JSON" in lineage.problems[1]


def test_the_error_for_an_empty_directory_names_the_manifest(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match=r"manifest\.json"):
        read_lineage(tmp_path)


def test_state_labels_and_end_come_from_the_record(tmp_path: Path) -> None:
    run = write_run(tmp_path, {"w000": {"run": run_of("w000")}})
    labels = {"seed": 3, "arm": "a", "odd": ["x"]}
    written(
        run,
        "w000",
        run_id="w000-run",
        instance_dir=str(run / "worlds" / "w000"),
        state="exited",
        halt="no marbles left",
        ended_at="2026-06-22T18:30:00Z",
        options={"labels": labels},
    )
    (found,) = read_lineage(run).instances
    assert (found.state, found.restarts, found.labels) == ("halted", 2, {"seed": 3, "arm": "a"})
    (life,) = found.lives
    assert (life.exit, life.has_died) == ("halted: no marbles left", True)
    assert life.ended_at == "2026-06-22T18:30:00Z"


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lineage")


@settings(max_examples=30)
@given(listings, st.lists(manifests, min_size=3, max_size=3), st.booleans())
def test_any_manifests_give_a_lineage_or_a_manifest_error(
    scratch: Path, top: Any, documents: list[Any], has_record: bool
) -> None:
    shutil.rmtree(scratch)
    write_manifest(scratch, top)
    for name, document in zip(NAMES, documents, strict=False):
        write_manifest(scratch / "worlds" / name, document)
    if has_record:
        written(scratch, "w001", instance_dir=str(scratch / "worlds" / "w001"), state="exited")
    try:
        lineage = read_lineage(scratch)
    except ManifestError:
        assert not has_record
        return
    found = by_name(lineage)
    assert not has_record or "w001" in found
    for number, one in enumerate(lineage.instances):
        assert one.lives
        before = [other.name for other in lineage.instances[:number]]
        assert one.depth == 0 or (one.parent is not None and one.parent.instance in before)
        assert all(save.path.is_absolute() for save in one.saves)
    assert_plain(lineage)


def assert_plain(lineage: Lineage) -> None:
    """Fail unless the lineage can be encoded as UTF-8 JSON."""
    told = json.dumps(attrs.asdict(lineage), default=str, ensure_ascii=False, allow_nan=False)
    assert told.encode()
    assert "\\u0000" not in told


ODD: list[Any] = ["x", "\0", "\ud800", "", True, None, [], {}, -1, 10**400, 1e400, float("nan")]


@pytest.mark.thorough
@pytest.mark.parametrize("section", ["checkpoints", "restarts", "run"])
def test_an_invalid_value_affects_only_its_own_entry(tmp_path: Path, section: str) -> None:
    document: dict[str, Any] = {
        "run": run_of("w000", ("w000", 1)),
        "checkpoints": [save_of("w000", 1), save_of("w000", 5, removed_at="2026-06-22T18:01:00Z")],
        "restarts": [make_restart("w000", 3, 1, by="resume", parent_sha256="digest of w000-1")],
    }
    entries = document[section] if section != "run" else [document["run"]]
    for entry in entries:
        for key, value in list(entry.items()):
            for odd in ODD:
                entry[key] = odd
                (found,) = read_lineage(write_run(tmp_path, {"w000": document})).instances
                assert len(found.saves) >= 1
                assert_plain(read_lineage(tmp_path))
            entry[key] = value
