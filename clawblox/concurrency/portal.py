"""The portal: an event loop in a daemon thread, shared by every sync facade of the process.

It starts at the first call that needs it. At the end of the interpreter it closes what is
still open, worlds before the loop. Ctrl-C during that kills the world that is being stopped and
leaves the others to the guard.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import TracebackType
from typing import Any, Generic, TypeVar

import anyio
from anyio.from_thread import BlockingPortal

_T = TypeVar("_T")
_THREAD_NAME = "clawblox-portal"


class _Call(Generic[_T]):
    """A coroutine that another thread waits for, and may abandon at any moment."""

    def __init__(self, function: Callable[[], Awaitable[_T]]) -> None:
        self.is_running = False
        self.is_over = threading.Event()
        self.is_abandoned = False
        self._function = function
        self._scope: anyio.CancelScope | None = None

    async def run(self) -> _T:
        """Run it in the loop, unless it has been abandoned."""
        with anyio.CancelScope() as self._scope:
            self.is_running = True
            try:
                if not self.is_abandoned:
                    return await self._function()
            finally:
                self.is_running = False
                self.is_over.set()
        raise CancelledError

    async def cancel(self) -> None:
        """Cancel it, in the loop."""
        if self._scope is not None:
            self._scope.cancel()


class Portal:
    """Runs coroutines for threads that have no event loop, or must not block theirs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._portal: BlockingPortal | None = None
        self._open: dict[int, tuple[AbstractContextManager[Any], Callable[[], None]]] = {}

    def run(self, function: Callable[[], Awaitable[_T]]) -> _T:
        """Run ``function()`` in the loop and wait for it.

        An exception in the waiting thread, usually Ctrl-C, cancels the coroutine and is raised
        once the coroutine has cleaned up; a second Ctrl-C does not wait for that.

        Raises:
            Exception: Whatever ``function()`` raises.
            KeyboardInterrupt: Ctrl-C was pressed.
        """
        call = _Call(function)
        try:
            return self._started().start_task_soon(call.run).result()
        except BaseException:
            if call.is_running:
                self._started().start_task_soon(call.cancel)
                call.is_over.wait()
            call.is_abandoned = True
            raise

    def enter(self, manager: AbstractAsyncContextManager[_T], kill_now: Callable[[], None]) -> _T:
        """Enter an async context manager, in a task of its own that also leaves it.

        Args:
            manager: The context manager.
            kill_now: Called in the loop when leaving must not take any longer.

        Raises:
            Exception: Whatever entering raises.
        """
        blocking = self._started().wrap_async_context_manager(manager)
        value = blocking.__enter__()
        self._open[id(manager)] = blocking, kill_now
        return value

    def leave(
        self, manager: AbstractAsyncContextManager[Any], error: BaseException | None = None
    ) -> None:
        """Leave a context manager; a second call does nothing.

        Args:
            manager: The context manager.
            error: The exception that ends its block; None if the block ends normally.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed: what still lived was killed at once.
            Exception: Whatever leaving raises.
        """
        found = self._open.pop(id(manager), None)
        if found is not None:
            self._leave(*found, error)

    def _leave(
        self,
        blocking: AbstractContextManager[Any],
        kill_now: Callable[[], None],
        error: BaseException | None,
    ) -> None:
        try:
            blocking.__exit__(None if error is None else type(error), error, None)
        except KeyboardInterrupt:
            self._started().call(kill_now)
            blocking.__exit__(None, None, None)  # waits again, now for the kill
            raise

    def _started(self) -> BlockingPortal:
        with self._lock:
            if self._portal is None:
                ready: Future[BlockingPortal] = Future()
                thread = threading.Thread(
                    target=anyio.run, args=(_serve, ready), name=_THREAD_NAME, daemon=True
                )
                thread.start()
                self._portal = ready.result()
                atexit.register(self._close)
            return self._portal

    def _close(self) -> None:
        """Leave everything that is still open, the latest first; Ctrl-C skips the rest."""
        while self._open:
            _, found = self._open.popitem()
            try:
                self._leave(*found, _find_last_error())
            except KeyboardInterrupt:
                self._open.clear()
        if self._portal is not None:
            self._portal.call(self._portal.stop)

    def after_fork(self) -> None:
        """Forget the parent's loop in a forked child, where its thread does not exist."""
        self._lock = threading.Lock()
        self._portal = None
        self._open = {}


def _find_last_error() -> BaseException | None:
    """Return the exception that ends the program, if one does; in a shell it ends nothing."""
    is_shell = hasattr(sys, "ps1")
    return None if is_shell else getattr(sys, "last_value", None)


async def _serve(ready: Future[BlockingPortal]) -> None:
    async with BlockingPortal() as blocking:
        ready.set_result(blocking)
        await blocking.sleep_until_stopped()


_HIDDEN_MODULES = (
    *(__name__, "anyio", "concurrent.futures"),
    *("clawblox.agents.sync_agent", "clawblox.concurrency.synchronous"),
    "clawblox.world.sync_world",
)


def without_portal(traceback: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames that carried the call into the loop and back.

    Args:
        traceback: What an exception brought out of :meth:`Portal.run`.
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
