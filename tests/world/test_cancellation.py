"""Cancellation at every await of start, save and stop, which must clean up.

The coroutine under test is driven step by step; at its k-th suspension it is cancelled, for every k
until it runs to its end. Both kinds of cancellation are tried: anyio's, which is level-triggered
and respects shields, and asyncio's own ``Task.cancel``, which does not.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from clawblox import AsyncWorld, read_manifest
from clawblox.instance.supervisor import Supervisor
from tests.support.processes import is_alive, marked_processes
from tests.support.sockets import is_listening
from tests.support.worlds import make_world

pytestmark = pytest.mark.anyio

Cancel = Callable[[], None]
LAST_SUSPENSION = 400


class Interrupted:
    """Runs an awaitable and calls ``cancel`` when it suspends for the k-th time."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.suspensions = 0
        self.cancel: Cancel = lambda: None

    @property
    def has_struck(self) -> bool:
        return self.suspensions >= self.at

    async def drive(self, awaitable: Awaitable[Any]) -> Any:
        """Run ``awaitable`` to its end."""
        return await self._steps(awaitable)

    @types.coroutine
    def _steps(self, awaitable: Awaitable[Any]) -> Generator[Any, Any, Any]:
        steps = awaitable.__await__()
        send, value = steps.send, None
        while True:
            try:
                suspended_on = send(value)
            except StopIteration as end:
                return end.value
            self.suspensions += 1
            if self.suspensions == self.at:
                self.cancel()
            try:
                value = yield suspended_on
                send = steps.send
            except BaseException as error:
                value, send = error, steps.throw


async def run_and_cancel(
    interrupted: Interrupted, kind: str, operation: Callable[[], Awaitable[Any]]
) -> bool:
    """Run ``operation``, which ``interrupted`` cancels; return whether it was cancelled."""
    if kind == "anyio":
        with anyio.CancelScope() as scope:
            interrupted.cancel = scope.cancel
            await operation()
        return scope.cancelled_caught
    task = asyncio.ensure_future(operation())
    interrupted.cancel = task.cancel
    try:
        await task
    except asyncio.CancelledError:
        return True
    return False


def leftovers(root: Path) -> list[str]:
    """Return leftovers of an undone start: processes, locks, partial files.

    The writer of the manifest is another task, which may still be writing.
    """
    files = [
        str(path)
        for path in root.rglob("*")
        if path.suffix in (".lock", ".partial", ".status") and "manifest.json" not in path.name
    ]
    return [*files, *(f"process {pid}" for pid in marked_processes())]


@pytest.mark.parametrize("kind", ["anyio", "asyncio"])
async def test_a_start_cancelled_at_any_step_of_its_instance_is_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    original = Supervisor.run
    directory = make_world(tmp_path, sidecars={"helper": []})
    async with AsyncWorld(dir=directory) as world:
        for at in range(1, LAST_SUSPENSION):
            interrupted = Interrupted(at)
            monkeypatch.setattr(
                Supervisor, "run", lambda self, i=interrupted: i.drive(original(self))
            )
            ports: list[int] = []
            async with world.events() as events:
                was_cancelled = await run_and_cancel(
                    interrupted, kind, lambda: world.start(run_dir=tmp_path / "run")
                )
                if not was_cancelled:
                    break
                with anyio.move_on_after(0):  # existing ones need no wait
                    async for event in events:
                        ports += [event.data["port"]] if event.kind == "started" else []
            assert interrupted.has_struck
            assert leftovers(tmp_path / "run") == [], f"cancelled at suspension {at}"
            assert world.instances == ()
            assert not any(is_listening(port) for port in ports)
        assert at > 2, "the start hardly suspended: is it still driven?"
        assert not interrupted.has_struck or world.instances
        await world.stop(grace_seconds=1)


@pytest.mark.parametrize("kind", ["anyio", "asyncio"])
async def test_a_start_cancelled_in_its_caller_is_undone(tmp_path: Path, kind: str) -> None:
    directory = make_world(tmp_path)
    async with AsyncWorld(dir=directory) as world:
        for at in range(1, LAST_SUSPENSION):
            interrupted = Interrupted(at)
            was_cancelled = await run_and_cancel(
                interrupted,
                kind,
                lambda i=interrupted: i.drive(world.start(run_dir=tmp_path / "run")),
            )
            if not was_cancelled:
                break
            assert leftovers(tmp_path / "run") == [], f"cancelled at suspension {at}"
            assert world.instances == ()
        assert at > 1
        await world.stop(grace_seconds=1)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["anyio", "asyncio"])
async def test_a_cancelled_save_leaves_both_file_and_entry_or_neither(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    from clawblox.concurrency import tasks

    original = tasks._run
    run_dir = tmp_path / "run"
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        await world.start(run_dir=run_dir)
        for at in range(1, LAST_SUSPENSION):
            interrupted = Interrupted(at)
            monkeypatch.setattr(
                tasks, "_run", lambda *args, i=interrupted: i.drive(original(*args))
            )
            was_cancelled = await run_and_cancel(interrupted, kind, world.save)
            if not was_cancelled:
                break
            assert leftovers(run_dir / "checkpoints") == [
                f"process {pid}" for pid in marked_processes()
            ]
            on_disk = sorted(str(path) for path in (run_dir / "checkpoints").glob("*"))
            manifest = await anyio.to_thread.run_sync(read_manifest, run_dir)
            entries = sorted(str(manifest.resolve(one["path"])) for one in manifest.checkpoints)
            assert entries == on_disk, f"cancelled at suspension {at}"
        assert at > 3
        assert len(list((run_dir / "checkpoints").glob("*"))) >= 1


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["anyio", "asyncio"])
async def test_a_stop_cancelled_at_any_step_still_ends_the_instance(
    tmp_path: Path, kind: str
) -> None:
    directory = make_world(tmp_path, "--slow-stop", "0.02")
    for at in range(1, LAST_SUSPENSION):
        interrupted = Interrupted(at)
        async with AsyncWorld(dir=directory) as world:
            started = await world.start(run_dir=tmp_path / "run")
            was_cancelled = await run_and_cancel(
                interrupted, kind, lambda i=interrupted, w=world: i.drive(w.stop(grace_seconds=5))
            )
        assert not is_alive(started.pid)
        assert leftovers(tmp_path / "run") == [], f"cancelled at suspension {at}"
        if not was_cancelled:
            break
    assert at > 1


@pytest.mark.parametrize("kind", ["anyio", "asyncio"])
async def test_a_cancelled_world_leaves_no_processes_or_files(tmp_path: Path, kind: str) -> None:
    directory = make_world(tmp_path, "--graceful-child", "0.1")
    is_up = anyio.Event()

    async def harness() -> None:
        async with AsyncWorld(dir=directory) as world:
            for _ in range(3):
                await world.start(run_dir=tmp_path / "run")
            is_up.set()
            await anyio.sleep_forever()

    interrupted = Interrupted(0)

    async def strike() -> None:
        await is_up.wait()
        interrupted.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(strike)
        assert await run_and_cancel(interrupted, kind, harness)
    assert leftovers(tmp_path / "run") == []
