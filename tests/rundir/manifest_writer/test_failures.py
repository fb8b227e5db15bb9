"""Failing disks, closed writers and cancelled callers do not lose entries."""

import asyncio
import contextlib
import errno
import fcntl
import os
from collections.abc import Callable

import anyio
import anyio.to_thread
import pytest

from clawblox.errors import ManifestError, UsageError
from clawblox.rundir.manifest import Update, manifest_path
from clawblox.rundir.manifest_file import ManifestFile
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


# --- failures -------------------------------------------------------------------------------


async def test_a_torn_manifest_is_an_error_and_stays_unchanged(tmp_path):
    rename_in(tmp_path, {"lab": 1})
    manifest_path(tmp_path).write_text('{"lab": ')
    async with writing(tmp_path) as writer:
        with pytest.raises(ManifestError, match="not JSON") as caught:
            await writer.apply(checkpoint("a"))
        assert caught.value.path == manifest_path(tmp_path)
        assert manifest_path(tmp_path).read_text() == '{"lab": '
        rename_in(tmp_path, {"lab": 1})
        await writer.apply(checkpoint("b"))
    assert checkpoint_names(tmp_path) == ["b"]
    assert read(tmp_path).document["lab"] == 1


async def test_a_writer_fails_if_the_lock_stays_taken(tmp_path):
    lock = manifest_path(tmp_path).with_name("manifest.json.lock")
    async with writing(tmp_path, lock_wait=0.02) as writer:
        await writer.apply(Update())
        with lock.open("w") as holder:
            fcntl.flock(holder, fcntl.LOCK_EX)
            with pytest.raises(ManifestError, match=r"not free for 0\.02 s") as caught:
                await writer.apply(checkpoint("a"))
            assert caught.value.path == lock
        await writer.apply(checkpoint("b"))
    assert checkpoint_names(tmp_path) == ["b"]


async def test_every_caller_of_a_failed_batch_gets_its_own_error(tmp_path):
    (tmp_path / "run").write_text("a file where a directory should be")
    errors: list[ManifestError] = []

    async def call() -> None:
        with pytest.raises(ManifestError, match="Not a directory") as caught:
            await writer.apply(checkpoint("a"))
        errors.append(caught.value)

    async with writing(tmp_path / "run") as writer, anyio.create_task_group() as callers:
        callers.start_soon(call)
        callers.start_soon(call)
    assert len({id(error) for error in errors}) == 2
    assert all(isinstance(error.__cause__, OSError) for error in errors)


def failing(call: Callable, at: int, code: int) -> Callable:
    """Return a version of ``call`` that fails once, at its n-th call."""
    count = iter(range(at + 1))

    def maybe(*args, **options):
        if next(count, None) == at:
            raise OSError(code, os.strerror(code))
        return call(*args, **options)

    return maybe


@pytest.mark.parametrize("name", ["fsync", "fchmod", "open", "link"])
@pytest.mark.parametrize("is_new", [True, False])
def test_a_disk_failure_loses_no_entry_and_leaves_no_file(tmp_path, monkeypatch, name, is_new):
    if not is_new:
        rename_in(tmp_path, {"checkpoints": [{"path": "checkpoints/old"}]})
    for at in range(10):
        run_dir = tmp_path if not is_new else tmp_path / str(at)
        with monkeypatch.context() as patch:
            patch.setattr(os, name, failing(getattr(os, name), at, errno.ENOSPC))
            file = ManifestFile(manifest_path(run_dir), lock_wait=1.0)
            with contextlib.suppress(ManifestError):
                file.apply([checkpoint(f"{at}")])
        assert not list(run_dir.glob(".clawblox/.manifest*"))
        file.apply([checkpoint(f"{at}"), checkpoint("last")])
        names = checkpoint_names(run_dir)
        assert names == list(dict.fromkeys(names))
        assert {f"{at}", "last"} <= set(names)
        assert is_new or "old" in names


