"""The history of runs from their manifests: saves, their origins, comparable runs.

Runs and saves are found even if their directories were moved.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from clawblox.errors import ClawbloxError
from clawblox.experiment.tables.rows import Row
from clawblox.rundir.lineage import InstanceLineage, Lineage, read_lineage
from clawblox.rundir.listed_saves import LineageSave
from clawblox.rundir.lives import Life, Origin
from clawblox.rundir.manifest import manifest_path
from clawblox.rundir.paths import file_stamp
from clawblox.rundir.recordings import FoundRecording, find_recordings
from clawblox.views.descent import DescentLife, find_descent
from clawblox.views.formatting import path_word, suggest
from clawblox.views.html import PageAddress
from clawblox.web.page import Ask
from clawblox.web.site import NoSuchPage, RunSummary, Site, first

_KEPT: Final = 4096
"""Number of runs whose history stays in memory."""
_BEGINNINGS: Final = {"start": "started", "resume": "resumed"}
_GENERATION: Final = re.compile(r"gen(\d+)-t(\d+)\.ckpt")
_MAX_RUNS: Final = 200
_MAX_INSTANCES: Final = 12


@attrs.frozen
class RunHistory:
    """Facts from the manifests of a run.

    Attributes:
        lineage: Its lineage.
        saves: Its snapshots and archives, latest first. An archive belongs to no instance, so its
            ``instance`` is empty.
        recordings: Its recordings in the order of their numbers, from 1.
        origins: The archives and snapshots of other or earlier runs from which it started.
    """

    lineage: Lineage
    saves: Sequence[LineageSave]
    recordings: Sequence[FoundRecording]
    origins: Sequence[Origin]


def read_history(run: RunSummary) -> RunHistory:
    """Return the history of a run; changed files are read again. Blocks."""
    places = {run.directory, *(status.instance_dir for status in run.run.instances)}
    manifests = (file_stamp(manifest_path(place)) for place in sorted(places))
    states = ((status.name, status.state) for status in run.run.instances)
    return _read(run.directory, (*manifests, *states))


@functools.lru_cache(maxsize=_KEPT)
def _read(run_dir: Path, _stamp: tuple[object, ...]) -> RunHistory:
    try:
        lineage = read_lineage(run_dir)
    except ClawbloxError as error:
        lineage = Lineage(run_dir, (), (error.headline,))
    recordings: Sequence[FoundRecording] = ()
    with contextlib.suppress(ClawbloxError):  # the manifest does not exist until an instance is up
        recordings = find_recordings(run_dir)
    own = (save for instance in lineage.instances for save in instance.saves)
    saves = {save.path: save for save in (*own, *lineage.archives)}
    parents = {
        one.parent.path: one.parent
        for one in lineage.instances
        if one.parent is not None and one.parent.instance in (None, one.name)
    }
    latest = sorted(saves.values(), key=lambda save: save.created_at or "")[::-1]
    return RunHistory(lineage, latest, recordings, lineage.origins or [*parents.values()])


def find_line(site: Site, run: RunSummary, instance: str) -> Sequence[DescentLife]:
    """Return the line of descent of an instance through all runs of its origin. Blocks."""
    runs = site.runs() if read_history(run).origins else (run,)
    return find_descent([read_history(one).lineage for one in runs], run.directory, instance)


# -- origins of saves ------------------------------------------------------------------------------


@attrs.frozen
class RunSave:
    """A save and the run that lists it.

    Attributes:
        run: The run.
        save: The save; an archive has no instance.
    """

    run: RunSummary
    save: LineageSave

    def address(self, ask: Ask, *below: str, **query: str) -> PageAddress:
        """Return the address of the save's page, or of a page below."""
        ident = ask.site.identify(self.save.path)
        return ask.links.to("run", self.run.ident, "save", ident, *below, **query)

    @property
    def command(self) -> str:
        """The command that continues from the save; empty if unknown."""
        part, path, instances = self.run.part, self.save.path, self.run.run.instances
        if part is not None and (generation := _GENERATION.fullmatch(path.name)):
            place = f"{part.chain}/g{generation[1]}@{int(generation[2])}s"
            return suggest("experiment fork", part.experiment, place)
        again = ("--resume", path_word(path))
        return suggest("run", instances[0].world_dir, *again) if instances else ""


