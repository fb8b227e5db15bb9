"""Updates reach the disk through one writer for each manifest."""

import errno
import json
import os
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from clawblox.errors import ManifestError, UsageError
from clawblox.rundir import manifest_file, manifest_writer
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
from tests.support.waiting import wait_until_async

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


async def test_an_empty_update_creates_a_missing_manifest_but_changes_no_other(tmp_path):
    async with writing(tmp_path) as writer:
        await writer.apply(Update())
        before = manifest_path(tmp_path).stat()
        assert read(tmp_path).document == {"schema_version": 1}
        await writer.apply(Update())
        now = manifest_path(tmp_path).stat()
        assert (now.st_ino, now.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


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


async def test_writing_does_not_leak_descriptors(tmp_path):
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
        await writers.of(tmp_path / "third").apply(checkpoint("a"))


@BACKENDS
async def test_leaving_the_block_writes_queued_updates_of_every_manifest(tmp_path, monkeypatch):
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
async def test_overwritten_entries_are_restored_in_every_readable_manifest(tmp_path):
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


# --- made durable together ------------------------------------------------------------------


class Disk:
    """Counts syncs, by path of the descriptor."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.synced: list[str] = []
        self.refused: str | None = None
        fsync = os.fsync

        def counted(fd: int) -> None:
            path = os.readlink(f"/proc/self/fd/{fd}")
            if self.refused is not None and self.refused in path:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            self.synced.append(path)
            fsync(fd)

        monkeypatch.setattr(os, "fsync", counted)


def made_durable(run_dir: Path) -> set[str]:
    """Return the paths to sync for a new manifest: file, directory and parent directory."""
    path = manifest_path(run_dir)
    return {str(path), str(path.parent), str(run_dir)}


async def test_a_flush_makes_all_earlier_updates_durable(tmp_path, monkeypatch):
    runs = [tmp_path / f"run{n}" for n in range(3)]
    disk = Disk(monkeypatch)
    async with ManifestWriters() as writers:
        for run in runs:
            await anyio.to_thread.run_sync(
                partial(writers.apply, run, checkpoint("a"), durable=False)
            )
            assert checkpoint_names(run) == ["a"]
        assert disk.synced == []
        await writers.flush()
        assert set(disk.synced) == set().union(*map(made_durable, runs))
        assert len(disk.synced) == len(set(disk.synced))
        disk.synced.clear()
        await writers.flush()
        assert disk.synced == []
    assert disk.synced == []


@pytest.mark.parametrize("how", ["together", "much is dirty", "the file system fails"])
async def test_a_single_sync_of_an_idle_disk_makes_many_manifests_durable(
    tmp_path, monkeypatch, how
):
    runs = [tmp_path / f"run{n}" for n in range(8)]
    disk = Disk(monkeypatch)
    together: list[str] = []

    def sync(fd: int) -> None:
        if how == "the file system fails":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        together.append(os.readlink(f"/proc/self/fd/{fd}"))

    meminfo = tmp_path / "meminfo"
    dirty_kb = 65 << 10 if how == "much is dirty" else 10
    meminfo.write_text(f"MemTotal:  49000 kB\nDirty:    {dirty_kb} kB\nWriteback:  0 kB\n")
    monkeypatch.setattr(manifest_writer, "_MEMINFO", meminfo)
    monkeypatch.setattr(manifest_writer, "sync_file_system", sync)
    async with ManifestWriters() as writers:
        for run in runs:
            later = partial(writers.apply, run, checkpoint("a"), durable=False)
            await anyio.to_thread.run_sync(later)
        await writers.flush()
        if how == "together":
            assert len(together) == 1
            assert together[0].startswith(str(tmp_path))
            assert disk.synced == []
        else:
            assert together == []
            assert set(disk.synced) == set().union(*map(made_durable, runs))
        written = [*together, *disk.synced]
        await writers.flush()
        assert [*together, *disk.synced] == written


def test_the_amount_of_unwritten_data_is_read_from_the_kernel():
    assert 0 <= manifest_writer._read_dirty_bytes() < 1 << 50


@pytest.mark.parametrize("by", ["apply", "close", "a flush after one that failed"])
async def test_pending_updates_become_durable(tmp_path, monkeypatch, by):
    disk = Disk(monkeypatch)
    async with ManifestWriters() as writers:
        later = partial(writers.apply, tmp_path / "run", checkpoint("a"), durable=False)
        await anyio.to_thread.run_sync(later)
        if by == "apply":
            await writers.of(tmp_path / "run").apply(Update())
            assert set(disk.synced) == made_durable(tmp_path / "run")
        if by == "a flush after one that failed":
            disk.refused = "run"
            with pytest.raises(ManifestError, match="Input/output error"):
                await writers.flush()
            disk.refused = None
            await writers.flush()
            assert set(disk.synced) == made_durable(tmp_path / "run")
    assert set(disk.synced) == made_durable(tmp_path / "run")


async def test_a_manifest_that_cannot_be_synced_does_not_affect_others(tmp_path, monkeypatch):
    disk = Disk(monkeypatch)
    async with ManifestWriters() as writers:
        for name in ("bad", "good"):
            later = partial(writers.apply, tmp_path / name, checkpoint("a"), durable=False)
            await anyio.to_thread.run_sync(later)
        disk.refused = "bad"
        with pytest.raises(ManifestError, match="Input/output error") as caught:
            await writers.flush()
        assert caught.value.path == manifest_path(tmp_path / "bad")
        assert set(disk.synced) == made_durable(tmp_path / "good")


async def test_an_entry_of_its_own_manifest_is_durable_when_apply_returns(tmp_path, monkeypatch):
    disk = Disk(monkeypatch)
    async with writing(tmp_path) as writer:
        await writer.apply(checkpoint("a"))
        assert {str(manifest_path(tmp_path).parent), str(tmp_path)} <= set(disk.synced)
        disk.synced.clear()
        await writer.apply(checkpoint("b"))
        (file, directory) = disk.synced
        assert directory == str(manifest_path(tmp_path).parent)
        assert file.endswith(".partial")  # before it replaces the manifest


# --- unchanged files are not read again -----------------------------------------------------


def test_an_append_to_an_unchanged_file_reads_no_data(tmp_path, monkeypatch):
    file = ManifestFile(manifest_path(tmp_path), lock_wait=1.0)
    file.apply([checkpoint("a")])

    def refuse(*_args):
        raise AssertionError("the manifest was parsed again")

    with monkeypatch.context() as patch:
        patch.setattr(manifest_file, "parse_manifest", refuse)
        file.apply([checkpoint("b")])
        file.apply([checkpoint("b")])
        file.apply([run_update(id="r")])
    assert checkpoint_names(tmp_path) == ["a", "b"]
    assert read(tmp_path).run == {"id": "r"}


@pytest.mark.parametrize("how", ["renamed", "in place", "by another writer"])
def test_a_manifest_that_another_program_changed_is_read_again(tmp_path, how):
    file = ManifestFile(manifest_path(tmp_path), lock_wait=1.0)
    file.apply([checkpoint("a")])
    document = {"recordings": [{"path": "rec"}]}
    if how == "renamed":
        rename_in(tmp_path, document)
    elif how == "in place":
        manifest_path(tmp_path).write_text(json.dumps(document))
    else:
        other = ManifestFile(manifest_path(tmp_path), lock_wait=1.0)
        other.apply([recording_update(path=tmp_path / "rec")])
    file.apply([checkpoint("b")])
    assert sorted(checkpoint_names(tmp_path)) == ["a", "b"]
    assert [entry["path"] for entry in read(tmp_path).recordings] == ["rec"]
    assert files_beside(tmp_path) == CLEAN


def test_a_write_in_place_with_an_unchanged_stamp_is_not_lost(tmp_path):
    """The exchange detects the write, because it returns an unknown version."""
    file = ManifestFile(manifest_path(tmp_path), lock_wait=1.0)
    file.apply([recording_update(path=tmp_path / "rec1")])
    path = manifest_path(tmp_path)
    before = path.stat()
    path.write_text(path.read_text().replace("rec1", "rec2"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    file.apply([checkpoint("a")])
    assert {entry["path"] for entry in read(tmp_path).recordings} == {"rec1", "rec2"}
    assert checkpoint_names(tmp_path) == ["a"]
