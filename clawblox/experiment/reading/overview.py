"""Summarises the experiments below a directory. All functions block.

An experiment that cannot be read is listed too, with the reason.
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
"""Maximum number of experiments to read, latest first."""
_MAX_JOURNAL_BYTES: Final = 1 << 27
"""Size from which a journal is too large to read for a single line of a table."""

OverviewState: TypeAlias = Literal[
    "running", "failed", "paused", "stopped", "done", "not begun", "unreadable"
]
"""State of an experiment; ``unreadable`` if it cannot be read."""


@attrs.frozen(kw_only=True)
class ExperimentOverview:
    """The summary of an experiment.

    Attributes:
        directory: Its directory.
        name: Its name; the directory's name if it cannot be read.
        state: Its state.
        is_smoke: Whether it is a smoke run kept after a failure.
        failed: Number of chains that have failed.
        chains: Number of its chains, with branches.
        committed: Number of complete generations.
        generations: Number of all generations.
        spent_usd: Cost of all ended attempts, in US dollars; None if any cost is unknown.
        is_estimated: Whether part of the cost is computed from prices.
        host: Another machine on which its process runs or was killed, or None.
        changed_at: UTC time of the last change of its journal; None if unknown.
        error: Why it cannot be read; empty if it can.
    """

    directory: Path
    name: str
    state: OverviewState
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
    """Return the experiments below a directory, most recently changed first.

    Args:
        directory: The directory; it is included if it is an experiment.
    """
    return sorted(find_experiments_below(directory), key=_changed_ns, reverse=True)


def is_experiment(directory: Path) -> bool:
    """Return whether a directory has the two files that every experiment has."""
    return all((directory / name).is_file() for name in (JOURNAL_NAME, PLAN_NAME))


def read_overview(directory: Path) -> ExperimentOverview:
    """Return the summary of an experiment, or the reason why it cannot be read.

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
    """Return the status of an experiment, including the process and machine that run it.

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


def _judge(status: ExperimentStatus, committed: int) -> OverviewState:
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
    """Return the mtime of a journal, or else of its directory, in nanoseconds since 1970."""
    for path in (directory / JOURNAL_NAME, directory):
        with contextlib.suppress(OSError):
            return path.lstat().st_mtime_ns
    return 0  # just removed
