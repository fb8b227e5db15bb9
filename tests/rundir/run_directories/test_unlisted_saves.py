"""Snapshots that a killed orchestrator had published before it could register them."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from anyio.to_thread import run_sync

from clawblox import AsyncWorld, read_manifest
from clawblox.rundir.leftovers import settle_unlisted_saves
from clawblox.snapshot.rows import rows_beside
from tests.rundir.test_leftovers import kill_one
from tests.support.orchestrators import orchestrator
from tests.support.worlds import make_world

pytestmark = pytest.mark.anyio

_SAVING = """
world = World(dir=world_dir)
world.start_many(1, run_dir=run_dir).raise_if_failed()
for _ in range(3):
    world.save()
tell("ready")
time.sleep(600)
"""


@pytest.fixture
async def home(tmp_path: Path) -> Path:
    """Return the directory of an instance that saved three times before its owner was killed."""
    await kill_one(_SAVING, make_world(tmp_path), tmp_path / "run")
    home = tmp_path / "run" / "worlds" / "w000"
    _rename_by_age(home)
    return home


def _rename_by_age(home: Path) -> None:
    """Give the saves names a second apart, later than the start of their run."""
    manifest = _read(home)
    for number, entry in enumerate(manifest["checkpoints"]):
        old = home / entry["path"]
        entry["created_at"] = f"2100-01-01T00:00:0{number}Z"
        new = old.with_name(f"w000-21000101T00000{number}Z-{number:06}.json")
        old.rename(new)
        entry["path"] = str(new.relative_to(home))
    _write(home, manifest)


def _read(home: Path) -> Any:
    return json.loads((home / ".clawblox" / "manifest.json").read_text())


def _write(home: Path, manifest: Any) -> None:
    (home / ".clawblox" / "manifest.json").write_text(json.dumps(manifest))


def _saves(home: Path) -> list[str]:
    return sorted(path.name for path in (home / "checkpoints").iterdir())


@pytest.mark.thorough
async def test_a_resume_continues_from_an_unregistered_save(tmp_path: Path, home: Path) -> None:
    manifest = _read(home)
    lost = manifest["checkpoints"].pop()
    _write(home, manifest)
    async with AsyncWorld(dir=tmp_path / "counter") as world:
        (resumed,) = await world.resume_all(tmp_path / "run")
        assert resumed.resume_path == home / lost["path"]
    *_, found = (await run_sync(read_manifest, home)).checkpoints
    assert found == lost
    assert found["sha256"] == hashlib.sha256((home / lost["path"]).read_bytes()).hexdigest()


@pytest.mark.thorough
async def test_unlisted_autosaves_are_registered_as_autosaves_in_order(home: Path) -> None:
    manifest = _read(home)
    lost = manifest["checkpoints"][1:]
    del manifest["checkpoints"][1:]
    manifest["checkpoints"][0]["autosave"] = True
    _write(home, manifest)
    await run_sync(settle_unlisted_saves, home.parents[1])
    assert _read(home)["checkpoints"][1:] == [{**entry, "autosave": True} for entry in lost]


@pytest.mark.thorough
async def test_the_remnants_of_an_interrupted_removal_are_removed(home: Path) -> None:
    manifest = _read(home)
    spent = manifest["checkpoints"].pop(0)
    _write(home, manifest)
    before = _saves(home)
    await run_sync(settle_unlisted_saves, home.parents[1])
    assert _saves(home) == [name for name in before if name != Path(spent["path"]).name]
    assert _read(home) == manifest


def _put_within_one_second(home: Path) -> None:
    """Give the saves names of one second, and ages in the order in which they were made."""
    manifest = _read(home)
    for number, entry in enumerate(manifest["checkpoints"]):
        old = home / entry["path"]
        new = old.with_name(f"w000-21000101T000000Z-{9 - number:06}.json")
        old.rename(new)
        os.utime(new, ns=(0, 4102444800_000_000_000 + number))
        entry.update(path=str(new.relative_to(home)), created_at="2100-01-01T00:00:00Z")
    _write(home, manifest)


@pytest.mark.thorough
@pytest.mark.parametrize(("listed", "settled"), [([1], [1, 2]), ([0, 2], [0, 2])])
async def test_remnants_of_a_removal_are_recognised_by_age_within_a_second(
    home: Path, listed: list[int], settled: list[int]
) -> None:
    _put_within_one_second(home)
    manifest = _read(home)
    saves = manifest["checkpoints"]
    manifest["checkpoints"] = [saves[at] for at in listed]
    _write(home, manifest)
    await run_sync(settle_unlisted_saves, home.parents[1])
    names = [Path(entry["path"]).name for entry in _read(home)["checkpoints"]]
    assert names == [Path(saves[at]["path"]).name for at in settled]
    assert _saves(home) == sorted(names)


@pytest.mark.thorough
async def test_rows_are_registered_and_removed_with_their_snapshot(home: Path) -> None:
    manifest = _read(home)
    older, kept, lost = manifest["checkpoints"]
    manifest["checkpoints"] = [kept]
    _write(home, manifest)
    for entry in (older, lost):
        rows_beside(home / entry["path"]).write_bytes(b"rows")
    never_published = home / "checkpoints" / "w000-21000101T000009Z-000000.json"
    rows_beside(never_published).write_bytes(b"rows")
    await run_sync(settle_unlisted_saves, home.parents[1])
    digest = hashlib.sha256(b"rows").hexdigest()
    found = _read(home)["checkpoints"][1]
    assert found == lost | {"rows_sha256": digest, "rows_size_bytes": 4}
    names = {Path(entry["path"]).name for entry in (kept, lost)}
    assert {*_saves(home)} == names | {f"{Path(lost['path']).name}.rows.db"}


@pytest.mark.thorough
async def test_files_that_are_not_saves_of_the_run_stay_unchanged(home: Path) -> None:
    place = home / "checkpoints"
    (place / "w001-21000101T000009Z-000000.json").write_text("{}")  # of another instance
    (place / "w000-20000101T000009Z-000000.json").write_text("{}")  # from before the run
    (place / "mine.json").write_text("{}")
    (place / "w000-21000101T000009Z-000000.ckpt").write_text("an archive")
    (place / "w000-21000101T000008Z-000000.json").write_text("{ torn")
    os.mkfifo(place / "w000-21000101T000009Z-000001.json")
    before, manifest = _saves(home), _read(home)
    await run_sync(settle_unlisted_saves, home.parents[1])
    assert (_saves(home), _read(home)) == (before, manifest)


@pytest.mark.thorough
async def test_a_torn_save_does_not_prevent_the_registration_of_others(home: Path) -> None:
    manifest = _read(home)
    *kept, lost = manifest["checkpoints"]
    manifest["checkpoints"] = kept
    _write(home, manifest)
    place = home / "checkpoints"
    (place / "w000-21000101T000002Z-999999.json").write_text("{ torn")
    (place / "w000-21000101T000003Z-999999.json").write_bytes(b"")
    (place / "w000-21000101T000004Z-000000.snapshot").write_bytes(b'{"time": NaN}')
    await run_sync(settle_unlisted_saves, home.parents[1])
    *first, opaque = _read(home)["checkpoints"]
    assert first == [*kept, lost]
    assert opaque["path"] == "checkpoints/w000-21000101T000004Z-000000.snapshot"
    assert (opaque["format"], opaque["time"]) == ("world-snapshot", None)


@pytest.mark.thorough
async def test_unlisted_saves_of_a_running_orchestrator_are_left_alone(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with orchestrator(_SAVING, make_world(tmp_path), run) as owner:
        assert await run_sync(owner.hear) == "ready"
        home = run / "worlds" / "w000"
        (home / "checkpoints" / "w000-21000101T000009Z-000000.json").write_text("{}")
        before = _read(home)
        await run_sync(settle_unlisted_saves, run)
        assert _read(home) == before
