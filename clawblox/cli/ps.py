"""``clawblox ps``: what runs, or ran, in a run directory."""

from __future__ import annotations

import json

import attrs
import click

from clawblox.cli.output import format_seconds, format_table, shorten_path
from clawblox.cli.parameters import existing_path, json_option
from clawblox.model import WorldExit
from clawblox.runs import InstanceStatus, read_instances

__all__ = ["command"]

_HEADINGS = ("NAME", "STATE", "PID", "PORT", "UPTIME", "EXIT", "URL", "LOG")


@click.command(
    "ps",
    epilog="""\
    \b
    Examples:
      clawblox ps                     what runs in this directory
      clawblox ps runs/r001 --json    the same of a run, for programs

    States: starting, ready, stopping; exited (was ready once), failed (never was), interrupted
    (its orchestrator is gone, and so is it).
    """,
)
@click.argument("run_dir", default=".", metavar="[RUN_DIR]")
@json_option
def command(run_dir: str, as_json: bool) -> None:
    """Show what runs, or ran, in a run directory.

    RUN_DIR is the current directory unless it is given.
    """
    found = read_instances(existing_path(run_dir))
    if as_json:
        click.echo(json.dumps([attrs.asdict(each) for each in found], indent=2, default=str))
    elif found:
        click.echo(format_table(_HEADINGS, [_row(each) for each in found]))
    else:
        click.echo(f"Nothing has run in '{run_dir}'.")


def _row(status: InstanceStatus) -> tuple[str, ...]:
    return (
        status.name,
        status.state,
        "" if status.pid is None else str(status.pid),
        str(status.port),
        format_seconds(status.uptime_s),
        _format_exit(status.exit),
        status.url,
        shorten_path(status.log_file),
    )


def _format_exit(found: WorldExit | None) -> str:
    if found is None:
        return ""
    return found.signal or ("?" if found.status is None else str(found.status))
