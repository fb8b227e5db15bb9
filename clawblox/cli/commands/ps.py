"""``clawblox ps``: what runs, or ran, in a run directory."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import click

from clawblox.cli.parameters import PATH, existing_path, json_option
from clawblox.cli.terminal.output import (
    format_age,
    format_bytes,
    format_end,
    format_seconds,
    format_table,
)
from clawblox.rundir.status import InstanceStatus, read_instances

__all__ = ["command"]

_HEADINGS = (
    "NAME",
    "STATE",
    "PID",
    "UPTIME",
    "RSS",
    "CPU TIME",
    "SAVED",
    "SIM TIME",
    "RESTARTS",
    "URL",
)


@click.command(
    "ps",
    epilog="""\
    \b
    Examples:
      clawblox ps                     what runs in this directory
      clawblox ps runs/r001 -f        the live table of a run
      clawblox ps runs/r001 --json    the same for programs, with every field

    States: starting, ready, restarting, stopping; exited (was ready once, with its status or
    signal), halted (said that it has stopped, and why), failed (never was ready), interrupted
    (its orchestrator is gone, and so is it). SAVED is how long ago the last save of the latest
    run was, SIM TIME its simulation time.
    """,
)
@click.argument("run_dir", type=PATH, default=".", metavar="[RUN_DIR]")
@click.option("-f", "--follow", is_flag=True, help="Go on until nothing runs any more.")
@json_option
def command(run_dir: str, follow: bool, as_json: bool) -> None:
    """Show what runs, or ran, in a run directory.

    RUN_DIR is the current directory unless it is given. Who watches changes nothing: Ctrl-C
    ends the table of --follow, and the run goes on.
    """
    directory = existing_path(run_dir).absolute()
    if follow and as_json:
        raise click.UsageError("--follow is for people, --json for programs.")
    found = read_instances(directory)
    if as_json:
        click.echo(json.dumps([attrs.asdict(each) for each in found], indent=2, default=str))
    elif not found:
        click.echo(f"Nothing has run in '{run_dir}'.")
    elif follow:
        _follow(directory)
    else:
        click.echo(format_table(_HEADINGS, [_row(each) for each in found]))


def _follow(run_dir: Path) -> None:
    # What draws a table is dear to load, and a single look needs none of it.
    import anyio

    from clawblox.cli.running.watching import watch

    anyio.run(watch, run_dir)


def _row(status: InstanceStatus) -> tuple[str, ...]:
    return (
        status.name,
        " ".join(filter(None, (status.state, format_end(status)))),
        "" if status.pid is None else str(status.pid),
        format_seconds(status.uptime_s),
        format_bytes(status.rss_bytes),
        format_seconds(status.cpu_s),
        format_age(status.saved_at),
        "" if status.sim_time is None else f"{status.sim_time:.1f}",
        str(status.restarts or ""),
        status.url,
    )
