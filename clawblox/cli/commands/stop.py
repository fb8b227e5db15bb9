"""``clawblox stop``: stops the instances of a run directory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import anyio
import attrs
import click

from clawblox.cli.commands.save import save_and_show
from clawblox.cli.experiment_dirs import refuse_running_attempt
from clawblox.cli.field_options import OptionsCommand, options_from
from clawblox.cli.options import StopOptions
from clawblox.cli.parameters import Selection, examples, json_option, run_dir_arguments
from clawblox.cli.terminal.output import note
from clawblox.cli.terminal.reports import configure_logging
from clawblox.cli.terminal.screen import progress_bar
from clawblox.config.options import SaveOptions
from clawblox.results import StopResult
from clawblox.rundir.operations import stop_instances
from clawblox.views.event_lines import describe_stopped
from clawblox.views.formatting import format_json


@examples("""
  clawblox stop runs/r001               all instances
  clawblox stop runs/r001 w000 w003     these two
  clawblox stop runs/r001 --save        save each instance first
  clawblox stop runs/r001 --grace 0     kill immediately
""")
@click.command("stop", cls=OptionsCommand)
@run_dir_arguments
@click.option(
    "--save",
    "wants_save",
    is_flag=True,
    help="Save each instance first; an instance that cannot be saved is not stopped.",
)
@options_from(StopOptions, "options")
@json_option
def command(*, chosen: Selection, wants_save: bool, options: StopOptions, as_json: bool) -> int:
    """Stop instances and wait until they have ended.

    RUN_DIR is the current directory by default; without an INSTANCE, all instances are stopped,
    including instances that are still waiting to start. The processes of an instance get SIGTERM
    and, after the grace, SIGKILL. Instances that are not running are not an error.

    \f
    Raises:
        ClawbloxError: The run directory does not exist; or an instance could not be stopped.
        UsageError: There is no instance of one of the names, or none with the labels.
        OSError: The end of an instance could not be recorded.
    """
    configure_logging()
    refuse_running_attempt(chosen.run_dir)
    run, records, names = chosen.run_dir, chosen.records, chosen.names
    unsaved: list[str] = []

    async def save_and_stop() -> None:
        nonlocal names
        if wants_save:
            if alive := [record.name for record in records if record.is_alive]:
                saves = await save_and_show(run, alive, SaveOptions(), is_quiet=as_json)
                unsaved.extend(sorted(saves.failed))
            names = [record.name for record in records if record.name not in unsaved]
        if names or not wants_save:
            total = len(names) or len(records)
            await _stop(run, names, total, options.grace_seconds, as_json=as_json)

    anyio.run(save_and_stop)
    if unsaved:
        note(f"Not saved, so still running: {', '.join(unsaved)}")
    return 1 if unsaved else 0


async def _stop(
    run_dir: Path, names: Sequence[str], total: int, grace: float, *, as_json: bool
) -> None:
    """Stop instances, and show the stopped ones even if another cannot be stopped."""
    results: list[StopResult] = []

    def on_stopped(result: StopResult) -> None:
        results.append(result)
        bar.advance()

    try:
        async with progress_bar("Stopping", total) as bar:
            await stop_instances(run_dir, names, grace_seconds=grace, on_stopped=on_stopped)
    finally:
        results.sort(key=lambda result: result.instance)
        if as_json:
            click.echo(format_json([attrs.asdict(result) for result in results]))
        else:
            for result in results:
                click.echo(describe_stopped(result))
