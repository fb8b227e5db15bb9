"""The page of an instance's log: lines with times, ends and restarts; and the page of a search.

A place in a log is a byte offset from its very first line, so an address stays valid after the log
was cut. A search covers names, labels, logs, and the words and actions of agents, in all runs or
one log. It ends after a second or a page of results; its link continues from there. Runs are
searched in the order of their names, so the order stays the same when further runs start.
"""

from __future__ import annotations

import contextlib
import errno
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

import attrs

from clawblox.agents.layout import AgentDir
from clawblox.agents.status import AgentStatus
from clawblox.agents.trajectory import read_window
from clawblox.errors import ClawbloxError
from clawblox.rundir.find_runs import shown_log
from clawblox.rundir.status import OVER, InstanceStatus
from clawblox.system.amounts import format_bytes
from clawblox.system.clock import parse_since
from clawblox.telemetry.log_segments import LogSegment, list_segments
from clawblox.telemetry.log_times import IndexEntry, LogTimes
from clawblox.telemetry.tail import find_line_start, read_lines
from clawblox.views.agent_words import pretty
from clawblox.views.formatting import count_words, format_labels
from clawblox.views.html import Child, Markup, PageAddress, element, join, link, void
from clawblox.web.agent_log import AgentView, opened_agent, read_address
from clawblox.web.agent_steps import list_words
from clawblox.web.files import (
    MAX_WANTED,
    MAX_WINDOW_BYTES,
    FileWindow,
    Finder,
    TextMatch,
    cut_match,
    decode,
    make_finder,
    opened_below,
    read_around,
    read_before,
    read_from,
    search,
)
from clawblox.web.page import Ask, Page, Part
from clawblox.web.pieces import clock, state_mark
from clawblox.web.shared_address import share
from clawblox.web.site import RunSummary

_REST: Final = 4096
"""Maximum number of characters to show of an incomplete line."""
_CURSOR: Final = re.compile(r"(\d{1,15})-(\d{1,15})", re.ASCII)
_SPANS: Final = ("10m", "1h", "1d")
_WINDOWS: Final[Mapping[str, Callable[[int, int], FileWindow]]] = {
    "at": read_around,
    "start": read_from,
    "before": read_before,
}
"""Functions that return the window at an offset, by parameter of the address."""
_SECONDS: Final = 1.0
_WORDS_SECONDS: Final = 1.0
"""Seconds for converting lines of an agent to words; remaining lines are shown raw."""
_MAX_RESULTS: Final = 100
_MAX_A_PLACE: Final = 10
"""Maximum number of results in a log, unless only this log is searched."""


@attrs.frozen
class _OpenLog:
    """An open log, and the request.

    Attributes:
        ask: The request.
        path: The path of its page.
        status: The instance.
        fd: Its descriptor.
        times: Its index, already read.
        segment: Its file; the start of the segment is the number of bytes that cuts have removed.
    """

    ask: Ask
    path: Sequence[str]
    status: InstanceStatus
    fd: int
    times: LogTimes
    segment: LogSegment

    @property
    def moved(self) -> int:
        """Number of bytes that cuts have removed, which is the place of the file's first byte."""
        return self.segment.start

    def link(self, words: str, key: str | None = None, **query: str | int) -> Markup:
        """Return a link to a place in this log."""
        return link(words, self.ask.links.to(*self.path, fragment="", **query), data_key=key)


@contextlib.contextmanager
def _opened_log(ask: Ask, run: RunSummary, status: InstanceStatus) -> Iterator[_OpenLog]:
    """Open the log of an instance while the block runs. Blocks.

    Raises:
        OSError: The log may not be shown, or cannot be read.
    """
    log = shown_log(run.directory, status.log_file)
    if log is None:
        raise OSError(errno.EACCES, "is outside of the run directory", str(status.log_file))
    with opened_below(ask.site.root, log) as fd:
        times = LogTimes(log, is_watched=not status.is_detached)
        with contextlib.suppress(OSError):  # the lines can be shown without their times
            times.read_on()
        moved = 0 if times.cut is None else times.cut.moved
        segment = LogSegment(log, moved, moved + log.stat().st_size, 1)
        yield _OpenLog(ask, ("run", run.ident, "log", status.name), status, fd, times, segment)


