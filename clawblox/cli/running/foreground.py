"""One world from its start to its end, and the signals that end it."""

from __future__ import annotations

import os
import secrets
import signal
import sys
from collections import deque
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import anyio

from clawblox import protocol
from clawblox.agents.status import read_agents
from clawblox.cli.running.start_progress import StartProgress
from clawblox.cli.terminal.output import Output, OutputGone, note
from clawblox.concurrency.tasks import Tasks
from clawblox.concurrency.threads import run_blocking
from clawblox.config.world_toml import read_world_config
from clawblox.errors import ClawbloxError, PortInUseError, WorldExitedError
from clawblox.results import EventKind, StartedWorld, WorldEvent
from clawblox.rundir.interrupted import can_resume
from clawblox.rundir.status import own_start, read_run
from clawblox.telemetry.events import EventStream
from clawblox.views.event_lines import describe_end
from clawblox.views.formatting import format_seconds, suggest
from clawblox.views.summary import summarise
from clawblox.world.async_world import AsyncWorld

if TYPE_CHECKING:
    from clawblox.cli.running.companion import Companion


_TOKEN_BYTES = 32
_TAIL_LINES = 10
_TAIL_COLUMNS = 1000
_DRAIN_TIMEOUT_S = 1.0
_LAST_RESORT_S = 10.0
"""Killing everything takes a second or two; what takes longer is stuck."""

_ENDS: Final[Mapping[EventKind, Callable[[Mapping[str, Any]], str]]] = {
    "exited": describe_end,
    "stopped": lambda detail: f"was stopped by another process: {detail['exit']}",
    "gave_up": lambda detail: f"will not be restarted: {detail['reason']}",
}

_Start: TypeAlias = Callable[[], Awaitable[StartedWorld]]


