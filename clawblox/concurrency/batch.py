"""An operation on many instances at the same time: outcomes as they arrive, or as a batch."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from typing import Any, Generic, Self, TypeAlias, TypeVar, cast

import anyio
import attrs

from clawblox.concurrency.progress import Advance, ProgressLike, counting
from clawblox.concurrency.tasks import Tasks, outlast
from clawblox.errors import BatchError, UsageError

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)

Job: TypeAlias = Callable[[], Awaitable[_T]]
"""The operation on a single instance."""


@attrs.frozen
class Outcome(Generic[_T]):
    """The result of an operation for one of many instances.

    Attributes:
        instance: Name of the instance.
        value: The result of the operation; None if it failed.
        error: The exception of the operation; None if it succeeded.
    """

    instance: str
    value: _T | None = None
    error: Exception | None = None

    def result(self) -> _T:
        """Return the result of the operation, or raise its exception."""
        if self.error is not None:
            raise self.error
        return cast(_T, self.value)


@attrs.frozen
class Batch(Generic[_T_co]):
    """The results of an operation on many instances. A failure never affects the others.

    Iterating yields the values; ``batch["w000"]`` returns the value of an instance, or raises its
    error.

    Attributes:
        done: Values by name of the instance, in the order of the request.
        failed: Errors by name of the instance, in the order of their occurrence.
    """

    done: Mapping[str, _T_co]
    failed: Mapping[str, Exception]

    def __repr__(self) -> str:
        return f"Batch({len(self.done)} done, {len(self.failed)} failed)"

    def __iter__(self) -> Iterator[_T_co]:
        return iter(self.done.values())

    def __len__(self) -> int:
        return len(self.done)

    def __getitem__(self, name: str) -> _T_co:
        if name in self.failed:
            raise self.failed[name]
        return self.done[name]

    def raise_if_failed(self) -> None:
        """Raise an error if any instance failed.

        Raises:
            BatchError: An instance failed; the cause is the first error.
        """
        if self.failed:
            raise BatchError.of(self.failed, len(self.failed) + len(self.done))


class BatchOperation(Generic[_T]):
    """Operations on many instances; they start when this is awaited or iterated.

    ``await operation`` returns the :class:`Batch` of all results.
    ``async for outcome in operation`` yields an :class:`Outcome` for each as it arrives; if the
    loop is left early, the other operations continue. A failure is an outcome and never affects the
    others.

    Args:
        tasks: The group in which the operations run.
        jobs: The operations by name of the instance.
        verb: Name of the operation, for example ``Saving``.
        progress: The option that reports progress.

    Cancellation: cancels all operations of ``await operation``, and waits until they have cleaned
    up.
    """

    def __init__(
        self,
        tasks: Tasks,
        jobs: Mapping[str, Job[_T]],
        *,
        verb: str = "",
        progress: ProgressLike = False,
    ) -> None:
        self._tasks = tasks
        self._jobs = jobs
        self._verb = verb
        self._progress = progress
        self._advance: Advance
        self._error: Exception | None = None
        self._outcomes: deque[Outcome[_T]] = deque()
        self._news = anyio.Event()
        self._is_over = anyio.Event()
        self._scope = anyio.CancelScope()
        self._is_begun = False
        self._awaited = len(jobs)

    def __await__(self) -> Generator[Any, Any, Batch[_T]]:
        """Run the operations and return their results.

        Raises:
            UsageError: The operation was already awaited or iterated, or the world was closed.
        """
        return self._gather().__await__()

    def __aiter__(self) -> Self:
        """Run the operations and yield each outcome as it arrives; a second loop takes the rest."""
        if not self._is_begun:
            self._is_begun = True
            self._tasks.start_soon(self._run)
        return self

    async def __anext__(self) -> Outcome[_T]:
        """Return the next outcome.

        Raises:
            UsageError: The world was closed before the outcome arrived.
            Exception: The ``progress`` function raised it; the operations were cancelled.
        """
        if not self._awaited:
            await self._is_over.wait()
            if self._error is not None:
                raise self._error
            raise StopAsyncIteration
        while not self._outcomes:
            await self._wait()
        self._awaited -= 1
        return self._outcomes.popleft()

    async def _gather(self) -> Batch[_T]:
        if self._is_begun:
            raise UsageError("this was already awaited or iterated", hint="call the method again")
        outcomes = aiter(self)
        try:
            results = [outcome async for outcome in outcomes]
        except BaseException:
            self._scope.cancel()
            await outlast(self._is_over)
            raise
        done = {outcome.instance: outcome for outcome in results if outcome.error is None}
        values = {name: done[name].value for name in self._jobs if name in done}
        failed = {result.instance: result.error for result in results if result.error is not None}
        return Batch(values, failed)  # type: ignore[arg-type]  # no error, hence a value

    async def _wait(self) -> None:
        if self._is_over.is_set():
            await anyio.lowlevel.checkpoint_if_cancelled()
            raise self._error or UsageError("it was closed in the meantime")
        await self._news.wait()
        self._news = anyio.Event()

    async def _run(self) -> None:
        try:
            with self._scope:
                async with (
                    counting(self._verb, len(self._jobs), self._progress) as self._advance,
                    anyio.create_task_group() as group,
                ):
                    for name, job in self._jobs.items():
                        group.start_soon(self._run_one, name, job)
        except Exception as error:  # noqa: BLE001 - raised where the outcomes are awaited
            self._error = error
        finally:
            self._is_over.set()
            self._news.set()

    async def _run_one(self, name: str, job: Job[_T]) -> None:
        try:
            self._land(Outcome(name, value=await job()))
        except Exception as error:  # noqa: BLE001 - it becomes an outcome
            self._land(Outcome(name, error=error))

    def _land(self, outcome: Outcome[_T]) -> None:
        self._outcomes.append(outcome)
        self._advance(outcome.error is not None)
        self._news.set()