def make_page(ask: Ask, ident: str, name: str) -> Page:
    """Return the page of the log of an instance.

    Without parameters the page shows the end of the log. ``at`` is a byte to show, ``start`` the
    first byte, ``before`` the byte before which the window ends, and ``since`` a time or a
    duration.
    """
    run = ask.site.find_run(ident)
    status = run.instance(name)
    try:
        with _opened_log(ask, run, status) as log:
            parts = [*_make_parts(log)]
    except OSError as error:
        why = f"The log cannot be shown: {error.filename or name}: {error.strerror or error}"
        parts = [Part("why", element("p", why))]
    return Page(
        f"Log of {name}",
        ask.crumbs(run),
        parts,
        is_live=status.state not in OVER,
        share=share(run, "log", name),
    )


def _make_parts(log: _OpenLog) -> Iterator[Part]:
    why, window = _read_window(log)
    spans = join((log.link(span, since=span) for span in _SPANS), " · ")
    facts = (
        state_mark(log.status.state, is_bad=log.status.has_died),
        format_bytes(window.size) or "0 B",
        f"the first {format_bytes(log.moved)} were removed" if log.moved else None,
        why or None,
        element("span", "since ", spans, class_="muted"),
    )
    form = draw_search(log.ask, "/".join(log.path))
    yield Part("head", join((element("p", join(facts, " · "), class_="summary"), form)))
    ways = _draw_ways(log, window)
    yield Part("ways", ways)
    yield from _draw_log(log, window)
    yield Part("ways-below", ways)


def _read_window(log: _OpenLog) -> tuple[str, FileWindow]:
    """Return a remark on the requested window, and the window."""
    for name, read in _WINDOWS.items():
        place = log.ask.whole(name)
        if place is not None:
            return "", read(log.fd, max(0, place - log.moved))
    since, why = log.ask.query.get("since", ""), ""
    if since and log.times.is_empty:
        why = "the log has no index, so the times of its lines are unknown"
    elif since:
        try:
            start, _ = log.times.find_since(parse_since(since), None)
            if start is not None:
                return f"since {since}", read_from(log.fd, start)
            why = f"nothing was written since {since}"
        except ValueError as error:
            why = f"since: {error}"
    return why, read_before(log.fd)


def _draw_log(log: _OpenLog, window: FileWindow) -> Iterator[Part]:
    """Yield the complete lines as a part, and an incomplete last line as another.

    A growing log continues at the browser's cursor: the place of the next line, and the number of
    notes before it.
    """
    notes = log.times.notes_after(None)
    cursor = _CURSOR.fullmatch(log.ask.cursors.get("log", ""))
    if cursor:
        window = read_from(log.fd, int(cursor[1]) - log.moved, MAX_WINDOW_BYTES)
        first = min(int(cursor[2]), len(notes))
    else:
        first = sum(note.size <= window.start for note in notes) if window.start else 0
    is_end, end, rest = window.end == window.size, window.end, ""
    grows = log.status.state not in OVER and (bool(cursor) or is_end)
    lines = [*window.lines()]
    if grows and is_end and lines and not window.data.endswith(b"\n"):
        end, rest = lines.pop()
    new = [note for note in notes[first:] if is_end or note.size <= end]
    body = join(_draw_lines(log, window, lines, new))
    yield Part("log", body, f"{end + log.moved}-{first + len(new)}" if grows else "")
    yield Part("rest", _draw_line(None, rest[-_REST:]) if rest else join(()))


def _draw_lines(
    log: _OpenLog, window: FileWindow, lines: Sequence[tuple[int, str]], notes: Sequence[IndexEntry]
) -> Iterator[Markup]:
    waiting, shown, at = [*reversed(notes)], "", log.ask.whole("at")
    at = None if at is None else at - log.moved
    ends = [offset for offset, _ in lines[1:]] + [window.end]
    for (offset, text), end in zip(lines, ends, strict=False):
        while waiting and waiting[-1].size <= offset:
            yield _draw_note(waiting.pop())
        chosen = at if at is not None and offset <= at < end else None
        place = f"o{log.moved + (offset if chosen is None else chosen)}"
        arrived, time = log.times.arrival(offset), None
        if arrived and arrived[:19] != shown:
            shown = arrived[:19]
            time = link(clock(arrived), PageAddress(f"#{place}"), title=arrived)
        is_cut = offset == window.start and not window.starts_line
        kind = "line" if chosen is None else "line chosen"
        yield _draw_line(time, f"… {text}" if is_cut else text, kind, place)
    yield from map(_draw_note, reversed(waiting))


def _draw_note(note: IndexEntry) -> Markup:
    return _draw_line(clock(note.at), f"— {note.text or note.event}", "line note")


def _draw_line(time: Child, text: str, kind: str = "line", place: str | None = None) -> Markup:
    return element("div", time or element("time"), element("span", text), id=place, class_=kind)


