"""Runs one world in the foreground, from start to end."""

from __future__ import annotations

import signal
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import attrs

from clawblox import protocol
from clawblox.agents.status import read_agents
from clawblox.cli.running.displays import Display
from clawblox.cli.running.runner import run_until_asked
from clawblox.cli.running.slow_work import StartProgress, note_slow_archives
from clawblox.cli.terminal.output import Output, OutputGone, note
from clawblox.cli.terminal.reports import DisplayContainment
from clawblox.concurrency.tasks import Tasks
from clawblox.concurrency.threads import run_blocking
from clawblox.errors import ClawbloxError, PortInUseError, WorldExitedError
from clawblox.results import EventKind, StartedWorld, WorldEvent, describe_ending
from clawblox.rundir.interrupted import can_resume
from clawblox.rundir.status import read_run
from clawblox.telemetry.events import EventStream
from clawblox.views.formatting import format_seconds, suggest
from clawblox.views.rows import summarise
from clawblox.world.async_world import AsyncWorld

if TYPE_CHECKING:
    from clawblox.cli.running.companion import Companion


_TAIL_LINES = 10
_TAIL_COLUMNS = 1000
_DRAIN_TIMEOUT_S = 1.0
_BOTH: Final = ("the agent and the world", "them")

_ENDS: Final[Sequence[EventKind]] = ("exited", "stopped", "gave_up")


@attrs.define(eq=False)
class Foreground:
    """A world that runs as long as this program.

    The first signal stops the world, and its last output is still printed; the second kills it.

    Args:
        world: The world, not open yet.
        run_dir: The run directory.
        start: Starts its instance.
        tokens: Tokens of the world, by variable name; they are masked in all messages.
        grace_seconds: Seconds between TERM and KILL.
        companion: The agent that acts in the world. Its actions are printed in place of the world's
            output, and its end ends the world. None for no agent.

    Attributes:
        contained: Keeps defects of the printer from the world.
    """

    _world: AsyncWorld
    _run_dir: Path
    _start: Callable[[], Awaitable[StartedWorld]]
    _tokens: Mapping[str, str]
    _grace_seconds: float
    _companion: Companion | None
    contained: DisplayContainment = attrs.field(init=False, factory=DisplayContainment)
    _printer: _Printer = attrs.field(init=False)
    _starting: anyio.CancelScope = attrs.field(init=False, factory=anyio.CancelScope)
    _started: StartedWorld | None = attrs.field(init=False, default=None)
    _is_ending: anyio.Event = attrs.field(init=False, factory=anyio.Event)
    _is_signalled: bool = attrs.field(init=False, default=False)
    _is_output_gone: bool = attrs.field(init=False, default=False)
    _is_work_over: bool = attrs.field(init=False, default=False)
    _end: WorldEvent | None = attrs.field(init=False, default=None)
    """The event of the world's end, if this command did not stop it."""

    def __attrs_post_init__(self) -> None:
        self._printer = _Printer(self._world, self._companion, self.contained)

    async def run_until_asked(self) -> int:
        """Run the world to its end.

        Returns:
            The exit status: 128 plus the signal that ended the run, 1 if the output is gone, or 0
            if the agent's work is over or another process stopped the instance.

        Raises:
            ClawbloxError: The world or its agent could not be started, or ended unexpectedly.

        Cancellation: the world is stopped.
        """
        try:
            status = await run_until_asked(self)
        except PortInUseError as error:
            if error.port is None:  # all ports of the range are taken
                raise
            text = f"Port {error.port} is already in use. Try --port <PORT>\n  {error.message}"
            raise ClawbloxError(text) from error
        if status is not None:
            return status
        if self._is_work_over and self._companion is not None:
            self._companion.require_success()
        elif self._started and self._end and self._end.kind != "stopped":
            raise await run_blocking(self._ended_error, self._started, self._end)
        return 0

    def make_display(self) -> Display:
        """Return the display that prints the output."""
        return self._printer

    async def run(self, tasks: Tasks) -> None:
        """Run the world to its end.

        Raises:
            ClawbloxError: The world or its agent could not be started.

        Cancellation: the world is stopped.
        """
        async with self._world, self._world.events() as events, self._companion or nullcontext():
            with self._starting:
                if self._companion is not None:
                    await self._companion.crew.check()
                progress = StartProgress(self._world, self._run_dir, self._tokens.values())
                started = await progress.accompany(self._start)
                self._printer.begin(started)
                tasks.start_soon(self._follow, events, started)
                if self._companion is not None:
                    tasks.start_soon(DisplayContainment().keep_showing, note_slow_archives)
                    await self._companion.begin(started)
                    tasks.start_soon(self._follow_companion, self._companion)
                self._started = started
            await self._is_ending.wait()
            await self._stop_all()

    async def stop(self, number: signal.Signals | None) -> None:
        """Start to stop the world and its agent.

        Cancellation: has no effect.
        """
        self._is_signalled, self._is_output_gone = number is not None, number is None
        if number is not None:
            both, them = ("the world", "it") if self._companion is None else _BOTH
            note(f"\nStopping {both}. A second Ctrl-C kills {them}.")
            self._starting.cancel()
        self._world.interrupt()
        self._is_ending.set()

    async def kill(self) -> None:
        """End the grace of the current stop.

        Cancellation: the grace may continue.
        """
        self._grace_seconds = 0.0
        if self._companion is not None:
            self._companion.crew.kill_now()
        await self._world.stop_all(grace_seconds=0.0)

    async def summarise(self) -> list[str]:
        """Return a summary of a stopped world, with the command that resumes it.

        Cancellation: has no effect.
        """
        if self._started is None or self._is_output_gone:
            return []
        lines: list[str] = []
        if not self._is_signalled and not self._is_work_over:
            if self._end is None or self._end.kind != "stopped":
                return []
            lines = [f"World {self._world.name!r} {describe_ending(self._end.data)}"]
        if self._is_signalled or not self._is_work_over:
            place, name = self._started.run_dir, self._started.name
            lines += await run_blocking(summarise_run, place, [name])
        hint = None if self._companion is None else self._companion.suggest_resume()
        return lines if hint is None else [*lines, hint]

    async def _follow_companion(self, companion: Companion) -> None:
        """Wait for the end of the agent's work."""
        await companion.wait()
        self._is_work_over = not self._is_ending.is_set()
        self._is_ending.set()

    async def _follow(self, events: EventStream, started: StartedWorld) -> None:
        """Wait for the end of the instance, and store its event."""
        async for event in events:
            if event.subject == started.name and event.kind in _ENDS:
                self._end = event
                self._is_ending.set()
                return

    async def _stop_all(self) -> None:
        """Stop the agent, the instance, and forks of it that other commands requested."""
        if self._companion is not None:
            await self._companion.stop(self._grace_seconds)
        stops = await self._world.stop_all(grace_seconds=self._grace_seconds)
        if not self._starting.cancelled_caught:
            # A terminal or pager that has stopped reading must not block the end.
            with anyio.move_on_after(_DRAIN_TIMEOUT_S):
                await self._printer.is_printed.wait()
        for result in stops:
            for process in result.killed:
                note(f"Killed {process}")
        for error in stops.failed.values():
            raise error

    def _ended_error(self, started: StartedWorld, end: WorldEvent) -> WorldExitedError:
        """Return the error for an instance that ended unexpectedly. Blocks."""
        gave_up = end.kind == "gave_up"
        text = (
            f"will not be restarted: {end.data['reason']}" if gave_up else describe_ending(end.data)
        )
        is_resumable = can_resume(started.run_dir, [started.name])
        return WorldExitedError(
            f"World {self._world.name!r} {text}",
            instance=started.name,
            world_dir=self._world.dir,
            command_file=started.command_file,
            log_file=started.log_file,
            url=started.url,
            exit=end.data.get("exit"),
            log_lines=tuple(map(self._mask, self._printer.tail)),
            hint=f"to continue: {suggest('resume', started.run_dir)}" if is_resumable else None,
        )

    def _mask(self, text: str) -> str:
        for value in self._tokens.values():
            text = text.replace(value, protocol.MASK)
        return text


