"""Work in a separate task ends completely, however often its caller is cancelled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from clawblox.concurrency.progress import run_with_progress
from clawblox.concurrency.tasks import Residence, Tasks, in_own_task, outlast
from clawblox.concurrency.threads import Batcher
from clawblox.errors import UsageError
from clawblox.telemetry.metrics import MetricsRecorder
from clawblox.telemetry.prometheus import MetricsEndpoint
from tests.support.waiting import HANG_S

pytestmark = pytest.mark.anyio


async def yield_to_others(times: int = 5) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


async def cancelled_again_and_again(task: asyncio.Task[object], times: int = 3) -> None:
    """Cancel a task several times, each at its next await."""
    for _ in range(times):
        task.cancel()
        await yield_to_others()


class Room:
    """A context manager whose exit takes a given time."""

    def __init__(self) -> None:
        self.may_go = anyio.Event()
        self.history: list[str] = []

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Room]:
        self.history.append("entered")
        try:
            yield self
        finally:
            with anyio.CancelScope(shield=True):
                await self.may_go.wait()
            self.history.append("left")


async def test_a_residence_is_left_completely_despite_repeated_cancellations():
    room = Room()

    async def live() -> None:
        async with Residence(room.opened()):
            await anyio.sleep_forever()

    task = asyncio.ensure_future(live())
    await yield_to_others()
    await cancelled_again_and_again(task)
    assert not task.done()
    room.may_go.set()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, HANG_S)
    assert room.history == ["entered", "left"]


async def test_a_residence_passes_on_exceptions_of_its_user_and_its_own():
    room = Room()
    room.may_go.set()
    with pytest.raises(ValueError, match="the user's"):
        async with Residence(room.opened()):
            raise ValueError("the user's")

    @asynccontextmanager
    async def failing(when: str) -> AsyncIterator[None]:
        if when == "entering":
            raise LookupError(when)
        yield
        raise LookupError(when)

    for when in ("entering", "leaving"):
        with pytest.raises(LookupError, match=when):
            async with Residence(failing(when)):
                pass
    await anyio.sleep(0)  # this task continues normally


async def test_a_result_that_a_cancelled_caller_never_received_is_undone():
    taken_back: list[str] = []

    async def undo(value: str) -> None:
        await anyio.sleep(0)
        taken_back.append(value)

    async with Tasks() as tasks:

        async def make() -> str:
            caller.cancel()  # the value is being delivered when the caller is cancelled
            return "value"

        caller = asyncio.ensure_future(tasks.own(make, undo=undo))
        with pytest.raises(asyncio.CancelledError):
            await caller
    assert taken_back == ["value"]


async def test_an_error_in_a_cancelled_call_is_not_lost():
    async def fail() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await yield_to_others()
            raise LookupError("not cleaned up")

    task = asyncio.ensure_future(in_own_task(fail))
    await yield_to_others()
    await cancelled_again_and_again(task)
    with pytest.raises(LookupError, match="not cleaned up"):
        await asyncio.wait_for(task, HANG_S)


async def test_a_group_refuses_calls_after_it_was_left():
    async with Tasks() as tasks:
        pass
    with pytest.raises(UsageError, match="closed in the meantime"):
        await tasks.own(lambda: anyio.sleep(0))


async def test_a_wait_that_outlasts_cancellations_raises_them_at_its_end():
    event = anyio.Event()
    task = asyncio.ensure_future(outlast(event))
    await yield_to_others()
    await cancelled_again_and_again(task)
    assert not task.done()
    event.set()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, HANG_S)


async def test_leaving_a_group_by_a_cancellation_cancels_its_callers():
    async with Tasks() as left:
        pass
    with anyio.CancelScope() as scope:
        scope.cancel()
        await left.own(lambda: anyio.sleep(0))
    assert scope.cancelled_caught


async def test_a_caller_that_is_cancelled_when_its_group_is_left_is_cancelled():
    is_running, scope = anyio.Event(), anyio.CancelScope()

    async def function() -> None:
        is_running.set()
        try:
            await anyio.sleep(HANG_S)
        finally:
            asyncio.get_running_loop().call_soon(scope.cancel)  # when its caller wakes up

    async def call() -> None:
        with scope:
            await tasks.own(function)

    async with anyio.create_task_group() as callers, Tasks() as tasks:
        callers.start_soon(call)
        await is_running.wait()
    assert scope.cancelled_caught


async def test_a_function_in_its_own_task_cleans_up_before_its_caller_continues():
    may_go, history = anyio.Event(), []

    async def function() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await may_go.wait()
            history.append("cleaned up")

    task = asyncio.ensure_future(in_own_task(function))
    await yield_to_others()
    await cancelled_again_and_again(task)
    assert not task.done()
    may_go.set()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, HANG_S)
    assert history == ["cleaned up"]


async def test_a_cancelled_caller_of_a_batcher_does_not_strand_others():
    batcher, gate, has_begun = Batcher(), threading.Event(), threading.Event()

    def block() -> None:
        has_begun.set()
        gate.wait(HANG_S)

    first = asyncio.ensure_future(batcher.run(block))
    while not has_begun.is_set():
        await asyncio.sleep(0)
    second = asyncio.ensure_future(batcher.run(lambda: "done"))
    await yield_to_others()
    await cancelled_again_and_again(first)
    gate.set()
    assert await asyncio.wait_for(second, HANG_S) == "done"
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_cancelled_checkpoint_leaves_no_thread_running():
    gate, has_begun, has_ended = threading.Event(), threading.Event(), threading.Event()

    def work(_hook: object) -> None:
        has_begun.set()
        gate.wait(HANG_S)
        has_ended.set()

    task = asyncio.ensure_future(run_with_progress(work))
    while not has_begun.is_set():
        await asyncio.sleep(0)
    await cancelled_again_and_again(task)
    assert not task.done()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, HANG_S)
    assert has_ended.is_set()


async def test_a_metrics_endpoint_ends_even_if_its_user_is_cancelled():
    is_open = anyio.Event()

    async def serve() -> None:
        async with MetricsEndpoint(MetricsRecorder().snapshot, dict):
            is_open.set()
            await anyio.sleep_forever()

    task = asyncio.ensure_future(serve())
    await is_open.wait()
    await cancelled_again_and_again(task)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, HANG_S)
    # Otherwise the server's thread and socket would be reported as leaks.
