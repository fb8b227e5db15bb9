"""An experiment as its directory records it, whoever runs it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from clawblox.config.arguments import check_path
from clawblox.errors import ClawbloxError
from clawblox.experiment.history.journal import read_lines
from clawblox.experiment.history.lines import Line
from clawblox.experiment.history.state import Checkpoint, CheckpointRef, ExperimentState
from clawblox.experiment.plan.plan import Chain, Plan
from clawblox.experiment.selection import find_checkpoint
from clawblox.experiment.tables.chain_set import all_chains
from clawblox.experiment.tables.results import Results, make_results
from clawblox.experiment.tables.status import ExperimentStatus, LiveChain, make_status
from clawblox.system.clock import utc_now


@attrs.frozen(kw_only=True)
class ExperimentRecord:
    """An experiment as its directory records it.

    Attributes:
        directory: The directory, absolute.
        plans: The plan in each revision, the first as it was begun.
        state: The state according to the journal.
        lines: The lines of the journal.
    """

    directory: Path
    plans: Sequence[Plan]
    state: ExperimentState
    lines: Sequence[Line]

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return self.plans[-1]

    @property
    def chains(self) -> dict[str, Chain]:
        """The chains by name, branches included."""
        return all_chains(self.plan, self.state)

    def checkpoint(self, place: str, at: str | float | None = None) -> Checkpoint:
        """Return a checkpoint; see :meth:`Experiment.checkpoint`.

        Raises:
            ConfigError: There is none.
        """
        return find_checkpoint(self.state, place, at)

    def status(
        self, *, pid: int | None = None, live: Mapping[str, LiveChain] | None = None
    ) -> ExperimentStatus:
        """Return the status now.

        Args:
            pid: The process that runs the experiment; None if none does.
            live: Facts by chain that only this process knows; None for none.
        """
        now = utc_now()
        return make_status(self.directory, self.plan, self.state, now=now, pid=pid, live=live)

    def results(self, *, forked_from: CheckpointRef | Checkpoint | None = None) -> Results:
        """Return the results.

        Args:
            forked_from: Only the branches that began at this checkpoint; None for all chains.
        """
        source = forked_from.ref if isinstance(forked_from, Checkpoint) else forked_from
        return make_results(self.plan, self.state, forked_from=source)


def read_experiment(directory: str | os.PathLike[str]) -> ExperimentRecord:
    """Read an experiment from its directory. Blocks.

    Args:
        directory: The directory.

    Raises:
        UsageError: There is no experiment.
        ClawbloxError: Its journal or its plan cannot be read.
    """
    path = check_path(directory, "directory").absolute()
    lines = read_lines(path)
    plans = read_plans(path, lines)
    return ExperimentRecord(directory=path, plans=plans, state=ExperimentState(lines), lines=lines)


def read_plans(directory: Path, lines: Sequence[Line]) -> list[Plan]:
    """Return the plan of an experiment in each revision. Blocks.

    Raises:
        ClawbloxError: A plan is missing or not valid.
    """
    files = [
        str(line.data["plan"])
        for line in lines
        if line.type in ("experiment.begun", "plan.amended")
    ]
    if not files:
        raise ClawbloxError(
            f"the experiment in {directory} was interrupted before it began",
            hint="remove the directory, and run the experiment again",
        )
    return [Plan.load(directory / file) for file in files]
