"""Refuses a run directory in place of an experiment's directory, and vice versa.

The hint of each error has the command that the caller probably means.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import click

from clawblox.errors import UsageError
from clawblox.printable import name_some
from clawblox.protocol import INSTANCE_ENV
from clawblox.rundir.experiments import (
    JOURNAL_NAME,
    ExperimentPart,
    find_experiment_owner,
    find_experiment_part,
    is_smoke_run,
)
from clawblox.rundir.find_runs import find_runs_below
from clawblox.rundir.records import has_records
from clawblox.views.formatting import shorten_path, suggest
from clawblox.world_keys import CONFIG_NAME

_NAMED: Final = 5
_COUNTERPARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "clean": ("clean",),
    "fork": ("fork", "CHECKPOINT"),
    "resume": ("resume",),
    "run": ("resume",),
    "stop": ("stop",),
    "up": ("resume",),
    "wait": ("status", "--watch"),
}
"""For each command for runs, the command that does the same with an experiment."""
_OF_BOTH: Final = ("clean", "resume", "stop")
"""Commands that exist for runs and experiments, with the same arguments."""


def name_directories(directories: list[Path]) -> str:
    """Return the names of directories for a hint, latest first."""
    latest = sorted(directories, key=lambda path: path.stat().st_mtime, reverse=True)
    return name_some([*map(shorten_path, latest)], _NAMED)


# -- an experiment in place of a run -----------------------------------------------------------


def refuse_experiment(directory: Path, meant: str = "a run directory") -> None:
    """Refuse the directory of an experiment or a chain if another kind is needed. Blocks.

    Args:
        directory: The directory.
        meant: The kind of directory that the command needs.

    Raises:
        UsageError: The directory belongs to an experiment.
    """
    part = find_experiment_part(directory)
    if part is None or part.attempt is not None:
        return
    hint = f"use {_suggest_counterpart(part)}"
    if _command_name() not in _COUNTERPARTS and (runs := find_runs_below(directory.absolute())):
        hint += f", or give the run directory of an attempt: {name_directories(runs)}"
    what = _describe(part, directory)
    raise UsageError(f"'{shorten_path(directory)}' is {what}, not {meant}", hint=hint)


def refuse_running_attempt(run_dir: Path) -> None:
    """Refuse to start or end the world of an attempt while its experiment runs. Blocks.

    Args:
        run_dir: A run directory.

    Raises:
        UsageError: The directory belongs to an attempt, and a process runs the experiment.
    """
    part = find_experiment_part(run_dir)
    pid = None if part is None else find_experiment_owner(part.experiment)
    if part is not None and pid is not None:
        is_stop = _command_name() == "stop"
        status = suggest("experiment status", part.experiment)
        raise UsageError(
            f"'{shorten_path(run_dir)}' is {_describe(part, run_dir)}, which runs as pid {pid} and "
            "starts and stops its worlds and agents itself",
            hint=f"use {_suggest_counterpart(part) if is_stop else status}",
        )


def refuse_new_run(directory: Path, argument: str = "--run-dir") -> None:
    """Refuse to start a run or an experiment in a directory of an experiment. Blocks.

    The world of an attempt may itself be a run; its directory is chosen by the experiment.

    Args:
        directory: The directory of the new run or experiment.
        argument: The argument of the command that names the directory.

    Raises:
        UsageError: The directory is part of an experiment.
    """
    part = None if INSTANCE_ENV in os.environ else find_experiment_part(directory)
    if part is not None:
        raise UsageError(
            f"{argument}: must be outside of the experiment in '{shorten_path(part.experiment)}', "
            f"not '{shorten_path(directory)}'",
            hint=f"give another directory as {argument}",
        )


def _suggest_counterpart(part: ExperimentPart) -> str:
    """Return the counterpart for experiments of the current command for runs."""
    name, *words = _COUNTERPARTS.get(_command_name(), ("status",))
    if name == "stop" and part.chain is not None:
        words = [part.chain]
    return suggest(f"experiment {name}", part.experiment, *words)


def _describe(part: ExperimentPart, directory: Path) -> str:
    if part.experiment == directory.resolve():
        return "the directory of an experiment"
    return f"part of the experiment in '{shorten_path(part.experiment)}'"


def _command_name() -> str:
    """Return the name of the current command, such as ``resume`` or ``experiment resume``."""
    names: list[str] = []
    context: click.Context | None = click.get_current_context()
    while context is not None and context.parent is not None:
        names.insert(0, context.command.name or "")
        context = context.parent
    return " ".join(names)


def refuse_no_plan(path: Path, argument: str) -> None:
    """Refuse a directory in place of a plan. Blocks.

    Args:
        path: The path.
        argument: The argument of the command that names the path.

    Raises:
        UsageError: The path is a directory.
    """
    if not path.is_dir():
        return
    part, hint = find_experiment_part(path), None
    if part is not None:
        hint = f"to continue the experiment: {suggest('experiment resume', part.experiment)}"
    elif (path / CONFIG_NAME).exists():
        hint = f"to run a world without a plan: {suggest('run', path)}"
    raise UsageError(
        f"{argument}: must be a TOML file, not the directory '{shorten_path(path)}'", hint=hint
    )


# -- a run in place of an experiment -----------------------------------------------------------


def require_experiment(directory: Path) -> None:
    """Refuse a directory without an experiment. Blocks.

    Args:
        directory: The directory, which exists.

    Raises:
        UsageError: The directory contains no experiment, or its journal was lost; the hint has the
            command for this directory.
    """
    from clawblox.experiment.history.journal import require_none_lost  # slow to import

    if (directory / JOURNAL_NAME).exists():
        return
    require_none_lost(directory)
    shown, command = shorten_path(directory), _command_name()
    part = find_experiment_part(directory)
    if part is not None:
        hint = f"use {suggest(command, part.experiment)}"
        raise UsageError(f"'{shown}' is {_describe(part, directory)}", hint=hint)
    if has_records(directory):
        name = command.removeprefix("experiment ")
        hint = f"use {suggest(name if name in _OF_BOTH else 'ps', directory)}"
        raise UsageError(
            f"'{shown}' is a run directory, not the directory of an experiment", hint=hint
        )
    below = list(_find_below(directory))
    names = (
        f"; there are: {name_directories(below)}" if below else ", by default experiments/<name>"
    )
    hint = f"give the directory of an experiment{names}"
    raise UsageError(f"there is no experiment in '{shown}'", hint=hint)


def _find_below(directory: Path) -> Iterator[Path]:
    """Yield the experiments in a directory, or in ``results`` of a world's directory."""
    for pattern in (f"*/{JOURNAL_NAME}", f"results/*/{JOURNAL_NAME}"):
        for journal in directory.glob(pattern):
            part = find_experiment_part(journal.parent)
            is_own = part is not None and part.experiment == journal.parent.resolve()
            if is_own and not is_smoke_run(journal.parent):
                yield journal.parent
