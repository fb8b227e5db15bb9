"""``clawblox up``: many instances of a world, from their start to Ctrl-C, with a live table."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import click

from clawblox.cli.parameters import PATH, count_option
from clawblox.cli.running.batch_run import Crowd, ManyCommand, ManyOptions, many_options, run_crowd
from clawblox.cli.running.worlds import open_world

__all__ = ["command"]


class _UpCommand(ManyCommand):
    sections: ClassVar = {
        **ManyCommand.sections,
        "The instances": ("count", "run_dir", "resume", *ManyCommand.sections["The instances"]),
    }


@click.command(
    "up",
    cls=_UpCommand,
    epilog="""\
    \b
    Examples:
      clawblox up worlds/panda -n 32 --run-dir runs/r001
      clawblox up worlds/panda -n 32 --restart checkpoint --autosave 300
      clawblox up worlds/panda -n 32 --run-dir runs/r001 --detach

    Each instance has a directory of its own, worlds/<name> in the run directory. From another
    terminal: clawblox ps, logs, save, fork and stop.

    Ctrl-C, TERM and HUP stop all instances; a second one kills them. The exit status is then
    130, 143 or 129. It is 1 when an instance could not be started or ended by itself with
    another status than 0, else 0.
    """,
)
@click.argument("world", type=PATH, default=".", metavar="[WORLD]")
@count_option
@click.option(
    "--run-dir", type=PATH, metavar="DIR", help="The run directory.  [default: the world directory]"
)
@click.option(
    "--resume",
    type=PATH,
    metavar="FILE",
    help="Snapshot to restore: a file in the world directory, else in the current one.",
)
@many_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    world: str,
    count: int,
    run_dir: str | None,
    resume: str | None,
    **options: Any,  # noqa: ANN401 - those of ManyOptions
) -> None:
    """Run many instances of a world until Ctrl-C, or until all of them have ended.

    WORLD is a directory with a world.toml, or the address of one in a GitHub repository; the
    current directory unless it is given. On a terminal a live table shows what runs; elsewhere
    there is a line for each event.
    """
    one = open_world(world)
    directory = Path(run_dir).absolute() if run_dir is not None else one.dir
    given = ManyOptions(**options)
    start = partial(one.start_many, count, run_dir=directory, resume=resume, **given.of_starts())
    run_crowd(ctx, Crowd(one, directory, count, start, given))