def find_save(site: Site, run_ident: str, ident: str) -> RunSave:
    """Return a save by the names in its address.

    Raises:
        NoSuchPage: There is no such save.
    """
    run = site.find_run(run_ident)
    saves = (save for save in read_history(run).saves if site.identify(save.path) == ident)
    return RunSave(run, first(saves, f"{run.name} has no save {ident}"))


@attrs.frozen
class StartFromSave:
    """A start from a save.

    Attributes:
        run: The run that was started.
        instance: Its instance; empty for all instances of an archive.
        origin: The origin that the manifest names.
        source: The save; None if no run below the directory has it.
        how: The kind of start, in words.
        at: UTC time of the start; None if unknown.
        life: The life that started; None for an archive, whose lives are unknown.
    """

    run: RunSummary
    instance: str
    origin: Origin
    source: RunSave | None
    how: str
    at: str | None
    life: Life | None = None


class Origins:
    """The saves of the runs of a site, and the starts from them. The constructor blocks.

    The save of a start is found by path, also if its run was moved since, if it has the digest that
    the manifest names; for archives the manifest names no digest. Otherwise it is any save with
    that digest, preferably with the same file name.

    Args:
        runs: The runs.

    Attributes:
        starts: All starts from a save, in the order of the runs.
        parents: The saves of other runs from which a run started, by the run's name in addresses
            and the path of the save.
    """

    def __init__(self, runs: Sequence[RunSummary]) -> None:
        saves = [RunSave(run, save) for run in runs for save in read_history(run).saves]
        former = {path: found for found in reversed(saves) for path in _list_former_paths(found)}
        self._by_path = former | {found.save.path: found for found in reversed(saves)}
        self._by_digest = defaultdict[str | None, list[RunSave]](list)
        for found in saves:
            self._by_digest[found.save.sha256].append(found)
        self.starts = tuple(start for run in runs for start in self._find_starts(run))
        self.parents = defaultdict[str, dict[Path, RunSave]](dict)
        for start in self.starts:
            if start.source is not None and start.source.run is not start.run:
                self.parents[start.run.ident][start.source.save.path] = start.source

    def find(self, origin: Origin, run_id: str = "") -> RunSave | None:
        """Return the save from which a run started; None if only that run or no run has it."""
        found = self._by_path.get(origin.path)
        if found and (not origin.sha256 or found.save.sha256 in (None, origin.sha256)):
            return found
        known = self._by_digest.get(origin.sha256, ()) if origin.sha256 else ()
        same = [other for other in known if not run_id or other.save.run_id != run_id]
        return min(same, key=lambda one: one.save.path.name != origin.path.name, default=None)

    def address(self, ask: Ask, path: Path) -> PageAddress | None:
        """Return the address of the page of a save; None if no run has it."""
        return self._by_path[path].address(ask) if path in self._by_path else None

    def find_archive(self, path: Path) -> RunSave | None:
        """Return the archive that passed a save on to other runs, or else the save itself.

        Args:
            path: The save. A run that starts from an archive also starts from the save inside.
        """
        runs = {
            start.run.ident
            for start in self.starts
            if start.source and start.source.save.path == path
            if start.life and start.life.begun_by == "start"
        }
        archives = (one.source for one in self.starts if not one.life and one.run.ident in runs)
        return next(filter(None, archives), self._by_path.get(path))

    def _find_starts(self, run: RunSummary) -> Iterator[StartFromSave]:
        history = read_history(run)
        for instance in history.lineage.instances:
            for life in instance.lives:
                if life.origin is not None:
                    source = self.find(life.origin, life.run_id)
                    how = _BEGINNINGS.get(life.begun_by, "restarted")
                    yield StartFromSave(
                        run, instance.name, life.origin, source, how, life.begun_at, life
                    )
        for origin in history.origins:
            if origin.path.suffix == ".ckpt":
                at = next((status.started_at for status in run.run.instances), None)
                yield StartFromSave(run, "", origin, self.find(origin), "from the archive", at)


def _list_former_paths(found: RunSave) -> Iterator[Path]:
    """Yield the path of a save before the directory of its run was moved."""
    directory, path = found.run.directory, found.save.path
    if path.is_relative_to(directory):
        for former in read_history(found.run).lineage.former_dirs:
            yield former / path.relative_to(directory)


