"""``clawblox save``: snapshots of what runs in a run directory, whoever started it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import attrs
import click

from clawblox.cli.parameters import (
    PATH,
    existing_run_dir,
    json_option,
    positive,
    run_dir_arguments,
)
from clawblox.cli.running.saves import Saves, save_and_tell
from clawblox.cli.tables.event_lines import reason_of
from clawblox.config.options import DEFAULT_SAVE_TIMEOUT_S
from clawblox.errors import ClawbloxError
from clawblox.rundir.status import is_ready, select_records

__all__ = ["command"]


@click.command(
    "save",
    epilog="""\
    \b
    Examples:
      clawblox save runs/r001                 everything that is ready there
      clawblox save runs/r001 w000 w003       these two
      clawblox save runs/r001 --dir /backup   all of them into one directory

    The exit status is 1 when one of them could not be saved.
    """,
)
@run_dir_arguments
@click.option(
    "--dir",
    "directory",
    type=PATH,
    metavar="DIR",
    help="Where the files go.  [default: checkpoints of each instance]",
)
@click.option(
    "--timeout",
    type=float,
    callback=positive,
    default=DEFAULT_SAVE_TIMEOUT_S,
    show_default=True,
    metavar="SECONDS",
    help="Time for each transfer.",
)
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    run_dir: str,
    names: tuple[str, ...],
    directory: str | None,
    timeout: float,
    as_json: bool,
) -> None:
    """Save snapshots of a run directory's instances, all at once.

    RUN_DIR is the current directory unless it is given; without an INSTANCE all are meant that
    are ready. Each snapshot is checked, and registered in the manifest of its instance.
    """
    run = existing_run_dir(run_dir).absolute()
    meant = [one.name for one in select_records(run, names) if names or is_ready(one)]
    if not meant:
        raise ClawbloxError(
            f"Nothing in '{run_dir}' is ready, so there is nothing to save",
            hint="clawblox ps shows what runs in a run directory",
        )
    save = partial(
        save_and_tell,
        run,
        meant,
        directory=None if directory is None else Path(directory).absolute(),
        timeout=timeout,
        is_quiet=as_json,
    )
    saves = anyio.run(save)
    if as_json:
        click.echo(json.dumps(list(_fields(saves)), indent=2, default=str))
    ctx.exit(1 if saves.failed else 0)


def _fields(saves: Saves) -> Iterator[dict[str, Any]]:
    for name, saved in sorted(saves.done.items()):
        yield {"instance": name, **attrs.asdict(saved), "error": None}
    for name, error in sorted(saves.failed.items()):
        yield {"instance": name, "error": reason_of(error)}