class Foreground:
    """A world that lives as long as this program.

    The first signal stops it, and its last output is still printed; the second one kills it.

    Args:
        world: The world, not open yet.
        start: Starts its instance.
        progress: Shows how the start is going.
        grace: Seconds between TERM and KILL.
        hidden: Values to mask in messages.
        companion: The agent that acts in it, whose doings are printed in place of the world's
            output; None for none. Its end is that of the world.
    """

    _end: WorldEvent
    """The event of its end, if it was not stopped here."""

    def __init__(
        self,
        world: AsyncWorld,
        start: _Start,
        progress: StartProgress,
        *,
        grace: float,
        hidden: Collection[str],
        companion: Companion | None = None,
    ) -> None:
        self._world = world
        self._start = start
        self._progress = progress
        self._grace = grace
        self._hidden = hidden
        self._companion = companion
        self._signals: list[signal.Signals] = []
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._is_output_gone = False
        self._is_work_over = False

    async def run(self) -> int:
        """Run the world to its end.

        Returns:
            The exit status: 128 and the signal that asked for the end, 1 when the output is gone,
            or 0 when the agent's work is over or another process stopped the instance.

        Raises:
            ClawbloxError: The world or its agent could not be started, or ended by itself.

        Cancellation: the world is stopped.
        """
        self._starting = anyio.CancelScope()
        self._is_ending = anyio.Event()
        self._is_printed = anyio.Event()
        with anyio.open_signal_receiver(*stop_signals()) as received:
            async with (
                Tasks() as tasks,
                self._world,
                self._world.events() as events,
                self._companion or nullcontext(),
            ):
                tasks.start_soon(self._obey, received)
                with self._starting:
                    if self._companion is not None:
                        await self._companion.check()
                    started = await self._progress.accompany(self._start)
                    tasks.start_soon(self._print_output, started)
                    tasks.start_soon(self._follow, events, started)
                    if self._companion is not None:
                        await self._companion.begin(started)
                        tasks.start_soon(self._follow_companion, self._companion)
                if self._starting.cancelled_caught:
                    self._is_printed.set()
                await self._is_ending.wait()
                await self._stop()
        if self._signals:
            if not self._starting.cancelled_caught:
                for line in await run_blocking(summarise_run, started.run_dir, [started.name]):
                    note(line)
                self._suggest_resume()
            return 128 + self._signals[0]
        if self._is_output_gone:
            return 1
        if self._is_work_over and self._companion is not None:
            self._suggest_resume()
            self._companion.require_success()
            return 0
        if self._end.kind == "stopped":
            note(f"World {self._world.name!r} {_ENDS['stopped'](self._end.data)}")
            for line in await run_blocking(summarise_run, started.run_dir, [started.name]):
                note(line)
            self._suggest_resume()
            return 0
        raise await run_blocking(self._ended_error, started)

    def _suggest_resume(self) -> None:
        if self._companion is not None and (hint := self._companion.suggest_resume()):
            note(hint)

    @property
    def _farewell(self) -> str:
        if self._companion is None:
            return "\nStopping the world. A second Ctrl-C kills it."
        return "\nStopping the agent and the world. A second Ctrl-C kills them."

    async def _obey(self, received: AsyncIterator[signal.Signals]) -> None:
        """Stop the world at the first signal, kill it at the second."""
        async for number in received:
            self._signals.append(number)
            if len(self._signals) == 1:
                note(self._farewell)
                self._world._interrupt()
                self._starting.cancel()
                self._is_ending.set()
            else:
                end_at_last(number)
                # Shortens the grace of the stop under way, which prints what was killed.
                if self._companion is not None:
                    self._companion.kill_now()
                await self._world.stop_all(grace_seconds=0.0)

    async def _print_output(self, started: StartedWorld) -> None:
        """Print the address, then what the world writes, until it has ended."""
        try:
            with Output(sys.stdout) as output:
                for heading in _headings(started, self._world.name):
                    await output.write_line(heading)
                async with Tasks() as tasks:
                    if self._companion is not None:
                        tasks.start_soon(self._print_companion, self._companion, output)
                    await self._print_log(started, output)
        except (OutputGone, OSError):
            self._end_without_output()
        self._is_printed.set()

    async def _print_log(self, started: StartedWorld, output: Output) -> None:
        """Print what the world writes, or only remember the end of it beside an agent's doings."""
        async with self._world.logs(instance=started.name, follow=True) as lines:
            async for line in lines:
                self._tail.append(line.text[:_TAIL_COLUMNS])
                if self._companion is None:
                    await output.write_line(line.text)

    async def _print_companion(self, companion: Companion, output: Output) -> None:
        try:
            await companion.show(output.write_line)
        except (OutputGone, OSError):
            self._end_without_output()

    def _end_without_output(self) -> None:
        self._is_output_gone = True
        self._world._interrupt()
        self._is_ending.set()

    async def _follow_companion(self, companion: Companion) -> None:
        """Wait for the end of the agent's work."""
        await companion.wait()
        self._is_work_over = not self._is_ending.is_set()
        self._is_ending.set()

    async def _follow(self, events: EventStream, started: StartedWorld) -> None:
        """Wait for the end of the instance, and keep its event."""
        async for event in events:
            if event.subject == started.name and event.kind in _ENDS:
                self._end = event
                self._is_ending.set()
                return

    async def _stop(self) -> None:
        """Stop the agent, the instance, and the forks that another command asked this one for."""
        if self._companion is not None:
            await self._companion.stop(self._grace if len(self._signals) < 2 else 0.0)
        grace = self._grace if len(self._signals) < 2 else 0.0
        stops = await self._world.stop_all(grace_seconds=grace)
        # A terminal or a pager that reads no further must not keep us here.
        with anyio.move_on_after(_DRAIN_TIMEOUT_S):
            await self._is_printed.wait()
        for result in stops:
            for process in result.killed:
                note(f"Killed {process}")
        for error in stops.failed.values():
            raise error

    def _ended_error(self, started: StartedWorld) -> WorldExitedError:
        """Return the error of an instance that was not stopped here. Blocks."""
        text = _ENDS[self._end.kind](self._end.data)
        is_resumable = can_resume(started.run_dir, [started.name])
        return WorldExitedError(
            f"World {self._world.name!r} {text}",
            instance=started.name,
            world_dir=self._world.dir,
            command_file=started.command_file,
            log_file=started.log_file,
            url=started.url,
            exit=self._end.data.get("exit"),
            log_lines=tuple(self._mask(line) for line in self._tail),
            hint=f"to go on: {suggest('resume', started.run_dir)}" if is_resumable else None,
        )

    def _mask(self, text: str) -> str:
        for value in self._hidden:
            text = text.replace(value, protocol.MASK)
        return text


