"""``progress=``: reports the progress of a long operation on a line or to the caller's function.

The option has one meaning everywhere: True shows a line on standard error, a function is called
with the amount done and the total, in instances or bytes, and False turns progress off.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import TypeAlias, TypeVar

import anyio

from clawblox.concurrency.threads import run_blocking, run_interruptible

_T = TypeVar("_T")

Report: TypeAlias = Callable[[int, int], object]
"""Takes the amount done and the total. An exception from it ends the operation."""

ProgressLike: TypeAlias = bool | Report
"""True shows a line; a function is called; False turns progress off."""

Advance: TypeAlias = Callable[[bool], None]
"""Counts an instance whose operation has finished; takes whether it failed."""

_DELAY_S = 0.3
"""Minimum duration of an operation that shows a line, in seconds."""
_REFRESHES_PER_SECOND = 5


@contextmanager
def reporting(verb: str, progress: ProgressLike) -> Iterator[Report | None]:
    """Report the number of bytes done while the block runs. Blocks briefly.

    Args:
        verb: The activity, for example ``Saving``.
        progress: The option.

    Yields:
        The function to call with the bytes done and the total; None for no calls.
    """
    if callable(progress):
        yield progress
    elif progress:
        line = _Line(verb, in_bytes=True)
        try:
            yield line.report
        finally:
            line.finish()
    else:
        yield None


class _Interrupted(Exception):  # noqa: N818 - names the condition; it never leaves this module
    """The caller no longer waits for the operation."""


async def run_with_progress(
    function: Callable[[Report], _T], progress: ProgressLike = False, verb: str = ""
) -> _T:
    """Run ``function(hook)`` in a worker thread; a cancellation makes the hook raise.

    Args:
        function: A blocking function that calls the hook with bytes done and the total.
        progress: Reports the same numbers, from the worker thread.
        verb: The action, for a line of progress: ``Saving``.

    Raises:
        Exception: Any exception of the function.

    Cancellation: waits for the function; it ends when it next calls the hook.
    """
    is_cancelled = threading.Event()

    def run() -> _T:
        with reporting(verb, progress) as report:

            def hook(done: int, total: int) -> None:
                if is_cancelled.is_set():
                    raise _Interrupted
                if report is not None:
                    report(done, total)

            return function(hook)

    return await run_interruptible(run, is_cancelled.set)


@asynccontextmanager
async def counting(verb: str, total: int, progress: ProgressLike) -> AsyncIterator[Advance]:
    """Report the number of instances done while the block runs.

    Args:
        verb: The activity, for example ``Starting``.
        total: Number of instances.
        progress: The option.

    Yields:
        The function that counts; it never raises.

    Raises:
        Exception: ``progress`` raised it; the block was cancelled.

    Cancellation: the line is finished.
    """
    if not progress or not total:
        yield lambda _is_failed: None
    elif callable(progress):
        calls = _Calls(progress, total)
        with calls.scope:
            yield calls.advance
        if calls.error is not None:
            raise calls.error
    else:
        line = await run_blocking(partial(_Line, verb, in_bytes=False, total=total))
        try:
            yield line.advance
        finally:
            with anyio.CancelScope(shield=True):
                await run_blocking(line.finish)


class _Calls:
    """Calls the function of the caller until it raises, which cancels ``scope``."""

    def __init__(self, report: Report, total: int) -> None:
        self.scope = anyio.CancelScope()
        self.error: Exception | None = None
        self._report = report
        self._total = total
        self._done = 0

    def advance(self, _is_failed: bool) -> None:
        if self.error is not None:
            return
        self._done += 1
        try:
            self._report(self._done, self._total)
        except Exception as error:  # noqa: BLE001 - raised at the end of the block
            self.error = error
            self.scope.cancel()


class _Line:
    """A line on standard error, in a terminal or a notebook."""

    def __init__(self, verb: str, *, in_bytes: bool, total: int | None = None) -> None:
        # It loads slowly, and most programs show no line.
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
        )

        console = Console(stderr=True)
        self._verb = verb
        self._failed = 0
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn() if in_bytes else MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            refresh_per_second=_REFRESHES_PER_SECOND,
            disable=not (console.is_terminal or console.is_jupyter),
        )
        self._task = self._bar.add_task(verb, total=total)
        self._delay = threading.Timer(_DELAY_S, self._bar.start)
        self._delay.daemon = True
        self._delay.start()

    def report(self, done: int, total: int) -> None:
        self._bar.update(self._task, completed=done, total=total or None)

    def advance(self, is_failed: bool) -> None:
        self._failed += is_failed
        failures = f", {self._failed} failed" if self._failed else ""
        self._bar.update(self._task, advance=1, description=f"{self._verb}{failures}")

    def finish(self) -> None:
        self._delay.cancel()
        self._delay.join()
        if self._bar.live.is_started:
            with suppress(OSError, ValueError):  # the terminal hung up, or the stream was closed
                self._bar.stop()
