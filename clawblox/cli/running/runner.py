"""Runs a command until its work or a signal ends it: the first signal stops, the second kills."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Protocol, TypeVar

import anyio

from clawblox.cli.running.displays import Display
from clawblox.cli.terminal.output import OutputGone
from clawblox.cli.terminal.reports import DisplayContainment
from clawblox.concurrency.tasks import Tasks

if TYPE_CHECKING:
    from clawblox.cli.running.background import StarterChannel

_T = TypeVar("_T")

_LAST_RESORT_S = 10.0
"""Seconds before this process ends itself. Killing all processes takes a second or two."""


class CommandSignals:
    """Handles INT, TERM and HUP while a command runs; ignores HUP under ``nohup``.

    Attributes:
        first: The first signal that was not refused; None before.
        is_stopping: Whether the command is ending, so that the next signal kills. The command sets
            this if it ends for another reason.
    """

    def __init__(self) -> None:
        self.first: signal.Signals | None = None
        self.is_stopping = False

    @property
    def exit_status(self) -> int | None:
        """Exit status for the signal that ended the command; None if no signal has."""
        return None if self.first is None else 128 + self.first

    async def run_or_cancel(self, work: Callable[[], Awaitable[_T]]) -> _T | None:
        """Run work until it is done or the first signal cancels it.

        Args:
            work: Does the work.

        Returns:
            The value of the work; None if a signal came first, in which case ``exit_status`` is
            set.

        Raises:
            Exception: The exception that the work raised.

        Cancellation: cancels the work.
        """

        async def stop(_number: signal.Signals) -> bool:
            scope.cancel()
            return True

        async with self.obeyed(stop, anyio.sleep_forever):
            with anyio.CancelScope() as scope:
                return await work()
        return None

    @asynccontextmanager
    async def obeyed(
        self, stop: Callable[[signal.Signals], Awaitable[bool]], kill: Callable[[], Awaitable[None]]
    ) -> AsyncIterator[None]:
        """Handle signals while the block runs.

        Args:
            stop: Starts to stop the work. It may return False for a signal that does not end it.
            kill: Kills the work.

        Cancellation: the earlier handlers are restored.
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


class Work(Protocol):
    """Work of a command that runs until it is done or asked to end.

    Attributes:
        contained: Keeps defects of the display from the work.
    """

    contained: DisplayContainment

    def make_display(self) -> Display:
        """Return the display of the work; called when the work is open."""

    async def run(self, tasks: Tasks) -> None:
        """Run the work to its end.

        Args:
            tasks: Group for tasks that end with the work.

        Cancellation: the work is stopped.
        """

    async def stop(self, number: signal.Signals | None) -> None:
        """Stop the work.

        Args:
            number: The signal that asked for the end; None if the output is gone.

        Cancellation: the work may continue.
        """

    async def kill(self) -> None:
        """End the work immediately.

        Cancellation: the work may continue.
        """

    async def summarise(self) -> Sequence[str]:
        """Return the last lines of the output.

        Cancellation: has no effect.
        """


async def run_until_asked(
    work: Work,
    opened: AbstractAsyncContextManager[object] | None = None,
    starter: StarterChannel | None = None,
) -> int | None:
    """Run work to its end, or until a signal or the loss of the output ends it.

    Args:
        work: The work.
        opened: Block around the work; it does not run if a signal arrives before it is entered.
        starter: Channel to the command that spawned this process in the background; None if it
            runs in the foreground.

    Returns:
        The exit status: 128 plus the signal that ended the work, or 1 if the output is gone; None
        if the work is done.

    Raises:
        Exception: The exception that the work raised.

    Cancellation: the work is stopped.
    """
    signals = CommandSignals()
    asked, is_over = anyio.Event(), False
    asked_by: signal.Signals | None = None

    async def ask(number: signal.Signals) -> bool:
        nonlocal asked_by
        asked_by = number
        asked.set()
        return True

    async def kill() -> None:
        if not is_over:
            await work.kill()

    async def show() -> None:
        try:
            await work.contained.keep_showing(display.run)
        except OutputGone:
            signals.is_stopping = True
            asked.set()

    async def end() -> None:
        await asked.wait()
        await work.stop(asked_by)

    async with signals.obeyed(ask, kill), AsyncExitStack() as stack:
        if starter is not None:
            stack.push_async_callback(starter.finish)
        await stack.enter_async_context(opened or nullcontext())
        display = work.make_display()
        if not asked.is_set():
            try:
                async with Tasks() as tasks:
                    for task in (show, end, *([] if starter is None else [starter.run])):
                        tasks.start_soon(task)
                    await work.run(tasks)
            except BaseException:
                with work.contained:
                    await display.clear()
                raise
            is_over = True
            with work.contained:
                await display.finish(await work.summarise())
    return signals.exit_status or (1 if asked.is_set() else None)


def _end_at_last(number: signal.Signals) -> None:
    """End this process in ten seconds, even if one of its threads is stuck.

    The guard then ends all remaining processes.
    """
    # Imported here because most commands read no keys.
    from clawblox.cli.terminal.keyboard import restore_terminal

    def end(_number: int, _frame: object) -> None:
        restore_terminal()
        os.write(2, b"Error: a part of this process did not end; killed\n")
        os._exit(128 + number)

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, _LAST_RESORT_S)
