"""The page of a search: names, labels, logs, and what agents said and did, in all runs or one log.

A search ends after a second or a page of results; its link continues from there. Runs are searched
by name, so that this order is the same when others have started meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Final

import attrs

from clawblox.agents.layout import AgentDir
from clawblox.agents.status import AgentStatus
from clawblox.rundir.status import InstanceStatus
from clawblox.telemetry.line_borders import find_line_start
from clawblox.telemetry.log_segments import list_segments
from clawblox.views.formatting import count_words, format_labels
from clawblox.views.html import Markup, element, join, link
from clawblox.web.files import Finder, make_finder, search
from clawblox.web.page import Ask, Page, Part
from clawblox.web.pages.log import draw_search, opened_log
from clawblox.web.pieces import clock
from clawblox.web.site import RunSummary

_SECONDS: Final = 1.0
_MAX_RESULTS: Final = 100
_MAX_A_PLACE: Final = 10
"""Number of results in a log, unless it is the only one that is searched."""


@attrs.frozen
class _Place:
    """What is searched in a run at once.

    Attributes:
        run: The run.
        words: Its name.
        path: The path of the page that shows it.
        subject: The instance or the agent whose log it is; None for names and labels.
    """

    run: RunSummary
    words: str
    path: Sequence[str]
    subject: InstanceStatus | AgentStatus | None = None

    @property
    def key(self) -> str:
        """Its name in addresses of searches."""
        return "/".join(self.path)


def make_page(ask: Ask) -> Page:
    """Return the page of a search for ``q``, with ``re`` as a regular expression.

    ``place`` is the path of the page of the only log to search; it continues at byte ``at`` of the
    place ``next``.
    """
    wanted, only = (ask.query.get(name, "").strip() for name in ("q", "place"))
    parts = [Part("ask", draw_search(ask, only))]
    if wanted:
        try:
            find = make_finder(wanted, is_pattern="re" in ask.query)
            found = join(_search(ask, find, only))
        except ValueError as error:
            found = element("p", str(error), class_="bad")
        parts.append(Part("found", found))
    return Page("Search", ((ask.site.root.name, ask.links.to()),), parts)


def _link(ask: Ask, words: str, key: str | None = None, **query: str | int | None) -> Markup:
    """Return a link to another search for the same."""
    query = {**{name: ask.query.get(name) for name in ("q", "re", "place")}, **query}
    return link(words, ask.links.to("search", fragment="", **query), data_key=key)


def _search(ask: Ask, find: Finder, only: str) -> Iterator[Markup]:
    """Yield what is found until the time is over, and how far the search has come."""
    ends_at = time.monotonic() + _SECONDS
    places = [place for place in _list_places(ask) if only in ("", place.key)]
    rest: int | None = None
    start, number, shown = 0, 0, ""
    if (begun := ask.query.get("next")) in (keys := [place.key for place in places]):
        places, start = places[keys.index(begun) :], ask.whole("at") or 0
    for place in places:
        left = ends_at - time.monotonic()
        if number >= _MAX_RESULTS or left <= 0:
            rest = start
        else:
            results, rest = _search_place(ask, find, place, start, left)
            if results and place.run.ident != shown:
                shown = place.run.ident
                yield element("h2", link(place.run.name, ask.links.to("run", shown)))
            if results:
                yield element("ul", *results, class_="found")
            number += len(results)
        if rest is not None:
            words = f"{count_words(number, 'result')} so far. "
            to = _link(ask, "Search on", "later", next=place.key, at=rest)
            break
        start = 0
    else:
        words, to = f"{count_words(number, 'result')}; that is all. ", None
    everywhere = _link(ask, "Search everywhere", place=None) if only else None
    yield element("p", words, to, " ", everywhere)


def _list_places(ask: Ask) -> Iterator[_Place]:
    for run in sorted(ask.site.runs(), key=lambda run: run.name):
        path = ("run", run.ident)
        yield _Place(run, "names", path)
        for status in run.run.instances:
            yield _Place(run, f"log of {status.name}", (*path, "log", status.name), status)
        for agent in run.agents:
            page = (*path, "agent", ask.site.identify(agent.dir))
            yield _Place(run, f"agent {agent.name}", page, agent)


def _search_place(
    ask: Ask, find: Finder, place: _Place, start: int, seconds: float
) -> tuple[Sequence[Markup], int | None]:
    """Search a place; return results, and the offset at which it continues if time was over."""
    subject, is_only = place.subject, "place" in ask.query
    times, most = None, _MAX_RESULTS if is_only else _MAX_A_PLACE
    try:
        if subject is None:
            return [*_find_names(ask, find, place)], None
        if isinstance(subject, AgentStatus):
            segments = list_segments(AgentDir(subject.dir).log_file)
        else:
            with opened_log(ask.site, place.run, subject) as log:
                segments, times = [log.segment], log.times
        matches = search(ask.site.root, segments, find, start, most=most, seconds=seconds)
    except OSError:
        return (), None
    found = []
    for match in matches.found:
        arrived = times.arrival(match.start - segments[0].start) if times else None
        at = match.start
        if isinstance(subject, AgentStatus):  # whose page has the offsets of lines
            at = find_line_start(AgentDir(subject.dir).log_file, at)
        to = ask.links.to(*place.path, fragment=f"o{at}", at=at)
        words = element("code", match.before, element("mark", match.text), match.after)
        when = clock(arrived, is_long=True)
        found.append(element("li", link(place.words, to), " ", when, " ", words))
    if is_only or matches.reached is None or len(found) < most:
        return found, matches.reached
    more = _link(ask, f"more: {place.words}", place=place.key)
    return [*found, element("li", more)], None


def _find_names(ask: Ask, find: Finder, place: _Place) -> Iterator[Markup]:
    run, to = place.run, ask.links.to(*place.path)
    names = [("run", run.name), ("run id", run.run_id)]
    for status in run.run.instances:
        names += [("instance", status.name), ("world", status.world)]
        names.append(("labels", format_labels(status.labels)))
    names += [("agent", agent.name) for agent in run.agents]
    for kind, name in dict.fromkeys(names):
        if any(find(name.encode(errors="replace"))):
            yield element("li", link(f"{kind} {name[:200]}", to))
