"""The runs that ``ps`` shows: one run, the runs below a directory, or the runs of this user."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import attrs

from clawblox.agents.status import AgentStatus, read_agents
from clawblox.results import Labels, has_labels
from clawblox.rundir.experiments import find_experiment_part
from clawblox.rundir.find_runs import find_runs_below, find_user_runs
from clawblox.rundir.records import check_records, has_records
from clawblox.rundir.status import OVER, InstanceStatus, read_runs
from clawblox.views.formatting import format_labels, shorten_path, suggest


@attrs.frozen
class Scope:
    """Which instances are shown.

    Attributes:
        title: Title of the table; empty for a single run, whose own title is more specific.
        find: Returns the run directories. Blocks.
        shows_ended: Whether instances that have ended are shown.
        if_empty: Text to print if there are none.
        labels: Labels that the instances must have.
        more: Text after the tables: where to see more; empty for none.
    """

    title: str
    find: Callable[[], Sequence[Path]]
    shows_ended: bool
    if_empty: str
    labels: Labels
    more: str = ""

    @property
    def is_one_run(self) -> bool:
        """Whether it is a single run, always the same."""
        return not self.title

    def shows(self, status: InstanceStatus) -> bool:
        """Return whether an instance is shown."""
        is_wanted = self.shows_ended or status.state not in OVER
        return is_wanted and has_labels(status.labels, self.labels)

    def read(self) -> list[InstanceStatus]:
        """Return the instances that are shown, by run directory and name. Blocks."""
        instances = (status for run in read_runs(self.find()) for status in run.instances)
        return [status for status in instances if self.shows(status)]

    def read_agents(self, run_dirs: Iterable[Path]) -> list[AgentStatus]:
        """Return the agents of runs that are shown: none where only some instances are. Blocks."""
        if self.labels:
            return []
        agents = [agent for run_dir in run_dirs for agent in read_agents(run_dir)]
        return [agent for agent in agents if self.shows_ended or not agent.is_over]


def make_scope(
    directory: Path | None, *, wants_ended: bool, watches: bool, labels: Labels
) -> Scope:
    """Return the scope of ``ps``. Blocks.

    Args:
        directory: A run directory or any other, absolute; None means all runs of this user.
        wants_ended: Whether instances that have ended are asked for.
        watches: Whether the table is live. Ended instances would then hide running instances,
            unless it is a single run.
        labels: Labels that the instances must have.
    """
    none_here = f"No instance here has {format_labels(labels)}." if labels else ""
    if directory is None:
        hint = "Nothing has run." if wants_ended else "Nothing runs. --all shows what has ended."
        empty = none_here or hint
        return Scope("this machine", find_user_runs, wants_ended, empty, labels)
    check_records(directory)
    if has_records(directory):
        return Scope("", lambda: [directory], True, none_here, labels)
    place = shorten_path(directory)
    part = find_experiment_part(directory)
    shows_ended = wants_ended or not (watches or part)  # of an experiment, they are hundreds
    status = "" if part is None else suggest("experiment status", part.experiment)
    hint = f" See {status}." if status else ""
    if status and not shows_ended:
        hint = f" --all shows what has ended, and {status} the chains."
    verb = "has run" if shows_ended else "runs"
    empty = none_here or f"Nothing {verb} in '{place}' or below.{hint}"
    find = partial(find_runs_below, directory)
    return Scope(place, find, shows_ended, empty, labels, more=hint.strip())
