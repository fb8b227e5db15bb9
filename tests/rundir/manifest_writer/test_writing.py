"""Updates reach the disk through one writer for each manifest."""

import os

import anyio
import anyio.to_thread
import pytest

from clawblox.errors import UsageError
from clawblox.rundir.manifest import Update, manifest_path
from clawblox.rundir.manifest_file import ManifestFile
from clawblox.rundir.manifest_updates import recording_update, run_update
from clawblox.rundir.manifest_writer import ManifestWriters
from tests.rundir.manifest_writer.support import (
    BACKENDS,
    CLEAN,
    Gate,
    checkpoint,
    checkpoint_names,
    files_beside,
    read,
    rename_in,
    writing,
)
from tests.support import wait_until_async

pytestmark = pytest.mark.anyio


# --- one writer -----------------------------------------------------------------------------


@BACKENDS
async def test_an_update_is_on_disk_when_apply_returns(tmp_path):
    async with writing(tmp_path / "run") as writer:
        await writer.apply(run_update(id="r", status="running"))
        await writer.apply(checkpoint("a"))
        manifest = read(tmp_path / "run")
        assert manifest.run == {"id": "r", "status": "running"}
        assert checkpoint_names(tmp_path / "run") == ["a"]
    assert files_beside(tmp_path / "run") == CLEAN


async def test_an_empty_update_makes_a_manifest_and_later_ones_touch_nothing(tmp_path):
    async with writing(tmp_path) as writer:
        await writer.apply(Update())
        before = manifest_path(tmp_path).stat()
        assert read(tmp_path).document == {"schema_version": 1}
        await writer.apply(Update())
        assert manifest_path(tmp_path).stat() == before


async def test_unknown_keys_and_permissions_are_kept(tmp_path):
    rename_in(tmp_path, {"lab": {"seed": 7}, "recordings": [{"path": "a", "weather": "rain"}]})
    manifest_path(tmp_path).chmod(0o640)
    async with writing(tmp_path) as writer:
        await writer.apply(recording_update(path=tmp_path / "a", format="f"))
    manifest = read(tmp_path)
    assert manifest.document["lab"] == {"seed": 7}
    assert manifest.recordings == [{"path": "a", "weather": "rain", "format": "f"}]
    assert manifest_path(tmp_path).stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("umask", [0o000, 0o077])
async def test_a_new_manifest_is_private_under_any_umask(tmp_path, umask):
    previous = os.umask(umask)
    try:
        async with writing(tmp_path) as writer:
            await writer.apply(checkpoint("a"))
    finally:
        os.umask(previous)
    assert manifest_path(tmp_path).stat().st_mode & 0o777 == 0o600
    assert manifest_path(tmp_path).parent.stat().st_mode & 0o777 == 0o700


async def test_the_temporary_name_of_the_worlds_is_never_used(tmp_path):
    obstacle = manifest_path(tmp_path).with_name("manifest.json.tmp")
    obstacle.mkdir(parents=True)
    async with writing(tmp_path) as writer:
        await writer.apply(checkpoint("a"))
        await writer.apply(checkpoint("b"))
    assert files_beside(tmp_path) == CLEAN | {"manifest.json.tmp"}
    assert list(obstacle.iterdir()) == []


async def test_updates_that_wait_together_are_written_together(tmp_path, monkeypatch):
    batches: list[int] = []
    apply = ManifestFile.apply

    def counting(self, updates):
        batches.append(len(updates))
        apply(self, updates)

    monkeypatch.setattr(ManifestFile, "apply", counting)
    async with writing(tmp_path) as writer, anyio.create_task_group() as callers:
        for n in range(100):
            callers.start_soon(writer.apply, checkpoint(f"{n:03}"))
    assert sum(batches) == 100
    assert len(batches) <= 3
    assert checkpoint_names(tmp_path) == [f"{n:03}" for n in range(100)]


async def test_descriptors_do_not_add_up(tmp_path):
    async with writing(tmp_path) as writer:
        await writer.apply(checkpoint("first"))
        before = len(os.listdir("/proc/self/fd"))
        for n in range(30):
            await writer.apply(checkpoint(str(n)))
        assert len(os.listdir("/proc/self/fd")) == before


# --- several manifests ----------------------------------------------------------------------


async def test_a_manifest_has_one_writer_and_every_manifest_its_own(tmp_path):
    async with ManifestWriters() as writers:
        one = writers.of(tmp_path / "one")
        assert writers.of(tmp_path / "one") is one
        assert writers.of(tmp_path / "other") is not one
    with pytest.raises(UsageError, match="closed"):
        await one.apply(checkpoint("a"))
    with pytest.raises(UsageError, match="closed"):
        writers.of(tmp_path / "third")


@BACKENDS
async def test_leaving_writes_what_is_queued_for_every_manifest(tmp_path, monkeypatch):
    gate = Gate(monkeypatch)
    runs = [tmp_path / f"run{n}" for n in range(3)]
    async with anyio.create_task_group() as group, ManifestWriters() as writers:
        for run in runs:
            for name in "ab":
                group.start_soon(writers.of(run).apply, checkpoint(name))
        await wait_until_async(gate.is_reached.is_set)
        gate.open()
    for run in runs:
        assert sorted(checkpoint_names(run)) == ["a", "b"]
        assert files_beside(run) == CLEAN


@BACKENDS
async def test_what_somebody_overwrote_is_put_back_in_every_manifest_but_the_torn(tmp_path):
    runs = [tmp_path / f"run{n}" for n in range(3)]
    async with ManifestWriters(check_interval=0.01) as writers:
        await writers.of(runs[0]).apply(checkpoint("a"))
        for run in runs[1:]:
            await anyio.to_thread.run_sync(writers.apply, run, checkpoint("a"))
        manifest_path(runs[0]).write_bytes(b"{")
        for run in runs[1:]:
            rename_in(run, {"lab": 1})
            await wait_until_async(lambda: "a" in checkpoint_names(run))  # noqa: B023 - at once
        await writers.of(runs[1]).apply(checkpoint("b"))
        await anyio.to_thread.run_sync(writers.apply, runs[1], checkpoint("c"))
        assert checkpoint_names(runs[1]) == ["a", "b", "c"]
        rename_in(runs[2], {"lab": 2})
    assert checkpoint_names(runs[2]) == ["a"]
    assert read(runs[2]).document["lab"] == 2
    assert manifest_path(runs[0]).read_bytes() == b"{"