def find_before(site: Site, origins: Origins, found: RunSave) -> Mapping[Path, str]:
    """Return the saves to compare a save with, each with its role. Blocks.

    These are the previous save, or else the save from which its life or run started; and the
    archive that the previous generation handed down.
    """
    history, save, befores = read_history(found.run), found.save, dict[Path, str]()
    lines = [life.saves for instance in history.lineage.instances for life in instance.lives]
    archives = [one for one in reversed(history.saves) if not one.instance]
    line = next((line for line in (*lines, archives) if save in line), ())
    for before in line[: line.index(save)][-1:]:
        befores[before.path] = "the previous save"
    for start in () if befores else origins.starts:
        is_of_line = save in start.life.saves if start.life else save in archives
        if start.run.ident == found.run.ident and is_of_line:
            source = start.origin.path if start.source is None else start.source.save.path
            befores[source] = "the save from which it started"
    handed = list_handed_down(site, found.run)
    return befores | {source: words for run, source, words in handed if run == found.run.directory}


def list_handed_down(site: Site, run: RunSummary) -> Iterator[tuple[Path, Path, str]]:
    """Yield the archives that runs of an experiment were handed: run directory, archive, role.

    Args:
        site: The site.
        run: A run of the experiment; for other runs, no archives are yielded.
    """
    directory, rows = _read_rows(site, run)
    latest: dict[str, str] = {}
    for row in rows:
        words = "the previous generation" if row.chain in latest else "the parent of the branch"
        if source := latest.get(row.chain, row.forked_from):
            yield directory / row.run_dir, directory / source, words
        if row.checkpoint:
            latest[row.chain] = row.checkpoint


def read_scores(site: Site, run: RunSummary) -> Mapping[str, float]:
    """Return the scores of a run as a generation of an experiment. Blocks."""
    directory, rows = _read_rows(site, run)
    return next((row.scores for row in rows if directory / row.run_dir == run.directory), {})


def _read_rows(site: Site, run: RunSummary) -> tuple[Path, Sequence[Row]]:
    """Return the directory of the experiment of a run, and its results; empty for other runs."""
    with contextlib.suppress(ClawbloxError):
        if run.part is not None:
            record = site.read_record(run.part.experiment)
            return record.dir, record.results().rows()
    return run.directory, ()


# -- comparable runs -------------------------------------------------------------------------------


@attrs.frozen
class ComparedRun:
    """One side of a comparison.

    Attributes:
        run: The run.
        instance: The instance; None if the run has none.
    """

    run: RunSummary
    instance: InstanceLineage | None

    @property
    def name(self) -> str:
        """The name for people."""
        has_several = len(self.run.run.instances) > 1
        return f"{self.run.name} · {self.instance_name}" if has_several else self.run.name

    @property
    def instance_name(self) -> str:
        """The name of the instance; empty for none."""
        return self.instance.name if self.instance else ""


def find_subject(ask: Ask, ident: str) -> ComparedRun:
    """Return the run or instance that an address names. Blocks.

    Raises:
        NoSuchPage: The address does not name a run or an instance.
    """
    site = ask.site
    for run in site.runs():
        instances = read_history(run).lineage.instances
        if run.ident == ident:
            return ComparedRun(run, next(iter(instances), None))
        for instance in instances:
            if _identify(site, run, instance.name) == ident:
                return ComparedRun(run, instance)
    raise NoSuchPage(f"There is no run or instance {ident} in {site.root.name}")


def list_subjects(ask: Ask, runs: Iterable[RunSummary]) -> Iterator[tuple[str, str]]:
    """Yield the first 200 choices of some runs, each as a name in addresses and words."""
    for run in [*runs][:_MAX_RUNS]:
        name, statuses = run.directory.name if run.part else run.name, run.run.instances
        yield run.ident, name
        for status in statuses[:_MAX_INSTANCES] if len(statuses) > 1 else ():
            yield _identify(ask.site, run, status.name), f"{name} · {status.name}"


def _identify(site: Site, run: RunSummary, instance: str) -> str:
    return site.identify(run.directory / f"#{instance}")
