"""The runs and experiments below a directory, found again and again at little cost.

An address holds no path: a run, an agent or an experiment is named by ten hex digits of the SHA-256
of its path relative to the directory, and looked up among what was found.
"""

from __future__ import annotations

import hashlib
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from clawblox.agents.layout import AGENTS_DIR, AgentDir
from clawblox.agents.listing import make_scope
from clawblox.agents.status import AgentStatus, read_agents
from clawblox.config.world_toml import CONFIG_NAME
from clawblox.experiment.overview import ExperimentOverview, read_overview
from clawblox.experiment.record import ExperimentRecord, read_experiment
from clawblox.rundir.experiments import (
    JOURNAL_NAME,
    PLAN_NAME,
    ExperimentPart,
    find_experiment_owner,
    find_experiment_part,
)
from clawblox.rundir.find_runs import RunSearch
from clawblox.rundir.manifest import manifest_path
from clawblox.rundir.paths import file_stamp, records_journal
from clawblox.rundir.status import OVER, InstanceStatus, Run, read_runs
from clawblox.web.descent import Recordings

_ID_DIGITS: Final = 10
_SEARCH_S: Final = 5.0
_ENDED_LOOK_S: Final = 10.0
_LIVE_LOOK_S: Final = 0.5
_MAX_RECORDS: Final = 4
_SHARE: Final = 20
"""Each kind of look takes at most one in this many seconds."""
_SETTLED_NS: Final = 2_000_000_000
"""Age of a change after which the clock of every file system shows another one as later."""

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
class _Pace:
    """Does something again and again, at most a twentieth of the time."""

    clock: Callable[[], float]
    least_s: float
    _due: float = -math.inf

    def do(self, look: Callable[[], None]) -> bool:
        """Do it if it is due; return whether it was."""
        begun = self.clock()
        if begun < self._due:
            return False
        look()
        took = self.clock() - begun
        self._due = begun + max(self.least_s, took * _SHARE)
        return True


@attrs.define
class _Known:
    """What is known about a run directory.

    Attributes:
        stamps: The stamps of what was read: None if it did not exist, empty if it may have changed.
        summary: The run; None if it cannot be read.
        is_live: Whether it has not ended.
    """

    stamps: Mapping[str, _Stamp | None]
    summary: RunSummary | None
    is_live: bool

    @property
    def has_changed(self) -> bool:
        """Whether a file may have changed. Blocks."""
        return any(_read_stamp(path) != stamp for path, stamp in self.stamps.items())


