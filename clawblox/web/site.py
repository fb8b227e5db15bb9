"""The runs and experiments below a directory, found again and again at little cost.

An address holds no path: a run, an agent or an experiment is named by ten hex digits of the SHA-256
of its path relative to the directory, and looked up among what was found.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from clawblox.agents.listing import make_scope
from clawblox.agents.status import AgentStatus, agents_in, read_agents
from clawblox.config.world_toml import CONFIG_NAME
from clawblox.experiment.overview import ExperimentOverview, read_overview
from clawblox.experiment.record import ExperimentRecord, read_experiment
from clawblox.rundir.experiments import (
    JOURNAL_NAME,
    PLAN_NAME,
    ExperimentPart,
    find_experiment_part,
)
from clawblox.rundir.find_runs import find_experiments_below
from clawblox.rundir.manifest import manifest_path
from clawblox.rundir.paths import file_stamp, records_journal
from clawblox.rundir.status import OVER, InstanceStatus, Run, read_runs
from clawblox.web.recorded import Recordings
from clawblox.web.workspaces import Workspaces

_ID_DIGITS: Final = 10
_ENDED_LOOK_S: Final = 10.0
_LEAST_LOOK_S: Final = 0.5
_MAX_RECORDS: Final = 4
_SHARE: Final = 20
"""Looks take at most one in this many seconds."""

_Stamp = tuple[object, ...]


class NoSuchPage(LookupError):  # noqa: N818 - names the condition
    """There is no page at an address; the message says why, for people."""


@attrs.frozen
class RunSummary:
    """A run directory as it was last looked at.

    Attributes:
        ident: Its name in addresses.
        name: Its path relative to the directory of the site; ``.`` for that itself.
        directory: The run directory, absolute.
        run: Its instances.
        agents: Its agents.
        part: The attempt of an experiment that it is; None if it is none.
    """

    ident: str
    name: str
    directory: Path
    run: Run
    agents: Sequence[AgentStatus]
    part: ExperimentPart | None

    @property
    def is_live(self) -> bool:
        """Whether an instance or an agent has not ended."""
        return any(status.state not in OVER for status in self.run.instances) or any(
            not agent.is_over for agent in self.agents
        )

    @property
    def run_id(self) -> str:
        """The id of its run, wherever the directory is; empty for a run of an older version."""
        return next((status.run_id for status in self.run.instances if status.run_id), "")

    @property
    def latest(self) -> str:
        """UTC time of its latest start, end or event of an agent; empty if none is known."""
        stamps = [status.ended_at or status.started_at for status in self.run.instances]
        return max([*stamps, *(agent.time for agent in self.agents)], default="")

    def instance(self, name: str) -> InstanceStatus:
        """Return an instance by its name.

        Raises:
            NoSuchPage: There is no such instance.
        """
        for status in self.run.instances:
            if status.name == name:
                return status
        raise NoSuchPage(f"{self.name} has no instance {name!r}")


@attrs.define
class _Known:
    stamp: _Stamp
    summary: RunSummary
    looked_at: float


class Site:
    """What was found below a directory. Thread-safe; every method blocks.

    Args:
        root: The directory.
        clock: Returns monotonic seconds.

    Attributes:
        root: The directory, resolved.
        recordings: The recordings that pages have looked at.
        workspaces: Reads the workspaces in archives below it.
    """

    def __init__(self, root: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.root = root.resolve()
        self.recordings = Recordings()
        self.workspaces = Workspaces(self.root)
        self._clock = clock
        self._lock = threading.Lock()
        self._runs: dict[Path, _Known] = {}
        self._experiments: dict[Path, tuple[_Stamp, ExperimentOverview]] = {}
        self._next_look = self._next_search = -1.0
        self._found: Sequence[Path] = ()
        self._records: dict[Path, tuple[_Stamp, ExperimentRecord]] = {}

    def runs(self) -> Sequence[RunSummary]:
        """Return the runs: live ones first, then the latest."""
        with self._lock:
            self._look()
            summaries = [known.summary for known in self._runs.values()]
        summaries.sort(key=lambda found: found.latest, reverse=True)
        return sorted(summaries, key=lambda found: not found.is_live)

    def experiments(self) -> Mapping[str, ExperimentOverview]:
        """Return the experiments by their names in addresses, the latest first."""
        with self._lock:
            self._look()
            overviews = [overview for _, overview in self._experiments.values()]
        overviews.sort(key=lambda overview: overview.changed_at or "", reverse=True)
        return {self.identify(overview.directory): overview for overview in overviews}

    def find_run(self, ident: str) -> RunSummary:
        """Return a run by its name in addresses.

        Raises:
            NoSuchPage: There is no such run.
        """
        return self._find(ident, self.runs(), "run")

    def find_experiment(self, ident: str) -> ExperimentOverview:
        """Return an experiment by its name in addresses.

        Raises:
            NoSuchPage: There is no such experiment.
        """
        found = self.experiments().get(ident)
        if found is None:
            raise NoSuchPage(f"There is no experiment {ident} in {self.root.name}")
        return found

    def find_agent(self, run: RunSummary, ident: str) -> AgentStatus:
        """Return an agent of a run by its name in addresses.

        Raises:
            NoSuchPage: There is no such agent.
        """
        for agent in run.agents:
            if self.identify(agent.dir) == ident:
                return agent
        raise NoSuchPage(f"{run.name} has no agent {ident}")

    def read_record(self, directory: Path) -> ExperimentRecord:
        """Return an experiment whole; the latest few are kept until their journals change.

        Raises:
            ClawbloxError: It cannot be read.
        """
        stamp = (file_stamp(directory / JOURNAL_NAME), file_stamp(directory / PLAN_NAME))
        with self._lock:
            known = self._records.get(directory)
        if known is not None and known[0] == stamp:
            return known[1]
        record = read_experiment(directory)
        with self._lock:
            self._records.pop(directory, None)
            self._records[directory] = stamp, record
            while len(self._records) > _MAX_RECORDS:
                del self._records[next(iter(self._records))]
        return record

    def judged(self) -> Sequence[Path]:
        """Return the worlds, runs and experiments below the directory that a report can be of."""
        found = {self.root} if (self.root / CONFIG_NAME).is_file() else set()
        for run in self.runs():
            found.add(run.directory)
            found.update(status.world_dir.resolve() for status in run.run.instances)
        found.update(overview.directory for overview in self.experiments().values())
        return sorted(path for path in found if path.is_relative_to(self.root))

    def name(self, path: Path) -> str:
        """Return a path below the directory relative to it."""
        return os.path.relpath(path, self.root)

    def identify(self, path: Path) -> str:
        """Return the name of a path in addresses."""
        return identify(self.name(path))

    def _find(self, ident: str, runs: Iterable[RunSummary], what: str) -> RunSummary:
        for run in runs:
            if run.ident == ident:
                return run
        raise NoSuchPage(f"There is no {what} {ident} in {self.root.name}")

    def _look(self) -> None:
        """Bring what is known up to date, if that is due."""
        begun = self._clock()
        if begun < self._next_look:
            return
        if begun >= self._next_search:
            self._found = make_scope(self.root, wants_ended=True, labels={}).find()
            self._look_at_experiments()
            took = self._clock() - begun
            self._next_search = begun + max(_LEAST_LOOK_S * 4, took * _SHARE)
        self._look_at_runs(begun)
        took = self._clock() - begun
        self._next_look = self._clock() + max(_LEAST_LOOK_S, took * _SHARE)

    def _look_at_runs(self, now: float) -> None:
        stamps = {}
        for directory in self._found:
            known = self._runs.get(directory)
            if known is not None and not known.summary.is_live:
                if now < known.looked_at + _ENDED_LOOK_S:
                    continue
                stamp = _stamp_run(directory)
                if stamp == known.stamp:
                    known.looked_at = now
                    continue
                stamps[directory] = stamp
            else:
                stamps[directory] = _stamp_run(directory)
        for run in read_runs(stamps):
            self._runs[run.directory] = _Known(stamps[run.directory], self._summarise(run), now)
        gone = self._runs.keys() - set(self._found)
        for directory in gone:
            del self._runs[directory]

    def _summarise(self, run: Run) -> RunSummary:
        name = self.name(run.directory)
        part = find_experiment_part(run.directory)
        return RunSummary(
            identify(name), name, run.directory, run, read_agents(run.directory), part
        )

    def _look_at_experiments(self) -> None:
        found = find_experiments_below(self.root)
        for directory in found:
            stamp = (file_stamp(directory / JOURNAL_NAME),)
            known = self._experiments.get(directory)
            if known is None or known[0] != stamp or known[1].state == "running":
                self._experiments[directory] = stamp, read_overview(directory)
        for directory in self._experiments.keys() - set(found):
            del self._experiments[directory]


def identify(name: str) -> str:
    """Return the name in addresses of a path, given relative to the directory of the site."""
    return hashlib.sha256(os.fsencode(name)).hexdigest()[:_ID_DIGITS]


def _stamp_run(directory: Path) -> _Stamp:
    """Return what changes when anything of a run is written that its summary shows."""
    return tuple(_stamps(directory))


def _stamps(directory: Path) -> Iterator[object]:
    yield file_stamp(records_journal(directory))
    yield file_stamp(manifest_path(directory))
    for agent in sorted(agents_in(directory)):
        yield file_stamp(agent / "runtime")
        yield file_stamp(agent / "usage.json")
