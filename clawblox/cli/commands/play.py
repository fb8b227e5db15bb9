"""``clawblox play``: lets a person or a script act as an agent in a world."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path

import anyio
import attrs
import click

from clawblox.cli.parameters import (
    PATH,
    agent_option,
    choose_record,
    examples,
    existing_path,
    existing_run_dir,
    run_dir_option,
)
from clawblox.cli.playing.consoles import PlayConsole, StreamConsole
from clawblox.cli.playing.lines import VERBS
from clawblox.cli.playing.session import PlaySession
from clawblox.cli.running.foreground import summarise_run
from clawblox.cli.running.run_dirs import open_world, opened_run_dir
from clawblox.cli.running.runner import CommandSignals
from clawblox.cli.running.slow_work import StartProgress
from clawblox.cli.terminal.output import OutputGone, note
from clawblox.cli.terminal.reports import configure_logging
from clawblox.concurrency.threads import run_blocking
from clawblox.config.arguments import is_world_url
from clawblox.config.home import home_dir
from clawblox.errors import ClawbloxError, UsageError
from clawblox.extras import install_command
from clawblox.rundir.paths import resolve_run_dir
from clawblox.rundir.presence import Presence
from clawblox.rundir.records import InstanceRecord, read_running
from clawblox.views.formatting import format_seconds, shorten_path
from clawblox.world.agent_client import join_place
from clawblox.world.async_world import AsyncWorld
from clawblox.world.input_examples import InputExample, find_examples
from clawblox.world.recorded import TIMEOUT_S, RecordedPlace, RecordedPlayer
from clawblox.world_keys import CONFIG_NAME


@examples("""
  clawblox play worlds/panda          start the world, and play in it
  clawblox play runs/r001             join the only instance of a run
  clawblox play runs/r001 w003 --as red
  echo 'Walk north' | clawblox play runs/r001

In the session, help lists the commands and the inputs of the world. Ctrl-C clears the line,
Ctrl-D leaves.

