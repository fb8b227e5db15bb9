"""The lineage of a run: the origin, lives, saves and forks of each instance.

The lineage is read from the manifests and the records of a run directory; processes are only
checked for being alive. Several programs and people write manifests, so invalid entries are
skipped, and each instance appears exactly once.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from clawblox.errors import ManifestError
from clawblox.results import ProcessExit, describe_end
from clawblox.rundir.listed import clean_labels, list_instances, state_in
from clawblox.rundir.listed_saves import LineageSave, list_saves
from clawblox.rundir.lives import Life, Origin, join_lives
from clawblox.rundir.manifest import Manifest, find_checkpoint, manifest_path, read_manifest
from clawblox.rundir.manifest_entries import ManifestEntry, objects_in, read_number, read_text
from clawblox.rundir.paths import resolve_run_dir
from clawblox.rundir.records import (
    InstanceRecord,
    PathMover,
    former_run_dirs,
    path_mover,
    read_located,
)
from clawblox.rundir.status import OVER, InstanceState, is_death, judge_state


@attrs.frozen
class InstanceLineage:
    """One instance of a run directory.

    Attributes:
        name: Name of the instance.
        depth: Number of ancestors in this run directory.
        parent: The snapshot that the run started from; None for a fresh start.
        state: State of the instance; None if neither record nor manifest has it.
        exit: Last exit of the process; None while it is running or if unknown.
        labels: Labels of the start.
        run_id: Id of the latest run; empty if unknown.
        restarts: Number of restarts in the latest run.
        lives: The lives of the instance, oldest first. Earlier runs under this name are included if
            the manifest still lists their restarts and saves; the rest is overwritten.
    """

    name: str
    depth: int
    parent: Origin | None
    state: InstanceState | None
    exit: ProcessExit | None
    labels: Mapping[str, Any] = attrs.field(hash=False)
    run_id: str
    restarts: int
    lives: tuple[Life, ...]

    @property
    def saves(self) -> tuple[LineageSave, ...]:
        """The saves of all lives, including removed saves."""
        return tuple(save for life in self.lives for save in life.saves)

    @property
    def deaths(self) -> tuple[Life, ...]:
        """The lives that ended badly."""
        return tuple(life for life in self.lives if life.has_died)


@attrs.frozen
class Lineage:
    """The instances of a run directory, and the saves that they started from.

    Attributes:
        run_dir: The run directory.
        instances: The instances, each after its parent. Among siblings, the latest fork comes
            first, so that lines drawn down to them do not cross.
        problems: Errors of manifests that could not be read; their content is missing.
        archives: Archives of all instances with their agents.
        origins: The archives that the latest runs started from.
        former_dirs: Paths of the run directory before it was moved.
    """

    run_dir: Path
    instances: tuple[InstanceLineage, ...]
    problems: tuple[str, ...] = ()
    archives: tuple[LineageSave, ...] = ()
    origins: tuple[Origin, ...] = ()
    former_dirs: tuple[Path, ...] = ()


def read_lineage(run_dir: Path | str) -> Lineage:
    """Read the lineage of a run directory with running or finished instances. Blocks.

    Args:
        run_dir: The run directory.

    Raises:
        ManifestError: There are no records and the manifest cannot be read; or a later version of
            clawblox wrote the records.
        ConfigError: ``run_dir`` is not a path.
    """
    directory = resolve_run_dir(run_dir)
    manifests = _Manifests(directory)
    drafts = [*_find_instances(directory, manifests)]
    if manifests.problems and not drafts:
        raise manifests.problems[0]
    saves = _SaveIndex(drafts, manifests.move)
    instances = [_describe(draft, saves) for draft in drafts]
    return Lineage(
        directory,
        tuple(_in_tree_order(instances)),
        tuple(problem.headline for problem in manifests.problems),
        tuple(manifests.list_archives()),
        tuple(manifests.list_origins()),
        tuple(sorted(former_run_dirs(directory))),
    )


# -- finding the instances ------------------------------------------------------------------


class _Manifests:
    """The manifests of a run directory, each read once.

    Attributes:
        move: Returns the current location of a path in these manifests.
        problems: Errors of the manifests that could not be read.
    """

    def __init__(self, run_dir: Path) -> None:
        self.move = path_mover(run_dir)
        self._known: dict[Path, Manifest] = {}
        self._saves: dict[Path, dict[str, list[LineageSave]]] = {}
        self.problems: list[ManifestError] = []

    def read(self, directory: Path) -> Manifest:
        """Return the manifest of a directory; if unreadable, note it and return an empty one."""
        if directory not in self._known:
            path = manifest_path(directory)
            self._known[directory] = Manifest(path)
            try:
                self._known[directory] = read_manifest(path)
            except ManifestError as error:
                self.problems.append(error)
        return self._known[directory]

    def read_saves(self, directory: Path, name: str) -> list[LineageSave]:
        """Return the saves of an instance in a directory's manifest; archives if unnamed."""
        if directory not in self._saves:
            saves = self._saves.setdefault(directory, {})
            for save in list_saves(self.read(directory), self.move):
                saves.setdefault(save.instance, []).append(save)
        return self._saves[directory].get(name, [])

    def list_archives(self) -> Iterator[LineageSave]:
        """Yield the archives that the manifests list."""
        for directory in self._known:
            yield from self.read_saves(directory, "")

    def list_origins(self) -> Iterator[Origin]:
        """Yield the archives that the latest runs started from."""
        for manifest in self._known.values():
            if (path := read_text(manifest.run, "resume_archive")) is not None:
                yield Origin(self.move(_normal(manifest.resolve(path))))


