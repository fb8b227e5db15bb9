"""``clawblox restart``: restarts the instances of a run directory."""

from __future__ import annotations

from pathlib import Path

import anyio
import click
import msgspec

from clawblox.cli.experiment_dirs import refuse_running_attempt
from clawblox.cli.field_options import OptionsCommand, options_from
from clawblox.cli.options import StopOptions
from clawblox.cli.parameters import Selection, examples, json_option, run_dir_arguments
from clawblox.cli.terminal.output import note
from clawblox.cli.terminal.reports import configure_logging
from clawblox.cli.terminal.screen import progress_bar
from clawblox.concurrency.batch import Outcome
from clawblox.config.options import RestartOptions
from clawblox.errors import UsageError
from clawblox.printable import printable_lines
from clawblox.rundir.operations import restart_instances
from clawblox.rundir.requests import Restarted
from clawblox.views.event_lines import describe_restarted
from clawblox.views.formatting import format_json


@examples("""
  clawblox restart runs/r001 w003            save it and continue from there
  clawblox restart runs/r001 w003 --no-save  continue from its last good save
  clawblox restart runs/r001 w003 --fresh    start it over
  clawblox restart runs/r001 w003 --resume s1.json --reseed 7
  clawblox restart runs/r001                 all instances

The exit status is 1 if an instance could not be restarted.
""")
@click.command("restart", cls=OptionsCommand)
@run_dir_arguments
@click.option(
    "--save/--no-save",
    "wants_save",
    default=None,
    help="Save each instance first; an instance that cannot be saved is not restarted.",
    show_default="save",
)
@click.option("--fresh", is_flag=True, help="Start over without saving.")
@click.option(
    "--resume",
    metavar="SNAPSHOT",
    type=click.Path(path_type=Path),
    help="Continue from this snapshot without saving.",
)
@click.option("--reseed", metavar="SEED", type=int, help="Random seed of each instance.")
@options_from(StopOptions, "options")
@json_option
def command(
    *,
    chosen: Selection,
    wants_save: bool | None,
    fresh: bool,
    resume: Path | None,
    reseed: int | None,
    options: StopOptions,
    as_json: bool,
) -> int:
    """Restart instances, and return when they are ready again.

    RUN_DIR is the current directory by default; without an INSTANCE, all instances that are running
    or have died are restarted. Each keeps its name, port and state: it is saved, stopped, and
    started from that save. An instance that has died continues from its last good save.

    The orchestrator of the run restarts the instances. If it has ended, use clawblox resume.

    \f
    Raises:
        ClawbloxError: The run directory does not exist, or no orchestrator is running in it.
        UsageError: There is no instance of one of the names, or the options contradict each other.
    """
    configure_logging()
    if wants_save and (fresh or resume is not None):
        other = "--fresh" if fresh else "--resume"
        raise UsageError(f"--save: must be left out with {other}, which does not keep the state")
    restart = RestartOptions(
        save=wants_save is not False,
        fresh=fresh,
        resume=None if resume is None else resume.absolute(),
        reseed=reseed,
        grace_seconds=options.grace_seconds,
    )
    refuse_running_attempt(chosen.run_dir)
    names, total = tuple(chosen.names), len(chosen.records)
    outcomes = anyio.run(_restart, chosen.run_dir, names, total, restart)
    if as_json:
        click.echo(format_json([_json_object(outcome) for outcome in outcomes]))
    else:
        for outcome in outcomes:
            _show(outcome)
    return 1 if any(outcome.error is not None for outcome in outcomes) else 0


async def _restart(
    run_dir: Path, names: tuple[str, ...], total: int, options: RestartOptions
) -> list[Outcome[Restarted]]:
    outcomes: list[Outcome[Restarted]] = []
    async with progress_bar("Restarting", total) as bar:

        def on_restarted(outcome: Outcome[Restarted]) -> None:
            outcomes.append(outcome)
            bar.advance(is_failed=outcome.value is None)

        await restart_instances(run_dir, names, options, on_restarted=on_restarted)
    return sorted(outcomes, key=lambda outcome: outcome.instance)


def _show(outcome: Outcome[Restarted]) -> None:
    done = outcome.value
    if done is None:
        note(f"{outcome.instance}: not restarted: {printable_lines(str(outcome.error))}")
        return
    click.echo(describe_restarted(outcome.instance, done))


def _json_object(outcome: Outcome[Restarted]) -> dict[str, object]:
    if outcome.value is None:
        return {"instance": outcome.instance, "error": str(outcome.error)}
    return {"instance": outcome.instance, **msgspec.structs.asdict(outcome.value), "error": None}
