"""``clawblox save``: snapshots of the running instances of a run directory."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import anyio
import attrs
import click

from clawblox.cli.field_options import OptionsCommand, options_from
from clawblox.cli.parameters import Selection, examples, json_option, run_dir_arguments
from clawblox.cli.running.saves import save_and_show
from clawblox.concurrency.batch import Batch
from clawblox.config.options import SaveOptions
from clawblox.errors import ClawbloxError
from clawblox.results import SavedSnapshot
from clawblox.rundir.status import is_ready
from clawblox.views.event_lines import describe_error
from clawblox.views.formatting import format_json, shorten_path


@examples("""
  clawblox save runs/r001                 all instances that are ready
  clawblox save runs/r001 w000 w003       these two
  clawblox save runs/r001 --dir /backup   all of them, into one directory

The exit status is 1 if an instance could not be saved.
""")
@click.command("save", cls=OptionsCommand)
@run_dir_arguments
@options_from(SaveOptions, "options", without=("max_bytes",))
@json_option
def command(*, chosen: Selection, options: SaveOptions, as_json: bool) -> int:
    """Save snapshots of running instances, all at the same time.

    RUN_DIR is the current directory by default; without an INSTANCE, all instances that are ready
    are saved. Each snapshot is verified, and registered in the manifest of its instance.

    \f
    Raises:
        ClawbloxError: The run directory does not exist, or nothing in it is ready.
        UsageError: There is no instance of one of the names, or none with the labels.
    """
    names = [record.name for record in chosen.records if chosen.typed or is_ready(record)]
    if not names:
        raise ClawbloxError(
            f"Nothing in '{shorten_path(chosen.run_dir)}' is ready, so there is nothing to save",
            hint="clawblox ps shows the instances of a run directory",
        )
    saves = anyio.run(partial(save_and_show, chosen.run_dir, names, options, is_quiet=as_json))
    if as_json:
        click.echo(format_json(list(_json_objects(saves))))
    return 1 if saves.failed else 0


def _json_objects(saves: Batch[SavedSnapshot]) -> Iterator[dict[str, Any]]:
    for name, saved in sorted(saves.done.items()):
        yield {"instance": name, **attrs.asdict(saved), "error": None}
    for name, error in sorted(saves.failed.items()):
        yield {"instance": name, "error": describe_error(error)}
