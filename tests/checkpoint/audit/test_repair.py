"""A repair registers sound unregistered archives without losing entries."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from clawblox.checkpoint import CheckpointError, read_metadata, repair_checkpoints
from clawblox.errors import ManifestError
from clawblox.rundir.manifest import manifest_path, read_manifest
from clawblox.rundir.manifest_updates import checkpoint_update
from clawblox.system.files import digest_file
from tests.checkpoint.runs import Run, make_run, update_manifest


def test_archives_missing_in_the_manifest_are_registered_like_in_a_save(run: Run):
    for name in ("a", "deep/b", "../c"):
        run.save(name)
    registered = run.entries()
    manifest_path(run.dir).unlink()
    repaired = repair_checkpoints(run.dir)
    assert sorted(path.name for path in repaired.registered) == ["a.ckpt", "b.ckpt", "c.ckpt"]
    assert sorted(run.entries(), key=str) == sorted(
        [{**entry, "path": os.path.normpath(str(entry["path"]))} for entry in registered], key=str
    )
    again = repair_checkpoints(run.dir)
    assert (again.registered, again.intact) == ((), 3)


def test_an_archive_that_replaced_another_is_registered_again(run: Run):
    path = run.save()
    manifest = manifest_path(run.dir).read_bytes()
    (run.workspace / "SOUL.md").write_text("Now I look for shells.\n")
    run.save(overwrite=True)
    manifest_path(run.dir).write_bytes(manifest)
    assert run.entries()[0]["sha256"] != digest_file(path)
    assert repair_checkpoints(run.dir).registered == (path,)
    assert [entry["sha256"] for entry in run.entries()] == [digest_file(path)]


def test_invalid_entries_do_not_stop_a_repair(run: Run):
    path = run.save()
    odd = [7, None, "x", {}, {"path": 3, "format": "clawblox-ckpt-v1"}]
    manifest_path(run.dir).write_text(json.dumps({"schema_version": 1, "checkpoints": odd}))
    assert repair_checkpoints(run.dir).registered == (path,)
    assert read_manifest(run.dir).checkpoints[: len(odd)] == odd
    assert repair_checkpoints(run.dir).intact == 1


def test_a_damaged_archive_is_reported_and_left_unchanged(run: Run):
    run.save("good")
    damaged = run.save("damaged")
    damaged.write_bytes(damaged.read_bytes()[:-1])
    manifest_path(run.dir).unlink()
    repaired = repair_checkpoints(run.dir)
    assert [*repaired.refused] == [damaged]
    assert isinstance(repaired.refused[damaged], CheckpointError)
    assert [entry["path"] for entry in run.entries()] == ["checkpoints/good.ckpt"]
    assert damaged.exists()


def test_a_missing_archive_is_reported_and_its_entry_stays(run: Run):
    path = run.save()
    entries = run.entries()
    path.unlink()
    assert repair_checkpoints(run.dir).missing == (path,)
    assert run.entries() == entries


def test_snapshots_and_other_entries_of_the_manifest_are_not_touched(run: Run):
    update_manifest(run, checkpoint_update({"path": str(run.snapshot), "format": "counter-v1"}))
    run.save()
    before = read_manifest(run.dir).document
    repaired = repair_checkpoints(run.dir)
    assert (repaired.intact, repaired.missing) == (1, ())
    assert read_manifest(run.dir).document == before


def test_only_partial_files_of_dead_processes_are_removed(run: Run):
    run.checkpoints.mkdir()
    dead = run.checkpoints / ".a.ckpt.4194305-1.ab12.partial"
    dead.touch()
    pid = os.getpid()
    start = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    alive = run.checkpoints / f".a.ckpt.{pid}-{start}.ab12.partial"
    alive.touch()
    repair_checkpoints(run.dir)
    assert run.partials() == [alive]


def test_a_directory_without_archives_gets_no_manifest(tmp_path: Path):
    run = make_run(tmp_path, manifest=False)
    assert repair_checkpoints(run.dir).registered == ()
    assert not manifest_path(run.dir).exists()


def test_a_path_that_is_not_a_run_directory_is_refused(tmp_path: Path):
    with pytest.raises(CheckpointError, match="cannot be listed"):
        repair_checkpoints(tmp_path / "nowhere")


def test_a_manifest_that_cannot_be_read_is_an_error(run: Run):
    run.save()
    manifest_path(run.dir).write_text("{")
    with pytest.raises(ManifestError):
        repair_checkpoints(run.dir)


def test_an_entry_has_the_time_of_the_world(run: Run):
    path = run.save()
    manifest_path(run.dir).unlink()
    repair_checkpoints(run.dir)
    (entry,) = run.entries()
    assert entry["time"] == read_metadata(path)["world"]["time"] == 12.5
