"""Many instances, here or in the background, for ``up``, ``fork`` and ``resume``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from clawblox.cli.field_options import options_from
from clawblox.cli.options import OrchestratorOptions
from clawblox.cli.running.background import (
    BackgroundProcess,
    StarterChannel,
    StartResult,
    background_option,
    spawn_in_background,
    start_in_background,
)
from clawblox.cli.running.displays import Display, LineDisplay, TableDisplay
from clawblox.cli.running.instance_states import InstanceStates
from clawblox.cli.running.orchestrator import BatchRun, Orchestrator
from clawblox.cli.terminal.output import Output
from clawblox.cli.terminal.warnings import configure_logging
from clawblox.views.formatting import shorten_path, suggest

_F = TypeVar("_F", bound=Callable[..., Any])


def add_orchestrator_options(command: _F) -> _F:
    """Add the options of a command that is the orchestrator of its instances."""
    return options_from(OrchestratorOptions, "orchestrator_options")(background_option(command))


async def run_batch(
    ctx: click.Context, batch_run: BatchRun, background_args: Sequence[str] = ()
) -> int:
    """Run instances to their end, here or in the background, and return the exit status.

    Args:
        ctx: Context of the command.
        batch_run: The instances.
        background_args: Options that are added to the command in the background, for decisions of
            this one.

    Raises:
        BatchError: Instances failed to start, or ended by themselves.
        ClawbloxError: The start could not even be tried.

    Cancellation: the instances are stopped; those in the background continue.
    """
    if batch_run.options.detach and batch_run.starter_fd is None:
        command, *others = ctx.obj
        # If an option is given twice, the last value counts.
        return await _run_in_background(command, (*background_args, *others), batch_run)
    states = InstanceStates(batch_run.count)
    fd = batch_run.starter_fd
    with Output(sys.stdout) as output:
        display = _make_display(output, batch_run, states)
        starter = None if fd is None else StarterChannel(fd)
        return await Orchestrator(batch_run, states, display, starter).run()


def _make_display(output: Output, batch_run: BatchRun, states: InstanceStates) -> Display:
    if output.is_terminal:
        table = TableDisplay(output, batch_run.run_dir, batch_run.world.name, states)
        configure_logging(table.warn if sys.stderr.isatty() else None)
        return table
    configure_logging()
    lines = LineDisplay(output)
    lines.announce(f"Run directory: {shorten_path(batch_run.run_dir)}")
    return lines


# -- in the background ------------------------------------------------------------------------


async def _run_in_background(command: str, args: Sequence[str], batch_run: BatchRun) -> int:
    run_dir = batch_run.run_dir
    background = spawn_in_background([command], args, run_dir)
    click.echo(f"Run directory: {shorten_path(run_dir)}")
    return await start_in_background(
        background,
        batch_run.verb,
        batch_run.count,
        lambda result: click.echo("\n".join(_summary(result, background, run_dir))),
        suggest("ps", run_dir, "-w"),
    )


def _summary(result: StartResult, background: BackgroundProcess, run_dir: Path) -> Iterator[str]:
    yield from result.lines
    for name, reason in result.failed.items():
        yield f"  {name}: {reason}"
    if result.ready:
        yield f"watch:  {suggest('ps', run_dir, '-w')}"
        yield f"stop:   {suggest('stop', run_dir)}"
    yield f"log:    {shorten_path(background.log_file)} (pid {background.pid})"
