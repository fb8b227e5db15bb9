"""``clawblox up``: many instances of a world, from their start to Ctrl-C, with a live table."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import click

from clawblox.cli.field_options import SectionedCommand, SectionOption, options_from
from clawblox.cli.options import OrchestratorOptions
from clawblox.cli.parameters import PATH, count_option, world_argument
from clawblox.cli.running.batch_run import BatchRun, add_orchestrator_options, run_batch
from clawblox.cli.running.run_dirs import opened_run_dir, outer_run_dir
from clawblox.cli.running.worlds import open_world
from clawblox.config.options import ManyOptions

__all__ = ["command"]


@click.command(
    "up",
    cls=SectionedCommand,
    epilog="""\
    \b
    Examples:
      clawblox up worlds/panda -n 32 --run-dir runs/r001
      clawblox up worlds/panda -n 32 --restart checkpoint --autosave 300
      clawblox up worlds/panda -n 32 --run-dir runs/r001 --detach

    Each instance has a port of its own, and a directory of its own: worlds/<name> in the run
    directory. To control them from another terminal: clawblox ps, logs, save, fork and stop.

    Ctrl-C, SIGTERM and SIGHUP stop all instances, and a second one kills them; the exit status is
    then 130, 143 or 129. Otherwise it is 1 if an instance failed to start, was not restarted, or
    exited with a status other than 0; else 0.
    """,
)
@world_argument
@count_option
@options_from(ManyOptions, "options", without=("detach", "reseed"))
@click.option(
    "--run-dir",
    cls=SectionOption,
    section="Files and names",
    type=PATH,
    metavar="DIR",
    show_default="runs/<world>-<time>",
    help="Run directory.",
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
    orchestrator_options: OrchestratorOptions,
    detach: bool,
    starter_fd: int | None,
) -> None:
    """Run many instances of a world until Ctrl-C or until all of them have ended.

    WORLD is a directory with a world.toml, or the URL of one in a GitHub repository; by default
    the current directory. On a terminal a live table shows the instances; elsewhere each event is
    a line.

    \f
    Raises:
        ClawbloxError: Instances failed to start, or ended by themselves.
    """
    opened = open_world(world)
    given = outer_run_dir(os.environ) if run_dir is None else Path(run_dir).absolute()
    with opened_run_dir(opened, given) as directory:
        start = partial(
            opened.start_many,
            count,
            run_dir=directory,
            resume=options.resume,
            on_failure=options.on_failure,
            **options.shared(),
        )
        batch_run = BatchRun(opened, directory, count, start, orchestrator_options, starter_fd)
        run_batch(ctx, batch_run, detach=detach, background_args=("--run-dir", str(directory)))