@attrs.frozen
class _Draft:
    """The sources of one instance.

    Attributes:
        name: Name of the instance.
        manifest: Manifest of the instance.
        record: Record of the instance.
        is_alone: Whether the manifest belongs to this instance only.
        saves: The saves of all runs of the instance.
    """

    name: str
    manifest: Manifest
    record: InstanceRecord | None
    is_alone: bool
    saves: list[LineageSave]

    @property
    def run(self) -> ManifestEntry:
        """The manifest's section on the latest run; empty if it describes another run."""
        run, record = self.manifest.run, self.record
        run_id = read_text(run, "id")
        if record is None or not record.run_id or run_id is None:
            return run if self.is_alone else {}
        return run if run_id == record.run_id else {}

    @property
    def run_id(self) -> str:
        """Id of the latest run; empty if unknown."""
        return (self.record.run_id if self.record else None) or read_text(self.run, "id") or ""

    def read_restarts(self) -> list[tuple[str, ManifestEntry]]:
        """Return the restarts of the instance, each with the id of its run."""
        known = {self.run_id, *(save.run_id for save in self.saves)}
        entries = [
            (read_text(entry, "run_id") or "", entry)
            for entry in objects_in(self.manifest.restarts)
        ]
        return [(run_id, entry) for run_id, entry in entries if self.is_alone or run_id in known]


def _find_instances(run_dir: Path, manifests: _Manifests) -> Iterator[_Draft]:
    records = {record.name: record for record in read_located(run_dir)}
    listed = list_instances(manifests.read(run_dir))
    places = {name: listed.get(name, run_dir) for name in dict.fromkeys([*records, *listed])}
    for name, record in records.items():
        written = _normal(Path(record.instance_dir))
        if written.is_relative_to(run_dir):  # otherwise the instance was left behind by a move
            places[name] = written
    counts = Counter(places.values())
    for name, place in places.items():
        saves = manifests.read_saves(place, name)
        yield _Draft(name, manifests.read(place), records.get(name), counts[place] == 1, saves)


# -- origins --------------------------------------------------------------------------------


class _SaveIndex:
    """The saves of all instances, by path and by digest.

    Args:
        drafts: The instances.
        move: Returns the current location of a path in a manifest.
    """

    def __init__(self, drafts: Iterable[_Draft], move: PathMover) -> None:
        self.move = move
        self._by_path: dict[Path, Origin] = {}
        self._by_digest: dict[str, list[tuple[str, Origin]]] = {}
        self._outside: dict[Path, ManifestEntry] = {}
        for draft in drafts:
            for save in draft.saves:
                origin = Origin(save.path, save.sha256, draft.name, save.time)
                self._by_path.setdefault(save.path, origin)
                if save.sha256:
                    self._by_digest.setdefault(save.sha256, []).append((save.run_id, origin))

    def find(self, path: Path, sha256: str | None, run_id: str = "") -> Origin:
        """Return the save that a life started from.

        After a move of the run directory, paths in a manifest can be out of date. Then the save is
        found by its digest, and among saves with the same content by the file name.

        Args:
            path: The path in the manifest.
            sha256: The digest in the manifest, or None.
            run_id: The run that started, which cannot have started from its own saves. Empty for a
                restart.
        """
        origin = self._by_path.get(path)
        if origin is not None and (not sha256 or origin.sha256 in (None, sha256)):
            return origin
        known = self._by_digest.get(sha256 or "", [])
        same = [origin for maker, origin in known if not run_id or maker != run_id]
        named = [origin for origin in same if origin.path.name == path.name]
        if candidates := [*named, *same]:
            return candidates[0]
        entry = self._find_outside(path)
        is_other = sha256 is not None and read_text(entry, "sha256") not in (None, sha256)
        return Origin(path, sha256, None, None if is_other else read_number(entry, "time"))

    def _find_outside(self, path: Path) -> ManifestEntry:
        if path not in self._outside:
            self._outside[path] = {}
            with contextlib.suppress(OSError, ValueError):
                if (listed := find_checkpoint(path)) is not None:
                    self._outside[path] = listed[1]
        return self._outside[path]


def _read_origin(
    entry: ManifestEntry, draft: _Draft, saves: _SaveIndex, run_id: str = ""
) -> Origin | None:
    """Return the save that a run or a restart names as its origin; None for a fresh start."""
    path = read_text(entry, "resume_from")
    if path is None:
        return None
    place = saves.move(_normal(draft.manifest.resolve(path)))
    return saves.find(place, read_text(entry, "parent_sha256"), run_id)


