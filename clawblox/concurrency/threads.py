"""Blocking work in worker threads: single calls, interruptible calls, or many calls together.

It works even while the interpreter shuts down and threads cannot be started.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeVar, cast

import anyio
import anyio.lowlevel
import anyio.to_thread
import msgspec

from clawblox.concurrency.per_loop import per_loop
from clawblox.concurrency.tasks import in_own_task, outlast

_T = TypeVar("_T")

_THREADS = 4
"""Number of threads that share the calls of a batch."""


async def run_blocking(
    function: Callable[..., _T], *args: object, limiter: anyio.CapacityLimiter | None = None
) -> _T:
    """Run ``function(*args)`` in a worker thread and return its result.

    If no thread can be started, the function runs in the event loop: from Python 3.12 on, this
    happens while the interpreter shuts down and stops the worlds of a script.

    Args:
        function: The blocking function.
        *args: Arguments of the function.
        limiter: Limits concurrent calls; None uses the default limit of anyio.

    Raises:
        Exception: ``function`` raised it.

    Cancellation: waits for a function in progress.
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


class _Piece(msgspec.Struct, Generic[_T], eq=False):
    """A call for a worker thread, and its outcome.

    Attributes:
        function: The function.
        has_ended: Whether the function has returned or failed.
        value: Result of the function.
        error: Exception of the function, or the reason why it was never run.
        is_leader: Whether the caller must run all waiting calls.
        is_called: Set in the event loop when the waiting caller must lead or continue.
    """

    function: Callable[[], _T]
    has_ended: bool = False
    value: _T | None = None
    error: Exception | None = None
    is_leader: bool = False
    is_called: anyio.Event = msgspec.field(default_factory=anyio.Event)

    def run(self) -> None:
        """Run the function and keep its result or exception."""
        try:
            self.value = self.function()
        except Exception as error:  # noqa: BLE001 - raised in the caller
            self.error = error
        self.has_ended = True

    def result(self) -> _T:
        """Return the result of the function, or raise its exception."""
        if self.error is not None:
            raise self.error
        return cast(_T, self.value)


class Interruption(msgspec.Struct, eq=False):
    """Asks a long blocking call to end soon.

    Attributes:
        is_set: Whether the call should end.
    """

    is_set: bool = False

    def set(self) -> None:
        """Ask the call to end soon."""
        self.is_set = True

    def check(self) -> None:
        """Raise InterruptedError if the call should end."""
        if self.is_set:
            raise InterruptedError


async def run_interruptible(
    function: Callable[[], _T],
    interrupt: Callable[[], object],
    *,
    limiter: anyio.CapacityLimiter | None = None,
) -> _T:
    """Run ``function()`` in a worker thread, where a cancellation makes it end early.

    Args:
        function: The blocking function.
        interrupt: Makes a running function end soon; called in the event loop, at most once.
            Harmless if the function has just ended.
        limiter: Limits concurrent calls; None uses the default limit of anyio.

    Raises:
        Exception: ``function`` raised it.

    Cancellation: interrupts the function and waits until it has ended, even for repeated calls of
    asyncio's ``Task.cancel``.
    """
    # In a separate task, since asyncio's Task.cancel would leave a working thread behind.
    return await in_own_task(partial(_run_interruptible, function, interrupt, limiter))


async def run_checked(function: Callable[[Callable[[], None]], _T]) -> _T:
    """Run ``function(check)`` in a worker thread; it calls ``check()`` often.

    Args:
        function: The blocking function. After a cancellation, ``check()`` raises InterruptedError.

    Raises:
        Exception: ``function`` raised it.

    Cancellation: as for :func:`run_interruptible`.
    """
    interruption = Interruption()
    return await run_interruptible(partial(function, interruption.check), interruption.set)


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
        await run_blocking(piece.run, limiter=limiter)  # an exception would be wrapped by the group
        tasks.cancel_scope.cancel()
    await anyio.lowlevel.checkpoint_if_cancelled()
    return piece.result()


