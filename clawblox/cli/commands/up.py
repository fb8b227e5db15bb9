"""``clawblox up``: runs many instances of a world until Ctrl-C, with a live table."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import anyio
import click

from clawblox.cli.field_options import SectionedCommand, options_from, section_option
from clawblox.cli.options import OrchestratorOptions
from clawblox.cli.parameters import count_option, examples, run_dir_option, world_argument
from clawblox.cli.running.batch_run import BatchRun, Start, add_orchestrator_options, run_batch
from clawblox.cli.running.resuming import (
    Choice,
    choose,
    require_interrupted,
    show_interruption,
)
from clawblox.cli.running.run_dirs import open_world, opened_run_dir, outer_run_dir
from clawblox.concurrency.batch import Batch
from clawblox.concurrency.threads import run_blocking
from clawblox.config.options import ManyOptions
from clawblox.errors import UsageError
from clawblox.results import StartedWorld
from clawblox.rundir.interrupted import set_aside
from clawblox.rundir.paths import resolve_run_dir
from clawblox.rundir.status import read_run
from clawblox.world.async_world import AsyncWorld
from clawblox.world.resume import find_resumable


@examples("""
  clawblox up worlds/panda -n 32 --run-dir runs/r001
  clawblox up worlds/panda -n 32 --restart checkpoint --autosave 300
  clawblox up worlds/panda -n 32 --run-dir runs/r001 --detach

Each instance has its own port, and its own directory, worlds/<name> in the run directory. To
control the instances from another terminal, use clawblox ps, logs, save, fork, restart and
stop.

Ctrl-C, SIGTERM and SIGHUP stop all instances, and a second signal kills them; the exit status
is then 130, 143 or 129. Otherwise it is 1 if an instance failed to start, was not restarted, or
exited with a status other than 0; else 0.
""")
@click.command("up", cls=SectionedCommand)
@world_argument
@count_option
@options_from(ManyOptions, "options", without=("detach",))
@run_dir_option("Run directory.")
@section_option(
    "--continue",
    "choice",
    section="Recording and resuming",
    flag_value="continue",
    help="Resume the interrupted instances of the run directory, with their options, in place of "
    "starting new instances.",
)
@section_option(
    "--fresh",
    "choice",
    section="Recording and resuming",
    flag_value="fresh",
    help="Start new instances even if others were interrupted in the run directory.",
)
@add_orchestrator_options
@click.pass_context
def command(
    ctx: click.Context,
    *,
    world: str,
    count: int,
    options: ManyOptions,
    run_dir: str | None,
    choice: Choice | None,
    orchestrator_options: OrchestratorOptions,
    starter_fd: int | None,
) -> int:
    """Run many instances of a world until Ctrl-C or until all of them have ended.

    WORLD is a directory with a world.toml, or the URL of one in a GitHub repository; by default
    the current directory. On a terminal a live table shows the instances, and ? shows its keys;
    elsewhere each event is a line. If instances were interrupted in the run directory, choose
    --continue or --fresh; on a terminal the command asks you.

    \f
    Raises:
        ClawbloxError: Instances failed to start, or ended unexpectedly.
        UsageError: Instances were interrupted in the run directory, and no option decides about
            them; or --continue is given without a run directory.
    """
    opened = open_world(world)
    given = outer_run_dir(os.environ) if run_dir is None else Path(run_dir).absolute()
    if choice == "continue" and given is None:
        raise UsageError(
            "--continue: must be given with the run directory of the interrupted run",
            hint="--run-dir names it; clawblox ps -a shows ended runs",
        )
    with opened_run_dir(opened, given) as directory:
        place = resolve_run_dir(directory)
        choice = choose(place, choice)

        async def run() -> int:
            verb, total = "Starting", count
            start: Start = partial(_start_fresh, opened, directory, place, count, options)
            if choice == "continue":
                interruption = await find_resumable(place, world_dir=opened.dir)
                require_interrupted(interruption, place)
                show_interruption(interruption, place)
                verb, total = "Resuming", len(interruption.instances)
                start = partial(opened.resume_all, directory, env=options.env, found=interruption)
            batch_run = BatchRun(
                opened, directory, total, start, orchestrator_options, starter_fd, verb
            )
            # The process in the background gets the choice that was made here.
            background_args = ("--run-dir", str(directory), f"--{choice}")
            return await run_batch(ctx, batch_run, background_args)

        return anyio.run(run)


async def _start_fresh(
    world: AsyncWorld, directory: Path, place: Path, count: int, options: ManyOptions
) -> Batch[StartedWorld]:
    """Start new instances, and abandon the interrupted instances."""
    await run_blocking(lambda: set_aside(place, read_run(place).interrupted))
    return await world.start_many(count, run_dir=directory, **options.arguments())
