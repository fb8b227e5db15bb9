"""``clawblox stop``: end what runs in a run directory, whoever started it."""

from __future__ import annotations

import json
from functools import partial

import anyio
import attrs
import click

from clawblox.cli.output import format_seconds
from clawblox.cli.parameters import existing_run_dir, grace_option, json_option, run_dir_arguments
from clawblox.model import StopResult
from clawblox.runs import stop_instances

__all__ = ["command"]

_RUNG_WORDS = {"terminated": "stopped", "killed": "killed"}


@click.command(
    "stop",
    epilog="""\
    \b
    Examples:
      clawblox stop runs/r001               everything that runs there
      clawblox stop runs/r001 w000 w003     these two
      clawblox stop runs/r001 --grace 0     at once
    """,
)
@run_dir_arguments
@grace_option
@json_option
def command(run_dir: str, names: tuple[str, ...], grace: float, as_json: bool) -> None:
    """Stop instances of a run directory, and wait for their end.

    RUN_DIR is the current directory unless it is given; without an INSTANCE all of them are
    stopped. Each gets TERM, the grace, then KILL for every process that is left, daemons
    included. The program that started them sees its worlds exit. Stopping what does not run
    is not an error.
    """
    stop = partial(stop_instances, existing_run_dir(run_dir), names, grace_seconds=grace)
    results = anyio.run(stop)
    if as_json:
        click.echo(json.dumps([attrs.asdict(each) for each in results], indent=2))
        return
    for result in results:
        click.echo(_format(result))


def _format(result: StopResult) -> str:
    if result.rung == "not_running":
        return f"{result.instance}: was not running"
    exit_text = f", {result.exit}" if result.exit else ""
    line = f"{result.instance}: {_RUNG_WORDS[result.rung]} in {format_seconds(result.elapsed_s)}"
    return "\n".join([f"{line}{exit_text}", *(f"  killed: {each}" for each in result.killed)])