Commands can also come from a pipe or a file, one per line. The exit status is then 1 if a
command failed.
""")
@click.command("play")
@click.argument("source", type=PATH, default=".", metavar="[WORLD|RUN_DIR]")
@click.argument("instance", metavar="[INSTANCE]", required=False)
@agent_option
@run_dir_option("Run directory of a world that is started.")
def command(*, source: str, instance: str | None, agent: str, run_dir: str | None) -> int:
    """Play in a world: look, act and chat from a shell.

    A WORLD (a directory with a world.toml, or its URL) is started for the session and stopped when
    the session ends. In a RUN_DIR with running instances, the session joins INSTANCE, or the only
    instance; the agent then leaves at the end, and the run continues. The default is the current
    directory.

    \f
    Raises:
        ClawbloxError: No instance runs there, or the world could not be started or joined.
        UsageError: There is no such instance, or several are running and none is named.
    """
    configure_logging()
    if not _is_world(source, instance):
        if run_dir is not None:
            raise UsageError(f"--run-dir: must be left out, as '{source}' is running")
        return anyio.run(Game(existing_run_dir(source).absolute(), instance, agent).run)
    world = open_world(source)
    with opened_run_dir(world, None if run_dir is None else Path(run_dir).absolute()) as directory:
        return anyio.run(Game(resolve_run_dir(directory), None, agent, world).run)


def _is_world(source: str, instance: str | None) -> bool:
    """Return whether the source is a world to start, rather than a run to join."""
    if is_world_url(source):
        return True
    path = existing_path(source)
    if instance is not None or read_running(path):
        return False
    return (path / CONFIG_NAME).exists()


_HISTORY_FILE = "play_history"


@attrs.define(eq=False)
class Game:
    """An agent that plays in an instance for as long as this program runs.

    Args:
        run_dir: The run directory.
        instance: Name of the instance; None for the only instance.
        agent: Name of the agent.
        world: The world to start in the run directory; None joins a running instance.
    """

    _run_dir: Path
    _instance: str | None
    _agent: str
    _world: AsyncWorld | None = None
    _session: PlaySession | None = attrs.field(init=False, default=None)
    _signals: CommandSignals = attrs.field(init=False, factory=CommandSignals)
    _scope: anyio.CancelScope = attrs.field(init=False)
    _status: int = attrs.field(init=False, default=1)

    async def run(self) -> int:
        """Play until the lines end, the world ends, or a signal arrives.

        Returns:
            The exit status.

        Raises:
            ClawbloxError: The world could not be started or joined.

        Cancellation: the agent leaves; a world that was started for the agent is stopped.
        """
        self._scope = anyio.CancelScope()  # must be created in the event loop
        async with self._signals.obeyed(self._obey, self._kill):
            if self._world is None:
                await self._visit()
            else:
                await self._host(self._world)
        return self._signals.exit_status or self._status

    async def _obey(self, number: signal.Signals) -> bool:
        """End the session, or only the current command if a person typed Ctrl-C."""
        if number == signal.SIGINT and self._session and await self._session.interrupt():
            return False
        self._scope.cancel()
        return True

    async def _kill(self) -> None:
        if self._world is not None:
            await self._world.stop_all(grace_seconds=0.0)

    async def _visit(self) -> None:
        """Play in an instance that is already running."""
        with self._scope:
            record = await run_blocking(choose_record, self._run_dir, self._instance)
            await self._join(record)
            if self._session is not None and not self._session.has_world_ended:
                note(f"Left {record.name}; the run continues.")

    async def _host(self, world: AsyncWorld) -> None:
        """Start a world, play in it, and stop it."""
        note(f"Run directory: {shorten_path(self._run_dir)}")
        async with world:
            # The scope is inside the block, since cancelling the block would close the world.
            with self._scope:
                try:
                    await self._join(await self._start(world))
                finally:
                    world.interrupt()  # marks the run as interrupted, so that it can be resumed
                    with anyio.CancelScope(shield=True):
                        stops = await world.stop_all()
            for error in stops.failed.values():
                raise error
            if any(stop.rung in ("terminated", "killed") for stop in stops):
                note("The world is stopped.")
                for line in await run_blocking(summarise_run, self._run_dir, list(stops.done)):
                    note(line)

    async def _start(self, world: AsyncWorld) -> InstanceRecord:
        progress = StartProgress(world, self._run_dir)
        started = await progress.accompany(partial(world.start, run_dir=self._run_dir))
        note(f"World {world.name!r} is ready at {started.url} ({format_seconds(started.ready_s)})")
        return await run_blocking(choose_record, self._run_dir, started.name)

    async def _join(self, record: InstanceRecord) -> None:
        with RecordedPlace(self._run_dir, record) as place:
            client = await join_place(place, self._agent, timeout=TIMEOUT_S)
            # The instance was ready a moment ago. If it has died since, the session reports that.
            async with RecordedPlayer(place, client, Presence(record, "serving")) as player:
                try:
                    examples = find_examples(await client.api())
                except ClawbloxError:
                    examples = ()
                with _open_console(f"{client.name}@{record.name}> ", examples) as console:
                    self._session = PlaySession(player, console, examples)
                    if console.is_interactive:
                        note(f"You are {client.name!r} in {record.name}. Type help for help.\n")
                    with suppress(OutputGone):
                        self._status = await self._session.run()


def _open_console(
    prompt: str, examples: tuple[InputExample, ...]
) -> AbstractContextManager[PlayConsole]:
    """Return the line editor on a terminal if it is installed, else the standard streams."""
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if is_terminal and os.environ.get("TERM", "dumb") != "dumb":
        try:
            from clawblox.cli.playing.editor import EditorConsole
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "prompt_toolkit":
                raise
            note(f"For history, completion and line editing: {install_command('play')}")
        else:
            inputs = list(map(str, examples))
            completions = [*inputs, *VERBS, *(f"act {text}" for text in inputs)]
            return EditorConsole(prompt, home_dir() / _HISTORY_FILE, completions)
    return StreamConsole(prompt)
