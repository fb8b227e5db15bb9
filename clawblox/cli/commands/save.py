"""``clawblox save``: saves snapshots of the running instances of a run directory."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import anyio
import attrs
import click

from clawblox.cli.field_options import OptionsCommand, options_from
from clawblox.cli.parameters import Selection, examples, json_option, run_dir_arguments
from clawblox.cli.terminal.output import Output
from clawblox.cli.terminal.reports import configure_logging
from clawblox.cli.terminal.screen import progress_bar, relay
from clawblox.concurrency.batch import Batch, Outcome
from clawblox.config.options import SaveOptions
from clawblox.errors import ClawbloxError
from clawblox.results import SavedSnapshot
from clawblox.rundir.operations import OnSaved, save_instances
from clawblox.rundir.status import is_ready
from clawblox.views.event_lines import describe_error, describe_saved
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

    RUN_DIR is the current directory by default; without an INSTANCE, all ready instances are saved.
    Each snapshot is verified and registered in the manifest of its instance.

    \f
    Raises:
        ClawbloxError: The run directory does not exist, or none of its instances is ready.
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
        saved = {name: {**attrs.asdict(one), "error": None} for name, one in saves.done.items()}
        failed = {name: {"error": describe_error(error)} for name, error in saves.failed.items()}
        outcomes = (*sorted(saved.items()), *sorted(failed.items()))
        click.echo(format_json([{"instance": name, **facts} for name, facts in outcomes]))
    return 1 if saves.failed else 0


async def save_and_show(
    run_dir: Path, names: Sequence[str], options: SaveOptions, *, is_quiet: bool = False
) -> Batch[SavedSnapshot]:
    """Save instances with a progress bar, and print the path or the error of each save.

    Args:
        run_dir: The run directory.
        names: The instances.
        options: Options of the saves.
        is_quiet: Print nothing on standard output.

    Raises:
        UsageError: One of ``names`` does not exist.

    Cancellation: each instance has both file and manifest entry, or neither.
    """
    configure_logging()
    done: dict[str, SavedSnapshot] = {}
    failed: dict[str, Exception] = {}

    async def work(show_soon: OnSaved) -> None:
        def on_saved(outcome: Outcome[SavedSnapshot]) -> None:
            if outcome.value is not None:
                done[outcome.instance] = outcome.value
            elif outcome.error is not None:
                failed[outcome.instance] = outcome.error
            bar.advance(is_failed=outcome.value is None)
            show_soon(outcome)

        await save_instances(run_dir, names, options, on_saved=on_saved)

    async def show(outcome: Outcome[SavedSnapshot]) -> None:
        if outcome.error is not None:
            await bar.note(f"{outcome.instance}: not saved: {describe_error(outcome.error)}")
        elif outcome.value is not None and not is_quiet:
            await bar.write_line(output, describe_saved(outcome.value))

    with Output(sys.stdout) as output:
        async with progress_bar("Saving", len(names)) as bar:
            await relay(work, show)
    return Batch(done, failed)
