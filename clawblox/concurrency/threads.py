"""Blocking work in worker threads, one piece or many, also when the interpreter is about to end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar, cast

import anyio
import anyio.lowlevel
import anyio.to_thread
import attrs

from clawblox.concurrency.tasks import in_own_task, outlast

__all__ = ["Batcher", "current_batcher", "run_blocking"]

_T = TypeVar("_T")

_THREADS = 4
"""So many threads share the pieces of one batch."""


async def run_blocking(
    function: Callable[..., _T], *args: object, limiter: anyio.CapacityLimiter | None = None
) -> _T:
    """Run ``function(*args)`` in a worker thread and return what it returns.

    Where no thread can be started, it runs in the event loop itself. That is so while the
    interpreter ends, from Python 3.12 on, and it is just then that worlds have to be stopped.

    Args:
        function: What blocks.
        *args: Its arguments.
        limiter: How many may run at once; None shares anyio's own limit.

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


class Batcher:
    """Runs small pieces of blocking work; those that come together share a few worker threads.

    A hop into a thread and back costs more than the work of a few system calls, and so does every
    further thread that wants the interpreter. Several wait for the disk better than one, though.
    """

    def __init__(self) -> None:
        self._waiting: list[_Piece[Any]] = []
        self._is_running = False

    async def run(self, function: Callable[..., _T], *args: object) -> _T:
        """Run ``function(*args)``, together with what others ask for; return what it returns.

        Cancellation: waits for the function.
        """
        piece: _Piece[_T] = _Piece(partial(function, *args))
        self._waiting.append(piece)
        if not self._is_running:
            self._is_running = True
            await in_own_task(self._run_waiting)  # for the others too, whatever befalls the caller
        await outlast(piece.is_done)
        if piece.error is not None:
            raise piece.error
        return cast(_T, piece.value)

    async def _run_waiting(self) -> None:
        with anyio.CancelScope(shield=True):
            while self._waiting:
                await anyio.lowlevel.checkpoint()  # for those who come in the same moment
                pieces, self._waiting = self._waiting, []
                async with anyio.create_task_group() as threads:
                    for first in range(_THREADS):
                        if share := pieces[first::_THREADS]:
                            threads.start_soon(_run_in_thread, share)
        self._is_running = False


@attrs.define(eq=False)
class _Piece(Generic[_T]):
    function: Callable[[], _T]
    value: _T | None = None
    error: Exception | None = None
    is_done: anyio.Event = attrs.field(factory=anyio.Event)


async def _run_in_thread(pieces: Sequence[_Piece[Any]]) -> None:
    await run_blocking(_run_all, pieces)
    for piece in pieces:
        piece.is_done.set()


def _run_all(pieces: Iterable[_Piece[Any]]) -> None:
    for piece in pieces:
        try:
            piece.value = piece.function()
        except Exception as error:  # noqa: BLE001 - it belongs to whoever asked
            piece.error = error


_batcher: anyio.lowlevel.RunVar[Batcher] = anyio.lowlevel.RunVar("clawblox_batcher")


def current_batcher() -> Batcher:
    """Return the batcher of the running event loop."""
    batcher = _batcher.get(None)
    if batcher is None:
        batcher = Batcher()
        _batcher.set(batcher)
    return batcher
