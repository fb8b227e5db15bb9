"""``clawblox experiment``: the commands that show experiments and generations."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import anyio
import attrs
import click

from clawblox.cli.commands.logs import log_options, print_logs
from clawblox.cli.parameters import (
    PATH,
    Selection,
    count_type,
    examples,
    existing_path,
    existing_run_dir,
    json_option,
    show,
)
from clawblox.cli.running.experiment_choice import choose_experiment, newest_directory
from clawblox.cli.running.experiment_scenes import look_at_experiment, watch_experiment
from clawblox.cli.terminal.output import note
from clawblox.cli.terminal.width import table_width
from clawblox.errors import UsageError
from clawblox.experiment.reading.inspection import find_row, inspect_generation
from clawblox.experiment.reading.overview import MAX_EXPERIMENTS, read_overview, sort_experiments
from clawblox.experiment.reading.record import ExperimentRecord, read_experiment
from clawblox.views.experiment_generation import describe_generation, generation_document
from clawblox.views.experiments import MAX_COLUMNS, describe_experiments, describe_status
from clawblox.views.formatting import count_words, shorten_path
from clawblox.views.rows import plain_facts

_LINES: Final = 20
_MAX_LINES: Final = 100_000


@examples("""
  clawblox experiment list                in the current directory
  clawblox experiment list ~/worlds
  clawblox experiment list --json         every field

SPENT is the cost of all ended attempts, CHANGED the age of the last change. An unreadable
experiment is shown as a line with the reason. STATUS marks smoke runs that were kept after a
failure.
""")
@click.command("list")
@click.argument("directory", type=PATH, default=".", metavar="[DIR]")
@json_option
def list_experiments(directory: str, *, as_json: bool) -> None:
    """List the experiments in a directory, latest first.

    DIR is the current directory by default. The search is 5 levels deep and covers the first 20000
    directories; the 100 most recently changed experiments are shown.

    \f
    Raises:
        ClawbloxError: The directory does not exist.
        UsageError: The path is not a directory.
    """
    place = existing_path(directory).absolute()
    if not place.is_dir():
        raise UsageError(f"DIR: must be a directory, not '{directory}'")
    found = sort_experiments(place)
    experiments = [read_overview(path) for path in found[:MAX_EXPERIMENTS]]
    lines = describe_experiments(experiments, table_width())
    text = "\n".join(lines) if lines else f"There is no experiment in '{place}'."
    show([attrs.asdict(one) for one in experiments], text, as_json=as_json)
    if len(found) > MAX_EXPERIMENTS:
        rest = count_words(len(found) - MAX_EXPERIMENTS, "experiment")
        note(f"{rest} that changed earlier: give a directory with fewer of them as DIR.")


@examples("""
  clawblox experiment status                           the newest experiment
  clawblox experiment status experiments/m1
  clawblox experiment status experiments/m1 --watch
  clawblox experiment status experiments/m1 --json     every field

A chain is preparing, starting, working, saving or scoring; waiting for its turn; paused or
failed, with the reason; or done. ACTIVE is the active time out of the duration of a generation;
WORLD the simulation time; SAVED the age of the last checkpoint; SCORE the first of the latest
scores. An agent is in a turn (●), waits for its model (◌), or has ended (✓).
""")
@click.command("status")
@newest_directory
@click.option(
    "-w",
    "--watch",
    "is_watching",
    is_flag=True,
    help="Show a live table until the experiment has ended.",
)
@json_option
def show_status(directory: str | None, *, is_watching: bool, as_json: bool) -> None:
    """Show the state of each chain of an experiment.

    The experiment may be running in another process or not at all. DIR is by default the most
    recently changed experiment in the current directory. In the table of --watch, ? shows the keys
    that select and steer a chain.

    \f
    Raises:
        UsageError: There is no experiment in the directory.
    """
    place = choose_experiment(directory)
    if is_watching and not as_json:
        anyio.run(watch_experiment, place)
        return
    found = anyio.run(look_at_experiment, place).status
    columns = shutil.get_terminal_size(fallback=(MAX_COLUMNS, 0)).columns
    names = {"dir": "directory"}
    facts = {names.get(name, name): fact for name, fact in plain_facts(found).items()}
    show(facts, "\n".join(describe_status(found, columns)), as_json=as_json)


def _check_first(
    ctx: click.Context, param: click.Parameter, words: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the words; the first may be a path.

    Raises:
        click.BadParameter: The first word is empty, as from an unset shell variable.
    """
    return (*(PATH.convert(word, param, ctx) for word in words[:1]), *words[1:])


