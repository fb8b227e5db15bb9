"""``clawblox experiment``: the commands for the results, scores and files of experiments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import anyio
import attrs
import click

from clawblox.cli.parameters import (
    PATH,
    directory_argument,
    examples,
    existing_experiment,
    json_option,
)
from clawblox.cli.running.experiment_choice import choose_experiments
from clawblox.cli.terminal.output import ask, note
from clawblox.cli.terminal.reports import configure_logging
from clawblox.cli.terminal.screen import progress_bar
from clawblox.cli.terminal.width import table_width
from clawblox.errors import ConfigError
from clawblox.experiment.async_experiment import AsyncExperiment
from clawblox.experiment.history.lines import JournalLine
from clawblox.experiment.leftovers import Leftover, list_leftovers, remove_leftovers
from clawblox.experiment.reading.record import read_experiment
from clawblox.experiment.schedule.score_functions import load_function
from clawblox.experiment.tables.results import MEANS, Results, join_results
from clawblox.experiment.tables.rows import Row
from clawblox.printable import printable
from clawblox.system.amounts import format_bytes
from clawblox.views.formatting import (
    count_words,
    format_json,
    format_table,
    shorten_path,
    suggest,
)
from clawblox.views.score_svg import draw_scores

_NO_END: Final = "not scored again, for lack of a checkpoint at its end"
_USUAL_SCORE: Final = "output_tokens"
"""Column that a picture shows if generations have no scores."""


@examples("""
  clawblox experiment results                            of the newest
  clawblox experiment results experiments/m1              all generations
  clawblox experiment results experiments/m1 --by model   means by model
  clawblox experiment results experiments/m1 --by prompt  branches, controls
  clawblox experiment results experiments/m1 --by model,generation
  clawblox experiment results experiments/m1 --agents     a row for each agent
  clawblox experiment results experiments/m1 --csv > results.csv
  clawblox experiment results experiments/m1 --svg scores.svg
  clawblox experiment results experiments/m1-* --csv      of several
""")
@click.command("results")
@click.argument("directories", type=PATH, nargs=-1, metavar="[DIR]...")
@click.option(
    "--by",
    metavar="COLUMN[,COLUMN]...",
    help="Show the number, the mean, its standard error and the median of complete generations by "
    "these columns or labels, such as model. By prompt, branches are also compared with the "
    "control branches of the same checkpoint.",
)
@click.option(
    "--agents",
    "of_agents",
    is_flag=True,
    help="Show a row for each agent in each generation, or means of agents with --by.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Print all rows as CSV.")
@click.option("--svg", type=PATH, metavar="FILE", help="Write a picture to this file, as SVG.")
@click.option(
    "--score",
    metavar="COLUMN",
    show_default="the first score, else output_tokens",
    help="Score, or another column of numbers, that --svg shows.",
)
@json_option
def results(
    directories: tuple[str, ...],
    *,
    by: str | None,
    of_agents: bool,
    as_csv: bool,
    svg: str | None,
    score: str | None,
    as_json: bool,
) -> None:
    """Show the results of experiments, running or ended.

    A row is a generation, or with --agents an agent in a generation. Means cover complete
    generations. TURNS includes turns that answer the save prompt, although no budget counts them.
    On a terminal, columns that do not fit are left out. A picture has a colour for each value of
    --by, by default of the labels in which chains differ; with more than 12 chains it has bands.
    DIR is by default the most recently changed experiment in the current directory. With several,
    the column EXPERIMENT of each row is the directory of its experiment.

    \f
    Raises:
        UsageError: A directory contains no experiment, or two directories are the same.
        click.UsageError: Options cannot be combined.
        ConfigError: There is no such column.
        OSError: The picture cannot be written.
    """
    if sum((as_csv, as_json, svg is not None)) > 1:
        raise click.UsageError("--csv, --json and --svg cannot be combined.")
    if of_agents and svg is not None:
        raise click.UsageError("--agents and --svg cannot be combined.")
    if of_agents and as_json:
        raise click.UsageError(
            "--agents: must be left out with --json, which also has the rows of agents."
        )
    if as_csv and by is not None:
        raise click.UsageError("--by: must be left out with --csv, which has a row for each value.")
    records = list(map(read_experiment, choose_experiments(directories)))
    parts = {shorten_path(record.dir): record.results() for record in records}
    found = join_results(parts) if len(records) > 1 else records[0].results()
    keys = None if by is None else [name.strip() for name in by.split(",")]
    if as_json:
        click.echo(found.to_json() if keys is None else format_json(_group(found, keys)))
    elif as_csv:
        click.echo(found.to_csv(agents=of_agents), nl=False)
    elif svg is not None:
        shown = score or next((name for row in found.rows() for name in row.scores), _USUAL_SCORE)
        title = ", ".join(dict.fromkeys(record.plan.name for record in records))
        picture = draw_scores(found, shown, by=keys, title=title)
        Path(svg).write_text(picture.document(), encoding="utf-8")
        click.echo(f"Wrote {svg}")
    elif not found.rows():
        click.echo("No generation has started.")
    else:
        click.echo(found.table(by=keys, agents=of_agents, width=table_width()))
    for record in records:
        if failed := record.status().failed_scores:
            command = suggest("experiment show", record.dir, failed[0])
            note(f"{count_words(len(failed), 'score')} failed. To see why:  {command}")


def _group(found: Results, keys: Sequence[str]) -> dict[str, Any]:
    """Return the estimates of groups, and the differences of branches, as values for JSON."""
    scores = dict.fromkeys(name for row in found.rows() for name in row.scores)
    groups = [
        {"column": column, **attrs.asdict(group)}
        for column in (*scores, *MEANS)
        for group in found.summary(column, by=keys)
    ]
    compared = [one for column in scores for one in found.differences(column, by=keys)]
    return {"groups": groups, "differences": list(map(attrs.asdict, compared))}


@examples("""
  clawblox experiment rescore experiments/m1    with the plan's score
  clawblox experiment rescore experiments/m1 scores:cubes

