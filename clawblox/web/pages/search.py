"""The page of a search over all runs: names, labels, logs, and what agents said and did.

A search ends after a second or a page of results; its link continues from there. Runs are searched
by name, so that this order is the same when others have started meanwhile.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import attrs

from clawblox.agents.layout import AgentDir
from clawblox.agents.status import AgentStatus
from clawblox.rundir.status import InstanceStatus
from clawblox.telemetry.log_segments import list_segments
from clawblox.views.formatting import count_words, format_labels
from clawblox.views.html import Address, Child, Markup, element, join, link, void
from clawblox.web.files import opened_below
from clawblox.web.page import Ask, Page, Part
from clawblox.web.run_logs import opened_log
from clawblox.web.search import Match, search
from clawblox.web.site import RunSummary

_SECONDS: Final = 1.0
_MAX_RESULTS: Final = 100
_MAX_A_PLACE: Final = 10
_MAX_CHARS: Final = 1000


@attrs.define
class _Place:
    """What is searched in a run at once.

    Attributes:
        words: Its name.
        file: The log of an instance or the segment of an agent's log; None for names and labels.
        subject: The instance or the agent; None for names and labels.
        start: Offset of its first byte in the whole log.
    """

    words: str
    subject: InstanceStatus | AgentStatus | None = None
    file: Path | None = None
    start: int = 0


@attrs.define
class _Slice:
    """A slice of a search.

    Attributes:
        ask: What is asked for.
        wanted: The text.
        ends_at: When it ends, in seconds of the monotonic clock.
        found: The results by run: markup, a line each.
        reached: Where the next slice continues; None at the end.
        number: Number of results.
    """

    ask: Ask
    wanted: str
    ends_at: float = attrs.field(factory=lambda: time.monotonic() + _SECONDS)
    found: dict[str, tuple[RunSummary, list[Markup]]] = attrs.field(factory=dict)
    reached: str | None = None
    number: int = 0

    @property
    def is_over(self) -> bool:
        """Whether it has taken its time, or has enough results."""
        return self.number >= _MAX_RESULTS or time.monotonic() >= self.ends_at

    def add(self, run: RunSummary, result: Markup) -> None:
        """Add a result."""
        self.found.setdefault(run.ident, (run, []))[1].append(result)
        self.number += 1


def make_page(ask: Ask) -> Page:
    """Return the page of a search for ``q``, continued at ``next``."""
    wanted = ask.query.get("q", "").strip()
    parts = [Part("ask", _draw_form(ask, wanted))]
    if len(wanted) > _MAX_CHARS:
        parts.append(Part("found", element("p", f"Search for {_MAX_CHARS} characters at most.")))
    elif wanted:
        parts.append(Part("found", _draw(_search(ask, wanted))))
    return Page("Search", ((ask.site.root.name, ask.links.to()),), parts)


def _draw_form(ask: Ask, wanted: str) -> Markup:
    box = void(
        "input",
        type="search",
        name="q",
        value=wanted[:_MAX_CHARS],
        maxlength=str(_MAX_CHARS),
        placeholder="Text in logs, words and calls of agents, names, labels",
        aria_label="Search in all runs",
    )
    button = element("button", "Search", type="submit")
    return element("form", box, button, method="get", action=ask.links.to("search"), class_="row")


def _search(ask: Ask, wanted: str) -> _Slice:
    runs = sorted(ask.site.runs(), key=lambda run: run.name)
    name, place, offset = _read_start(ask, runs)
    slice_ = _Slice(ask, wanted)
    for run in runs:
        if run.name < name:
            continue
        places = _list_places(run)
        first = place if run.name == name else 0
        for number in range(first, len(places)):
            start = offset if run.name == name and number == first else 0
            if slice_.is_over:
                slice_.reached = f"{run.ident}-{number}-{start}"
                return slice_
            rest = _search_place(slice_, run, places[number], start)
            if rest is not None:
                slice_.reached = f"{run.ident}-{number}-{rest}"
                return slice_
    return slice_


def _read_start(ask: Ask, runs: Sequence[RunSummary]) -> tuple[str, int, int]:
    """Return the run, the place in it, and the offset at which a slice begins."""
    ident, *numbers = ask.query.get("next", "").split("-")
    run = next((run for run in runs if run.ident == ident), None)
    if run is None or len(numbers) != 2 or not all(n.isdecimal() and len(n) < 16 for n in numbers):
        return "", 0, 0
    return run.name, int(numbers[0]), int(numbers[1])


def _list_places(run: RunSummary) -> Sequence[_Place]:
    logs = (_Place(f"log of {status.name}", status) for status in run.run.instances)
    said = (
        _Place(f"agent {agent.name}", agent, segment.path, segment.start)
        for agent in run.agents
        for segment in list_segments(AgentDir(agent.dir).log_file)
    )
    return [_Place("names"), *logs, *said]


def _search_place(slice_: _Slice, run: RunSummary, place: _Place, start: int) -> int | None:
    """Search a place; return the offset at which it continues if the slice ended within it."""
    if place.subject is None:
        for result in _search_names(slice_, run):
            slice_.add(run, result)
        return None
    wanted = slice_.wanted
    if place.file is not None:  # programs write JSON
        wanted = json.dumps(wanted, ensure_ascii=False)[1:-1]
    with contextlib.suppress(OSError, ValueError), _opened(slice_.ask, run, place) as (fd, moved):
        left = max(0.05, slice_.ends_at - time.monotonic())
        matches = search(fd, wanted, start, max_matches=_MAX_A_PLACE, seconds=left)
        path, links = _path(slice_.ask, run, place), slice_.ask.links
        for match in matches.found:
            at = match.start + moved
            slice_.add(run, _draw_match(place, match, links.to(*path, fragment=f"o{at}", at=at)))
        if matches.is_complete:
            return None
        if len(matches.found) < _MAX_A_PLACE:
            return matches.reached
        if isinstance(place.subject, AgentStatus):
            path = (*path, "search")
        more = links.to(*path, q=slice_.wanted)
        slice_.add(run, element("li", link(f"more: {place.words}", more)))
    return None


@contextlib.contextmanager
def _opened(ask: Ask, run: RunSummary, place: _Place) -> Iterator[tuple[int, int]]:
    """Open a log, and yield its descriptor and the place of its first byte."""
    if place.file is not None:
        with opened_below(ask.site.root, place.file) as fd:
            yield fd, place.start
    elif isinstance(place.subject, InstanceStatus):
        with opened_log(ask.site, run, place.subject) as log:
            yield log.fd, log.moved


def _search_names(slice_: _Slice, run: RunSummary) -> Iterator[Markup]:
    wanted = slice_.wanted.lower()
    to = slice_.ask.links.to("run", run.ident)
    names = [("run", run.name), ("run id", run.run_id)]
    for status in run.run.instances:
        names += [("instance", status.name), ("world", status.world)]
        names.append(("labels", format_labels(status.labels)))
    names += [("agent", agent.name) for agent in run.agents]
    matches = [(kind, name) for kind, name in dict.fromkeys(names) if wanted in name.lower()]
    for kind, name in matches[:_MAX_A_PLACE]:
        yield element("li", link(f"{kind} {name[:200]}", to))
    if len(matches) > _MAX_A_PLACE:
        yield element("li", link(f"{len(matches) - _MAX_A_PLACE} more names", to))


def _path(ask: Ask, run: RunSummary, place: _Place) -> Sequence[str]:
    """Return the path of the page that shows a log."""
    if isinstance(place.subject, AgentStatus):
        return "run", run.ident, "agent", ask.site.identify(place.subject.dir)
    return "run", run.ident, "log", place.subject.name if place.subject else ""


def _draw_match(place: _Place, match: Match, to: Address) -> Markup:
    words = join((match.before, element("mark", match.text), match.after))
    return element("li", link(place.words, to), " ", element("code", words))


def _draw(slice_: _Slice) -> Markup:
    to = slice_.ask.links.to
    pieces: list[Child] = []
    for run, results in slice_.found.values():
        pieces.append(element("h2", link(run.name, to("run", run.ident))))
        pieces.append(element("ul", *results, class_="found"))
    if slice_.reached is None:
        pieces.append(
            element("p", f"{count_words(slice_.number, 'result')}; all runs are searched.")
        )
    else:
        more = to("search", q=slice_.wanted, next=slice_.reached)
        words = f"{count_words(slice_.number, 'result')} so far. "
        pieces.append(element("p", words, link("Search on", more, data_key="later")))
    return join(pieces)
