"""What the runs of a site began from: saves of each other, wherever their directories are now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import attrs

from clawblox.errors import ClawbloxError
from clawblox.rundir.lives import Life, Origin
from clawblox.rundir.manifest import read_manifest
from clawblox.rundir.saves import LineageSave
from clawblox.views.html import Address
from clawblox.web import workspaces
from clawblox.web.page import Ask
from clawblox.web.run_history import read_history
from clawblox.web.site import NoSuchPage, RunSummary, Site


@attrs.frozen
class RunSave:
    """A save and the run that lists it.

    Attributes:
        run: The run.
        save: The save; an archive has no instance.
    """

    run: RunSummary
    save: LineageSave

    def address(self, ask: Ask) -> Address:
        """Return the address of its page."""
        return ask.links.to(*self.place(ask.site))

    def place(self, site: Site) -> tuple[str, ...]:
        """Return the path of its page, for addresses below it."""
        return "run", self.run.ident, "save", site.identify(self.save.path)


@attrs.frozen
class Start:
    """A start from a save.

    Attributes:
        run: The run that has started.
        instance: Its instance; empty for all instances of an archive.
        life: The life that began; None for an archive, of which no life is known.
        origin: What the manifest says it began from.
        source: The save; None if no run below the directory has it.
    """

    run: RunSummary
    instance: str
    life: Life | None
    origin: Origin
    source: RunSave | None


class Origins:
    """The saves of the runs of a site, and what has started from them. Blocks while it is made.

    A path counts if the save there has the digest that the manifest of the start names. Runs may
    have been moved, so else any save with that digest counts, first one with the same file name.

    Args:
        runs: The runs.

    Attributes:
        starts: Everything that began from a save, in the order of the runs.
    """

    def __init__(self, runs: Iterable[RunSummary]) -> None:
        self._by_path: dict[Path, RunSave] = {}
        self._by_digest: dict[str, list[RunSave]] = {}
        histories = [(run, read_history(run)) for run in runs]
        for run, history in histories:
            for save in history.saves:
                found = RunSave(run, save)
                self._by_path.setdefault(save.path, found)
                if save.sha256:
                    self._by_digest.setdefault(save.sha256, []).append(found)
        self.starts: Sequence[Start] = tuple(
            start for run, _ in histories for start in self._find_starts(run)
        )

    def find(self, origin: Origin, run_id: str = "") -> RunSave | None:
        """Return the save that a run began from; None if no run, or that run alone, has it."""
        found = self._by_path.get(origin.path)
        if found and (not origin.sha256 or found.save.sha256 in (None, origin.sha256)):
            return found
        known = self._by_digest.get(origin.sha256 or "", ())
        same = [other for other in known if not run_id or other.save.run_id != run_id]
        named = (other for other in same if other.save.path.name == origin.path.name)
        return next(named, same[0] if same else None)

    def started_from(self, found: RunSave) -> list[Start]:
        """Return what has started from a save."""
        path = found.save.path
        return [one for one in self.starts if one.source and one.source.save.path == path]

    def _find_starts(self, run: RunSummary) -> Iterator[Start]:
        history = read_history(run)
        parents = []
        for instance in history.lineage.instances:
            for life in instance.lives:
                if life.origin is not None:
                    source = self.find(life.origin, life.run_id)
                    parents.append(source)
                    yield Start(run, instance.name, life, life.origin, source)
        for origin in history.origins:
            if origin.path.suffix == ".ckpt":
                yield Start(run, "", None, origin, self.find(origin) or _beside(origin, parents))


def _beside(origin: Origin, parents: Sequence[RunSave | None]) -> RunSave | None:
    """Return the archive of this name in a run whose snapshot a moved run began from."""
    for run in [parent.run for parent in parents if parent is not None]:
        for save in read_history(run).saves:
            if not save.instance and save.path.name == origin.path.name:
                return RunSave(run, save)
    return None


def find_save(site: Site, run_ident: str, ident: str) -> RunSave:
    """Return a save by the names in its address.

    Raises:
        NoSuchPage: There is no such save.
    """
    run = site.find_run(run_ident)
    for save in read_history(run).saves:
        if site.identify(save.path) == ident:
            return RunSave(run, save)
    raise NoSuchPage(f"{run.name} has no save {ident}")


@attrs.frozen
class Before:
    """A save that another one is compared with.

    Attributes:
        words: What it is for the other one, such as ``the save before``.
        path: Its file.
        found: The save; None if no manifest below the directory lists it.
    """

    words: str
    path: Path
    found: RunSave | None


def find_before(site: Site, origins: Origins, found: RunSave) -> list[Before]:
    """Return what a save is compared with: the save before, the parent, the generation before."""
    befores = [*_find_previous(found)]
    if not befores:
        befores = [
            Before("the save that it began from", start.source.save.path, start.source)
            for start in origins.starts
            if start.source is not None
            and start.run is found.run
            and (start.instance, bool(start.life))
            == (found.save.instance, bool(found.save.instance))
        ][-1:]
    befores += _find_generation(site, found)
    unique = {before.path: before for before in reversed(befores)}
    return [
        attrs.evolve(one, found=one.found or origins.find(Origin(one.path)))
        for one in reversed(unique.values())
    ]


def _find_previous(found: RunSave) -> Iterator[Before]:
    run, save = found.run, found.save
    listed: list[tuple[Path, Path | None]] = []
    if not save.instance:
        try:
            archives = workspaces.list_saves(read_manifest(run.directory))
        except ClawbloxError:
            archives = []
        listed = [(archive.path, archive.parent) for archive in archives]
    for instance in read_history(run).lineage.instances:
        if instance.name == save.instance:
            for life in instance.lives:
                origin = life.origin.path if life.origin else None
                for one in life.saves:
                    listed.append((one.path, origin))
                    origin = one.path
    for path, before in listed:
        if path == save.path and before is not None:
            yield Before("the save before", before, None)


def _find_generation(site: Site, found: RunSave) -> Iterator[Before]:
    """Yield what the generation of a save began with: the generation before, or its parent."""
    chains = set[str]()
    for save in _list_generations(site, found):
        if save.parent is not None and save.path.parent == found.save.path.parent:
            is_first = save.chain not in chains
            words = "the parent of the branch" if is_first else "the generation before"
            yield Before(words, save.parent, None)
        chains.add(save.chain)


def find_next_generations(site: Site, found: RunSave) -> list[RunSummary]:
    """Return the runs of the generations that follow an archive in its chain."""
    after = {
        save.path.parent.parent
        for save in _list_generations(site, found)
        if save.parent == found.save.path and save.generation > 1
    }
    return [run for run in site.runs() if run.directory in after]


def _list_generations(site: Site, found: RunSave) -> Sequence[workspaces.Save]:
    part = found.run.part
    if part is None or found.save.instance:
        return ()
    try:
        return workspaces.list_generations(site.read_record(part.experiment))
    except ClawbloxError:
        return ()