def summarise_run(run_dir: Path, names: Sequence[str]) -> list[str]:
    """Return how instances that were stopped ended, and what to type to continue. Blocks.

    Args:
        run_dir: Their run directory, resolved.
        names: Their names.
    """
    return summarise(
        run_dir,
        read_run(run_dir, names).instances,
        agents=read_agents(run_dir),
        stopped=names,
        may_resume=True,
        can_resume=can_resume(run_dir, names),
    )


def stop_signals() -> list[signal.Signals]:
    """Return the signals that end a command; HUP is not one of them under ``nohup``."""
    is_hup_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, *([] if is_hup_ignored else [signal.SIGHUP])]


def end_at_last(number: signal.Signals) -> None:
    """End this process in ten seconds, even if a thread of it is stuck; for a second signal.

    The guard then ends what still runs.

    Args:
        number: The signal, which the exit status tells.
    """

    def end(_number: int, _frame: object) -> None:
        os.write(2, b"Error: a part of this process did not end; killed\n")
        os._exit(128 + number)

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, _LAST_RESORT_S)


def _headings(started: StartedWorld, world: str) -> Iterator[str]:
    yield f"World {world!r} is ready at {started.url} ({format_seconds(started.ready_s)})"
    if started.record_dir is not None:
        yield f"Recording to: {started.record_dir}"
    if started.loaded is not None:
        from clawblox.views.archives import describe_loaded  # takes long to load

        yield from ("", *describe_loaded(started.loaded).splitlines(), "")


def make_tokens() -> dict[str, str]:
    """Return the world's tokens: from the environment where it has them, else new ones."""
    return {
        name: os.environ.get(name, "").strip() or secrets.token_urlsafe(_TOKEN_BYTES)
        for name in protocol.SECRET_ENV
    }


def run_world(
    world: AsyncWorld,
    run_dir: Path,
    start: Callable[[], Awaitable[StartedWorld]],
    *,
    tokens: Mapping[str, str],
    grace: float,
    companion: Companion | None,
    waiting: Callable[[], str] = lambda: "waiting for the port",
) -> int:
    """Run a world to its end, and return the exit status.

    Args:
        world: The world, not open yet.
        run_dir: The run directory.
        start: Starts its instance.
        tokens: Its tokens, by the names of their variables; they are masked in what is printed.
        grace: Seconds between TERM and KILL.
        companion: The agent that acts in it; None for none.
        waiting: Returns what the start waits for as long as there is no process. Blocks.

    Raises:
        ClawbloxError: The world or its agent could not be started, or ended by itself.
    """
    progress = StartProgress(
        world.name,
        partial(own_start, run_dir),
        read_world_config(world.dir).ready,
        tokens.values(),
        waiting=waiting,
    )
    foreground = Foreground(
        world, start, progress, grace=grace, hidden=tokens.values(), companion=companion
    )
    try:
        return anyio.run(foreground.run)
    except PortInUseError as error:
        if error.port is None:  # not one port, but all that could be leased
            raise
        text = f"Port {error.port} is already in use. Try --port <PORT>\n  {error.message}"
        raise ClawbloxError(text) from error