def _draw_ways(log: _OpenLog, window: FileWindow) -> Markup:
    """Return the links to the windows before and after."""
    shown = f"{format_bytes(window.start) or '0 B'} to {format_bytes(window.end) or '0 B'}"
    ways: list[Child] = [shown]
    if window.start > 0:
        earlier = log.link("earlier", "earlier", before=window.start + log.moved)
        ways = [log.link("start", start=0), earlier, shown]
    if window.end < window.size:
        ways.append(log.link("later", "later", start=window.end + log.moved))
    if window.end < window.size or log.status.state in OVER:
        ways.append(log.link("end"))
    return element("p", join(ways, " · "), class_="muted")


# -- search ----------------------------------------------------------------------------------------


def draw_search(ask: Ask, place: str) -> Markup:
    """Return the form for a search.

    Args:
        ask: The request, perhaps a search.
        place: Path of the page of the only log to search; empty for all logs.
    """
    everything = "Text in logs, words and calls of agents, names, labels"
    words = "Text in this log" if place else everything
    text = {"name": "q", "value": ask.query.get("q", "")[:MAX_WANTED], "maxlength": str(MAX_WANTED)}
    is_pattern = "" if "re" in ask.query else None
    choice = void("input", type="checkbox", name="re", value="1", checked=is_pattern)
    fields = (
        void("input", type="search", placeholder=words, aria_label=words, **text),
        void("input", type="hidden", name="place", value=place) if place else None,
        element("label", choice, " regular expression"),
        element("button", "Search", type="submit"),
    )
    return element("form", *fields, method="get", action=ask.links.to("search"), class_="row")


@attrs.frozen
class _LogPlace:
    """A part of a run that is searched as a unit.

    Attributes:
        run: The run.
        words: Name of the place.
        key: Path of the page that shows the place; identifies it in addresses of searches.
        subject: The instance or agent whose log is searched; None for names and labels.
    """

    run: RunSummary
    words: str
    key: str
    subject: InstanceStatus | AgentStatus | None = None


def make_search_page(ask: Ask) -> Page:
    """Return the page of a search for ``q``, a regular expression if ``re`` is set.

    ``place`` is the path of the page of the only log to search. The search continues at byte ``at``
    of the place ``next``.
    """
    wanted, only = (ask.query.get(name, "").strip() for name in ("q", "place"))
    parts = [Part("ask", draw_search(ask, only))]
    if wanted:
        try:
            found = join(_search(ask, make_finder(wanted, is_pattern="re" in ask.query), only))
        except ValueError as error:
            found = element("p", str(error), class_="bad")
        parts.append(Part("found", found))
    return Page("Search", ask.crumbs(), parts)


def _link(ask: Ask, words: str, key: str | None = None, **query: str | int | None) -> Markup:
    """Return a link to another search for the same text."""
    query = {**{name: ask.query.get(name) for name in ("q", "re", "place")}, **query}
    return link(words, ask.links.to("search", fragment="", **query), data_key=key)


def _search(ask: Ask, find: Finder, only: str) -> Iterator[Markup]:
    """Yield matches until the time is over, followed by the progress of the search."""
    ends_at = time.monotonic() + _SECONDS
    places = {place.key: place for place in _list_places(ask) if only in ("", place.key)}
    keys, number, shown, start, to = [*places], 0, "", 0, None
    if (begun := ask.query.get("next", "")) in places:
        keys, start = keys[keys.index(begun) :], ask.whole("at") or 0
    for key in keys:
        place, left = places[key], ends_at - time.monotonic()
        has_time = number < _MAX_RESULTS and left > 0
        searched = _search_place(ask, find, place, start, left) if has_time else ((), start, False)
        results, rest, is_full = searched
        if results and place.run.ident != shown:
            shown = place.run.ident
            yield element("h2", link(place.run.name, ask.links.to("run", shown)))
        if results:
            yield element("ul", *results, class_="found")
        if rest is not None and is_full and not only:
            yield element("p", _link(ask, f"more: {place.words}", place=key))
            rest = None
        number, start = number + len(results), 0
        if rest is not None:
            to = _link(ask, "Search on", "later", next=key, at=rest)
            break
    words = f"{count_words(number, 'result')} {'so far' if to else 'shown'}. "
    everywhere = _link(ask, "Search everywhere", place=None) if only else None
    yield element("p", words, to, " ", everywhere)


