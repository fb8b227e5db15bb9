"""Recognises the run directories of an experiment by their paths, and finds its driver.

The attempts of an experiment are run directories in its directory: ``runs/<attempt>`` there, or in
``chains/<chain>``. The package ``experiment`` owns everything else about experiments.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import msgspec

from clawblox.rundir.paths import state_dir
from clawblox.rundir.status import living_owner

JOURNAL_NAME: Final = "journal.jsonl"
LOST_PREFIX: Final = "journal.lost-"
"""Prefix, before the time, of a saved history whose journal another program has changed."""
PLAN_NAME: Final = "plan.toml"
SMOKE_PART: Final = "-smoke-"
"""Part of the name of a smoke run's directory, before the time."""
_SMOKE_NAME: Final = re.compile(rf".+{SMOKE_PART}[0-9]{{8}}T[0-9]{{6}}Z")
_MAX_DEPTH: Final = 4


class ExperimentPart(msgspec.Struct, frozen=True):
    """A directory of an experiment.

    Attributes:
        experiment: The directory of the experiment, absolute.
        chain: The chain of the directory; None for the experiment itself, or for its only chain.
        attempt: The attempt whose run directory this is; None if it is not a run directory.
    """

    experiment: Path
    chain: str | None = None
    attempt: str | None = None


def find_experiment_part(directory: Path) -> ExperimentPart | None:
    """Return the role of a directory in an experiment; None if it has no role. Blocks.

    Directories in attempts, such as the workspaces of agents, have no role.

    Args:
        directory: The directory, which need not exist.
    """
    path = directory.resolve()
    for depth, place in enumerate((path, *path.parents[:_MAX_DEPTH])):
        if (place / JOURNAL_NAME).is_file() and (place / PLAN_NAME).is_file():
            match path.parts[len(path.parts) - depth :]:
                case () | ("chains",) | ("runs",):
                    return ExperimentPart(place)
                case ("runs", attempt):
                    return ExperimentPart(place, attempt=attempt)
                case ("chains", chain) | ("chains", chain, "runs"):
                    return ExperimentPart(place, chain)
                case ("chains", chain, "runs", attempt):
                    return ExperimentPart(place, chain, attempt)
                case _:
                    return None
    return None


def is_smoke_run(directory: Path) -> bool:
    """Return whether the name of an experiment's directory is that of a smoke run."""
    return _SMOKE_NAME.fullmatch(directory.name) is not None


def experiment_lock(directory: Path) -> Path:
    """Return the lock file of the process that runs the experiment in a directory."""
    return state_dir(directory) / "experiment.lock"


def find_experiment_owner(directory: Path) -> int | None:
    """Return the pid of the process of this machine that runs an experiment, or None. Blocks.

    Args:
        directory: The directory of the experiment.
    """
    is_elsewhere = find_experiment_host(directory) is not None
    return None if is_elsewhere else living_owner(experiment_lock(directory))


def find_experiment_host(directory: Path) -> str | None:
    """Return the name of another machine whose process runs an experiment or was killed. Blocks.

    Args:
        directory: The directory of the experiment.
    """
    from clawblox.rundir.driver_lease import (
        DrivingProcess,
        read_driver,
    )  # only experiments have a lease

    driver = read_driver(directory)
    return None if driver is None or driver.is_beside(DrivingProcess.own()) else driver.host