def _find_parent(draft: _Draft, saves: _SaveIndex) -> Origin | None:
    """Return the save that the latest run of an instance started from."""
    record, origin = draft.record, _read_origin(draft.run, draft, saves, draft.run_id)
    if origin is not None or record is None:
        return origin
    # A single instance lacks its own section, and its record has the path of the last restart.
    path = read_text(record.options, "resume")
    if path is None and not record.restarts:
        path = record.resume_path
    return saves.find(_normal(Path(path)), None) if path else None


# -- lives ----------------------------------------------------------------------------------


def _describe(draft: _Draft, index: _SaveIndex) -> InstanceLineage:
    saves, restarts = draft.saves, draft.read_restarts()
    run_ids = (*(save.run_id for save in saves), *(run_id for run_id, _ in restarts))
    runs = [*dict.fromkeys(run_id for run_id in run_ids if run_id != draft.run_id)]
    parent, record = _find_parent(draft, index), draft.record
    state = judge_state(record) if record else state_in(draft.run)
    lives: list[Life] = []
    for run_id in (*runs, draft.run_id):
        is_latest = run_id == draft.run_id
        begun_at = (record.started_at if record else None) or read_text(draft.run, "started_at")
        first = Life(
            run_id,
            begun_by="start",
            origin=parent if is_latest else None,
            begun_at=begun_at if is_latest else None,
            time=(parent.time if parent else 0.0) if is_latest else None,
        )
        its_saves = [save for save in saves if save.run_id == run_id]
        entries = (entry for other, entry in restarts if other == run_id)
        its_restarts = [_read_restart(entry, run_id, draft, index) for entry in entries]
        *earlier, last = join_lives(first, its_restarts, its_saves)
        end = _find_end(draft, state) if is_latest else {"ended_by": "another_run"}
        lives += [*earlier, attrs.evolve(last, **end)]
    return InstanceLineage(
        name=draft.name,
        depth=0,
        parent=parent,
        state=state,
        exit=record.exit if record and state in OVER else None,
        labels=clean_labels(record.labels if record else draft.run.get("labels")),
        run_id=draft.run_id,
        restarts=record.restarts if record else sum(other == draft.run_id for other, _ in restarts),
        lives=tuple(lives),
    )


def _read_restart(entry: ManifestEntry, run_id: str, draft: _Draft, saves: _SaveIndex) -> Life:
    """Return the life that a restart started; its ``exit`` ended the previous life."""
    by, origin = entry.get("by"), _read_origin(entry, draft, saves)
    return Life(
        run_id,
        begun_by=by if by in ("request", "resume") else "policy",
        origin=origin,
        begun_at=read_text(entry, "at"),
        time=origin.time if origin else 0.0,
        exit=read_text(entry, "exit"),
    )


# -- the end --------------------------------------------------------------------------------


def _find_end(draft: _Draft, state: InstanceState | None) -> dict[str, Any]:
    """Return the fields of a life that describe the end of the latest run."""
    record = draft.record
    if state not in OVER:
        return {}
    exit_, halt = (record.exit, record.halt) if record else (None, None)
    return {
        "ended_by": "exit",
        "ended_at": (record.ended_at if record else None) or read_text(draft.run, "ended_at"),
        "exit": describe_end(exit_, halt) if exit_ or halt else None,
        "has_died": is_death(state, exit_),
    }


# -- the tree -------------------------------------------------------------------------------


def _in_tree_order(instances: Iterable[InstanceLineage]) -> Iterator[InstanceLineage]:
    """Return each instance after its parent; a cycle is cut at its first instance."""
    in_order = sorted(instances, key=_sibling_order)
    children: dict[str | None, list[InstanceLineage]] = {}
    for instance in in_order:
        parent = instance.parent.instance if instance.parent else None
        children.setdefault(parent if parent != instance.name else None, []).append(instance)
    seen: set[str] = set()
    for root in (*children.get(None, ()), *in_order):
        waiting = [(root, 0)]
        while waiting:
            instance, depth = waiting.pop()
            if instance.name not in seen:
                seen.add(instance.name)
                yield attrs.evolve(instance, depth=depth)
                below = children.get(instance.name, ())
                waiting += [(child, depth + 1) for child in reversed(below)]


def _sibling_order(instance: InstanceLineage) -> tuple[float, list[tuple[int, str]]]:
    parent = instance.parent
    is_child = parent is not None and parent.instance not in (None, instance.name)
    forked_at = parent.time if parent is not None and is_child else None
    parts = re.split(r"([0-9]+)", instance.name)
    digits = [part.lstrip("0") if number % 2 else part for number, part in enumerate(parts)]
    natural = [(len(part) if number % 2 else 0, part) for number, part in enumerate(digits)]
    return -math.inf if forked_at is None else -forked_at, [*natural, (0, instance.name)]


def _normal(path: Path) -> Path:
    return Path(os.path.normpath(path))
