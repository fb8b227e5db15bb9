"""The runs and experiments below a directory, refreshed at little cost.

Addresses contain no paths: a run, an agent or an experiment is identified by ten hex digits of the
SHA-256 of its path relative to the directory, and looked up among the known entries.
"""

from __future__ import annotations

import functools
import hashlib
import os
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

import attrs

from clawblox.agents.layout import AGENTS_DIR, AgentDir
from clawblox.agents.listing import make_scope
from clawblox.agents.status import AgentStatus, read_agents
from clawblox.experiment.reading.overview import ExperimentOverview, read_overview
from clawblox.experiment.reading.record import ExperimentRecord, read_experiment
from clawblox.rundir.experiments import (
    JOURNAL_NAME,
    PLAN_NAME,
    ExperimentPart,
    find_experiment_host,
    find_experiment_owner,
    find_experiment_part,
)
from clawblox.rundir.find_runs import RunSearch
from clawblox.rundir.manifest import manifest_path
from clawblox.rundir.paths import file_stamp, records_journal
from clawblox.rundir.status import OVER, InstanceStatus, Run, read_runs
from clawblox.web.recordings import Recordings
from clawblox.world_keys import CONFIG_NAME

_ID_DIGITS: Final = 10
_MAX_RECORDS: Final = 4
_SHARE: Final = 20
"""Each kind of scan takes at most 1/20 of the time."""
_CHANGED: Final = 2
"""Index in a stamp of the time of the latest change, in nanoseconds since 1970."""
_SETTLED_NS: Final = 2_000_000_000
"""Age of a change after which every file system gives another change a later time."""

_Stamps = Mapping[Path, tuple[int, ...] | None]
"""Stamps that change with their files; None if a file does not exist."""
_T = TypeVar("_T")


class NoSuchPage(LookupError):  # noqa: N818 - names the condition
    """There is no page at an address; the message has the reason, for people."""


def first(found: Iterable[_T], why: str) -> _T:
    """Return the first item of an iterable.

    Raises:
        NoSuchPage: The iterable is empty.
    """
    for one in found:
        return one
    raise NoSuchPage(why)


@attrs.frozen
class RunSummary:
    """A run directory at the time of the last scan.

    Attributes:
        ident: Its name in addresses.
        name: Its path relative to the directory of the site; ``.`` for the directory itself.
        directory: The run directory, absolute.
        run: Its instances.
        agents: Its agents.
        part: The attempt of an experiment that the run belongs to; None for other runs.
    """

    ident: str
    name: str
    directory: Path
    run: Run
    agents: Sequence[AgentStatus]
    part: ExperimentPart | None

    @functools.cached_property
    def is_live(self) -> bool:
        """True while an instance or an agent has not ended."""
        over = [status.state in OVER for status in self.run.instances]
        return not all((*over, *(agent.is_over for agent in self.agents)))

    @property
    def run_id(self) -> str:
        """The id of the run, independent of the directory; empty for a run of an older version."""
        return next((status.run_id for status in self.run.instances if status.run_id), "")

    @functools.cached_property
    def latest(self) -> str:
        """UTC time of the latest start, end or event of an agent; empty if unknown."""
        stamps = [status.ended_at or status.started_at for status in self.run.instances]
        return max([*stamps, *(agent.time for agent in self.agents)], default="")

    def instance(self, name: str) -> InstanceStatus:
        """Return an instance by name.

        Raises:
            NoSuchPage: There is no such instance.
        """
        why = f"{self.name} has no instance {name!r}"
        return first((status for status in self.run.instances if status.name == name), why)


