"""A start, a message or a stop cancelled at any moment leaves no process behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from clawblox import AgentError, AsyncAgent
from tests.agents.small import SmallDriver, make_agent, opened, small
from tests.support.processes import is_alive, marked_processes
from tests.support.waiting import wait_until_async

__all__ = ["small"]

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("small")]


def thorough(turns: int) -> object:
    return pytest.param(turns, marks=pytest.mark.thorough)


async def cancel_after(turns: int, call: Callable[[], Awaitable[object]]) -> bool:
    """Cancel a call twice, after some turns of the loop; return whether it had finished."""
    task = asyncio.ensure_future(call())
    for _ in range(turns):
        await asyncio.sleep(0.0005)
        if task.done():
            break
    is_done = task.done()
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError, AgentError):
        await task
    return is_done


def starts(agent: AsyncAgent) -> Callable[[], Awaitable[object]]:
    return lambda: agent.start(initial_prompt="hang")


@pytest.mark.parametrize("turns", [0, 2, 8, 40, 100, *map(thorough, [1, 3, 5, 20, 60, 80, 150])])
async def test_a_cancelled_start_leaves_no_processes_or_files(tmp_path: Path, turns: int) -> None:
    async with opened(tmp_path, "loop") as agent:
        is_done = await cancel_after(turns, starts(agent))
        if not is_done:
            assert agent.state in ("new", "stopped", "failed")
            assert not marked_processes()
        assert (await agent.stop(grace_seconds=0)).state in ("new", "stopped", "failed")
        assert not marked_processes()


@pytest.mark.parametrize("turns", [0, 5, 50, *map(thorough, [2, 20])])
async def test_a_cancelled_message_ends_the_program_that_it_started(
    tmp_path: Path, turns: int
) -> None:
    async with opened(tmp_path) as agent:
        await agent.start(initial_prompt="work")
        await agent.wait()
        await wait_until_async(lambda: not marked_processes())  # the first program has exited
        if not await cancel_after(turns, lambda: agent.send(prompt="hang")):
            assert agent.state in ("idle", "stopped")
            assert not marked_processes()


@pytest.mark.parametrize("turns", [0, 3, 30, *map(thorough, [1, 2, 5, 8, 12, 20, 50, 80])])
async def test_a_cancelled_check_leaves_no_processes_or_files(tmp_path: Path, turns: int) -> None:
    agent = make_agent(tmp_path)
    await cancel_after(turns, agent.check)
    assert not marked_processes()


async def test_a_cancelled_check_ends_the_version_command(
    tmp_path: Path, small: SmallDriver
) -> None:
    small.version_argv = lambda binary: ("/bin/sleep", "600")  # type: ignore[method-assign]
    agent = make_agent(tmp_path)
    for _ in range(3):
        task = asyncio.ensure_future(agent.check())
        (pid,) = await wait_until_async(marked_processes)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not is_alive(pid)


async def test_a_cancelled_stop_continues(tmp_path: Path) -> None:
    async with opened(tmp_path) as agent:
        await agent.start(initial_prompt="deaf work hang")
        assert marked_processes()
        with anyio.move_on_after(0.01):
            await agent.stop(grace_seconds=0.1)
        assert (await agent.wait()).state == "stopped"
        assert not marked_processes()
