"""The portal: an event loop in a daemon thread, shared by every sync facade of the process.

It starts at the first call that needs it. When the interpreter exits, the portal closes all open
objects, worlds before the loop. Ctrl-C during that kills the world being stopped and leaves the
others to the guard.
"""

from __future__ import annotations

import asyncio  # noqa: TID251 - anyio's own way into a loop waits in a ``Future``
import atexit
import os
import sys
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError
from contextlib import AbstractAsyncContextManager, suppress
from types import TracebackType
from typing import Any, Final, Generic, TypeVar, cast

import anyio

_T = TypeVar("_T")
_THREAD_NAME = "clawblox-portal"
_LOOK_S: Final = 1.0
"""Longest delay in seconds before a signal missed by a wait is noticed."""


class _Outcome(Generic[_T]):
    """The result of a coroutine; a thread waits for it, and Ctrl-C ends that wait at any moment.

    A ``Future`` would not do. Its wait misses a signal that arrives while the wait starts. Its
    condition is written in Python: a signal inside it can become a ``RuntimeError``, or leave a
    lock held that the loop then waits for.
    """

    def __init__(self) -> None:
        self.is_known = False
        self._value: _T | None = None
        self._error: BaseException | None = None
        self._waker = threading.Lock()
        self._waker.acquire()

    async def settle(self, function: Callable[[], Awaitable[_T]]) -> None:
        """Run ``function()`` in the loop, and store its outcome; re-raise a cancellation."""
        try:
            self._value = await function()
        except Exception as error:  # noqa: BLE001 - raised in the waiting thread
            self._error = error
        except BaseException as error:
            is_cancelled = isinstance(error, anyio.get_cancelled_exc_class())
            self._error = CancelledError() if is_cancelled else error
            raise
        finally:
            self._end()

    def fail(self, error: BaseException) -> None:
        """Note an error in place of a coroutine that cannot run."""
        self._error = error
        self._end()

    def _end(self) -> None:
        self.is_known = True
        self._waker.release()

    @property
    def has_failed(self) -> bool:
        """True if the coroutine raised an exception."""
        return self._error is not None

    def wait(self) -> _T:
        """Return the result of the coroutine, or raise its exception."""
        while not self.is_known:
            self._waker.acquire(timeout=_LOOK_S)
        if self._error is not None:
            raise self._error
        return cast(_T, self._value)


class _Call(Generic[_T]):
    """A coroutine that another thread waits for but may abandon at any moment."""

    def __init__(self, function: Callable[[], Awaitable[_T]]) -> None:
        self.outcome = _Outcome[_T]()
        self.is_running = False
        self.is_abandoned = False
        self._function = function
        self._scope: anyio.CancelScope | None = None

    async def run(self) -> None:
        """Run the coroutine in the loop unless it has been abandoned."""
        await self.outcome.settle(self._run)

    async def _run(self) -> _T:
        with anyio.CancelScope() as self._scope:
            self.is_running = True
            if not self.is_abandoned:
                return await self._function()
        raise CancelledError

    async def cancel(self) -> None:
        """Cancel the coroutine, in the loop."""
        if self._scope is not None:
            self._scope.cancel()


class _Stay(Generic[_T]):
    """An async context manager that is entered and left in its own task.

    Args:
        manager: The context manager.
        kill_now: Called in the loop when leaving must not take any longer.

    Attributes:
        entered: Outcome of entering.
        left: Outcome of leaving.
    """

    def __init__(
        self, manager: AbstractAsyncContextManager[_T], kill_now: Callable[[], None]
    ) -> None:
        self.entered = _Outcome[_T]()
        self.left = _Outcome[None]()
        self._kill_now = kill_now
        self._manager = manager
        self._reason: BaseException | None = None
        self._may_leave = anyio.Event()

    async def run(self) -> None:
        """Enter the manager, and leave it on request."""
        await self.left.settle(self._run)

    async def _run(self) -> None:
        await self.entered.settle(self._manager.__aenter__)
        if self.entered.has_failed:
            return
        try:
            await self._may_leave.wait()
        finally:
            reason = self._reason
            await self._manager.__aexit__(None if reason is None else type(reason), reason, None)

    async def leave(self, reason: BaseException | None) -> None:
        """Request leaving, in the loop; ``reason`` is the exception that ended the block."""
        self._reason = reason
        self._may_leave.set()

    async def kill(self) -> None:
        """Request leaving immediately, in the loop."""
        self._kill_now()
        await self.leave(None)


