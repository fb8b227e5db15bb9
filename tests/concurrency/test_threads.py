"""Blocking work in threads, and objects that exist once per event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial

import anyio
import pytest

from clawblox.concurrency.per_loop import per_loop
from clawblox.concurrency.threads import Batcher, run_abandonable, run_checked, run_interruptible
from tests.support.waiting import HANG_S


class Job:
    """Blocks until it is released or interrupted, and notes which happened."""

    def __init__(self) -> None:
        self.has_begun = threading.Event()
        self.may_end = threading.Event()
        self.history: list[str] = []

    def run(self) -> str:
        self.has_begun.set()
        self.may_end.wait(HANG_S)
        self.history.append("ended")
        return "done"

    def interrupt(self) -> None:
        self.history.append("interrupted")
        self.may_end.set()

    async def wait_begun(self) -> None:
        while not self.has_begun.is_set():
            await anyio.sleep(0.001)


@pytest.mark.anyio
async def test_a_completed_job_is_not_interrupted() -> None:
    job = Job()
    job.may_end.set()
    assert await run_interruptible(job.run, job.interrupt) == "done"
    assert job.history == ["ended"]


@pytest.mark.anyio
async def test_an_error_passes_unchanged() -> None:
    error = OSError("no")

    def fail() -> None:
        raise error

    with pytest.raises(OSError, match="no") as caught:
        await run_interruptible(fail, lambda: None)
    assert caught.value is error


@pytest.mark.anyio
async def test_a_cancellation_interrupts_the_job_and_waits_for_its_end() -> None:
    job = Job()
    async with anyio.create_task_group() as group:
        group.start_soon(run_interruptible, job.run, job.interrupt)
        await job.wait_begun()
        group.cancel_scope.cancel()
    assert job.history == ["interrupted", "ended"]


@pytest.mark.anyio
async def test_a_cancellation_ends_a_job_that_checks_for_it() -> None:
    job = Job()
    errors: list[type[BaseException]] = []

    def work(check: Callable[[], None]) -> None:
        job.has_begun.set()
        try:
            while True:
                check()
        except InterruptedError as error:
            errors.append(type(error))
            raise

    async with anyio.create_task_group() as group:
        group.start_soon(run_checked, work)
        await job.wait_begun()
        group.cancel_scope.cancel()
    assert errors == [InterruptedError]
    assert await run_checked(lambda check: check() or "done") == "done"


@pytest.mark.anyio
async def test_an_error_of_an_interrupted_job_does_not_hide_the_cancellation() -> None:
    job = Job()

    def fail() -> None:
        job.run()
        raise OSError("interrupted")

    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(run_interruptible, fail, job.interrupt)
            await job.wait_begun()
            scope.cancel()
    assert scope.cancelled_caught


@pytest.mark.anyio
async def test_a_queued_job_is_never_started_after_a_cancellation() -> None:
    job, limiter = Job(), anyio.CapacityLimiter(1)
    async with limiter:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:

                async def run() -> None:
                    await run_interruptible(job.run, job.interrupt, limiter=limiter)

                group.start_soon(run)
                while not limiter.statistics().tasks_waiting:
                    await anyio.sleep(0.001)
                scope.cancel()
    assert "ended" not in job.history


def test_repeated_asyncio_cancellations_leave_no_thread_running() -> None:
    job = Job()
    job.interrupt = lambda: job.history.append("interrupted")  # type: ignore[method-assign]

    async def main() -> None:
        task = asyncio.ensure_future(run_interruptible(job.run, job.interrupt))
        await job.wait_begun()
        for _ in range(3):
            task.cancel()
            for _ in range(5):
                await asyncio.sleep(0)
        assert not task.done()
        job.may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, HANG_S)

    asyncio.run(main())
    assert job.history == ["interrupted", "ended"]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_each_event_loop_has_its_own_object(backend: str) -> None:
    @per_loop
    def current_list() -> list[str]:
        """Return the list."""
        return []

    async def ask() -> list[list[str]]:
        return [current_list(), current_list()]

    first, second = (anyio.run(ask, backend=backend) for _ in range(2))
    assert first[0] is first[1]
    assert first[0] is not second[0]
    assert current_list.__doc__ == "Return the list."


def test_objects_of_factories_with_the_same_name_are_distinct() -> None:
    def maker(value: int) -> Callable[[], list[int]]:
        @per_loop
        def current() -> list[int]:
            return [value]

        return current

    one, other = maker(1), maker(2)

    async def ask() -> tuple[list[int], list[int]]:
        return one(), other()

    assert anyio.run(ask) == ([1], [2])


def test_a_failed_construction_is_not_cached() -> None:
    attempts = []

    @per_loop
    def current() -> str:
        attempts.append(1)
        if len(attempts) == 1:
            raise OSError("not yet")
        return "made"

    async def ask() -> str:
        with pytest.raises(OSError, match="not yet"):
            current()
        return current()

    assert anyio.run(ask) == "made"


@pytest.mark.anyio
async def test_a_failed_batcher_leaves_no_caller_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_: object) -> None:
        monkeypatch.undo()
        raise ZeroDivisionError

    batcher, outcomes = Batcher(), []

    async def ask() -> None:
        try:
            outcomes.append(await batcher.run(lambda: "done"))
        except Exception as error:
            outcomes.append(type(error).__name__)

    monkeypatch.setattr("clawblox.concurrency.threads._run_in_thread", fail)
    with anyio.fail_after(HANG_S):
        async with anyio.create_task_group() as callers:
            for _ in range(3):
                callers.start_soon(ask)
        assert await batcher.run(lambda: "done") == "done"
    assert len(outcomes) == 3
    assert "ZeroDivisionError" in outcomes


@pytest.mark.anyio
async def test_callers_of_a_batcher_do_not_wait_for_later_work() -> None:
    batcher, jobs = Batcher(), [Job(), Job(), Job()]
    ended = [anyio.Event() for _ in jobs]

    async def call(number: int) -> None:
        assert await batcher.run(jobs[number].run) == "done"
        ended[number].set()

    async with anyio.create_task_group() as callers:
        with anyio.fail_after(HANG_S / 2):
            callers.start_soon(call, 0)
            for number in range(len(jobs)):
                await jobs[number].wait_begun()
                if number:
                    await ended[number - 1].wait()
                if number + 1 < len(jobs):
                    callers.start_soon(call, number + 1)
                    await anyio.wait_all_tasks_blocked()
                    jobs[number].may_end.set()
            jobs[-1].may_end.set()


def test_a_cancelled_leader_of_a_batcher_still_runs_the_calls_of_others() -> None:
    batcher, jobs = Batcher(), [Job(), Job(), Job()]

    async def main() -> None:
        tasks = [asyncio.ensure_future(batcher.run(jobs[0].run))]
        await jobs[0].wait_begun()
        tasks += [asyncio.ensure_future(batcher.run(job.run)) for job in jobs[1:]]
        for _ in range(5):
            await asyncio.sleep(0)
        for _ in range(3):
            tasks[1].cancel()  # the leader of the next round
            await asyncio.sleep(0)
        for job in jobs:
            job.may_end.set()
        assert await asyncio.wait_for(tasks[2], HANG_S) == "done"
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(tasks[1], HANG_S)
        assert await batcher.run(lambda: "again") == "again"

    asyncio.run(main())
    assert [job.history for job in jobs] == [["ended"]] * len(jobs)


@pytest.mark.anyio
@pytest.mark.parametrize("place", [0, 1], ids=["who leads", "who follows"])
async def test_a_cancelled_caller_of_a_batcher_still_gets_the_exception(
    place: int,
) -> None:
    batcher, job, scope = Batcher(), Job(), anyio.CancelScope()

    def fail() -> None:
        job.run()
        raise ZeroDivisionError

    async def ask() -> None:
        with scope, pytest.raises(ZeroDivisionError):
            await batcher.run(fail)

    with anyio.fail_after(HANG_S):
        async with anyio.create_task_group() as callers:
            for caller in (ask, partial(batcher.run, lambda: None))[:: -1 if place else 1]:
                callers.start_soon(caller)
            await job.wait_begun()
            scope.cancel()
            job.may_end.set()
    assert not scope.cancelled_caught


# -- functions that may never return ----------------------------------------------------------


@pytest.mark.anyio
async def test_an_abandonable_function_calls_async_functions_in_the_event_loop() -> None:
    loop_thread = threading.get_ident()

    async def find_thread() -> int:
        return threading.get_ident()

    def work(call: Callable[..., int]) -> tuple[int, int]:
        return call(find_thread), threading.get_ident()

    called_in, worked_in = await run_abandonable(work)
    assert called_in == loop_thread != worked_in


@pytest.mark.anyio
async def test_a_cancellation_ends_the_call_of_an_abandoned_function() -> None:
    is_waiting, is_over, errors = anyio.Event(), threading.Event(), []

    async def wait() -> None:
        is_waiting.set()
        await anyio.sleep_forever()

    def work(call: Callable[..., None]) -> None:
        try:
            call(wait)
        except BaseException as error:
            errors.append(type(error).__name__)
            raise
        finally:
            is_over.set()

    with anyio.fail_after(HANG_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_abandonable, work)
            await is_waiting.wait()
            tasks.cancel_scope.cancel()
        while not is_over.is_set():
            await anyio.sleep(0.001)
    assert errors == ["CancelledError"]