async def test_a_closed_writer_refuses_updates(tmp_path):
    async with writing(tmp_path) as writer:
        await writer.apply(checkpoint("a"))
    with pytest.raises(UsageError, match="closed"):
        await writer.apply(checkpoint("b"))


@BACKENDS
async def test_leaving_the_block_writes_queued_updates(tmp_path, monkeypatch):
    gate = Gate(monkeypatch)
    async with anyio.create_task_group() as group:
        async with writing(tmp_path) as writer:
            group.start_soon(writer.apply, checkpoint("a"))
            await wait_until_async(gate.is_reached.is_set)
            for name in "bcd":
                group.start_soon(writer.apply, checkpoint(name))
                await anyio.wait_all_tasks_blocked()
            gate.open()
        assert checkpoint_names(tmp_path) == ["a", "b", "c", "d"]


async def test_a_deleted_run_directory_is_not_created_again(tmp_path):
    async with writing(tmp_path / "run", check_interval=0.01) as writer:
        await writer.apply(checkpoint("a"))
        for path in sorted((tmp_path / "run").rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        (tmp_path / "run").rmdir()
    assert not (tmp_path / "run").exists()


# --- cancellation ---------------------------------------------------------------------------


@BACKENDS
async def test_a_cancelled_caller_leaves_its_update_to_the_writer(tmp_path, monkeypatch):
    gate = Gate(monkeypatch)
    async with writing(tmp_path) as writer:
        async with anyio.create_task_group() as callers:
            callers.start_soon(writer.apply, checkpoint("a"))
            await wait_until_async(gate.is_reached.is_set)
            callers.start_soon(writer.apply, checkpoint("b"))
            await anyio.wait_all_tasks_blocked()
            callers.cancel_scope.cancel()
        gate.open()
        await writer.apply(checkpoint("c"))
        assert set(checkpoint_names(tmp_path)) == {"a", "b", "c"}
    assert files_beside(tmp_path) == CLEAN


@BACKENDS
async def test_a_cancelled_block_writes_queued_updates_and_answers_callers(tmp_path, monkeypatch):
    gate = Gate(monkeypatch)
    answered = []

    async def call(name: str) -> None:
        await writer.apply(checkpoint(name))
        answered.append(name)

    async with anyio.create_task_group() as callers:
        with anyio.CancelScope() as scope:
            async with writing(tmp_path) as writer:
                callers.start_soon(call, "a")
                await wait_until_async(gate.is_reached.is_set)
                callers.start_soon(call, "b")
                await anyio.wait_all_tasks_blocked()
                scope.cancel()
                gate.open()
    assert sorted(answered) == ["a", "b"] == sorted(checkpoint_names(tmp_path))
    with pytest.raises(UsageError):
        await writer.apply(checkpoint("c"))
    assert files_beside(tmp_path) == CLEAN


@pytest.mark.parametrize("whom", ["caller", "block"])
async def test_asyncio_cancellation_neither_tears_the_manifest_nor_strands_a_caller(
    tmp_path, monkeypatch, whom
):
    gate = Gate(monkeypatch)
    opened = asyncio.get_running_loop().create_future()

    async def hold() -> None:
        async with writing(tmp_path) as writer:
            opened.set_result(writer)
            await asyncio.Event().wait()

    block = asyncio.create_task(hold())
    writer = await opened
    calls = [asyncio.create_task(writer.apply(checkpoint("a")))]
    await wait_until_async(gate.is_reached.is_set)
    calls.append(asyncio.create_task(writer.apply(checkpoint("b"))))
    await anyio.wait_all_tasks_blocked()
    (calls[0] if whom == "caller" else block).cancel()
    await anyio.wait_all_tasks_blocked()
    gate.open()
    async with asyncio.timeout(10):
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        block.cancel()
        await asyncio.gather(block, return_exceptions=True)
    assert outcomes[1] is None
    assert sorted(checkpoint_names(tmp_path)) == ["a", "b"]
    assert files_beside(tmp_path) == CLEAN
