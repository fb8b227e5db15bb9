"""Tasks that outlive a cancelled caller, in a group that never wraps its owner's exceptions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, cast

import anyio
import anyio.abc
import attrs

from clawblox.errors import UsageError

__all__ = ["Tasks"]

_T = TypeVar("_T")


@attrs.define
class _Outcome(Generic[_T]):
    """What an owned call came to."""

    scope: anyio.CancelScope = attrs.field(factory=anyio.CancelScope)
    is_done: anyio.Event = attrs.field(factory=anyio.Event)
    is_complete: bool = False
    value: _T | None = None
    error: Exception | None = None


class Tasks:
    """A task group for one owner; leaving it cancels what still runs and waits for it.

    An exception of the owner's block passes through as it is. The group's own tasks must not
    raise: whatever they have to say goes to whoever waits for it.
    """

    def __init__(self) -> None:
        self._group: anyio.abc.TaskGroup = anyio.create_task_group()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        self._group.cancel_scope.cancel()
        if isinstance(exc, anyio.get_cancelled_exc_class()):
            return await self._group.__aexit__(exc_type, exc, traceback)
        # Given any other exception, the group would wrap it in an ExceptionGroup.
        await self._group.__aexit__(None, None, None)
        return None

    def start_soon(self, function: Callable[..., Coroutine[Any, Any, None]], *args: object) -> None:
        """Run ``function(*args)`` until it ends or the group is left.

        Raises:
            UsageError: The group was left already.
        """
        try:
            self._group.start_soon(function, *args)
        except RuntimeError as error:
            raise UsageError("the world was closed meanwhile") from error

    async def own(self, function: Callable[[], Awaitable[_T]]) -> _T:
        """Run ``function`` in the group and return what it returns.

        Raises:
            UsageError: The group was left before the function was done.

        Cancellation: cancels the function and waits until it has cleaned up, even where the
        cancellation is asyncio's own ``Task.cancel``, which respects no shield.
        """
        outcome: _Outcome[_T] = _Outcome()
        self._group.start_soon(_run, function, outcome)
        try:
            await outcome.is_done.wait()
        except BaseException:
            outcome.scope.cancel()
            with anyio.CancelScope(shield=True):
                await outcome.is_done.wait()
            raise
        if outcome.error is not None:
            raise outcome.error
        if not outcome.is_complete:
            raise UsageError("the world was closed meanwhile")
        return cast(_T, outcome.value)


async def _run(function: Callable[[], Awaitable[_T]], outcome: _Outcome[_T]) -> None:
    try:
        with outcome.scope:
            outcome.value = await function()
            outcome.is_complete = True
    except Exception as error:  # noqa: BLE001 - it belongs to the caller of `own`
        outcome.error = error
    finally:
        outcome.is_done.set()
