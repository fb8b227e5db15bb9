"""One world from its start to its end."""

from __future__ import annotations

import signal
import sys
from collections import deque
from collections.abc import (
    Awaitable,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
import attrs

from clawblox import protocol
from clawblox.agents.status import read_agents
from clawblox.cli.running.command_signals import CommandSignals
from clawblox.cli.running.slow_archives import note_slow_archives
from clawblox.cli.running.start_progress import StartProgress
from clawblox.cli.terminal.containment import DisplayContainment
from clawblox.cli.terminal.output import Output, OutputGone, note
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

_ENDS: Final[Mapping[EventKind, Callable[[Mapping[str, Any]], str]]] = {
    "exited": describe_ending,
    "stopped": describe_ending,
    "gave_up": lambda detail: f"will not be restarted: {detail['reason']}",
}


@attrs.define(eq=False)
class Foreground:
    """A world that lives as long as this program.

    The first signal stops it, and its last output is still printed; the second one kills it.

    Args:
        world: The world, not open yet.
        run_dir: The run directory.
        start: Starts its instance.
        tokens: Its tokens, by the names of their variables; they are masked in all messages.
        grace_seconds: Seconds between TERM and KILL.
        companion: The agent that acts in it, whose actions are printed in place of the world's
            output, and whose end ends the world; None for none.
    """

    _world: AsyncWorld
    _run_dir: Path
    _start: Callable[[], Awaitable[StartedWorld]]
    _tokens: Mapping[str, str]
    _grace_seconds: float
    _companion: Companion | None
    _signals: CommandSignals = attrs.field(init=False, factory=CommandSignals)
    _starting: anyio.CancelScope = attrs.field(init=False, factory=anyio.CancelScope)
    _is_ending: anyio.Event = attrs.field(init=False, factory=anyio.Event)
    _is_printed: anyio.Event = attrs.field(init=False, factory=anyio.Event)
    _tail: deque[str] = attrs.field(init=False, factory=lambda: deque(maxlen=_TAIL_LINES))
    _contained: DisplayContainment = attrs.field(init=False, factory=DisplayContainment)
    _is_output_gone: bool = attrs.field(init=False, default=False)
    _is_work_over: bool = attrs.field(init=False, default=False)
    _end: WorldEvent = attrs.field(init=False)
    """The event of its end, if it was not stopped here."""

    async def run(self) -> int:
        """Run the world to its end.

        Returns:
            The exit status: 128 and the signal that asked for the end, 1 when the output is gone,
            or 0 when the agent's work is over or another process stopped the instance.

        Raises:
            ClawbloxError: The world or its agent could not be started, or ended by itself.

        Cancellation: the world is stopped.
        """
        try:
            async with self._signals.obeyed(self._obey, self._kill):
                started = await self._run()
        except PortInUseError as error:
            if error.port is None:  # every port that could be leased is taken
                raise
            text = f"Port {error.port} is already in use. Try --port <PORT>\n  {error.message}"
            raise ClawbloxError(text) from error
        return await self._finish(started)

    async def _run(self) -> StartedWorld | None:
        """Run the world, and return its start; None if a signal interrupted that."""
        started = None
        async with (
            Tasks() as tasks,
            self._world,
            self._world.events() as events,
            self._companion or nullcontext(),
        ):
            with self._starting:
                if self._companion is not None:
                    await self._companion.crew.check()
                progress = StartProgress(self._world, self._run_dir, self._tokens.values())
                started = await progress.accompany(self._start)
                tasks.start_soon(self._print_output, started)
                tasks.start_soon(self._follow, events, started)
                if self._companion is not None:
                    tasks.start_soon(DisplayContainment().keep_showing, note_slow_archives)
                    await self._companion.begin(started)
                    tasks.start_soon(self._follow_companion, self._companion)
            if self._starting.cancelled_caught:
                self._is_printed.set()
            await self._is_ending.wait()
            await self._stop()
        return None if self._starting.cancelled_caught else started

    async def _finish(self, started: StartedWorld | None) -> int:
        """Print how the world ended, and return the exit status."""
        if self._signals.exit_status is not None:
            if started is not None:
                await self._print_summary(started)
            return self._signals.exit_status
        if self._is_output_gone:
            return 1
        assert started is not None
        if self._is_work_over and self._companion is not None:
            self._suggest_resume()
            self._companion.require_success()
            return 0
        if self._end.kind == "stopped":
            note(f"World {self._world.name!r} {_ENDS['stopped'](self._end.data)}")
            await self._print_summary(started)
            return 0
        raise await run_blocking(self._ended_error, started)

    async def _print_summary(self, started: StartedWorld) -> None:
        for line in await run_blocking(summarise_run, started.run_dir, [started.name]):
            note(line)
        self._suggest_resume()

    def _suggest_resume(self) -> None:
        if self._companion is not None and (hint := self._companion.suggest_resume()):
            note(hint)

    async def _obey(self, _number: signal.Signals) -> bool:
        """Begin to stop the world and its agent."""
        both, them = ("the world", "it") if self._companion is None else _BOTH
        note(f"\nStopping {both}. A second Ctrl-C kills {them}.")
        self._world.interrupt()
        self._starting.cancel()
        self._is_ending.set()
        return True

    async def _kill(self) -> None:
        """End the grace of the stop under way."""
        self._grace_seconds = 0.0
        if self._companion is not None:
            self._companion.crew.kill_now()
        await self._world.stop_all(grace_seconds=0.0)

    async def _print_output(self, started: StartedWorld) -> None:
        """Print the address, then the output of the world, until it has ended."""
        try:
            with self._contained, Output(sys.stdout) as output:
                for heading in _headings(started, self._world.name):
                    await _write_line(output, heading)
                async with Tasks() as tasks:
                    if self._companion is not None:
                        tasks.start_soon(self._print_companion, self._companion, output)
                    await self._print_log(started, output)
        except OutputGone:
            self._end_without_output()
        self._is_printed.set()

    async def _print_log(self, started: StartedWorld, output: Output) -> None:
        """Print the output of the world; with an agent, only keep its last lines."""
        async with self._world.logs(instance=started.name, follow=True) as lines:
            async for line in lines:
                self._tail.append(line.text[:_TAIL_COLUMNS])
                if self._companion is None:
                    await _write_line(output, line.text)

    async def _print_companion(self, companion: Companion, output: Output) -> None:
        show = partial(companion.show, partial(_write_line, output))
        try:
            await self._contained.keep_showing(show)
        except OutputGone:
            self._end_without_output()

    def _end_without_output(self) -> None:
        self._is_output_gone = True
        self._world.interrupt()
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
        """Stop the agent, the instance, and its forks that other commands asked for."""
        if self._companion is not None:
            await self._companion.stop(self._grace_seconds)
        stops = await self._world.stop_all(grace_seconds=self._grace_seconds)
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
            log_lines=tuple(map(self._mask, self._tail)),
            hint=f"to continue: {suggest('resume', started.run_dir)}" if is_resumable else None,
        )

    def _mask(self, text: str) -> str:
        for value in self._tokens.values():
            text = text.replace(value, protocol.MASK)
        return text


def summarise_run(run_dir: Path, names: Sequence[str]) -> list[str]:
    """Summarise instances that were stopped, with the command that resumes them. Blocks.

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
    """Write a line; a full disk counts as an output that is gone."""
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