class _Printer(Display):
    """Prints the address, then the output of the world or the actions of its agent.

    Attributes:
        tail: The last lines of the world's output.
        is_printed: Set when all output is printed.
    """

    def __init__(
        self, world: AsyncWorld, companion: Companion | None, contained: DisplayContainment
    ) -> None:
        self.tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self.is_printed = anyio.Event()
        self._world = world
        self._companion = companion
        self._contained = contained
        self._begun = anyio.Event()
        self._started: StartedWorld

    def begin(self, started: StartedWorld) -> None:
        """Start printing; called when the world is ready."""
        self._started = started
        self._begun.set()

    async def run(self) -> None:
        await self._begun.wait()
        try:
            with self._contained, Output(sys.stdout) as output:
                for heading in _headings(self._started, self._world.name):
                    await _write_line(output, heading)
                async with Tasks() as tasks:
                    if self._companion is not None:
                        show = partial(self._companion.show, partial(_write_line, output))
                        tasks.start_soon(self._contained.keep_showing, show)
                    await self._print_log(output)
        finally:
            self.is_printed.set()

    async def _print_log(self, output: Output) -> None:
        """Print the output of the world; with an agent, only store its last lines."""
        async with self._world.logs(instance=self._started.name, follow=True) as lines:
            async for line in lines:
                self.tail.append(line.text[:_TAIL_COLUMNS])
                if self._companion is None:
                    await _write_line(output, line.text)

    async def finish(self, summary: Sequence[str]) -> None:
        for line in summary:
            note(line)


def summarise_run(run_dir: Path, names: Sequence[str]) -> list[str]:
    """Summarise stopped instances, with the command that resumes them. Blocks.

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


async def _write_line(output: Output, text: str) -> None:
    """Write a line; treat a full disk as a lost output."""
    try:
        await output.write_line(text)
    except OSError as error:
        raise OutputGone(error.strerror) from error


def _headings(started: StartedWorld, world: str) -> Iterator[str]:
    yield f"World {world!r} is ready at {started.url} ({format_seconds(started.ready_s)})"
    if started.record_dir is not None:
        yield f"Recording to: {started.record_dir}"
    if started.loaded is not None:
        from clawblox.views.archives import describe_loaded  # takes long to load

        yield from ("", *describe_loaded(started.loaded).splitlines(), "")
