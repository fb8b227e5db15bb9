"""Runs whose saves are each other's origin: as a tree, and as a picture."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import attrs

from clawblox.rundir.lineage import InstanceLineage, Lineage
from clawblox.rundir.lives import Origin
from clawblox.views.formatting import count_words
from clawblox.views.html import Markup, element, join, link
from clawblox.views.lineage_svg import LineageLinks, draw_lineage
from clawblox.web.origins import Origins, RunSave, Start
from clawblox.web.page import Ask, Page, Part
from clawblox.web.pieces import state_mark
from clawblox.web.run_history import read_history
from clawblox.web.site import RunSummary

_MAX_FAMILIES: Final = 20
_MAX_DRAWN: Final = 100
_MAX_DEPTH: Final = 20

_Children: TypeAlias = Mapping[Path, Mapping[Path, Sequence[Start]]]
"""The starts from saves of a run in other runs: by the directories of the parent and the child."""


def make_page(ask: Ask) -> Page:
    """Return the page of runs that began from each other's saves."""
    runs = ask.site.runs()
    origins = Origins(runs)
    children: defaultdict[Path, dict[Path, list[Start]]] = defaultdict(dict)
    for start in origins.starts:
        if start.source is not None and start.source.run is not start.run:
            below = children[start.source.run.directory]
            below.setdefault(start.run.directory, []).append(start)
    started = {directory for below in children.values() for directory in below}
    by_directory = {run.directory: run for run in runs}
    # A cycle, which only a hand-edited manifest has, is entered at any of its runs.
    roots = [run for run in runs if run.directory in children and run.directory not in started]
    seen = {run.directory for root in roots for run in _walk(root, children, by_directory)}
    for run in runs:
        if run.directory in children and run.directory not in seen:
            roots.append(run)
            seen |= {below.directory for below in _walk(run, children, by_directory)}
    parts = [Part("summary", _summarise(runs, len(roots), len(seen)))]
    for number, root in enumerate(roots[:_MAX_FAMILIES]):
        family = _walk(root, children, by_directory)
        parts.append(Part(f"family-{number}", _draw_family(ask, family, children, origins)))
    if len(roots) > _MAX_FAMILIES:
        more = f"and {len(roots) - _MAX_FAMILIES} more families"
        parts.append(Part("more", element("p", more, class_="muted")))
    return Page("Lineage", ((ask.site.root.name, ask.links.to()),), parts, is_live=True)


def _walk(
    root: RunSummary, children: _Children, by_directory: Mapping[Path, RunSummary]
) -> list[RunSummary]:
    """Return a run and all that came from it, each after its first parent."""
    family: dict[Path, RunSummary] = {}
    waiting = [root]
    while waiting:
        run = waiting.pop()
        if run.directory not in family:
            family[run.directory] = run
            waiting += [by_directory[below] for below in children.get(run.directory, ())]
    return [*family.values()]


def _summarise(runs: Sequence[RunSummary], families: int, related: int) -> Markup:
    counts = [
        "1 family" if families == 1 else f"{families} families",
        f"{count_words(related, 'run')} of {len(runs)} in them",
    ]
    if related < len(runs):
        counts.append("the others neither began from a save of another run nor gave one to it")
    return element("p", " · ".join(counts), class_="summary")


def _draw_family(
    ask: Ask, family: Sequence[RunSummary], children: _Children, origins: Origins
) -> Markup:
    root, names = family[0], {run.directory: run for run in family}
    picture = element("p", f"{len(family)} runs are too many to draw.", class_="muted")
    if len(family) <= _MAX_DRAWN:
        picture = element("div", _draw_picture(ask, family, origins), class_="scroll", tabindex="0")
    tree = element("ul", _draw_branch(ask, root, (), children, names, {root.directory}))
    return join((element("h2", f"From {root.name}"), picture, tree))


def _draw_branch(
    ask: Ask,
    run: RunSummary,
    starts: Sequence[Start],
    children: _Children,
    names: Mapping[Path, RunSummary],
    seen: set[Path],
    depth: int = 0,
) -> Markup:
    sources = {start.source.save.path: start.source for start in starts if start.source}
    states = {status.state: status.has_died for status in run.run.instances}
    below: list[Markup] = []
    if depth < _MAX_DEPTH:
        for directory, its_starts in children.get(run.directory, {}).items():
            if directory not in seen:
                seen.add(directory)
                child = names[directory]
                below.append(_draw_branch(ask, child, its_starts, children, names, seen, depth + 1))
    words = [
        link(run.name, ask.links.to("run", run.ident)),
        join((state_mark(state, is_bad=is_bad) for state, is_bad in states.items()), ", "),
        join(_link_sources(ask, [*sources.values()])) if sources else None,
    ]
    branches = element("ul", *below) if below else None
    return element("li", join([word for word in words if word], " "), branches)


def _link_sources(ask: Ask, sources: Sequence[RunSave]) -> Iterator[Markup | str]:
    yield "from "
    for number, source in enumerate(sources):
        yield ", " if number else ""
        yield link(source.save.path.name, source.address(ask))


def _draw_picture(ask: Ask, family: Sequence[RunSummary], origins: Origins) -> Markup:
    """Return one picture of the instances of several runs, forks across them included."""
    runs: dict[str, RunSummary] = {}
    saves: dict[Path, RunSave] = {}
    instances: list[InstanceLineage] = []
    depths: dict[Path, int] = {}
    for run in family:
        for save in read_history(run).saves:
            saves.setdefault(save.path, RunSave(run, save))
        for instance in read_history(run).lineage.instances:
            name = run.directory.name
            name = name if len(run.run.instances) < 2 else f"{name}/{instance.name}"
            while name in runs:
                name += "'"
            runs[name] = run
            source = origins.find(instance.parent, instance.run_id) if instance.parent else None
            parent = instance.parent
            if source is not None:
                save = source.save
                parent = Origin(save.path, save.sha256, save.instance, save.time)
            depth = depths.get(parent.path, -1) + 1 if parent else 0
            depths.update({save.path: depth for save in instance.saves})
            instances.append(attrs.evolve(instance, name=name, parent=parent, depth=depth))
    links = LineageLinks(
        instance=lambda instance: ask.links.to("run", runs[instance.name].ident),
        save=lambda save: saves[save.path].address(ask) if save.path in saves else None,
    )
    lineage = Lineage(family[0].directory, tuple(instances))
    return draw_lineage(lineage, title=family[0].name, links=links).part()