class Site:
    """The runs and experiments found below a directory. Thread-safe; every method blocks.

    Args:
        root: The directory.
        clock: Returns monotonic seconds.

    Attributes:
        root: The directory, resolved.
        recordings: The recordings that pages have looked at.
    """

    def __init__(self, root: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.root = root.resolve()
        self.recordings = Recordings()
        self._clock = clock
        self._lock = threading.Lock()
        self._search = RunSearch(self.root)
        self._scans = {
            self._scan_ended: 10.0,
            self._scan_live: 0.5,
            self._search_again: 5.0,
            self._scan_experiments: 0.5,
        }
        """Minimum seconds between two scans of a kind."""
        self._due: dict[Callable[[], None], float] = {}
        self._runs: dict[Path, tuple[_Stamps, RunSummary | None]] = {}
        """A live run has no stamps and is always read again; None in place of an unreadable run."""
        self._experiments: dict[Path, tuple[Hashable, ExperimentOverview]] = {}
        self._version = 0

    def version(self) -> int:
        """Return a counter that grows with each change of the entries.

        Time, memory and speed of processes do not count.
        """
        with self._lock:
            self._scan()
            return self._version

    def runs(self) -> Sequence[RunSummary]:
        """Return the runs: live runs first, then the latest."""
        with self._lock:
            self._scan()
            runs = [run for _, run in self._runs.values() if run is not None]
        return sorted(runs, key=lambda run: (run.is_live, run.latest), reverse=True)

    def experiments(self) -> Sequence[ExperimentOverview]:
        """Return the experiments, latest first."""
        with self._lock:
            self._scan()
            overviews = [overview for _, overview in self._experiments.values()]
        return sorted(overviews, key=lambda overview: overview.changed_at or "", reverse=True)

    def find_run(self, ident: str) -> RunSummary:
        """Return a run by its name in addresses.

        Raises:
            NoSuchPage: There is no such run.
        """
        return self.find(self.runs(), lambda run: run.directory, ident, "run")

    def find_agent(self, run: RunSummary, ident: str) -> AgentStatus:
        """Return an agent of a run by its name in addresses.

        Raises:
            NoSuchPage: There is no such agent.
        """
        return self.find(run.agents, lambda one: one.dir, ident, f"agent of {run.name}")

    def find(self, found: Iterable[_T], place: Callable[[_T], Path], ident: str, kind: str) -> _T:
        """Return the item whose path has a given name in addresses.

        Args:
            found: The items.
            place: Returns the path of an item.
            ident: The name.
            kind: Word for the items, for people.

        Raises:
            NoSuchPage: No item has that name.
        """
        why = f"There is no {kind} {ident} in {self.root.name}"
        return first((one for one in found if self.identify(place(one)) == ident), why)

    def read_record(self, directory: Path) -> ExperimentRecord:
        """Return an experiment's full record; the latest few are cached until a journal changes.

        Raises:
            ClawbloxError: The experiment cannot be read.
        """
        return _read_record(directory, _stamp_experiment(directory))

    def judged(self) -> Sequence[Path]:
        """Return the worlds, runs and experiments below the directory that may have reports."""
        found = {self.root} if (self.root / CONFIG_NAME).is_file() else set()
        for run in self.runs():
            found.add(run.directory)
            found.update(status.world_dir.resolve() for status in run.run.instances)
        found.update(overview.directory for overview in self.experiments())
        return sorted(path for path in found if path.is_relative_to(self.root))

    def name(self, path: Path) -> str:
        """Return a path below the directory, relative to the directory."""
        return os.path.relpath(path, self.root)

    def identify(self, path: Path) -> str:
        """Return the name of a path in addresses."""
        return identify(self.name(path))

    def _scan(self) -> None:
        """Refresh the entries whose check is due."""
        for scan, least_s in self._scans.items():
            begun = self._clock()
            if begun >= self._due.get(scan, begun):
                scan()
                took = self._clock() - begun
                self._due[scan] = begun + max(least_s, took * _SHARE)
        self._read([path for path in self._search.runs if path not in self._runs])

    def _search_again(self) -> None:
        search = self._search
        search.search_again()
        if make_scope(self.root, wants_ended=True, labels={}).is_one_run:
            search.runs = [self.root]
        self._forget(self._runs, search.runs)
        self._forget(self._experiments, search.experiments)

    def _forget(self, known: dict[Path, _T], found: Sequence[Path]) -> None:
        for gone in known.keys() - set(found):
            del known[gone]
            self._version += 1

    def _scan_ended(self) -> None:
        known = self._runs.items()
        self._read([path for path, (stamps, _) in known if stamps != _stamp_files(stamps)])

    def _scan_live(self) -> None:
        self._read([path for path, (stamps, _) in self._runs.items() if not stamps])

    def _read(self, directories: Sequence[Path]) -> None:
        begun_ns = time.time_ns()
        runs = {run.directory: run for run in read_runs(directories)}
        for directory in directories:
            summary = self._summarise(runs[directory]) if directory in runs else None
            known = self._runs.get(directory)
            if known is None or known[1] != summary:
                self._version += 1
            is_live = summary is not None and summary.is_live
            stamps = {} if is_live else _stamp_run(directory, summary, begun_ns)
            self._runs[directory] = stamps, summary

    def _summarise(self, run: Run) -> RunSummary:
        name, directory = self.name(run.directory), run.directory
        part, agents = find_experiment_part(directory), read_agents(directory)
        return RunSummary(identify(name), name, directory, run, agents, part)

    def _scan_experiments(self) -> None:
        for directory in self._search.experiments:
            process = find_experiment_owner(directory), find_experiment_host(directory)
            stamp = _stamp_experiment(directory), process
            known = self._experiments.get(directory)
            if known is None or known[0] != stamp:
                self._experiments[directory] = stamp, read_overview(directory)
                self._version += 1


def identify(name: str) -> str:
    """Return the name in addresses of a path, given relative to the directory of the site."""
    return hashlib.sha256(os.fsencode(name)).hexdigest()[:_ID_DIGITS]


@functools.lru_cache(maxsize=_MAX_RECORDS)
def _read_record(directory: Path, _stamp: Hashable) -> ExperimentRecord:
    return read_experiment(directory)


def _stamp_experiment(directory: Path) -> Hashable:
    return file_stamp(directory / JOURNAL_NAME), file_stamp(directory / PLAN_NAME)


def _stamp_files(paths: Iterable[Path]) -> _Stamps:
    return {path: file_stamp(path) for path in paths}


def _stamp_run(directory: Path, summary: RunSummary | None, read_ns: int) -> _Stamps:
    """Return the stamps of the files that change with the content of a run's summary.

    Args:
        directory: The run directory.
        summary: The run.
        read_ns: Time of reading, in nanoseconds since 1970.
    """
    paths = {records_journal(directory), manifest_path(directory), directory / AGENTS_DIR}
    if summary is not None:
        paths.update(manifest_path(status.instance_dir) for status in summary.run.instances)
        paths.update(AgentDir(agent.dir).runtime for agent in summary.agents)
    stamps = _stamp_files(paths)
    settled_ns = read_ns - _SETTLED_NS
    # A change shortly after the read could have the same stamp.
    recent = (path for path, stamp in stamps.items() if stamp and stamp[_CHANGED] >= settled_ns)
    return {**stamps, **dict.fromkeys(recent, ())}
