"""The default experiment or run of a command whose argument is left out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from clawblox.cli.parameters import PATH, existing_experiment
from clawblox.cli.terminal.output import note
from clawblox.errors import UsageError
from clawblox.printable import printable_name
from clawblox.rundir.experiments import find_experiment_part, is_smoke_run
from clawblox.rundir.find_runs import find_runs_below
from clawblox.views.formatting import count_words, shorten_path

_LISTED: Final = 20

newest_directory = click.argument("directory", type=PATH, required=False, metavar="[DIR]")
"""The argument of :func:`choose_experiment`."""
only_run = click.argument("run", type=PATH, required=False, metavar="[RUN]")
"""The argument of :func:`choose_only_run`."""


def choose_experiment(text: str | None) -> Path:
    """Return the directory of the typed experiment, or else of the newest. Blocks.

    The newest is the most recently changed experiment in the current directory, without smoke runs;
    in the directory of an experiment, it is that experiment. A line on standard error names the
    experiment and the way to choose another, since the newest may be damaged.

    Args:
        text: The directory as typed; None if it was left out.

    Returns:
        The directory, absolute.

    Raises:
        ClawbloxError: The directory does not exist.
        UsageError: The directory, or the current directory, contains no experiment.
    """
    if text is not None:
        return existing_experiment(text)
    part = find_experiment_part(Path.cwd())
    found = [part.experiment] if part is not None else _find_experiments()
    if not found:
        raise UsageError(
            f"there is no experiment in '{Path.cwd()}'",
            hint="give the directory of an experiment, by default experiments/<name>",
        )
    count = count_words(len(found), "experiment")
    which = f", the newest of {count}; give DIR for another" if len(found) > 1 else ""
    note(printable_name(f"Experiment: {shorten_path(found[0])}{which}"))
    return existing_experiment(str(found[0]))


def choose_experiments(texts: Sequence[str]) -> list[Path]:
    """Return the directories of the typed experiments, or of the newest. Blocks.

    Args:
        texts: The directories as typed; empty for the newest experiment.

    Returns:
        The directories, absolute.

    Raises:
        ClawbloxError: A directory does not exist.
        UsageError: A directory contains no experiment, or two are the same.
    """
    typed: dict[Path, str] = {}
    for text in texts:
        place = choose_experiment(text).resolve()
        if place in typed:
            raise UsageError(
                f"DIR: must be different experiments, but {typed[place]!r} and {text!r} are the "
                "same directory"
            )
        typed[place] = text
    return [choose_experiment(text) for text in texts or (None,)]


def choose_only_run(text: str | None, *, are_experiments: bool = False) -> str:
    """Return the typed run, or else the only run in the current directory. Blocks.

    A line on standard error names the run.

    Args:
        text: The argument RUN as typed; None if it was left out.
        are_experiments: Whether an experiment counts as a single run.

    Raises:
        UsageError: There is no run, or there are several; the error lists them.
    """
    if text is not None:
        return text
    found = _find_runs(are_experiments=are_experiments)
    if len(found) == 1:
        note(printable_name(f"Run: {shorten_path(found[0])}"))
        return str(found[0])
    what = "run or experiment" if are_experiments else "run"
    if not found:
        raise UsageError(f"RUN: must be given, as there is no {what} in '{Path.cwd()}'")
    raise UsageError(
        f"RUN: must be given, as there are {len(found)} in '{Path.cwd()}':\n{_list(found)}"
    )


def _find_experiments() -> list[Path]:
    # Imported here because experiments are slow to import, and a typed directory does not need
    # them.
    from clawblox.experiment.reading.overview import is_experiment, sort_experiments

    found = filter(is_experiment, sort_experiments(Path.cwd()))
    return [directory for directory in found if not is_smoke_run(directory)]


def _find_runs(*, are_experiments: bool) -> list[Path]:
    here, part = Path.cwd(), find_experiment_part(Path.cwd())
    if part is not None and part.attempt is None:
        return [part.experiment] if are_experiments else find_runs_below(part.experiment)
    if part is not None:
        return find_runs_below(here)
    experiments, runs = _find_experiments(), find_runs_below(here)
    if are_experiments:
        outside = [run for run in runs if find_experiment_part(run) is None]
        return sorted({*experiments, *outside})
    return sorted({*runs, *(run for place in experiments for run in find_runs_below(place))})


def _list(found: Sequence[Path]) -> str:
    lines = [f"  {printable_name(shorten_path(path))}" for path in found[:_LISTED]]
    rest = len(found) - len(lines)
    return "\n".join([*lines, *([f"  and {rest} more"] if rest else [])])