async def run_abandonable(function: Callable[[Callable[..., Any]], _T]) -> _T:
    """Run a function that may never return in a separate thread, and return its result.

    Args:
        function: The function. Its argument runs an async function in the event loop, and returns
            its result: ``call(function, *args)``.

    Raises:
        Exception: ``function`` raised it; a ``RuntimeError`` replaces other exceptions.

    Cancellation: leaves the thread behind. Its call into the event loop is cancelled, and later
    calls fail. The thread does not keep the process from ending.
    """
    from anyio.from_thread import BlockingPortal  # it loads Python's logging

    async with BlockingPortal() as portal:
        piece = _Piece(partial(function, portal.call))
        is_over = anyio.Event()

        def work() -> None:
            try:
                piece.run()
            except BaseException as error:  # noqa: BLE001 - SystemExit, which ends nothing here
                piece.error = RuntimeError(f"it raised {error!r}")
            with suppress(RuntimeError):  # it was left behind
                portal.start_task_soon(is_over.set)

        threading.Thread(target=work, name="clawblox-abandonable", daemon=True).start()
        await is_over.wait()
    return piece.result()


class Batcher:
    """Runs short blocking calls; simultaneous calls share a few worker threads.

    A hop into a thread and back costs more than a few system calls, and every further thread
    competes for the interpreter. But several threads wait for the disk in parallel.
    """

    def __init__(self) -> None:
        self._waiting: list[_Piece[Any]] = []
        self._taken: list[_Piece[Any]] = []
        self._is_led = False

    async def run(self, function: Callable[..., _T], *args: object) -> _T:
        """Run ``function(*args)`` together with calls of other tasks, and return its result.

        Raises:
            Exception: ``function`` raised it, even if the caller was cancelled in the meantime.

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
        """Wait until a call was run in a round; lead the round unless another caller does.

        Cancellation: propagates after the wait.
        """
        self._is_led = True
        try:
            if not piece.is_leader:
                await outlast(piece.is_called)
        finally:
            if piece.is_leader:
                try:
                    await in_own_task(self._run_round)  # the other callers may keep waiting
                except Exception as error:  # noqa: BLE001 - no caller may wait in vain
                    raise self._fail_all(error) from None
                finally:  # a later caller leads next, so that no caller leads forever
                    self._is_led = bool(self._waiting)
                    for following in self._waiting[:1]:
                        following.is_leader = True
                        following.is_called.set()
            elif not piece.is_called.is_set() and piece in self._waiting:
                self._waiting.remove(piece)  # only a bug ends its wait early; it cannot lead

    async def _run_round(self) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.lowlevel.checkpoint()  # lets simultaneous callers join
            self._taken, self._waiting = self._waiting, []
            async with anyio.create_task_group() as threads:
                for first in range(_THREADS):
                    if share := self._taken[first::_THREADS]:
                        threads.start_soon(_run_in_thread, share)
            self._taken = []

    def _fail_all(self, error: Exception) -> Exception:
        """Fail all calls that were not run; return the reason."""
        if isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        pieces, self._taken, self._waiting = (*self._taken, *self._waiting), [], []
        for piece in pieces:
            if not piece.has_ended:
                piece.error = error
            piece.is_called.set()
        return error


def _run_all(pieces: Sequence[_Piece[Any]]) -> None:
    for piece in pieces:
        piece.run()


async def _run_in_thread(pieces: Sequence[_Piece[Any]]) -> None:
    await run_blocking(_run_all, pieces)
    for piece in pieces:
        piece.is_called.set()


current_batcher = per_loop(Batcher)
"""Returns the batcher of the running event loop."""


# -- a regular blocking check, shared by all tasks that wait for a condition -------------------


class Lookout:
    """Runs the checks of all waiting tasks together, in a single hop into a thread.

    The first waiting task runs them; when it leaves, the next task does.

    Args:
        interval_s: Seconds between two rounds of checks.
    """

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._watches: list[_Piece[bool]] = []

    async def wait(self, check: Callable[[], bool]) -> None:
        """Wait until a check returns true.

        Args:
            check: Returns whether the wait is over; called in a worker thread.

        Raises:
            Exception: The exception of the check.

        Cancellation: waits for a round in progress; the other tasks keep waiting.
        """
        watch = _Piece(check, is_leader=not self._watches)
        self._watches.append(watch)
        try:
            if not watch.is_leader:
                await watch.is_called.wait()
            while not _is_over(watch):
                await anyio.sleep(self._interval_s)
                watches = tuple(self._watches)
                await run_blocking(_run_all, watches)
                for over in filter(_is_over, watches):
                    over.is_called.set()
        finally:
            self._watches.remove(watch)
            if watch.is_leader and self._watches:
                self._watches[0].is_leader = True
                self._watches[0].is_called.set()
        watch.result()


def _is_over(watch: _Piece[bool]) -> bool:
    """Return whether the last check of a waiting task ended its wait."""
    return watch.error is not None or watch.value is True
