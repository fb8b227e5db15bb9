"""The experiments below a directory, each in a few facts. Everything here blocks.

A directory that cannot be read as an experiment is one of them, with the reason.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final, Literal, TypeAlias

import attrs

from clawblox.errors import ClawbloxError
from clawblox.experiment.reading.record import ExperimentRecord, read_experiment
from clawblox.experiment.tables.status import ExperimentStatus
from clawblox.foreign_values import clean_text
from clawblox.rundir.experiments import (
    JOURNAL_NAME,
    PLAN_NAME,
    find_experiment_host,
    find_experiment_owner,
    is_smoke_run,
)
from clawblox.rundir.find_runs import find_experiments_below
from clawblox.system.clock import format_utc_ms

MAX_EXPERIMENTS: Final = 100
"""Maximum number of experiments that are read: the latest."""
_MAX_JOURNAL_BYTES: Final = 1 << 27
"""Size of a journal that is too large to be read only for a line of a table."""

ExperimentState: TypeAlias = Literal[
    "running", "failed", "paused", "stopped", "done", "not begun", "unreadable"
]
"""State of an experiment, or that it cannot be read."""


@attrs.frozen(kw_only=True)
class ExperimentOverview:
    """An experiment in a few facts.

    Attributes:
        directory: Its directory.
        name: Its name; that of the directory if it cannot be read.
        state: Its state.
        is_smoke: Whether it is a smoke run that was kept after a failure.
        failed: Number of chains that have failed.
        chains: Number of its chains, with branches.
        committed: Number of complete generations.
        generations: Number of all generations.
        spent_usd: Cost of all attempts that have ended, in US dollars; None if a part of it is not
            known.
        is_estimated: Whether a part of the cost is computed from prices.
        host: The other machine whose process runs it, or was killed there; None without one.
        changed_at: UTC time of the last change of its journal; None if that is not known.
        error: Why it cannot be read; empty if it can.
    """

    directory: Path
    name: str
    state: ExperimentState
    is_smoke: bool = False
    failed: int = 0
    chains: int = 0
    committed: int = 0
    generations: int = 0
    spent_usd: float | None = None
    is_estimated: bool = False
    host: str | None = None
    changed_at: str | None
    error: str = ""


def sort_experiments(directory: Path) -> list[Path]:
    """Return the experiments below a directory, the one that was changed last first.

    Args:
        directory: The directory; it is one of them if it is an experiment.
    """
    return sorted(find_experiments_below(directory), key=_changed_ns, reverse=True)


def is_experiment(directory: Path) -> bool:
    """Return whether a directory has the two files that every experiment has."""
    return all((directory / name).is_file() for name in (JOURNAL_NAME, PLAN_NAME))


def read_overview(directory: Path) -> ExperimentOverview:
    """Return an experiment in a few facts, or why it cannot be read.

    Args:
        directory: Its directory, absolute.
    """
    changed_at = None
    try:
        changed_at = format_utc_ms(_changed_ns(directory))
        _require_small(directory)
        status = find_status(read_experiment(directory))
    except ClawbloxError as error:
        reason = error.headline
    except Exception as error:  # noqa: BLE001 - a directory that anybody made ends no table
        reason = f"{type(error).__name__}: {error}"
    else:
        return _summarise(status, changed_at)
    return ExperimentOverview(
        directory=directory,
        name=directory.name,
        state="unreadable",
        is_smoke=is_smoke_run(directory),
        changed_at=changed_at,
        error=clean_text(reason),
    )


def find_status(record: ExperimentRecord) -> ExperimentStatus:
    """Return the status of an experiment, with the process and the machine that run it.

    Args:
        record: The experiment.
    """
    directory = record.dir
    status = record.status(pid=find_experiment_owner(directory))
    return attrs.evolve(status, host=find_experiment_host(directory))


def _require_small(directory: Path) -> None:
    journal = directory / JOURNAL_NAME
    if journal.is_file() and journal.stat().st_size > _MAX_JOURNAL_BYTES:
        raise ClawbloxError(f"{journal} is larger than {_MAX_JOURNAL_BYTES} bytes")


def _summarise(status: ExperimentStatus, changed_at: str | None) -> ExperimentOverview:
    committed = status.counts.get("committed", 0)
    return ExperimentOverview(
        directory=status.dir,
        name=status.name,
        state=_judge(status, committed),
        is_smoke=is_smoke_run(status.dir),
        failed=status.counts.get("failed", 0),
        chains=len(status.chains),
        committed=committed,
        generations=status.generations,
        spent_usd=status.spent_usd,
        is_estimated=status.is_estimated,
        host=status.host,
        changed_at=changed_at,
    )


def _judge(status: ExperimentStatus, committed: int) -> ExperimentState:
    if status.pid is not None:
        return "running"
    if status.counts.get("failed"):
        return "failed"
    if committed == status.generations:
        return "done"
    if status.counts.get("paused"):
        return "paused"
    has_begun = committed or any(chain.attempts for chain in status.chains)
    return "stopped" if has_begun else "not begun"


def _changed_ns(directory: Path) -> int:
    """Return when a journal was changed last, or else its directory, in nanoseconds since 1970."""
    for path in (directory / JOURNAL_NAME, directory):
        with contextlib.suppress(OSError):
            return path.lstat().st_mtime_ns
    return 0  # it has just been removed
