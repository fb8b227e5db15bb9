"""The page of runs that started from each other's saves, as a tree and as a picture."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from clawblox.rundir.lineage import InstanceLineage, Lineage
from clawblox.rundir.lives import Origin
from clawblox.views.formatting import count_words
from clawblox.views.html import Child, Markup, element, join, link
from clawblox.views.lineage_svg import LineageLinks, draw_lineage
from clawblox.web.page import Ask, Page, Part
from clawblox.web.pages.runs import draw_states
from clawblox.web.pieces import Columns, and_more, lines, listing, moment
from clawblox.web.run_history import Origins, read_history
from clawblox.web.site import RunSummary

_MAX_FAMILIES: Final = 20
_MAX_RUNS: Final = 200
_MAX_DRAWN: Final = 100
_MAX_INDENT: Final = 12


def make_page(ask: Ask) -> Page:
    """Return the page of runs that started from each other's saves."""
    runs, seen = ask.site.runs(), set[str]()
    origins, below = Origins(runs), defaultdict[str, list[RunSummary]](list)
    for run in runs:
        for ident in dict.fromkeys(save.run.ident for save in origins.parents[run.ident].values()):
            below[ident].append(run)
    # A cycle, possible only in hand-edited manifests, is entered at any of its runs.
    families = [
        [*_walk(run, below, seen)]
        for run in sorted(runs, key=lambda run: bool(origins.parents[run.ident]))
        if run.ident in below and run.ident not in seen
    ]
    number = "1 family" if len(families) == 1 else f"{len(families)} families"
    words = f"{number} · {count_words(len(seen), 'run')} of {len(runs)} in them"
    if len(seen) < len(runs):
        words += " · the others neither began from a save of another run nor gave one to it"
    more = and_more(len(families) - _MAX_FAMILIES)
    parts = [Part("summary", join((element("p", words, class_="summary"), more)))]
    for place, family in enumerate(families[:_MAX_FAMILIES]):
        parts.append(Part(f"family-{place}", join(_draw_family(ask, family, origins))))
    return Page("Lineage", ask.crumbs(), parts, is_live=True)


def _walk(
    root: RunSummary, below: Mapping[str, Sequence[RunSummary]], seen: set[str]
) -> Iterator[tuple[RunSummary, str]]:
    """Yield a run and its descendants, each once after its parent, with its indent."""
    waiting = [(root, 0)]
    while waiting:
        run, depth = waiting.pop()
        if run.ident not in seen:
            seen.add(run.ident)
            yield run, "\u2003" * min(depth, _MAX_INDENT) + ("└ " if depth else "")
            waiting += [(child, depth + 1) for child in reversed(below.get(run.ident, ()))]


def _draw_family(
    ask: Ask, family: Sequence[tuple[RunSummary, str]], origins: Origins
) -> Iterator[Child]:
    yield element("h2", f"From {family[0][0].name}")
    placed = [(run, one) for run, _ in family for one in read_history(run).lineage.instances]
    yield draw_picture(ask, placed, origins, family[0][0])
    to = ask.links.to
    columns: Columns[tuple[RunSummary, str]] = {
        "Run": lambda one: join((one[1], link(one[0].name, to("run", one[0].ident)))),
        "State": lambda one: draw_states(one[0]),
        "From": lambda one: lines(
            link(path.name, source.address(ask))
            for path, source in origins.parents[one[0].ident].items()
        ),
        "Latest": lambda one: moment(one[0].latest),
    }
    yield listing("Runs, each below its parent", family, columns, most=_MAX_RUNS)


def draw_picture(
    ask: Ask,
    placed: Sequence[tuple[RunSummary, InstanceLineage]],
    origins: Origins,
    whose: RunSummary,
) -> Markup:
    """Return a picture of the instances of several runs, including forks between runs.

    Args:
        ask: The request for a page.
        placed: The instances, each with its run; parents come first.
        origins: The saves of the site.
        whose: The run after which the picture is named.
    """
    runs, depths, instances = dict[str, RunSummary](), dict[Path, int](), list[InstanceLineage]()
    is_one_run = len({run.ident for run, _ in placed}) == 1
    for run, one in placed:
        several, parent = len(run.run.instances) > 1, one.parent
        name = f"{run.directory.name}/{one.name}" if several else run.directory.name
        name = one.name if is_one_run else f"{run.name}/{one.name}" if name in runs else name
        runs[name] = run
        if parent and (found := origins.find(parent, one.run_id)):
            save = found.save
            parent = Origin(save.path, save.sha256, save.instance, save.time)
        depth = depths.get(parent.path, -1) + 1 if parent else 0
        depths.update({save.path: depth for save in one.saves})
        instances.append(attrs.evolve(one, name=name, parent=parent, depth=depth))
    links = LineageLinks(
        instance=lambda instance: ask.links.to("run", runs[instance.name].ident),
        save=lambda save: origins.address(ask, save.path),
    )
    drawn = Lineage(whose.directory, tuple(instances[:_MAX_DRAWN]))
    picture = draw_lineage(drawn, title=whose.name, links=links).part()
    scrolled = element("div", picture, class_="scroll", tabindex="0")
    return join((scrolled, and_more(len(instances) - _MAX_DRAWN)))