scores:cubes is the function cubes in scores.py, in the current directory. It takes a
generation, and returns a number, or numbers by name. It is called with the world of each
committed generation, restored from its checkpoint at the end, without agents.

New scores replace scores of the same names. All other scores are kept, even if the function
fails; tables mark scores from another version of the function.
""")
@click.command("rescore")
@directory_argument
@click.argument("function", metavar="[MODULE:FUNC]", required=False)
def rescore(directory: str, function: str | None) -> int:
    """Score the committed generations again without running any agent.

    The exit status is 1 if a score could not be computed.

    \f
    Raises:
        UsageError: There is no experiment in the directory.
        ConfigError: There is no such function.
        RunLockedError: A process runs the experiment.
    """
    configure_logging()
    place = existing_experiment(directory)
    if function is None and read_experiment(place).plan.score is None:
        raise ConfigError("must be given, as the plan has no score", key="MODULE:FUNC")
    score = None if function is None else load_function(function, "MODULE:FUNC")

    async def score_all() -> tuple[list[Row], Sequence[JournalLine]]:
        async with AsyncExperiment.open(place) as experiment:
            known = len(experiment.record.lines)
            async with progress_bar("Scoring", 0) as bar:
                rows = await experiment.rescore(score, on_scored=bar.reach)
            return rows, experiment.record.lines[known:]

    rows, lines = anyio.run(score_all)
    scored = {(line.chain, line.generation) for line in lines if line.type == "rescored"}
    outcomes = [
        (row, row.error if (row.chain, row.generation) in scored else _NO_END)
        for row in rows
        if row.status == "committed"
    ]
    shown: set[str] = set()
    for row, error in outcomes:
        text = _describe(row, "the same error" if error in shown else error)
        click.echo(printable(f"{row.chain} generation {row.generation}: {text}"))
        shown.add(error or _NO_END)
    return 1 if any(error for _, error in outcomes) else 0


def _describe(row: Row, error: str) -> str:
    """Return the scores of a generation, and the reason if some could not be computed."""
    scores = ", ".join(
        f"{name} {value:g}{' (kept)' if name in row.kept_scores else ''}"
        for name, value in row.scores.items()
    )
    return "; ".join(filter(None, (scores, error))) or "no scores"


@examples("""
  clawblox experiment clean experiments/m1 --dry-run   only list it
  clawblox experiment clean experiments/m1             ask, then remove
  clawblox experiment clean experiments/m1 --yes       remove

These files always stay: committed generations with their checkpoints at the boundary and the
end, the checkpoints of all other generations, and every checkpoint at which a branch starts.
Later forks of a complete generation can only start at the remaining checkpoints.
""")
@click.command("clean")
@directory_argument
@click.option("--dry-run", is_flag=True, help="List the removable files without removing them.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def clean(directory: str, *, dry_run: bool, yes: bool, as_json: bool) -> int:
    """Remove failed runs and old checkpoints of complete generations.

    The exit status is 1 if the user did not confirm, so that no file was removed.

    \f
    Raises:
        UsageError: There is no experiment in the directory.
        ConfigError: Neither --yes nor --dry-run is given with --json.
        RunLockedError: A process runs the experiment.
        OSError: A file cannot be removed.
    """
    if as_json and not (yes or dry_run):
        raise ConfigError("must be given with --yes or --dry-run", key="--json")
    record = read_experiment(existing_experiment(directory))
    leftovers = list_leftovers(record)
    if as_json:
        click.echo(format_json([attrs.asdict(leftover) for leftover in leftovers]))
    else:
        _show_leftovers(leftovers)
    if not leftovers or dry_run:
        return 0
    answer = yes or ask(lambda: click.confirm("Remove them?", err=True))
    if not answer:
        hint = " without an answer: --yes does not ask" if answer is None else ""
        note(f"Nothing was removed{hint}.")
        return 1
    remove_leftovers(record.dir, leftovers)
    note(f"Removed {count_words(len(leftovers), 'item')}.")
    return 0


def _show_leftovers(leftovers: Sequence[Leftover]) -> None:
    if not leftovers:
        click.echo("Nothing to remove.")
        return
    rows = [
        (shorten_path(leftover.path), leftover.kind, format_bytes(leftover.size_bytes))
        for leftover in leftovers
    ]
    click.echo(format_table(("PATH", "KIND", "SIZE"), rows))
    total = sum(leftover.size_bytes for leftover in leftovers)
    click.echo(f"{count_words(len(leftovers), 'item')}, {format_bytes(total)}.")


COMMANDS: Sequence[click.Command] = (results, rescore, clean)
