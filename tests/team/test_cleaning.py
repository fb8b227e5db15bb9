"""Removable and kept files of ended runs."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import anyio.to_thread
import pytest

from clawblox import AsyncCheckpointer, AsyncWorld, RunLockedError
from clawblox.rundir.find_runs import add_run
from clawblox.rundir.manifest import manifest_path, read_manifest
from clawblox.snapshot.rows import rows_beside
from clawblox.team.cleaning import RunFile, held, list_files, remove_files
from clawblox.team.pointer import POINTER_NAME, read_pointer
from tests.support.crowd import on_disk, registered
from tests.support.running import manifest_of
from tests.support.worlds import make_world

pytestmark = pytest.mark.anyio

AUTOSAVES = 4


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CLAWBLOX_HOME", str(tmp_path / "home"))
    return tmp_path / "run"


@pytest.fixture
def home(run: Path) -> Path:
    """Return the directory of the one instance."""
    return run / "worlds" / "w000"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[AsyncWorld]:
    # Runs of other tests, which are known here while they run, may name a save of equal content.
    async with AsyncWorld(dir=make_world(tmp_path, "--scene", secrets.token_hex(8))) as world:
        yield world


async def autosave(world: AsyncWorld, home: Path) -> list[Path]:
    """Make autosaves of the one instance; return them, oldest first."""
    saved: list[Path] = []
    async with world.events() as events:
        await world.autosave(every=0.01, keep=1000)
        async for event in events:
            if event.kind == "saved":
                saved.append(event.data["path"])
            if len(saved) >= AUTOSAVES:
                break
    await world.autosave(every=None)
    return sorted(on_disk(home), key=lambda path: path.stat().st_mtime_ns)


def spent(run: Path) -> list[RunFile]:
    return [file for file in list_files([run])[run] if file.named_by is None]


def clean(run: Path) -> None:
    with held(run):
        remove_files(run, [file for file in spent(run) if file.kind != "save"])


async def test_all_autosaves_except_the_last_are_unneeded(
    world: AsyncWorld, run: Path, home: Path
) -> None:
    await world.start_many(1, run_dir=run)
    *older, last = await autosave(world, home)
    await world.stop()
    files = await anyio.to_thread.run_sync(spent, run)
    assert [(file.path, file.kind) for file in files] == [
        (path, "autosave") for path in sorted(older)
    ]
    assert [file.size_bytes for file in files] == [file.path.stat().st_size for file in files]
    await anyio.to_thread.run_sync(clean, run)
    assert on_disk(home).keys() == {last}
    assert registered(home).keys() == {last}
    assert await anyio.to_thread.run_sync(spent, run) == []


async def test_rows_are_removed_with_their_save(world: AsyncWorld, run: Path, home: Path) -> None:
    await world.start_many(1, run_dir=run)
    older, good, last = (await autosave(world, home))[:3]
    await world.stop()
    for path in (older, good, last):
        rows_beside(path).write_bytes(b"rows")
    entries = (await anyio.to_thread.run_sync(read_manifest, home)).checkpoints
    listed = {home / entry["path"]: entry for entry in entries}
    document = json.loads(manifest_path(home).read_text())
    document["checkpoints"] = [
        {**listed[path], "rows_sha256": digest}
        for path, digest in zip((older, good, last), [sha256(b"rows")] * 2 + ["00"], strict=True)
    ]
    manifest_path(home).write_text(json.dumps(document))
    files = await anyio.to_thread.run_sync(spent, run)
    assert {file.path for file in files} == {older, last}
    assert all(file.size_bytes == file.path.stat().st_size + 4 for file in files)
    await anyio.to_thread.run_sync(clean, run)
    assert [rows_beside(path).exists() for path in (older, good, last)] == [False, True, False]


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


async def test_requested_save_has_a_different_kind(
    world: AsyncWorld, run: Path, home: Path
) -> None:
    await world.start_many(1, run_dir=run)
    asked = await world.save()
    await autosave(world, home)
    await world.stop()
    await anyio.to_thread.run_sync(clean, run)
    assert asked.path.exists()
    (left,) = await anyio.to_thread.run_sync(spent, run)
    assert (left.path, left.kind) == (asked.path, "save")


async def test_interval_archives_except_the_latest_are_unneeded(
    world: AsyncWorld, run: Path, home: Path
) -> None:
    await world.start_many(1, run_dir=run)
    archives = run / "checkpoints"
    checkpointer = AsyncCheckpointer(world, {}, dir=archives, elapsed=60)
    older, latest = (await checkpointer.save()).path, (await checkpointer.save()).path
    mine = archives / "mine.ckpt"
    mine.write_bytes(older.read_bytes())
    assert len(on_disk(home)) == 2
    await world.stop()
    await anyio.to_thread.run_sync(clean, run)
    assert {path.name for path in archives.iterdir()} == {latest.name, "mine.ckpt", POINTER_NAME}
    assert len(on_disk(home)) == 1
    assert await anyio.to_thread.run_sync(read_pointer, archives) == latest


async def test_last_good_save_is_kept_if_the_newest_is_damaged(
    world: AsyncWorld, run: Path, home: Path
) -> None:
    await world.start_many(1, run_dir=run)
    *_, good, newest = await autosave(world, home)
    await world.stop()
    newest.write_bytes(b"{")
    await anyio.to_thread.run_sync(clean, run)
    assert good.exists()
    assert not newest.exists()


async def test_save_that_another_run_started_from_is_needed(
    world: AsyncWorld, run: Path, home: Path, tmp_path: Path
) -> None:
    await world.start_many(1, run_dir=run)
    parent, *_ = await autosave(world, home)
    await world.stop()
    await world.start(resume=parent, run_dir=tmp_path / "other")
    await world.stop()
    manifest = manifest_path(home)
    document = json.loads(manifest.read_text())
    for entry in document["checkpoints"]:  # the other run names it by itself
        entry.pop("forked", None)
    manifest.write_text(json.dumps(document))
    await anyio.to_thread.run_sync(clean, run)
    assert parent.exists()


async def test_manifest_entries_outside_the_run_are_ignored(
    world: AsyncWorld, run: Path, home: Path, tmp_path: Path
) -> None:
    await world.start_many(1, run_dir=run)
    *_, last = await autosave(world, home)
    await world.stop()
    outside = tmp_path / last.name
    outside.write_text("mine")
    notes = home / "notes.json"
    notes.write_text("mine")
    link = last.with_name("w000-20200101T000000Z-abcdef.json")
    link.symlink_to(outside)
    above = run / "up"
    above.symlink_to(tmp_path)
    hostile = [outside, notes, link, above / outside.name, Path("/etc/passwd")]
    manifest = manifest_path(home)
    document = json.loads(manifest.read_text())
    for path in hostile:
        entry = {**document["checkpoints"][-1], "path": str(path), "sha256": "0" * 64}
        document["checkpoints"].insert(0, entry)
    document["checkpoints"] += [5, {"path": 7}, {"path": "a\0b", "autosave": True}]
    manifest.write_text(json.dumps(document))
    found = await anyio.to_thread.run_sync(spent, run)
    assert not {file.path for file in found} & {
        *hostile,
        *map(Path, map(os.path.realpath, hostile)),
    }


async def test_half_written_files_of_ended_processes_are_unneeded(
    world: AsyncWorld, run: Path
) -> None:
    await world.start_many(1, run_dir=run)
    await world.stop()
    checkpoints = run / "worlds" / "w000" / "checkpoints"
    checkpoints.mkdir(exist_ok=True)
    half = checkpoints / ".snapshot.999999999-1.abc.partial"
    half.write_bytes(bytes(1000))
    tree = run / ".tree.999999999-1.abc.partial"
    tree.mkdir()
    (tree / "file").write_bytes(bytes(500))
    ours = run / f".snapshot.{os.getpid()}-{_start_time()}.abc.partial"
    ours.touch()
    found = await anyio.to_thread.run_sync(spent, run)
    assert {file.path: file.size_bytes >= 500 for file in found} == {half: True, tree: True}
    await anyio.to_thread.run_sync(clean, run)
    assert (half.exists(), tree.exists(), ours.exists()) == (False, False, True)
    ours.unlink()


def _start_time() -> int:
    return int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])


async def test_running_run_is_not_cleaned(world: AsyncWorld, run: Path) -> None:
    await world.start_many(1, run_dir=run)
    with pytest.raises(RunLockedError, match="w000"):
        await anyio.to_thread.run_sync(clean, run)
    await world.stop()
    holding = held(run)
    await anyio.to_thread.run_sync(holding.__enter__)
    with pytest.raises(RunLockedError):
        await world.start(run_dir=run, name="w000")
    await anyio.to_thread.run_sync(holding.__exit__, None, None, None)
    await world.start(run_dir=run, name="w000")


async def test_unreadable_manifest_of_a_known_run_ends_the_cleaning(
    world: AsyncWorld, run: Path, home: Path, tmp_path: Path
) -> None:
    await world.start_many(1, run_dir=run)
    await autosave(world, home)
    await world.start(run_dir=tmp_path / "other", name="solo")
    await world.stop_all()
    manifest_path(tmp_path / "other").write_text("{")
    await anyio.to_thread.run_sync(add_run, tmp_path / "other")
    with pytest.raises(Exception, match=r"other/\.clawblox/manifest\.json"):
        await anyio.to_thread.run_sync(spent, run)
    assert manifest_of(run)
