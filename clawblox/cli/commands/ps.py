"""``clawblox ps``: the instances of a run directory."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import click

from clawblox.cli.parameters import PATH, existing_path, json_option
from clawblox.cli.tables.formatting import (
    format_age,
    format_bytes,
    format_end,
    format_seconds,
    format_table,
)
from clawblox.cli.tables.lineage_text import format_forks
from clawblox.rundir.lineage import read_lineage
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
      clawblox ps                     the instances of this directory
      clawblox ps runs/r001 -f        its live table
      clawblox ps runs/r001 --tree    which instance was forked from which
      clawblox ps runs/r001 --json    every field, for programs

    States: starting, ready, restarting, stopping; exited (with its status or signal), halted
    (with the reason that the world gave), failed (it never became ready), interrupted (its
    orchestrator was killed). SAVED is the age of the last save, SIM TIME the simulation time in it.
    """,
)
@click.argument("run_dir", type=PATH, default=".", metavar="[RUN_DIR]")
@click.option("-f", "--follow", is_flag=True, help="Keep showing it until nothing runs any more.")
@click.option("--tree", is_flag=True, help="Show the instances as a tree of forks.")
@json_option
def command(run_dir: str, follow: bool, tree: bool, as_json: bool) -> None:
    """Show the instances of a run directory, running or ended.

    RUN_DIR is the current directory by default. Watching does not affect the run: Ctrl-C closes
    the table of --follow, and the run goes on.

    \f
    Raises:
        ClawbloxError: The run directory does not exist.
        click.UsageError: Two of --follow, --tree and --json were given.
    """
    directory = existing_path(run_dir).absolute()
    if follow + tree + as_json > 1:
        raise click.UsageError("--follow, --tree and --json cannot be combined.")
    found = read_instances(directory)
    if as_json:
        click.echo(json.dumps([attrs.asdict(status) for status in found], indent=2, default=str))
    elif not found:
        click.echo(f"Nothing has run in '{run_dir}'.")
    elif tree:
        click.echo(format_forks(read_lineage(directory)))
    elif follow:
        _follow(directory)
    else:
        click.echo(format_table(_HEADINGS, [_row(status) for status in found]))


def _follow(run_dir: Path) -> None:
    # Drawing a live table takes long to import, and a single look does not need it.
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
