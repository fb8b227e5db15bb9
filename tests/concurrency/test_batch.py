"""One operation on many: outcomes as they arrive, or all as a batch; failures stay isolated."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from clawblox.concurrency.batch import BatchOperation, Outcome
from clawblox.concurrency.tasks import Tasks
from clawblox.errors import BatchError, UsageError
from tests.support.waiting import HANG_S, wait_until_async

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Work:
    """Jobs by name; each ends when it is given an outcome, and notes its own cancellation."""

    def __init__(self, *names: str) -> None:
        self.begun: list[str] = []
        self.cleaned_up: list[str] = []
        self._outcomes: dict[str, Any] = {}
        self._ends = {name: anyio.Event() for name in names}

    @property
    def jobs(self) -> Mapping[str, Callable[[], Awaitable[Any]]]:
        return {name: self._job_of(name) for name in self._ends}

    def _job_of(self, name: str) -> Callable[[], Awaitable[Any]]:
        async def job() -> Any:
            self.begun.append(name)
            try:
                await self._ends[name].wait()
            except anyio.get_cancelled_exc_class():
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(0.01)
                self.cleaned_up.append(name)
                raise
            if isinstance(self._outcomes[name], Exception):
                raise self._outcomes[name]
            return self._outcomes[name]

        return job

    def end(self, **outcomes: Any) -> None:
        """End jobs: with a value, or by raising an exception."""
        for name, outcome in outcomes.items():
            self._outcomes[name] = outcome
            self._ends[name].set()

    async def until_begun(self, count: int) -> None:
        await wait_until_async(lambda: len(self.begun) == count, HANG_S)


async def immediate(value: Any) -> Any:
    return value


async def take_next(many: BatchOperation[Any]) -> Outcome[Any]:
    with anyio.fail_after(HANG_S):
        return await anext(many)


# ----------------------------------------------------------------------------------- batches


async def test_a_batch_has_its_values_in_the_order_of_the_request() -> None:
    work = Work("a", "b", "c")
    async with Tasks() as tasks, anyio.create_task_group() as group:
        many = BatchOperation(tasks, work.jobs)
        assert work.begun == []

        async def end_backwards() -> None:
            await work.until_begun(3)
            for name in "cba":
                work.end(**{name: name.upper()})
                await anyio.lowlevel.checkpoint()

        group.start_soon(end_backwards)
        batch = await many
    assert list(batch.done.items()) == [("a", "A"), ("b", "B"), ("c", "C")]
    assert list(batch) == ["A", "B", "C"]
    assert (len(batch), batch["b"], batch.failed) == (3, "B", {})
    batch.raise_if_failed()


@pytest.mark.thorough
async def test_failures_do_not_affect_others_and_are_listed_in_order() -> None:
    work = Work("a", "b", "c", "d")
    late, early = KeyError("late"), UsageError("early")
    async with Tasks() as tasks, anyio.create_task_group() as group:

        async def end_all() -> None:
            await work.until_begun(4)
            for name, outcome in (("c", early), ("a", late), ("d", None), ("b", 2)):
                work.end(**{name: outcome})
                await anyio.wait_all_tasks_blocked()

        group.start_soon(end_all)
        batch = await BatchOperation(tasks, work.jobs)
    assert batch.done == {"b": 2, "d": None}
    assert list(batch.failed.items()) == [("c", early), ("a", late)]
    with pytest.raises(KeyError, match="late"):
        batch["a"]
    with pytest.raises(KeyError, match="nobody"):
        batch["nobody"]
    with pytest.raises(BatchError, match="2 of 4 instances failed") as caught:
        batch.raise_if_failed()
    assert caught.value.__cause__ is early
    assert caught.value.failed == {"c": early, "a": late}


async def test_no_jobs_return_an_empty_batch() -> None:
    async with Tasks() as tasks:
        batch = await BatchOperation[int](tasks, {})
        assert [outcome async for outcome in BatchOperation[int](tasks, {})] == []
    assert (list(batch), batch.failed) == ([], {})


async def test_operations_start_only_when_awaited() -> None:
    work = Work("a")
    async with Tasks() as tasks:
        BatchOperation(tasks, work.jobs)
        await anyio.wait_all_tasks_blocked()
        assert work.begun == []


async def test_all_operations_run_concurrently() -> None:
    work = Work(*"abcdefgh")
    async with Tasks() as tasks:
        many = aiter(BatchOperation(tasks, work.jobs))
        await work.until_begun(8)
        work.end(h=8)
        assert await take_next(many) == Outcome("h", value=8)


# ------------------------------------------------------------------------- as they arrive


async def test_outcomes_are_yielded_as_they_arrive() -> None:
    work = Work("a", "b", "c")
    failure = KeyError()
    order = iter([("b", 1), ("c", failure), ("a", 3)])
    async with Tasks() as tasks:
        many = aiter(BatchOperation(tasks, work.jobs))
        await work.until_begun(3)
        seen = []
        for name, outcome in order:
            work.end(**{name: outcome})
            seen.append(await take_next(many))
        with pytest.raises(StopAsyncIteration):
            await anext(many)
    assert seen == [
        Outcome("b", value=1),
        Outcome("c", error=failure),
        Outcome("a", value=3),
    ]


async def test_outcomes_wait_for_a_slow_reader() -> None:
    async with Tasks() as tasks:
        many = BatchOperation(tasks, {name: lambda n=name: immediate(n) for name in "abc"})  # type: ignore[misc]
        seen = []
        async for outcome in many:
            await anyio.wait_all_tasks_blocked()
            seen.append(outcome.value)
        assert sorted(seen) == ["a", "b", "c"]


async def test_an_iteration_that_ends_early_leaves_the_other_jobs_running() -> None:
    work = Work("a", "b", "c")
    async with Tasks() as tasks:
        many = BatchOperation(tasks, work.jobs)
        work.end(a=1)
        async for outcome in many:
            assert outcome.instance == "a"
            break
        work.end(b=2, c=3)
        rest = [outcome.value async for outcome in many]
    assert sorted(rest) == [2, 3]
    assert work.cleaned_up == []


async def test_a_cancelled_iteration_leaves_the_other_jobs_running() -> None:
    work = Work("a", "b")
    async with Tasks() as tasks:
        many = BatchOperation(tasks, work.jobs)
        with anyio.CancelScope() as scope:
            aiter(many)
            await work.until_begun(2)
            scope.cancel()
            await anext(many)
        assert scope.cancelled_caught
        work.end(a=1, b=2)
        assert sorted([outcome.value async for outcome in many]) == [1, 2]
    assert work.cleaned_up == []


async def test_an_operation_can_be_awaited_only_once() -> None:
    async with Tasks() as tasks:
        awaited = BatchOperation(tasks, {"a": lambda: immediate(1)})
        await awaited
        iterated = aiter(BatchOperation(tasks, {"a": lambda: immediate(1)}))
        for many in (awaited, iterated):
            with pytest.raises(UsageError, match="already awaited or iterated"):
                await many


# ---------------------------------------------------------------------- cancellation, closing


async def test_a_function_as_progress_is_called_for_each_outcome() -> None:
    calls: list[tuple[int, int]] = []
    async with Tasks() as tasks:
        jobs = {name: partial(immediate, name) for name in "abc"}
        await BatchOperation(tasks, jobs, progress=lambda *counts: calls.append(counts))
    assert calls == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize("failing_call", [1, 2])
@pytest.mark.parametrize("way", ["await", "async for"])
async def test_an_exception_from_progress_cancels_the_rest_and_ends_the_call(
    way: str, failing_call: int
) -> None:
    def fail(done: int, _total: int) -> None:
        if done == failing_call:
            raise KeyError(done)

    work = Work("a", "b")
    async with Tasks() as tasks:
        many = BatchOperation(tasks, work.jobs, progress=fail)

        async def end() -> None:
            await wait_until_async(lambda: len(work.begun) == 2)
            work.end(**dict.fromkeys("ab"[:failing_call]))

        tasks.start_soon(end)
        with anyio.fail_after(HANG_S), pytest.raises(KeyError):
            await (await_batch(many) if way == "await" else take_all(many))
        assert work.cleaned_up == [*"ab"[failing_call:]]


async def take_all(many: BatchOperation[Any]) -> list[Outcome[Any]]:
    return [outcome async for outcome in many]


async def await_batch(many: BatchOperation[Any]) -> None:
    await many


async def take_last(many: BatchOperation[Any]) -> None:
    async for _ in many:
        pass


WAYS = {"await": await_batch, "async for": take_last}
each_way = pytest.mark.parametrize("way", WAYS)


async def test_a_cancelled_caller_waits_until_all_operations_have_cleaned_up() -> None:
    work = Work("a", "b", "c")
    async with Tasks() as tasks, anyio.create_task_group() as group:

        async def give_up() -> None:
            await work.until_begun(3)
            work.end(b=2)
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()

        group.start_soon(give_up)
        try:
            await BatchOperation(tasks, work.jobs)
        finally:
            assert sorted(work.cleaned_up) == ["a", "c"]
    assert group.cancel_scope.cancelled_caught


async def test_an_immediately_cancelled_caller_leaves_no_operation_running() -> None:
    work = Work("a", "b")
    async with Tasks() as tasks:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await BatchOperation(tasks, work.jobs)
        assert scope.cancelled_caught
        assert sorted(work.begun) == sorted(work.cleaned_up)


@each_way
async def test_a_waiting_caller_gets_an_error_when_the_world_is_closed(way: str) -> None:
    work = Work("a", "b")
    told: list[Exception] = []
    async with anyio.create_task_group() as group:
        async with Tasks() as tasks:

            async def wait() -> None:
                try:
                    await WAYS[way](BatchOperation(tasks, work.jobs))
                except UsageError as error:
                    told.append(error)

            group.start_soon(wait)
            await work.until_begun(2)
            work.end(a=1)
            await anyio.wait_all_tasks_blocked()
        assert work.cleaned_up == ["b"]
    assert [str(error) for error in told] == ["it was closed in the meantime"]


@each_way
async def test_operations_are_refused_after_the_world_was_closed(way: str) -> None:
    work = Work("a")
    async with Tasks() as tasks:
        many = BatchOperation(tasks, work.jobs)
    with anyio.fail_after(HANG_S), pytest.raises(UsageError, match="was closed in the meantime"):
        await WAYS[way](many)
    assert work.begun == []


async def test_a_caller_that_is_cancelled_when_the_world_was_closed_is_cancelled() -> None:
    work = Work("a")
    async with Tasks() as tasks:
        many = aiter(BatchOperation(tasks, work.jobs))
        await work.until_begun(1)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await take_next(many)
    assert scope.cancelled_caught


async def test_outcomes_that_arrived_before_the_close_can_still_be_read() -> None:
    work = Work("a", "b")
    async with Tasks() as tasks:
        many = aiter(BatchOperation(tasks, work.jobs))
        await work.until_begun(2)
        work.end(a=1)
        await anyio.wait_all_tasks_blocked()
    assert await take_next(many) == Outcome("a", value=1)
    with pytest.raises(UsageError, match="it was closed in the meantime"):
        await take_next(many)
