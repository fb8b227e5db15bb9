"""Blocking work in worker threads: a single piece, one that can be interrupted, or many together.

It gets done even while the interpreter shuts down, when no thread can be started.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar, cast

import anyio
import anyio.lowlevel
import anyio.to_thread
import attrs

from clawblox.concurrency.per_loop import per_loop
from clawblox.concurrency.tasks import in_own_task, outlast

_T = TypeVar("_T")

_THREADS = 4
"""Number of threads that share the pieces of one batch."""


async def run_blocking(
    function: Callable[..., _T], *args: object, limiter: anyio.CapacityLimiter | None = None
) -> _T:
    """Run ``function(*args)`` in a worker thread and return what it returns.

    Where no thread can be started, it runs in the event loop itself: from Python 3.12 on, none
    can while the interpreter shuts down, which is when the worlds of a script are stopped.

    Args:
        function: What blocks.
        *args: Its arguments.
        limiter: Limits how many run at once; None shares anyio's own limit.

    Raises:
        Exception: What ``function`` raises.

    Cancellation: waits for a function that has begun.
    """
    has_begun = False

    def begin() -> _T:
        nonlocal has_begun
        has_begun = True
        return function(*args)

    try:
        return await anyio.to_thread.run_sync(begin, limiter=limiter)
    except RuntimeError:
        if has_begun:
            raise
    return function(*args)


@attrs.define(eq=False)
class _Piece(Generic[_T]):
    """Work for a thread, and what came of it.

    Attributes:
        function: The work.
        has_ended: Whether it was done, or has failed.
        value: What it returned.
        error: What it raised, or why it was never done.
        is_leader: Whether its caller has to run it, with all other work that waits.
        is_called: Set in the event loop when its caller, who waits, has to lead or to go on.
    """

    function: Callable[[], _T]
    has_ended: bool = False
    value: _T | None = None
    error: Exception | None = None
    is_leader: bool = False
    is_called: anyio.Event = attrs.field(factory=anyio.Event)

    def run(self) -> None:
        """Run the function and keep what it returns or raises."""
        try:
            self.value = self.function()
        except Exception as error:  # noqa: BLE001 - it belongs to the caller
            self.error = error
        self.has_ended = True

    def result(self) -> _T:
        """Return what the function returned, or raise what it raised."""
        if self.error is not None:
            raise self.error
        return cast(_T, self.value)


async def run_interruptible(
    function: Callable[[], _T],
    interrupt: Callable[[], object],
    *,
    limiter: anyio.CapacityLimiter | None = None,
) -> _T:
    """Run ``function()`` in a worker thread, where a cancellation makes it end early.

    Args:
        function: What blocks.
        interrupt: Makes a running function end soon; called in the event loop, once at most, and
            must do no harm to a function that has just ended.
        limiter: Limits how many run at once; None shares anyio's own limit.

    Raises:
        Exception: What ``function`` raises.

    Cancellation: interrupts the function and waits until it has ended, even where the cancellation
    is asyncio's own ``Task.cancel``, and comes again and again.
    """
    # A task of its own: asyncio's Task.cancel would leave the thread at work behind.
    return await in_own_task(partial(_run_interruptible, function, interrupt, limiter))


async def _run_interruptible(
    function: Callable[[], _T],
    interrupt: Callable[[], object],
    limiter: anyio.CapacityLimiter | None,
) -> _T:
    piece = _Piece(function)

    async def interrupt_when_cancelled() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            if not piece.has_ended:
                interrupt()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(interrupt_when_cancelled)
        await run_blocking(piece.run, limiter=limiter)  # raises nothing, which the group would wrap
        tasks.cancel_scope.cancel()
    await anyio.lowlevel.checkpoint_if_cancelled()
    return piece.result()


class Batcher:
    """Runs small pieces of blocking work; those that come together share a few worker threads.

    A hop into a thread and back costs more than a few system calls, and every further thread
    competes for the interpreter. But several threads wait for the disk better than one.
    """

    def __init__(self) -> None:
        self._waiting: list[_Piece[Any]] = []
        self._taken: list[_Piece[Any]] = []
        self._is_led = False

    async def run(self, function: Callable[..., _T], *args: object) -> _T:
        """Run ``function(*args)`` together with the work of other callers; return what it returns.

        Raises:
            Exception: What ``function`` raises, also to a caller who was cancelled meanwhile.

        Cancellation: waits for the function.
        """
        piece: _Piece[_T] = _Piece(partial(function, *args), is_leader=not self._is_led)
        self._waiting.append(piece)
        try:
            await self._wait_for(piece)
        except anyio.get_cancelled_exc_class():
            if piece.error is None:
                raise
        return piece.result()

    async def _wait_for(self, piece: _Piece[Any]) -> None:
        """Wait until a piece was run, with others; lead the round unless another caller does.

        Cancellation: waits all the same, then propagates.
        """
        self._is_led = True
        try:
            if not piece.is_leader:
                await outlast(piece.is_called)
        finally:
            if piece.is_leader:
                try:
                    await in_own_task(self._run_round)  # the others may go on waiting
                except Exception as error:  # noqa: BLE001 - nobody may wait for a piece in vain
                    raise self._fail_all(error) from None
                finally:  # whoever came meanwhile leads next, so that nobody leads on and on
                    self._is_led = bool(self._waiting)
                    for following in self._waiting[:1]:
                        following.is_leader = True
                        following.is_called.set()
            elif not piece.is_called.is_set() and piece in self._waiting:
                self._waiting.remove(piece)  # only a defect ends the wait before; it cannot lead

    async def _run_round(self) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.lowlevel.checkpoint()  # lets others of this moment join
            self._taken, self._waiting = self._waiting, []
            async with anyio.create_task_group() as threads:
                for first in range(_THREADS):
                    if share := self._taken[first::_THREADS]:
                        threads.start_soon(_run_in_thread, share)
            self._taken = []

    def _fail_all(self, error: Exception) -> Exception:
        """Fail all that was not done; return why."""
        if isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        pieces, self._taken, self._waiting = (*self._taken, *self._waiting), [], []
        for piece in pieces:
            if not piece.has_ended:
                piece.error = error
            piece.is_called.set()
        return error


async def _run_in_thread(pieces: Sequence[_Piece[Any]]) -> None:
    await run_blocking(_run_all, pieces)
    for piece in pieces:
        piece.is_called.set()


def _run_all(pieces: Iterable[_Piece[Any]]) -> None:
    for piece in pieces:
        piece.run()


@per_loop
def current_batcher() -> Batcher:
    """Return the batcher of the running event loop."""
    return Batcher()
