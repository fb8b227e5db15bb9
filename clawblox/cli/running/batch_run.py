"""Many instances, here or in the background, for ``up``, ``fork`` and ``resume``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import anyio
import attrs
import click

from clawblox.cli.field_options import SectionOption, options_from
from clawblox.cli.options import OrchestratorOptions
from clawblox.cli.running.background import (
    BackgroundProcess,
    StarterChannel,
    StartResult,
    spawn_in_background,
)
from clawblox.cli.running.displays import Display, LineDisplay, TableDisplay
from clawblox.cli.running.instance_states import InstanceStates
from clawblox.cli.running.orchestrator import Orchestrator, Start
from clawblox.cli.terminal.output import Output, note
from clawblox.cli.terminal.screen import progress_bar
from clawblox.cli.terminal.warnings import configure_logging
from clawblox.concurrency.threads import run_blocking
from clawblox.views.formatting import shorten_path, suggest
from clawblox.world.async_world import AsyncWorld

_F = TypeVar("_F", bound=Callable[..., Any])

_OPTIONS = (
    options_from(OrchestratorOptions, "orchestrator_options"),
    click.option(
        "--detach",
        cls=SectionOption,
        section="Orchestrator",
        is_flag=True,
        help="Return when the instances are ready, and keep running in the background.",
    ),
    # The name is unlike anything a user may mistype, because click suggests hidden options too.
    click.option("--background-channel", "starter_fd", type=int, hidden=True),
)


def add_orchestrator_options(command: _F) -> _F:
    """Add the options of a command that is the orchestrator of its instances."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@attrs.frozen
class BatchRun:
    """Many instances to run.

    Attributes:
        world: The world, not open yet.
        run_dir: The run directory, absolute.
        count: How many instances.
        start: Starts them; called when the world is open.
        options: Further duties of the orchestrator.
        starter_fd: Socket of the command that spawned this process to run them in the background;
            None when this is the command itself.
        verb: Word for their start, for example ``Starting``.
    """

    world: AsyncWorld
    run_dir: Path
    count: int
    start: Start
    options: OrchestratorOptions
    starter_fd: int | None
    verb: str = "Starting"


async def run_batch(
    ctx: click.Context,
    batch_run: BatchRun,
    *,
    detach: bool,
    background_args: Sequence[str] = (),
) -> int:
    """Run instances to their end, here or in the background, and return the exit status.

    Args:
        ctx: Context of the command.
        batch_run: The instances.
        detach: Whether they run in the background.
        background_args: Options that are added to the command in the background, for decisions of
            this one.

    Raises:
        BatchError: Instances failed to start, or ended by themselves.
        ClawbloxError: The start could not even be tried.

    Cancellation: the instances are stopped; those in the background continue.
    """
    if detach and batch_run.starter_fd is None:
        command, *others = ctx.obj
        # If an option is given twice, the last value counts.
        args = (command, *background_args, *others)
        return await _run_in_background(args, batch_run)
    return await _run_here(batch_run)


# -- here -------------------------------------------------------------------------------------


async def _run_here(batch_run: BatchRun) -> int:
    states = InstanceStates(batch_run.count)
    fd = batch_run.starter_fd
    with Output(sys.stdout) as output:
        orchestrator = Orchestrator(
            batch_run.world,
            batch_run.run_dir,
            batch_run.start,
            states=states,
            display=_make_display(output, batch_run, states),
            options=batch_run.options,
            starter=None if fd is None else StarterChannel(fd),
            verb=batch_run.verb,
        )
        return await orchestrator.run()


def _make_display(output: Output, batch_run: BatchRun, states: InstanceStates) -> Display:
    if not output.is_terminal:
        configure_logging()
        display = LineDisplay(output)
        display.announce(_name_run_dir(batch_run))
        return display
    table = TableDisplay(output, batch_run.run_dir, batch_run.world.name, states)
    configure_logging(table.warn if sys.stderr.isatty() else None)
    return table


def _name_run_dir(batch_run: BatchRun) -> str:
    return f"Run directory: {shorten_path(batch_run.run_dir)}"


# -- in the background ------------------------------------------------------------------------


async def _run_in_background(args: tuple[str, ...], batch_run: BatchRun) -> int:
    background = spawn_in_background(args, batch_run.run_dir)
    click.echo(_name_run_dir(batch_run))
    try:
        result = await _wait_for_start(background, batch_run)
        if result is None:
            return await run_blocking(_show_early_end, background)
        for line in _summary(result, background, batch_run.run_dir):
            click.echo(line)
        return 1 if result.failed else 0
    except anyio.get_cancelled_exc_class():  # by Ctrl-C
        command = suggest("ps", batch_run.run_dir, "-w")
        note(f"The start continues in the background. To watch it: {command}")
        raise
    finally:
        background.detach()


async def _wait_for_start(background: BackgroundProcess, batch_run: BatchRun) -> StartResult | None:
    async with progress_bar(batch_run.verb, batch_run.count) as bar:
        return await background.wait_for_start(lambda is_ready: bar.advance(is_failed=not is_ready))


def _show_early_end(background: BackgroundProcess) -> int:
    status = background.wait()
    note("The orchestrator in the background has ended:")
    for line in background.last_log_lines():
        note(f"  | {line}")
    return status or 1


def _summary(result: StartResult, background: BackgroundProcess, run_dir: Path) -> Iterator[str]:
    yield from result.lines
    for name, reason in result.failed.items():
        yield f"  {name}: {reason}"
    if result.ready:
        yield f"watch:  {suggest('ps', run_dir, '-w')}"
        yield f"stop:   {suggest('stop', run_dir)}"
    yield f"log:    {shorten_path(background.log_file)} (pid {background.pid})"
