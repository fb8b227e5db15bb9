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
from clawblox.views.html import Child, Markup, element, join, link
from clawblox.views.lineage_svg import LineageLinks, draw_lineage
from clawblox.web.page import Ask, Page, Part
from clawblox.web.pieces import and_more, lines, moment, state_mark, table
from clawblox.web.run_history import Origins, Start, read_history
from clawblox.web.site import RunSummary

_MAX_FAMILIES: Final = 20
_MAX_RUNS: Final = 200
_MAX_DRAWN: Final = 100
_MAX_INDENT: Final = 12

_Below: TypeAlias = Mapping[Path, Mapping[Path, Sequence[Start]]]
"""The starts from saves of a run in other runs: by the directories of the parent and the child."""


@attrs.frozen
class _Member:
    """A run of a family: how far below its root, and its starts from saves of its parent."""

    run: RunSummary
    depth: int = 0
    starts: Sequence[Start] = ()


def make_page(ask: Ask) -> Page:
    """Return the page of runs that began from each other's saves."""
    runs = ask.site.runs()
    origins = Origins(runs)
    below: defaultdict[Path, dict[Path, list[Start]]] = defaultdict(dict)
    for start in origins.starts:
        if start.source is not None and start.source.run is not start.run:
            children = below[start.source.run.directory]
            children.setdefault(start.run.directory, []).append(start)
    started = {directory for children in below.values() for directory in children}
    seen: set[Path] = set()
    # A circle, which only a hand-edited manifest has, is entered at any of its runs.
    families = [
        [*_walk(run, below, seen)]
        for run in sorted(runs, key=lambda run: run.directory in started)
        if run.directory in below and run.directory not in seen
    ]
    number = "1 family" if len(families) == 1 else f"{len(families)} families"
    words = f"{number} · {count_words(len(seen), 'run')} of {len(runs)} in them"
    if len(seen) < len(runs):
        words += " · the others neither began from a save of another run nor gave one to it"
    more = and_more(len(families) - _MAX_FAMILIES)
    parts = [Part("summary", join((element("p", words, class_="summary"), more)))]
    parts += [
        Part(f"family-{place}", _draw_family(ask, family, origins))
        for place, family in enumerate(families[:_MAX_FAMILIES])
    ]
    return Page("Lineage", ((ask.site.root.name, ask.links.to()),), parts, is_live=True)


def _walk(root: RunSummary, below: _Below, seen: set[Path]) -> Iterator[_Member]:
    """Yield a run and all that came from it, each after its parent; each run once."""
    waiting = [_Member(root)]
    while waiting:
        member = waiting.pop()
        if member.run.directory not in seen:
            seen.add(member.run.directory)
            yield member
            children = [*below.get(member.run.directory, {}).values()]
            waiting += [_Member(own[0].run, member.depth + 1, own) for own in children[::-1]]


def _draw_family(ask: Ask, family: Sequence[_Member], origins: Origins) -> Markup:
    rows = [_draw_member(ask, member) for member in family[:_MAX_RUNS]]
    heading = element("h2", f"From {family[0].run.name}")
    picture = _draw_picture(ask, [member.run for member in family], origins)
    tree = table("Runs, each below its parent", ("Run", "State", "From", "Latest"), rows)
    return join((heading, *picture, tree, and_more(len(family) - len(rows))))


def _draw_member(ask: Ask, member: _Member) -> Sequence[Child]:
    run = member.run
    states = {status.state: status.has_died for status in run.run.instances}
    sources = {one.source.save.path: one.source for one in member.starts if one.source}
    indent = "\u2003" * min(member.depth, _MAX_INDENT) + ("└ " if member.depth else "")
    return (
        join((indent, link(run.name, ask.links.to("run", run.ident)))),
        join((state_mark(state, is_bad=is_bad) for state, is_bad in states.items()), ", "),
        lines(link(path.name, source.address(ask)) for path, source in sources.items()),
        moment(run.latest),
    )


def _draw_picture(ask: Ask, family: Sequence[RunSummary], origins: Origins) -> Iterator[Child]:
    """Yield one picture of the instances of several runs, forks across them included."""
    runs: dict[str, RunSummary] = {}
    instances: list[InstanceLineage] = []
    depths: dict[Path, int] = {}
    for run in family:
        for instance in read_history(run).lineage.instances:
            name = run.directory.name
            name = name if len(run.run.instances) < 2 else f"{name}/{instance.name}"
            name = f"{run.name}/{instance.name}" if name in runs else name
            runs[name] = run
            parent = instance.parent
            if parent and (source := origins.find(parent, instance.run_id)):
                save = source.save
                parent = Origin(save.path, save.sha256, save.instance, save.time)
            depth = depths.get(parent.path, -1) + 1 if parent else 0
            depths.update({save.path: depth for save in instance.saves})
            instances.append(attrs.evolve(instance, name=name, parent=parent, depth=depth))
    links = LineageLinks(
        instance=lambda instance: ask.links.to("run", runs[instance.name].ident),
        save=lambda save: origins.address(ask, save.path),
    )
    lineage = Lineage(family[0].directory, tuple(instances[:_MAX_DRAWN]))
    picture = draw_lineage(lineage, title=family[0].name, links=links).part()
    yield element("div", picture, class_="scroll", tabindex="0")
    yield and_more(len(instances) - _MAX_DRAWN)
