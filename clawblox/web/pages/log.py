"""The page of a log: a window of it with times, search, and notes of ends and restarts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

import attrs

from clawblox.rundir.status import InstanceStatus
from clawblox.system.amounts import format_bytes
from clawblox.system.clock import parse_since
from clawblox.telemetry.log_times import Entry
from clawblox.views.formatting import count_words
from clawblox.views.html import Address, Child, Markup, element, join, link, void
from clawblox.web.files import (
    MAX_WINDOW_BYTES,
    WINDOW_BYTES,
    Window,
    read_around,
    read_before,
    read_from,
)
from clawblox.web.page import Ask, Page, Part
from clawblox.web.pieces import state_mark
from clawblox.web.run_logs import OpenLog, is_growing, opened_log
from clawblox.web.search import search
from clawblox.web.shared_address import share
from clawblox.web.site import RunSummary

_END: Final = 1 << 62
_REST: Final = 4096
"""Number of characters that are shown of an incomplete line."""
_SPANS: Final = ("10m", "1h", "1d")


def make_page(ask: Ask, ident: str, name: str) -> Page:
    """Return the page of the log of an instance.

    Without parameters it shows the end. ``at`` is a byte to show, ``start`` one to begin with,
    ``before`` one to end before, and ``since`` a time or a duration. ``q`` is what to search, with
    ``re`` as a regular expression, from byte ``next`` on.
    """
    run = ask.site.find_run(ident)
    status = run.instance(name)
    try:
        with opened_log(ask.site, run, status) as log:
            parts = _make_parts(_View(ask, run, status, log))
    except OSError as error:
        why = f"The log cannot be shown: {error.filename or name}: {error.strerror or error}"
        parts = [Part("why", element("p", why))]
    return Page(
        f"Log of {name}",
        ((ask.site.root.name, ask.links.to()), (run.name, ask.links.to("run", run.ident))),
        parts,
        is_live=is_growing(status) and "q" not in ask.query,  # else it would search each second
        share=share(run, "log", name),
    )


_Value: TypeAlias = str | int | None


@attrs.frozen
class _View:
    """What is asked for, and of which log.

    Attributes:
        ask: What is asked for.
        run: The run.
        status: The instance.
        log: Its log.
    """

    ask: Ask
    run: RunSummary
    status: InstanceStatus
    log: OpenLog

    def link(
        self, words: str, key: str | None = None, fragment: str = "", **query: _Value
    ) -> Markup:
        """Return a link to a place in this log."""
        path = ("run", self.run.ident, "log", self.status.name)
        return link(words, self.ask.links.to(*path, fragment=fragment, **query), data_key=key)

    def byte(self, name: str) -> int | None:
        """Return a parameter that is a place in the log, as an offset in its file."""
        place = self.ask.whole(name)
        return None if place is None else max(0, place - self.log.moved)

    def place(self, offset: int) -> int:
        """Return the place of an offset."""
        return offset + self.log.moved


def _make_parts(view: _View) -> list[Part]:
    why, window = _read_window(view)
    head = [
        element(
            "p",
            state_mark(view.status.state, is_bad=view.status.has_died),
            f" · {format_bytes(window.size) or '0 B'}",
            f" · the first {format_bytes(view.log.moved)} were removed" if view.log.moved else None,
            f" · {why}" if why else None,
            class_="summary",
        ),
        _draw_form(view),
    ]
    found = [Part("found", _draw_matches(view))] if view.ask.query.get("q") else []
    return [
        Part("head", join(head)),
        *found,
        Part("ways", _draw_ways(view, window)),
        *_draw_log(view, window),
        Part("ways-below", _draw_ways(view, window, has_keys=False)),
    ]


def _read_window(view: _View) -> tuple[str, Window]:
    """Return the window that is asked for, and a remark on it."""
    fd = view.log.fd
    if (at := view.byte("at")) is not None:
        return "", read_around(fd, at, WINDOW_BYTES)
    if (start := view.byte("start")) is not None:
        return "", read_from(fd, start)
    if (before := view.byte("before")) is not None:
        return "", read_before(fd, before)
    since = view.ask.query.get("since", "")
    if since and view.log.times.is_empty:
        return "the log has no index, so when its lines came is not known", read_before(fd, _END)
    if since:
        try:
            start, _ = view.log.times.find_since(parse_since(since), None)
        except ValueError as error:
            return f"since: {error}", read_before(fd, _END)
        if start is not None:
            return f"since {since}", read_from(fd, start)
        return f"nothing was written since {since}", read_before(fd, _END)
    return "", read_before(fd, _END)


def _draw_form(view: _View) -> Markup:
    wanted = view.ask.query.get("q", "")
    is_pattern = "re" in view.ask.query
    spans = (view.link(span, since=span) for span in _SPANS)
    box = void(
        "input",
        type="search",
        name="q",
        value=wanted,
        maxlength="1000",
        placeholder="Search in this log",
        aria_label="Search in this log",
    )
    choice = void(
        "input", type="checkbox", name="re", value="1", checked="" if is_pattern else None
    )
    return element(
        "form",
        box,
        element("label", choice, " regular expression"),
        element("button", "Search", type="submit"),
        element("span", "Since ", join(spans, " · "), class_="muted"),
        method="get",
        action=view.ask.links.to("run", view.run.ident, "log", view.status.name),
        class_="row",
    )


# -- lines -----------------------------------------------------------------------------------------


def _draw_log(view: _View, window: Window) -> Iterator[Part]:
    """Yield the lines, and the last one as long as it is incomplete.

    A log that grows continues at the cursor that the browser has: the place of the next line, and
    the number of notes before it.
    """
    notes, cursor = view.log.notes, view.ask.cursors.get("log", "").split("-")
    is_asked = len(cursor) == 2 and all(text.isdigit() and len(text) <= 15 for text in cursor)
    if is_asked:
        window = read_from(view.log.fd, int(cursor[0]) - view.log.moved, MAX_WINDOW_BYTES)
        first = min(int(cursor[1]), len(notes))
    else:
        first = sum(note.size <= window.start for note in notes) if window.start else 0
    is_end, end, rest = window.end == window.size, window.end, ""
    grows = is_growing(view.status) and (is_asked or is_end)
    lines = [*window.lines()]
    if grows and is_end and lines and not window.ends_line:
        end, rest = lines.pop()
    new = [note for note in notes[first:] if is_end or note.size <= end]
    body = join(_draw_lines(view, window, lines, new))
    yield Part("log", body, f"{view.place(end)}-{first + len(new)}" if grows else "")
    shown = element("span", rest[-_REST:])
    yield Part("rest", element("div", _blank(), shown, class_="line") if rest else join(()))


def _draw_lines(
    view: _View, window: Window, lines: Sequence[tuple[int, str]], notes: Sequence[Entry]
) -> Iterator[Child]:
    waiting, at, shown = [*reversed(notes)], view.byte("at"), ""
    ends = [offset for offset, _ in lines[1:]] + [window.end]
    for (offset, text), end in zip(lines, ends, strict=False):
        while waiting and waiting[-1].size <= offset:
            yield _draw_note(waiting.pop())
        is_chosen = at is not None and offset <= at < end
        place = f"o{view.place(at if at is not None and is_chosen else offset)}"
        arrived, time = view.log.times.arrival(offset), _blank()
        if arrived and arrived[:19] != shown:
            shown = arrived[:19]
            time = link(_clock(arrived), Address(f"#{place}"))
        is_cut = offset == window.start and not window.starts_line
        words = element("span", "… " if is_cut else None, text)
        yield element("div", time, words, id=place, class_="line chosen" if is_chosen else "line")
    for note in reversed(waiting):
        yield _draw_note(note)


def _blank() -> Markup:
    return element("time")


def _clock(utc: str) -> Markup:
    return element("time", utc[11:19], datetime=utc, title=utc, data_fixed="")


def _draw_note(note: Entry) -> Markup:
    time = _clock(note.at) if note.at else _blank()
    return element("div", time, element("span", f"— {note.text or note.event}"), class_="line note")


def _draw_ways(view: _View, window: Window, *, has_keys: bool = True) -> Markup:
    """Return the links to the windows before and after."""
    shown = f"{format_bytes(window.start) or '0 B'} to {format_bytes(window.end) or '0 B'}"
    ways: list[Child] = []
    if window.start > 0:
        before = view.place(window.start)
        ways.append(view.link("start", start=0))
        ways.append(view.link("earlier", key="earlier" if has_keys else None, before=before))
    ways.append(shown)
    if window.end < window.size:
        later = view.place(window.end)
        ways.append(view.link("later", key="later" if has_keys else None, start=later))
    if window.end < window.size or not is_growing(view.status):
        ways.append(view.link("end"))
    return element("p", join(ways, " · "), class_="muted")


# -- search ----------------------------------------------------------------------------------------


def _draw_matches(view: _View) -> Markup:
    wanted, expression = view.ask.query["q"], view.ask.query.get("re")
    try:
        is_pattern = expression is not None
        matches = search(view.log.fd, wanted, view.byte("next") or 0, is_pattern=is_pattern)
    except ValueError as error:
        return element("p", str(error), class_="bad")
    rows, more, heading = [], None, count_words(len(matches.found), "place")
    for match in matches.found:
        place = view.place(match.start)
        arrived = (view.log.times.arrival(match.start) or "")[:19].replace("T", " ")
        words = arrived or f"byte {place}"
        to = view.link(words, fragment=f"o{place}", at=place, q=wanted, re=expression)
        shown = (match.before, element("mark", match.text), match.after)
        rows.append(element("li", to, " ", *shown))
    if not matches.is_complete:
        heading += f" in the first {format_bytes(matches.reached)}"
        next_place = view.place(matches.reached)
        link_on = view.link("search on", next=next_place, q=wanted, re=expression)
        more = element("p", link_on)
    return join((element("h2", heading), element("ul", *rows, class_="found"), more))