def _list_places(ask: Ask) -> Iterator[_LogPlace]:
    for run in sorted(ask.site.runs(), key=lambda run: run.name):
        page = f"run/{run.ident}"
        yield _LogPlace(run, "names", page)
        for status in run.run.instances:
            yield _LogPlace(run, f"log of {status.name}", f"{page}/log/{status.name}", status)
        for agent in run.agents:
            key = f"{page}/agent/{ask.site.identify(agent.dir)}"
            yield _LogPlace(run, f"agent {agent.name}", key, agent)


def _search_place(
    ask: Ask, find: Finder, place: _LogPlace, start: int, seconds: float
) -> tuple[Sequence[Markup], int | None, bool]:
    """Search a place.

    Returns:
        The results, the offset at which the search continues if there may be more, and whether the
        maximum number of results was reached.
    """
    subject, most = place.subject, _MAX_RESULTS if "place" in ask.query else _MAX_A_PLACE
    try:
        if subject is None:
            return [*_find_names(ask, find, place)], None, False
        if isinstance(subject, AgentStatus):
            segments = list_segments(AgentDir(subject.dir).log_file)
        else:
            with _opened_log(ask, place.run, subject) as log:
                segments, times = [log.segment], log.times
        matches = search(ask.site.root, segments, find, start, most=most, seconds=seconds)
    except OSError:
        return (), None, False
    if isinstance(subject, AgentStatus):
        lines = {find_line_start(segments, one.start): one for one in reversed(matches.found)}
        found = _draw_steps(ask, find, place, subject, dict(sorted(lines.items())))
    else:
        came = (times.arrival(one.start - segments[0].start) for one in matches.found)
        found = [
            _draw_match(ask, place, one.start, one, clock(utc, is_long=True))
            for one, utc in zip(matches.found, came, strict=True)
        ]
    return found, matches.reached, len(matches.found) == most


def _draw_steps(
    ask: Ask, find: Finder, place: _LogPlace, agent: AgentStatus, lines: Mapping[int, TextMatch]
) -> Sequence[Markup]:
    """Return matches in the lines of an agent's log, in the words of its steps if possible."""
    drawn, ends_at = list[Markup](), time.monotonic() + _WORDS_SECONDS
    with contextlib.suppress(ClawbloxError, OSError), opened_agent(ask, place.run, agent) as view:
        for at, match in lines.items():
            if time.monotonic() < ends_at:  # lines can have 8 MB each
                drawn.append(_draw_step(view, find, place, at, match))
    rest = [*lines.items()][len(drawn) :]
    return [*drawn, *(_draw_match(ask, place, at, match) for at, match in rest)]


def _draw_step(
    view: AgentView, find: Finder, place: _LogPlace, at: int, match: TextMatch
) -> Markup:
    """Return a match with its turn and time, and the first matching words of its step."""
    turn, steps = view.turns.find_turn(at), read_window(view.turns, at, max_bytes=1).steps
    address, what = read_address(view.agent.dir), ""
    texts = [text for step in steps for text in list_words(step, address)]
    with contextlib.closing(read_lines(view.turns.directory.log_file, at)) as lines:
        texts += [("", pretty(decode(line.data or b""))) for line in islice(lines, 1)]
    for kind, data in ((kind, text.encode(errors="replace")) for kind, text in texts):
        if span := next(iter(find(data)), None):
            what, match = kind, cut_match(data, 0, *span)
            break
    utc = next((step.get("timestamp") for step in steps), None)
    when = f"turn {turn.number}" if turn else None
    if any(step.get("is_copied_context") for step in steps):
        when = "inherited"
    words = (when, clock(utc, is_long=True))
    return _draw_match(view.ask, place, at, match, *words, element("b", what) if what else None)


def _draw_match(ask: Ask, place: _LogPlace, at: int, match: TextMatch, *words: Child) -> Markup:
    to = ask.links.to(*place.key.split("/"), fragment=f"o{at}", at=at)
    excerpt = element("code", match.before, element("mark", match.text), match.after)
    return element("li", join((link(place.words, to), *words, excerpt), " "))


def _find_names(ask: Ask, find: Finder, place: _LogPlace) -> Iterator[Markup]:
    run, to = place.run, ask.links.to("run", place.run.ident)
    names = [("run", run.name), ("run id", run.run_id)]
    for status in run.run.instances:
        names += [("instance", status.name), ("world", status.world)]
        names.append(("labels", format_labels(status.labels)))
    names += [("agent", agent.name) for agent in run.agents]
    for kind, name in dict.fromkeys(names):
        if any(find(name.encode(errors="replace"))):
            yield element("li", link(f"{kind} {name[:200]}", to))
