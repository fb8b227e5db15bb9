"""``clawblox run``: one world in the foreground, from its address to Ctrl-C."""

from __future__ import annotations

import os
import secrets
from functools import partial
from pathlib import Path
from typing import ClassVar

import anyio
import click

from clawblox import protocol
from clawblox.cli.parameters import (
    PATH,
    EnvironmentOption,
    SectionedCommand,
    grace_option,
    not_negative,
    port_number,
)
from clawblox.cli.running.foreground import Foreground
from clawblox.cli.running.progress import Progress
from clawblox.cli.running.worlds import open_world
from clawblox.cli.terminal.warnings import configure_logging
from clawblox.config.world_toml import read_world_config
from clawblox.errors import ClawbloxError, PortInUseError
from clawblox.rundir.status import own_start
from clawblox.world.async_world import AsyncWorld

__all__ = ["command"]

_DEFAULT_PORT = 8080
_TOKEN_BYTES = 32


class _RunCommand(SectionedCommand):
    sections: ClassVar = {
        "Where it serves": ("host", "port", "base_path", "port_wait"),
        "What it records and resumes": ("record", "record_dir", "resume"),
        "The run": ("run_dir", "name", "log_file", "command_file", "tmux"),
        "Its time": ("health_timeout", "grace"),
    }


@click.command(
    "run",
    cls=_RunCommand,
    epilog="""\
    \b
    Examples:
      clawblox run                          the world in this directory
      clawblox run worlds/panda --port 0    on a port that is free
      clawblox run worlds/panda --record --run-dir runs/r001
      clawblox run worlds/panda --resume runs/r001/checkpoints/s1.json
      clawblox run https://github.com/OWNER/REPO/tree/main/worlds/panda

    Ctrl-C, TERM and HUP stop the world; a second one kills it at once. The exit status is then
    130, 143 or 129. It is 1 when the world cannot be started or ends by itself.
    """,
)
@click.argument("world", type=PATH, default=".", metavar="[WORLD]")
@click.option(
    "--host",
    cls=EnvironmentOption,
    envvar=protocol.HOST_ENV,
    show_envvar=True,
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Address that the world binds.",
)
@click.option(
    "--port",
    cls=EnvironmentOption,
    envvar=protocol.PORT_ENV,
    show_envvar=True,
    type=int,
    callback=port_number,
    default=_DEFAULT_PORT,
    show_default=True,
    metavar="PORT",
    help="Port of the world; 0 takes one that is free.",
)
@click.option(
    "--base-path",
    cls=EnvironmentOption,
    envvar=protocol.BASE_PATH_ENV,
    show_envvar=True,
    default="",
    metavar="PATH",
    help="Prefix of its routes.",
)
@click.option(
    "--port-wait",
    type=float,
    callback=not_negative,
    default=0.0,
    metavar="SECONDS",
    help="Wait so long for a busy port to become free.",
)
@click.option(
    "--record/--no-record",
    cls=EnvironmentOption,
    envvar=protocol.RECORD_ENV,
    show_envvar=True,
    default=False,
    help="Have the world record.",
)
@click.option(
    "--record-dir",
    cls=EnvironmentOption,
    envvar=protocol.RECORD_DIR_ENV,
    show_envvar=True,
    type=PATH,
    metavar="DIR",
    help="Where it records.  [default: recordings in the run directory]",
)
@click.option(
    "--resume",
    cls=EnvironmentOption,
    envvar=protocol.RESUME_ENV,
    show_envvar=True,
    type=PATH,
    metavar="FILE",
    help="Snapshot to restore: a file in the world directory, else in the current one.",
)
@click.option(
    "--run-dir",
    type=PATH,
    metavar="DIR",
    help="Directory of the run.  [default: parent of --record-dir, else the world directory]",
)
@click.option("--name", help="Name of the instance in the run.  [default: w000, w001, ...]")
@click.option(
    "--log-file", type=PATH, metavar="FILE", help="Where the output goes, beside the terminal."
)
@click.option(
    "--command-file", type=PATH, metavar="FILE", help="Where to write the script that reruns it."
)
@click.option("--tmux", metavar="SESSION", help="Run it in a window of this tmux session.")
@click.option(
    "--health-timeout",
    type=float,
    callback=not_negative,
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Time until the world must be ready.",
)
@grace_option
@click.pass_context
def command(
    ctx: click.Context,
    *,
    world: str,
    host: str,
    port: int,
    base_path: str,
    port_wait: float,
    record: bool,
    record_dir: str | None,
    resume: str | None,
    run_dir: str | None,
    name: str | None,
    log_file: str | None,
    command_file: str | None,
    tmux: str | None,
    health_timeout: float,
    grace: float,
) -> None:
    """Run a world in the foreground until Ctrl-C.

    WORLD is a directory with a world.toml, or the address of one in a GitHub repository; the
    current directory unless it is given. When the world is ready its address is printed, then
    what it writes. Flags win over the environment variables named beside them.
    """
    configure_logging()
    one = open_world(world)
    directory = _run_dir(one, run_dir, record_dir)
    tokens = _tokens()
    start = partial(
        one.start,
        port=port,
        record=record,
        record_dir=record_dir,
        resume=resume,
        host=host,
        base_path=base_path,
        run_dir=directory,
        name=name,
        health_timeout=health_timeout,
        port_wait=port_wait,
        command_file=command_file,
        log_file=log_file,
        env=tokens,
        _tmux_session=tmux,
    )
    progress = Progress(
        one.name, partial(own_start, directory), read_world_config(one.dir).ready, tokens.values()
    )
    foreground = Foreground(one, start, progress, grace=grace, hidden=tokens.values())
    try:
        status = anyio.run(foreground.run)
    except PortInUseError as error:
        if error.port is None:  # not one port but every port that could be leased
            raise
        text = f"Port {error.port} is already in use. Try --port <PORT>\n  {error.message}"
        raise ClawbloxError(text) from error
    ctx.exit(status)


def _run_dir(world: AsyncWorld, run_dir: str | None, record_dir: str | None) -> Path:
    if run_dir is not None:
        return Path(run_dir).absolute()
    return world.dir if record_dir is None else Path(record_dir).absolute().parent


def _tokens() -> dict[str, str]:
    """Return the world's tokens: a person's own from the environment, or new ones."""
    return {
        name: os.environ.get(name, "").strip() or secrets.token_urlsafe(_TOKEN_BYTES)
        for name in protocol.SECRET_ENV
    }