_generation = click.argument("words", nargs=-1, callback=_check_first, metavar="[DIR] CHAIN/gNNN")


def _choose(words: Sequence[str]) -> tuple[ExperimentRecord, str]:
    """Return the experiment and the generation that ``[DIR] CHAIN/gNNN`` mean.

    Raises:
        ClawbloxError: The directory does not exist.
        UsageError: The words have another form, or the directory contains no experiment.
    """
    if len(words) not in (1, 2):
        raise click.UsageError("Give a generation, such as r2/g003, after the directory if any.")
    *directory, place = words
    return read_experiment(choose_experiment(directory[0] if directory else None)), place


@examples("""
  clawblox experiment show opus-r2/g003         of the newest experiment
  clawblox experiment show experiments/m1 opus-r2/g003
  clawblox experiment show experiments/m1 opus-r2 -n 100
  clawblox experiment show experiments/m1 opus-r2/g003 --json

To see the whole conversation of an agent, use clawblox trajectory with its directory.
""")
@click.command("show")
@_generation
@click.option(
    "-n",
    "--lines",
    type=count_type(0, _MAX_LINES),
    default=_LINES,
    show_default=True,
    metavar="LINES",
    help="Number of the latest lines of each agent's activity to show.",
)
@json_option
def show_generation(words: tuple[str, ...], *, lines: int, as_json: bool) -> None:
    """Show what happened in a generation, and its files.

    The report has its end, scores, usage and attempts, and the actions of its agents. CHAIN/gNNN is
    a chain and the number of a generation, by default the chain's latest. DIR is by default the
    most recently changed experiment in the current directory.

    \f
    Raises:
        ConfigError: There is no such generation.
        UsageError: There is no experiment in the directory.
        ClawbloxError: The directory does not exist, or a directory of the experiment is a link.
        OSError: A directory cannot be read.
    """
    record, place = _choose(words)
    found = inspect_generation(record, place, lines)
    if as_json:
        show(generation_document(found), "", as_json=True)
    else:
        click.echo("\n".join(describe_generation(found, table_width())))


@examples("""
  clawblox experiment logs opus-r2/g003         of the newest experiment
  clawblox experiment logs experiments/m1 opus-r2/g003 -n 50
  clawblox experiment logs experiments/m1 opus-r2/g003 --grep '(?i)error'

The logs are those of the attempt with the results, or else of the latest attempt. For other
attempts, use clawblox logs with a run directory that clawblox experiment show names.
""")
@click.command("logs")
@_generation
@log_options
def generation_logs(words: tuple[str, ...], **options: Any) -> None:
    """Print the logs of the world of a generation, running or ended.

    CHAIN/gNNN and DIR are as for clawblox experiment show.

    \f
    Raises:
        ConfigError: There is no such generation.
        UsageError: There is no experiment in the directory.
        ClawbloxError: The directory does not exist, no world was started, or a directory of the
            experiment is a link.
        OSError: The output is a file, and the disk is full.
    """
    record, place = _choose(words)
    row, _ = find_row(record, place)
    record.require_no_links()
    run_dir = existing_run_dir(str(record.dir / row.run_dir)).absolute()
    if row.attempts > 1:
        note(f"{shorten_path(Path(run_dir))}, one of {row.attempts} attempts")
    print_logs(Selection(run_dir, (), {}), **options)


COMMANDS: Sequence[click.Command] = (
    list_experiments,
    show_status,
    show_generation,
    generation_logs,
)
