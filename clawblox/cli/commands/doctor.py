"""``clawblox doctor``: what this machine has of what clawblox needs or can use."""

from __future__ import annotations

import os
import sys

import click

from clawblox.cli.doctor.agents import AGENT_CHECKS
from clawblox.cli.doctor.check import run_checks
from clawblox.cli.doctor.directories import DIRECTORY_CHECKS
from clawblox.cli.doctor.kernel import KERNEL_CHECKS
from clawblox.cli.doctor.limits import LIMIT_CHECKS
from clawblox.cli.doctor.network import NETWORK_CHECKS
from clawblox.cli.doctor.orphans import ORPHAN_CHECKS
from clawblox.cli.doctor.packages import PACKAGE_CHECKS
from clawblox.cli.doctor.programs import PROGRAM_CHECKS
from clawblox.cli.doctor.report import as_objects, as_table, has_what_is_required
from clawblox.cli.doctor.sandboxes import SANDBOX_CHECKS
from clawblox.cli.parameters import json_option
from clawblox.cli.tables.formatting import format_json

_TIMEOUT_S = 12.0

ALL_CHECKS = (
    *KERNEL_CHECKS,
    *LIMIT_CHECKS,
    *PACKAGE_CHECKS,
    *PROGRAM_CHECKS,
    *AGENT_CHECKS,
    *SANDBOX_CHECKS,
    *DIRECTORY_CHECKS,
    *NETWORK_CHECKS,
    *ORPHAN_CHECKS,
)


@click.command(
    "doctor",
    epilog="""\
    \b
    Examples:
      clawblox doctor           what is there, what is missing, what to do
      clawblox doctor --json    the same for programs

    The exit status is 1 if something is missing that clawblox cannot work without.
    """,
)
@json_option
@click.pass_context
def command(ctx: click.Context, *, as_json: bool) -> None:
    """Check what this machine has of what clawblox needs or can use.

    What is missing is shown with what it costs to be without it, and what to do about it. The
    current directory is checked as the place for a run directory.
    """
    results = run_checks(ALL_CHECKS, _TIMEOUT_S)
    if as_json:
        click.echo(format_json(as_objects(results)))
    else:
        is_coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        text = as_table(results, is_coloured=is_coloured)
        encoding = sys.stdout.encoding or "utf-8"
        click.echo(text.encode(encoding, errors="replace").decode(encoding))
    ctx.exit(0 if has_what_is_required(results) else 1)
