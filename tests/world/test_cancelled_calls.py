"""Cancellation at every suspension of a restart, a join, a wait, and the calls of an agent."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawblox import AsyncWorld
from clawblox.concurrency import tasks
from tests.support.processes import marked_processes
from tests.support.resources import open_fds
from tests.support.running import manifest_of, running
from tests.support.waiting import HANG_S, wait_until_async
from tests.support.worlds import make_world
from tests.world.test_cancellation import LAST_SUSPENSION, Interrupted, leftovers, run_and_cancel

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("kind", ["anyio", "asyncio"])]


async def cancel_everywhere(
    kind: str,
    operation: Callable[[], Awaitable[Any]],
    check: Callable[[], Awaitable[None]],
    monkeypatch: pytest.MonkeyPatch | None = None,
) -> int:
    """Cancel an operation at each suspension, and check afterwards; return the number.

    Args:
        kind: How to cancel.
        operation: Returns the operation.
        check: Called after each cancellation.
        monkeypatch: Cancels the operation's own task instead of its caller.
    """
    original = tasks._run
    for at in range(1, LAST_SUSPENSION):
        interrupted = Interrupted(at)
        if monkeypatch is None:
            drive = partial_drive(interrupted, operation)
        else:
            drive = operation
            monkeypatch.setattr(
                tasks, "_run", lambda *args, i=interrupted: i.drive(original(*args))
            )
        with anyio.fail_after(HANG_S):
            if not await run_and_cancel(interrupted, kind, drive):
                return at - 1
            await check()
    raise AssertionError("it suspends too often")


def partial_drive(
    interrupted: Interrupted, operation: Callable[[], Awaitable[Any]]
) -> Callable[[], Awaitable[Any]]:
    return lambda: interrupted.drive(operation())


@pytest.mark.thorough
@pytest.mark.parametrize("where", ["caller", "task"])
async def test_a_cancelled_restart_is_complete_or_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, where: str
) -> None:
    async with running(tmp_path) as (world, started):

        async def check() -> None:
            await wait_until_async(lambda: world.instances == (started.name,))
            assert len(marked_processes()) == 1
            entries = manifest_of(started.run_dir).get("restarts", [])
            assert [entry["number"] for entry in entries] == [*range(1, len(entries) + 1)]
            assert (await world.join("Rocky")).instance == started.name

        patch = monkeypatch if where == "task" else None
        assert await cancel_everywhere(kind, world.restart, check, patch) > 1


@pytest.mark.thorough
async def test_a_dead_instance_can_be_restarted_after_a_cancelled_restart(
    tmp_path: Path, kind: str
) -> None:
    run = tmp_path / "run"
    async with AsyncWorld(make_world(tmp_path), run_dir=run) as world:
        started = await world.start()
        saved = await world.save()

        async def die_and_restart() -> None:
            for pid in marked_processes():
                os.kill(pid, signal.SIGKILL)
            await world.wait(started.name)
            if not (await world.resume_all() if is_forgotten() else ()):
                await world.restart(started.name)

        def is_forgotten() -> bool:
            return not world._open_fleet().instances

        async def check() -> None:
            if not world.instances:
                assert leftovers(run) == []

        assert await cancel_everywhere(kind, die_and_restart, check) > 1
        assert world.instances == (started.name,)
        entries = manifest_of(run)["restarts"]
        assert [entry["number"] for entry in entries] == [*range(1, len(entries) + 1)]
        assert {entry["resume_from"] for entry in entries} == {f"checkpoints/{saved.path.name}"}


async def test_a_cancelled_join_leaves_no_connection_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    async with running(tmp_path) as (world, _):
        await world.join("Rocky")
        before = len(open_fds())

        async def check() -> None:
            assert len(open_fds()) <= before

        async def join() -> None:
            await world.join("Rocky")

        assert await cancel_everywhere(kind, join, check, monkeypatch) > 0
        assert (await (await world.join("Rocky")).observe()) is not None


@pytest.mark.parametrize(
    "call",
    [
        lambda agent: agent.observe(),
        lambda agent: agent.act("add", 1),
        lambda agent: agent.say("hello"),
        lambda agent: agent.messages(),
        lambda agent: agent.api(),
    ],
    ids=["observe", "act", "say", "messages", "api"],
)
async def test_a_cancelled_call_does_not_affect_later_calls(
    tmp_path: Path, kind: str, call: Callable[[Any], Awaitable[Any]]
) -> None:
    async with running(tmp_path) as (world, _):
        agent = await world.join("Rocky")
        seen = await agent.observe()
        before = len(open_fds())

        async def check() -> None:
            assert len(open_fds()) <= before
            assert (await agent.observe()).keys() == seen.keys()

        assert await cancel_everywhere(kind, lambda: call(agent), check) > 0


async def test_a_cancelled_leave_can_be_repeated(tmp_path: Path, kind: str) -> None:
    async with running(tmp_path) as (world, _):
        agents = []

        async def join_and_leave() -> None:
            agents.append(await world.join(f"Agent {len(agents)}"))
            await agents[-1].leave()

        async def check() -> None:
            pass

        assert await cancel_everywhere(kind, join_and_leave, check) > 1
        await agents[-1].leave()


async def test_a_cancelled_wait_has_no_effect(tmp_path: Path, kind: str) -> None:
    async with running(tmp_path) as (world, started):

        async def check() -> None:
            assert world.instances == (started.name,)

        async def wait() -> None:
            ends.append(await world.wait())

        ends: list[Any] = []
        interrupted = Interrupted(1)
        assert await run_and_cancel(interrupted, kind, partial_drive(interrupted, wait))
        await check()
        os.kill(started.pid, signal.SIGKILL)
        await wait()
        assert len(ends) == 1
