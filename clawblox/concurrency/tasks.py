"""Tasks that outlive a cancelled caller, in a group that never wraps its owner's exceptions.

asyncio's ``Task.cancel`` interrupts its task at any ``await``, shielded or not, and a second call
interrupts the clean-up after the first. So work that must be undone as a whole runs in a separate
task that sees only anyio's cancellation, and its caller only waits for that task.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Generic, Self, TypeVar, cast

import anyio
import anyio.abc
import attrs
import msgspec

from clawblox.errors import UsageError

_T = TypeVar("_T")


class _Outcome(msgspec.Struct, Generic[_T]):
    """The result of an owned call."""

    scope: anyio.CancelScope = msgspec.field(default_factory=anyio.CancelScope)
    is_done: anyio.Event = msgspec.field(default_factory=anyio.Event)
    is_complete: bool = False
    value: _T | None = None
    error: Exception | None = None


@attrs.define(eq=False)
class Tasks:
    """A task group; leaving it cancels the tasks that still run, and waits for them.

    An exception of the block passes through unchanged. The first exception of a task ends the block
    and is raised from it unchanged, unless the tasks are independent.

    Args:
        on_error: Makes the tasks independent: it is called with each exception of a task, and ends
            neither the other tasks nor the block. If None, the first exception ends the block.
    """

    _on_error: Callable[[Exception], object] | None = attrs.field(default=None, kw_only=True)
    _group: anyio.abc.TaskGroup = attrs.field(factory=anyio.create_task_group, init=False)
    _error: Exception | None = attrs.field(default=None, init=False)

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *exc_info: Any) -> bool | None:
        self._group.cancel_scope.cancel()
        error = exc_info[1]
        is_cancelled = isinstance(error, anyio.get_cancelled_exc_class())
        try:
            if is_cancelled:
                return await self._group.__aexit__(*exc_info)
            try:
                # Given any other exception, the group would wrap it in an ExceptionGroup.
                await self._group.__aexit__(None, None, None)
            except anyio.get_cancelled_exc_class():
                if error is None:
                    raise
            return None
        finally:
            if self._error is not None and (error is None or is_cancelled):
                raise self._error

    def start_soon(self, function: Callable[..., Coroutine[Any, Any, None]], *args: object) -> None:
        """Run ``function(*args)`` until it ends or the group is left.

        Raises:
            UsageError: The group was already left.
        """
        name = getattr(function, "__qualname__", None)
        try:
            self._group.start_soon(self._run_task, function, args, name=name)
        except RuntimeError as error:
            raise UsageError("it was closed in the meantime") from error

    async def _run_task(
        self, function: Callable[..., Coroutine[Any, Any, None]], args: tuple[object, ...]
    ) -> None:
        try:
            await function(*args)
        except Exception as error:  # noqa: BLE001 - raised from the block, or passed to `on_error`
            if self._on_error is not None:
                self._on_error(error)
                return
            self._error = self._error or error
            self._group.cancel_scope.cancel()

    async def own(
        self,
        function: Callable[[], Awaitable[_T]],
        *,
        undo: Callable[[_T], Awaitable[None]] | None = None,
    ) -> _T:
        """Run ``function`` in the group and return its result.

        Args:
            function: The function.
            undo: Undoes the result of the function if the caller was cancelled before it received
                the result.

        Raises:
            UsageError: The group was left earlier, or before the function was done.
            Exception: ``function`` raised it, even if the caller has been cancelled since.

        Cancellation: cancels the function and waits until it has cleaned up, even for repeated
        calls of asyncio's ``Task.cancel``.
        """
        outcome: _Outcome[_T] = _Outcome()
        try:
            self.start_soon(_run, function, outcome)
        except UsageError:
            await anyio.lowlevel.checkpoint_if_cancelled()  # by the end of the group
            raise
        try:
            await outcome.is_done.wait()
        except BaseException:
            is_over = anyio.Event()
            try:
                with suppress(UsageError):  # the group was left, and undid everything
                    self.start_soon(_abandon, outcome, undo, is_over)
                    await outlast(is_over)
            finally:
                if outcome.error is not None:
                    raise outcome.error
            raise
        if outcome.error is not None:
            raise outcome.error
        if not outcome.is_complete:
            await anyio.lowlevel.checkpoint_if_cancelled()
            raise UsageError("it was closed in the meantime")
        return cast(_T, outcome.value)


async def _run(function: Callable[[], Awaitable[_T]], outcome: _Outcome[_T]) -> None:
    try:
        with outcome.scope:
            outcome.value = await function()
            outcome.is_complete = True
    except Exception as error:  # noqa: BLE001 - raised in the caller of `own`
        outcome.error = error
    finally:
        outcome.is_done.set()


async def _abandon(
    outcome: _Outcome[_T], undo: Callable[[_T], Awaitable[None]] | None, is_over: anyio.Event
) -> None:
    outcome.scope.cancel()
    try:
        with anyio.CancelScope(shield=True):
            await outcome.is_done.wait()
            if undo is not None and outcome.is_complete:
                await undo(cast(_T, outcome.value))
    finally:
        is_over.set()


class Residence(Generic[_T]):
    """An async context manager that keeps another open in a separate task.

    The manager is entered and left completely, even if its user is cancelled repeatedly. It does
    not see an exception of the user's block, which passes through unchanged.

    Args:
        manager: The other context manager.

    Cancellation: the manager is left before the cancellation propagates.
    """

    def __init__(self, manager: AbstractAsyncContextManager[_T]) -> None:
        self._manager = manager
        self._group: anyio.abc.TaskGroup = anyio.create_task_group()
        self._is_settled = anyio.Event()
        self._is_leaving = anyio.Event()
        self._value: _T | None = None
        self._error: Exception | None = None

    async def __aenter__(self) -> _T:
        await self._group.__aenter__()
        self._group.start_soon(self._hold)
        try:
            await self._is_settled.wait()
        except BaseException:
            self._group.cancel_scope.cancel()
            await self._leave()
            raise
        if self._error is not None:
            await self._leave()
        return cast(_T, self._value)

    async def __aexit__(self, *_: object) -> None:
        await self._leave()

    async def _leave(self) -> None:
        self._is_leaving.set()
        # The group waits for its task through any number of cancellations, and raises the latest.
        await self._group.__aexit__(None, None, None)
        if self._error is not None:
            raise self._error

    async def _hold(self) -> None:
        try:
            async with self._manager as self._value:
                self._is_settled.set()
                await self._is_leaving.wait()
        except Exception as error:  # noqa: BLE001 - raised in the user of the block
            self._error = error
        finally:
            self._is_settled.set()


async def in_own_task(function: Callable[[], Awaitable[_T]]) -> _T:
    """Run ``function`` in a separate task and return its result.

    Raises:
        Exception: The exception of ``function``.

    Cancellation: cancels the function and waits until it has cleaned up; see :meth:`Tasks.own`.
    """
    async with Tasks() as tasks:
        return await tasks.own(function)
    raise AssertionError("unreachable: the block returns or raises")


async def outlast(event: anyio.Event) -> None:
    """Wait for ``event``, even when the caller is cancelled.

    Cancellation: keeps waiting, and raises the last cancellation at the end.
    """
    cancelled: BaseException | None = None
    while not event.is_set():
        try:
            with anyio.CancelScope(shield=True):
                await event.wait()
        except anyio.get_cancelled_exc_class() as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