class _Loop:
    """An event loop in a separate thread; it starts tasks for other threads."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._asked = deque[tuple[Callable[..., Coroutine[Any, Any, object]], tuple[object, ...]]]()
        self._news = anyio.Event()
        self._is_over = False

    def start_soon(
        self, function: Callable[..., Coroutine[Any, Any, object]], *args: object
    ) -> None:
        """Run ``function(*args)`` in a task; called in another thread."""
        self._asked.append((function, args))
        self._loop.call_soon_threadsafe(self._note)

    def _note(self) -> None:
        self._news.set()

    async def stop(self) -> None:
        """End the loop when all of its tasks have ended."""
        self._is_over = True
        self._note()

    async def run(self) -> None:
        """Start requested calls, until stopped."""
        async with anyio.create_task_group() as tasks:
            while not self._is_over:
                await self._news.wait()
                self._news = anyio.Event()
                while self._asked:
                    function, args = self._asked.popleft()
                    tasks.start_soon(function, *args)


def _be_loop(ready: _Outcome[_Loop]) -> None:
    """Run the loop in this thread; if that fails, pass the error to the waiting thread."""
    try:
        anyio.run(_serve, ready)
    except Exception as error:  # no descriptors, for example
        if ready.is_known:
            raise
        ready.fail(error)


async def _serve(ready: _Outcome[_Loop]) -> None:
    loop = _Loop()

    async def give() -> _Loop:
        return loop

    await ready.settle(give)
    await loop.run()


class Portal:
    """Runs coroutines for threads that have no event loop, or must not block theirs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: _Loop | None = None
        self._open: dict[int, _Stay[Any]] = {}

    def run(self, function: Callable[[], Awaitable[_T]]) -> _T:
        """Run ``function()`` in the loop and wait for it.

        An exception in the waiting thread, usually Ctrl-C, cancels the coroutine and is raised
        once the coroutine has cleaned up; a second Ctrl-C does not wait for that.

        Raises:
            Exception: ``function()`` raised it.
            KeyboardInterrupt: Ctrl-C was pressed.
        """
        call = _Call(function)
        try:
            self._started().start_soon(call.run)
            return call.outcome.wait()
        except BaseException:
            call.is_abandoned = True  # before the check, because it may start at this moment
            if call.is_running and not call.outcome.is_known:
                self._started().start_soon(call.cancel)
                with suppress(Exception):
                    call.outcome.wait()
            raise

    def enter(self, manager: AbstractAsyncContextManager[_T], kill_now: Callable[[], None]) -> _T:
        """Enter an async context manager in a separate task that also leaves it.

        Args:
            manager: The context manager.
            kill_now: Called in the loop when leaving must not take any longer.

        Raises:
            Exception: Entering raised it.
            KeyboardInterrupt: Ctrl-C was pressed; the manager is left at the end of the program.
        """
        stay = _Stay(manager, kill_now)
        self._started().start_soon(stay.run)
        self._open[id(manager)] = stay
        try:
            return stay.entered.wait()
        except Exception:
            del self._open[id(manager)]
            raise

    def leave(
        self, manager: AbstractAsyncContextManager[Any], error: BaseException | None = None
    ) -> None:
        """Leave a context manager; a second call has no effect.

        Args:
            manager: The context manager.
            error: The exception that ends its block; None if the block ends normally.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed; all remaining processes were killed immediately.
            Exception: Leaving raised it.
        """
        found = self._open.pop(id(manager), None)
        if found is not None:
            self._leave(found, error)

    def _leave(self, stay: _Stay[Any], reason: BaseException | None) -> None:
        loop = self._started()
        try:
            loop.start_soon(stay.leave, reason)
            stay.left.wait()
        except KeyboardInterrupt:
            loop.start_soon(stay.kill)
            stay.left.wait()
            raise

    def _started(self) -> _Loop:
        with self._lock:
            if self._loop is None:
                ready = _Outcome[_Loop]()
                thread = threading.Thread(
                    target=_be_loop, args=(ready,), name=_THREAD_NAME, daemon=True
                )
                thread.start()
                self._loop = ready.wait()
                atexit.register(self._close)
            return self._loop

    def _close(self) -> None:
        """Leave everything that is still open, the latest first; Ctrl-C skips the rest."""
        while self._open:
            _, found = self._open.popitem()
            try:
                self._leave(found, _find_last_error())
            except KeyboardInterrupt:
                self._open.clear()
        if self._loop is not None:
            stopped = _Outcome[None]()
            self._loop.start_soon(stopped.settle, self._loop.stop)
            stopped.wait()

    def after_fork(self) -> None:
        """Forget the parent's loop in a forked child, where its thread does not exist."""
        self._lock = threading.Lock()
        self._loop = None
        self._open = {}


def _find_last_error() -> BaseException | None:
    """Return the exception that is ending the program; always None in an interactive shell."""
    is_shell = hasattr(sys, "ps1")
    return None if is_shell else getattr(sys, "last_value", None)


_HIDDEN_MODULES = (
    *(__name__, "anyio", "concurrent.futures"),
    *("clawblox.agents.sync_agent", "clawblox.concurrency.synchronous"),
    *("clawblox.experiment.sync_experiment", "clawblox.team.sync_team"),
    "clawblox.world.sync_world",
)


def without_portal(traceback: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames that carried the call into the loop and back.

    Args:
        traceback: Traceback of an exception raised by :meth:`Portal.run`.
    """
    if traceback is None:
        return None
    rest = without_portal(traceback.tb_next)
    module = str(traceback.tb_frame.f_globals.get("__name__"))
    if module.startswith(_HIDDEN_MODULES):
        return rest
    return TracebackType(rest, traceback.tb_frame, traceback.tb_lasti, traceback.tb_lineno)


portal = Portal()
"""The portal of this process."""

os.register_at_fork(after_in_child=portal.after_fork)
