"""The status of an experiment that any process runs, or none."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from clawblox.cli.running.experiment_table import ExperimentLook
from clawblox.concurrency.threads import run_blocking
from clawblox.errors import ControlError
from clawblox.experiment.reading.record import read_experiment
from clawblox.experiment.session.requests import ask_experiment
from clawblox.experiment.tables.status import LiveChain, decode_live
from clawblox.foreign_values import finite_number
from clawblox.rundir.experiments import find_experiment_host


async def look_at_experiment(directory: Path) -> ExperimentLook:
    """Look at an experiment, with the facts that only the process knows that runs it.

    Args:
        directory: The directory of the experiment.

    Raises:
        UsageError: There is no experiment.
        ClawbloxError: Its journal or plan cannot be read.

    Cancellation: has no effect.
    """
    answer: Mapping[str, Any] | None = None
    with contextlib.suppress(ControlError):  # it has just ended, or is suspended
        answer = await ask_experiment(directory, "status")
    record = await run_blocking(read_experiment, directory)
    pid = finite_number((answer or {}).get("pid"), low=1)
    live: dict[str, LiveChain] = {}
    with contextlib.suppress(ValueError):
        live = decode_live((answer or {}).get("live", {}))
    status = record.status(pid=None if pid is None else int(pid), live=live)
    host = await run_blocking(find_experiment_host, directory)
    return ExperimentLook(attrs.evolve(status, host=host), record.lines)
