"""Chooses the runs, instances and agents that a list shows, in a terminal or on a page.

A list covers one run, the runs below a directory, or the runs of this user.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from clawblox.agents.status import AgentStatus, read_agents
from clawblox.results import Labels, has_labels
from clawblox.rundir.experiments import find_experiment_part
from clawblox.rundir.find_runs import find_runs_below, find_user_runs
from clawblox.rundir.listed import is_run_dir
from clawblox.rundir.records import check_records
from clawblox.rundir.status import OVER, InstanceStatus, read_runs


class Scope(msgspec.Struct, frozen=True):
    """The instances and agents that a list shows.

    Attributes:
        directory: A run directory or another directory, absolute; None means all runs of this user.
        is_one_run: Whether the list is always of the same single run.
        experiment: The experiment that the directory belongs to, unless it is a single run.
        shows_ended: Whether instances that have ended are shown.
        labels: Labels that the instances must have.
    """

    directory: Path | None
    is_one_run: bool
    experiment: Path | None
    shows_ended: bool
    labels: Labels

    def find(self) -> list[Path]:
        """Return the run directories. Blocks."""
        if self.directory is None:
            return find_user_runs()
        return [self.directory] if self.is_one_run else find_runs_below(self.directory)

    def shows(self, status: InstanceStatus) -> bool:
        """Return whether an instance is shown."""
        is_wanted = self.shows_ended or status.state not in OVER
        return is_wanted and has_labels(status.labels, self.labels)

    def read(self) -> list[InstanceStatus]:
        """Return the instances that are shown, by run directory and name. Blocks."""
        instances = (status for run in read_runs(self.find()) for status in run.instances)
        return [status for status in instances if self.shows(status)]

    def read_agents(self, run_dirs: Iterable[Path]) -> list[AgentStatus]:
        """Return the agents of runs; empty if labels select the instances. Blocks."""
        if self.labels:
            return []
        agents = [agent for run_dir in run_dirs for agent in read_agents(run_dir)]
        return [agent for agent in agents if self.shows_ended or not agent.is_over]


def make_scope(
    directory: Path | None, *, wants_ended: bool, watches: bool = False, labels: Labels
) -> Scope:
    """Return the scope of a list. Blocks.

    Args:
        directory: A run directory or another directory, absolute; None means all runs of this user.
        wants_ended: Whether the user asks for instances that have ended.
        watches: Whether the list is a live table with limited room, where ended instances of
            several runs would hide running instances.
        labels: Labels that the instances must have.

    Raises:
        OSError: The records of the run directory cannot be read.
        ManifestError: A later version of clawblox wrote the records.
    """
    if directory is None:
        return Scope(None, False, None, wants_ended, labels)
    check_records(directory)
    if is_run_dir(directory):
        return Scope(directory, True, None, True, labels)
    part = find_experiment_part(directory)
    shows_ended = wants_ended or not (watches or part)  # an experiment may have hundreds
    experiment = None if part is None else part.experiment
    return Scope(directory, False, experiment, shows_ended, labels)
