"""``clawblox play``: a person, or a script, as an agent in a world."""

from __future__ import annotations

from pathlib import Path

import anyio
import click

from clawblox.cli.parameters import PATH, existing_path, existing_run_dir
from clawblox.cli.playing.choices import agent_option
from clawblox.cli.playing.game import Game
from clawblox.cli.running.run_dirs import opened_run_dir
from clawblox.cli.running.worlds import open_world
from clawblox.cli.terminal.warnings import configure_logging
from clawblox.config.download import is_world_url
from clawblox.config.world_toml import CONFIG_NAME
from clawblox.errors import UsageError
from clawblox.rundir.paths import resolve_run_dir
from clawblox.rundir.records import read_running


@click.command(
    "play",
    epilog="""\
    \b
    Examples:
      clawblox play worlds/panda          start the world, and play in it
      clawblox play runs/r001             join the only instance of a run
      clawblox play runs/r001 w003 --as red
      echo 'Walk north' | clawblox play runs/r001

    In the session, help lists the commands and the inputs of the world. Ctrl-C clears the line,
    Ctrl-D leaves.

    Lines can also come from a pipe or a file, one command each. The exit status is then 1 if one
    of them failed.
    """,
)
@click.argument("source", type=PATH, default=".", metavar="[WORLD|RUN_DIR]")
@click.argument("instance", metavar="[INSTANCE]", required=False)
@agent_option
@click.option(
    "--run-dir",
    type=PATH,
    metavar="DIR",
    show_default="runs/<world>-<time>",
    help="Run directory of a world that is started.",
)
@click.pass_context
def command(
    ctx: click.Context, *, source: str, instance: str | None, agent: str, run_dir: str | None
) -> None:
    """Play in a world: look, act and chat from a shell.

    A WORLD (a directory with a world.toml, or the URL of one) is started for the session and
    stopped at its end. With a RUN_DIR in which instances run, the session joins one of them: the
    INSTANCE, or the only one. The agent leaves at the end, and the run goes on. By default, the
    current directory is taken.

    \f
    Raises:
        ClawbloxError: Nothing runs there, or the world could not be started or joined.
        UsageError: There is no such instance, or several run and none is named.
    """
    configure_logging()
    if not _is_world(source, instance):
        if run_dir is not None:
            raise UsageError(f"--run-dir is for a world that is started; '{source}' is running")
        ctx.exit(anyio.run(Game(existing_run_dir(source).absolute(), instance, agent).run))
    world = open_world(source)
    with opened_run_dir(world, None if run_dir is None else Path(run_dir).absolute()) as directory:
        ctx.exit(anyio.run(Game(resolve_run_dir(directory), None, agent, world).run))


def _is_world(source: str, instance: str | None) -> bool:
    """Return whether a world is meant, which has to be started, rather than what runs already."""
    if is_world_url(source):
        return True
    path = existing_path(source)
    if instance is not None or read_running(path):
        return False
    return (path / CONFIG_NAME).exists()