class Site:
    """What was found below a directory. Thread-safe; every method blocks.

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
        self._lock = threading.Lock()
        self._search = RunSearch(self.root)
        self._search_pace = _Pace(clock, _SEARCH_S)
        self._ended_pace = _Pace(clock, _ENDED_LOOK_S)
        self._live_pace = _Pace(clock, _LIVE_LOOK_S)
        self._experiments_pace = _Pace(clock, _LIVE_LOOK_S)
        self._runs: dict[Path, _Known] = {}
        self._experiments: dict[Path, tuple[_Stamp, ExperimentOverview]] = {}
        self._version = 0
        self._sorted: tuple[int, Sequence[RunSummary]] = (-1, ())
        self._records: dict[Path, tuple[_Stamp, ExperimentRecord]] = {}

    def version(self) -> int:
        """Return what grows with each change of what was found.

        Time, memory and speed of processes do not count.
        """
        with self._lock:
            self._look()
            return self._version

    def runs(self) -> Sequence[RunSummary]:
        """Return the runs: live ones first, then the latest."""
        with self._lock:
            self._look()
            if self._sorted[0] != self._version:
                runs = [known.summary for known in self._runs.values() if known.summary is not None]
                runs.sort(key=lambda run: (run.is_live, run.latest), reverse=True)
                self._sorted = self._version, runs
            return self._sorted[1]

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
        """Bring what is known up to date, as far as that is due."""
        self._ended_pace.do(self._look_at_ended)
        self._live_pace.do(self._look_at_live)
        if self._search_pace.do(self._search_again):
            found = {*self._search.runs}
            self._read([path for path in self._search.runs if path not in self._runs])
            for directory in self._runs.keys() - found:
                self._forget(self._runs, directory)
            for directory in self._experiments.keys() - {*self._search.experiments}:
                self._forget(self._experiments, directory)
        self._experiments_pace.do(self._look_at_experiments)

    def _search_again(self) -> None:
        self._search.look()
        if make_scope(self.root, wants_ended=True, labels={}).is_one_run:
            self._search.runs = [self.root]

    def _forget(self, known: MutableMapping[Path, Any], directory: Path) -> None:
        del known[directory]
        self._version += 1

    def _look_at_ended(self) -> None:
        ended = [(path, known) for path, known in self._runs.items() if not known.is_live]
        self._read([path for path, known in ended if known.has_changed])

    def _look_at_live(self) -> None:
        self._read([path for path, known in self._runs.items() if known.is_live])

    def _read(self, directories: Sequence[Path]) -> None:
        begun_ns = time.time_ns()
        runs = {run.directory: run for run in read_runs(directories)}
        for directory in directories:
            run = runs.get(directory)
            summary = None if run is None else self._summarise(run)
            earlier = self._runs.get(directory)
            if earlier is None or not _is_same(earlier.summary, summary):
                self._version += 1
            is_live = summary is not None and summary.is_live
            stamps = {} if is_live else _stamp_run(directory, summary, begun_ns)
            self._runs[directory] = _Known(stamps, summary, is_live)

    def _summarise(self, run: Run) -> RunSummary:
        name = self.name(run.directory)
        part = find_experiment_part(run.directory)
        return RunSummary(
            identify(name), name, run.directory, run, read_agents(run.directory), part
        )

    def _look_at_experiments(self) -> None:
        for directory in self._search.experiments:
            files = (file_stamp(directory / name) for name in (JOURNAL_NAME, PLAN_NAME))
            stamp = (*files, find_experiment_owner(directory))
            known = self._experiments.get(directory)
            if known is None or known[0] != stamp:
                self._experiments[directory] = stamp, read_overview(directory)
                self._version += 1


def identify(name: str) -> str:
    """Return the name in addresses of a path, given relative to the directory of the site."""
    return hashlib.sha256(os.fsencode(name)).hexdigest()[:_ID_DIGITS]


def _is_same(one: RunSummary | None, other: RunSummary | None) -> bool:
    """Return whether pages that show no measurements of processes show two summaries alike."""
    if one is None or other is None:
        return one is other
    return one.agents == other.agents and _unmeasured(one.run) == _unmeasured(other.run)


def _unmeasured(run: Run) -> Run:
    instances = (
        attrs.evolve(status, uptime_s=None, rss_bytes=None, cpu_s=None, rate=None)
        for status in run.instances
    )
    return attrs.evolve(run, instances=tuple(instances))


def _stamp_run(
    directory: Path, summary: RunSummary | None, read_ns: int
) -> Mapping[str, _Stamp | None]:
    """Return the stamps of what changes when anything of a run is written that its summary shows.

    Args:
        directory: The run directory.
        summary: The run.
        read_ns: When it was read, in nanoseconds since 1970.
    """
    paths = {records_journal(directory), manifest_path(directory), directory / AGENTS_DIR}
    if summary is not None:
        paths.update(manifest_path(status.instance_dir) for status in summary.run.instances)
        paths.update(AgentDir(agent.dir).runtime for agent in summary.agents)
    stamps = {os.fspath(path): _read_stamp(os.fspath(path)) for path in paths}
    settled_ns = read_ns - _SETTLED_NS
    # A change after it was read could have the same stamp.
    return {
        path: stamp if stamp is None or stamp[0] < settled_ns else ()
        for path, stamp in stamps.items()
    }


def _read_stamp(path: str) -> tuple[int, ...] | None:
    """Return what changes with a file, its modification first; None if it does not exist."""
    try:
        status = os.stat(path)  # noqa: PTH116 - it is called thousands of times
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size
