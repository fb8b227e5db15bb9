"""The async twins do not block the loop, and a cancelled call leaves no file."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread
import pytest

from clawblox.checkpoint import (
    async_load_checkpoint,
    async_read_metadata,
    async_save_checkpoint,
    verify_checkpoint,
)
from clawblox.errors import CheckpointError, CheckpointSecretError, ConfigError
from clawblox.system.files import digest_file
from tests.checkpoint.runs import Run, contents, fake_token
from tests.support.resources import open_fds
from tests.support.waiting import HANG_S, wait_until_async

pytestmark = pytest.mark.anyio

T = TypeVar("T")


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def save(run: Run, name: str = "a", **options: object) -> Path:
    given = {"world_snapshot": run.snapshot, "agents": {"rocky": run.agent}, **options}
    return await async_save_checkpoint(run.archive(name), **given)


async def test_a_checkpoint_is_saved_read_and_loaded(run: Run, tmp_path: Path):
    path = await save(run, metadata={"generation": 1})
    assert path == run.archive()
    assert (await async_read_metadata(path))["generation"] == 1
    loaded = await async_load_checkpoint(path, tmp_path / "new")
    assert loaded["verified"]
    assert dict(contents(loaded["agents"]["rocky"] / "workspace")) == dict(contents(run.workspace))


async def test_errors_are_raised_unchanged(run: Run, tmp_path: Path):
    with pytest.raises(ConfigError):
        await save(run, backend="emacs")
    (run.workspace / "notes.txt").write_text(fake_token())
    with pytest.raises(CheckpointSecretError):
        await save(run)
    with pytest.raises(CheckpointError):
        await async_read_metadata(tmp_path / "nowhere.ckpt")
    with pytest.raises(CheckpointError):
        await async_load_checkpoint(tmp_path / "nowhere.ckpt", tmp_path / "new")


@pytest.mark.thorough
async def test_the_loop_continues_while_a_large_workspace_is_saved_and_loaded(
    run: Run, tmp_path: Path
):
    (run.workspace / "large.bin").write_bytes(bytes(range(256)) * (40 << 10))
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await anyio.sleep(0.001)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(count)
        path = await save(run)
        while_saving = turns
        await async_load_checkpoint(path, tmp_path / "new")
        tasks.cancel_scope.cancel()
    assert while_saving > 3
    assert turns - while_saving > 3


class Gate:
    """A progress hook that holds a save at its n-th call until it is released."""

    def __init__(self, at: int) -> None:
        self.calls = 0
        self._at = at
        self._is_reached = threading.Event()
        self._may_go_on = threading.Event()

    def __call__(self, done: int, total: int) -> None:
        self.calls += 1
        if self.calls == self._at:
            self._is_reached.set()
            self._may_go_on.wait(HANG_S)

    @property
    def is_reached(self) -> bool:
        return self._is_reached.is_set()

    def open(self) -> None:
        self._may_go_on.set()


async def cancel_and_open(scope: anyio.CancelScope, gate: Gate) -> None:
    """Cancel, and release the save once it knows of the cancellation."""
    scope.cancel()
    with anyio.CancelScope(shield=True):
        await anyio.wait_all_tasks_blocked()
    gate.open()


async def off_loop(function: Callable[..., T], *args: object) -> T:
    return await anyio.to_thread.run_sync(function, *args)


async def count_calls(run: Run) -> int:
    gate = Gate(-1)
    await save(run, "counted", progress=gate)
    return gate.calls


@pytest.mark.thorough
async def test_a_save_cancelled_at_any_step_leaves_no_file(run: Run):
    before = await off_loop(digest_file, await save(run, "previous"))
    fds = open_fds()
    calls = await count_calls(run)
    archives = run.archives()
    for at in range(1, calls):
        gate = Gate(at)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda gate=gate: save(run, "new", progress=gate))
            await wait_until_async(lambda gate=gate: gate.is_reached)
            await cancel_and_open(tasks.cancel_scope, gate)
        assert run.archives() == archives
        assert run.partials() == []
        assert open_fds() == fds
    assert await off_loop(digest_file, run.archive("previous")) == before
    assert calls > 6


async def test_a_save_that_is_cancelled_too_late_is_complete_and_registered(run: Run):
    calls = await count_calls(run)
    gate = Gate(calls)
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: save(run, "new", progress=gate))
            await wait_until_async(lambda: gate.is_reached)
            await cancel_and_open(scope, gate)
    assert scope.cancelled_caught
    assert (await off_loop(verify_checkpoint, run.archive("new"))).is_verified
    entries = await off_loop(run.entries)
    assert "checkpoints/new.ckpt" in [entry["path"] for entry in entries]


async def test_a_save_that_waits_for_an_idle_agent_can_be_cancelled(
    run: Run, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("clawblox.checkpoint.collect.plan.is_idle", lambda agents, backend: False)
    gate = Gate(1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: save(run, idle_wait=30.0, progress=gate))
        await wait_until_async(lambda: gate.is_reached)
        await cancel_and_open(tasks.cancel_scope, gate)
    assert run.archives() == []


async def test_a_cancelled_load_leaves_no_file(run: Run, tmp_path: Path):
    path = await save(run)
    gate = Gate(1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: async_load_checkpoint(path, tmp_path / "new", progress=gate))
        await wait_until_async(lambda: gate.is_reached)
        await cancel_and_open(tasks.cancel_scope, gate)
    assert not (tmp_path / "new").exists()
    assert [found.name for found in tmp_path.iterdir()] == ["run"]
