"""The signals that end a command: the first stops its worlds, the second kills them."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio

from clawblox.concurrency.tasks import Tasks
from clawblox.results import ProcessExit

_LAST_RESORT_S = 10.0
"""Killing everything takes a second or two; whatever takes longer is stuck."""


class CommandSignals:
    """INT, TERM and HUP while a command runs; HUP is left alone under ``nohup``.

    Attributes:
        first: The first signal that was not refused; None before it.
        is_stopping: Whether the command is ending, so that the next signal kills. The command sets
            it where it ends for another reason.
    """

    def __init__(self) -> None:
        self.first: signal.Signals | None = None
        self.is_stopping = False

    @property
    def exit_status(self) -> int | None:
        """The exit status of a command that a signal has ended; None before."""
        return None if self.first is None else 128 + self.first

    @asynccontextmanager
    async def cancelling(self) -> AsyncIterator[anyio.CancelScope]:
        """Yield a scope that the first signal cancels; ``exit_status`` is then known.

        Cancellation: the signals have their former effect again.
        """
        scope = anyio.CancelScope()

        async def stop(_number: signal.Signals) -> bool:
            scope.cancel()
            return True

        async with self.obeyed(stop, anyio.sleep_forever):
            yield scope

    @asynccontextmanager
    async def obeyed(
        self, stop: Callable[[signal.Signals], Awaitable[bool]], kill: Callable[[], Awaitable[None]]
    ) -> AsyncIterator[None]:
        """Obey signals while the block runs.

        Args:
            stop: Begins to stop everything. It may return False for a signal that ends nothing.
            kill: Kills everything.

        Cancellation: the signals have their former effect again.
        """
        is_hup_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        numbers = [signal.SIGINT, signal.SIGTERM, *([] if is_hup_ignored else [signal.SIGHUP])]

        async def obey() -> None:
            async for number in received:
                if self.is_stopping:
                    self.first = self.first or number
                    _end_at_last(number)
                    await kill()
                elif await stop(number):
                    self.first, self.is_stopping = number, True

        with anyio.open_signal_receiver(*numbers) as received:
            async with Tasks() as tasks:
                tasks.start_soon(obey)
                yield


def shell_status(end: ProcessExit) -> int:
    """Return the exit status with which a shell reports an end; 1 if that is unknown."""
    if end.signal is not None:
        real_time = end.signal.removeprefix("signal ")  # these have no names
        return 128 + (int(real_time) if real_time.isdigit() else signal.Signals[end.signal])
    return 1 if end.status is None else end.status


def _end_at_last(number: signal.Signals) -> None:
    """End this process in ten seconds, even if one of its threads is stuck.

    The guard then ends whatever still runs.
    """

    def end(_number: int, _frame: object) -> None:
        os.write(2, b"Error: a part of this process did not end; killed\n")
        os._exit(128 + number)

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, _LAST_RESORT_S)
