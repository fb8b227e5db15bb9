"""The page of an instance's log: a window with the times of its lines, and ends and restarts.

A place in a log is a byte counted from its first line ever, so an address stays right after the log
was cut.
"""

from __future__ import annotations

import contextlib
import errno
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import attrs

from clawblox.rundir.find_runs import shown_log
from clawblox.rundir.status import OVER, InstanceStatus
from clawblox.system.amounts import format_bytes
from clawblox.system.clock import parse_since
from clawblox.telemetry.log_segments import LogSegment
from clawblox.telemetry.log_times import Entry, LogTimes
from clawblox.views.html import Address, Child, Markup, element, join, link, void
from clawblox.web.files import (
    MAX_WANTED,
    MAX_WINDOW_BYTES,
    Window,
    opened_below,
    read_around,
    read_before,
    read_from,
)
from clawblox.web.page import Ask, Page, Part
from clawblox.web.pieces import clock, state_mark
from clawblox.web.shared_address import share
from clawblox.web.site import RunSummary, Site

_REST: Final = 4096
"""Number of characters that are shown of an incomplete line."""
_CURSOR: Final = re.compile(r"(\d{1,15})-(\d{1,15})", re.ASCII)
_SPANS: Final = ("10m", "1h", "1d")
_WINDOWS: Final[Mapping[str, Callable[[int, int], Window]]] = {
    "at": read_around,
    "start": read_from,
    "before": read_before,
}
"""What returns the window at the offset that a parameter gives."""


@attrs.frozen
class OpenLog:
    """A log that is open.

    Attributes:
        fd: Its descriptor.
        times: Its index, which has been read.
        segment: Its file; it starts at the number of bytes that cuts have removed.
    """

    fd: int
    times: LogTimes
    segment: LogSegment


@contextlib.contextmanager
def opened_log(site: Site, run: RunSummary, status: InstanceStatus) -> Iterator[OpenLog]:
    """Open the log of an instance while the block runs. Blocks.

    Raises:
        OSError: It may not be shown, or cannot be read.
    """
    log = shown_log(run.directory, status.log_file)
    if log is None:
        raise OSError(errno.EACCES, "is outside of the run directory", str(status.log_file))
    with opened_below(site.root, log) as fd:
        times = LogTimes(log, is_watched=not status.is_detached)
        with contextlib.suppress(OSError):  # the lines can be read without their times
            times.read_on()
        moved = 0 if times.cut is None else times.cut.moved
        yield OpenLog(fd, times, LogSegment(log, moved, moved + log.stat().st_size, 1))


def make_page(ask: Ask, ident: str, name: str) -> Page:
    """Return the page of the log of an instance.

    Without parameters it shows the end. ``at`` is a byte to show, ``start`` one to begin with,
    ``before`` one to end before, and ``since`` a time or a duration.
    """
    run = ask.site.find_run(ident)
    status = run.instance(name)
    try:
        with opened_log(ask.site, run, status) as log:
            parts = [*_make_parts(_View(ask, ("run", ident, "log", name), status, log))]
    except OSError as error:
        why = f"The log cannot be shown: {error.filename or name}: {error.strerror or error}"
        parts = [Part("why", element("p", why))]
    return Page(
        f"Log of {name}",
        ((ask.site.root.name, ask.links.to()), (run.name, ask.links.to("run", run.ident))),
        parts,
        is_live=status.state not in OVER,
        share=share(run, "log", name),
    )


def draw_search(ask: Ask, place: str) -> Markup:
    """Return the form that leads to a search.

    Args:
        ask: What is asked for, perhaps a search.
        place: The path of the page of the only log that it searches; empty for everything.
    """
    words = (
        "Text in this log" if place else "Text in logs, words and calls of agents, names, labels"
    )
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
class _View:
    """What is asked for, and of which log.

    Attributes:
        ask: What is asked for.
        path: The path of its page.
        status: The instance.
        log: Its log.
    """

    ask: Ask
    path: Sequence[str]
    status: InstanceStatus
    log: OpenLog

    @property
    def moved(self) -> int:
        """Number of bytes that cuts have removed: the place of the first byte of the file."""
        return self.log.segment.start

    @property
    def is_growing(self) -> bool:
        """Whether lines can still be added."""
        return self.status.state not in OVER

    def link(self, words: str, key: str | None = None, **query: str | int) -> Markup:
        """Return a link to a place in this log."""
        return link(words, self.ask.links.to(*self.path, fragment="", **query), data_key=key)


def _make_parts(view: _View) -> Iterator[Part]:
    why, window = _read_window(view)
    spans = join((view.link(span, since=span) for span in _SPANS), " · ")
    head = (
        state_mark(view.status.state, is_bad=view.status.has_died),
        f" · {format_bytes(window.size) or '0 B'}",
        f" · the first {format_bytes(view.moved)} were removed" if view.moved else None,
        f" · {why}" if why else None,
        element("span", " · since ", spans, class_="muted"),
    )
    form = draw_search(view.ask, "/".join(view.path))
    yield Part("head", join((element("p", *head, class_="summary"), form)))
    ways = _draw_ways(view, window)
    yield Part("ways", ways)
    yield from _draw_log(view, window)
    yield Part("ways-below", ways)


def _read_window(view: _View) -> tuple[str, Window]:
    """Return a remark on the window that is asked for, and the window."""
    fd, times = view.log.fd, view.log.times
    for name, read in _WINDOWS.items():
        place = view.ask.whole(name)
        if place is not None:
            return "", read(fd, max(0, place - view.moved))
    since, why = view.ask.query.get("since", ""), ""
    if since and times.is_empty:
        why = "the log has no index, so when its lines came is not known"
    elif since:
        try:
            start, _ = times.find_since(parse_since(since), None)
            if start is not None:
                return f"since {since}", read_from(fd, start)
            why = f"nothing was written since {since}"
        except ValueError as error:
            why = f"since: {error}"
    return why, read_before(fd)


def _draw_log(view: _View, window: Window) -> Iterator[Part]:
    """Yield the lines, and the last one as long as it is incomplete.

    A log that grows continues at the cursor that the browser has: the place of the next line, and
    the number of notes before it.
    """
    notes = view.log.times.notes_after(None)
    cursor = _CURSOR.fullmatch(view.ask.cursors.get("log", ""))
    if cursor:
        window = read_from(view.log.fd, int(cursor[1]) - view.moved, MAX_WINDOW_BYTES)
        first = min(int(cursor[2]), len(notes))
    else:
        first = sum(note.size <= window.start for note in notes) if window.start else 0
    is_end, end, rest = window.end == window.size, window.end, ""
    grows = view.is_growing and (bool(cursor) or is_end)
    lines = [*window.lines()]
    if grows and is_end and lines and not window.data.endswith(b"\n"):
        end, rest = lines.pop()
    new = [note for note in notes[first:] if is_end or note.size <= end]
    body = join(_draw_lines(view, window, lines, new))
    yield Part("log", body, f"{end + view.moved}-{first + len(new)}" if grows else "")
    yield Part("rest", _draw_line(None, rest[-_REST:]) if rest else join(()))


def _draw_lines(
    view: _View, window: Window, lines: Sequence[tuple[int, str]], notes: Sequence[Entry]
) -> Iterator[Markup]:
    waiting, shown, at = [*reversed(notes)], "", view.ask.whole("at")
    at = None if at is None else at - view.moved
    ends = [offset for offset, _ in lines[1:]] + [window.end]
    for (offset, text), end in zip(lines, ends, strict=False):
        while waiting and waiting[-1].size <= offset:
            yield _draw_note(waiting.pop())
        chosen = at if at is not None and offset <= at < end else None
        place = f"o{view.moved + (offset if chosen is None else chosen)}"
        arrived, time = view.log.times.arrival(offset), None
        if arrived and arrived[:19] != shown:
            shown = arrived[:19]
            time = link(clock(arrived), Address(f"#{place}"), title=arrived)
        is_cut = offset == window.start and not window.starts_line
        kind = "line" if chosen is None else "line chosen"
        yield _draw_line(time, f"… {text}" if is_cut else text, kind, place)
    yield from map(_draw_note, reversed(waiting))


def _draw_note(note: Entry) -> Markup:
    return _draw_line(clock(note.at), f"— {note.text or note.event}", "line note")


def _draw_line(time: Child, text: str, kind: str = "line", place: str | None = None) -> Markup:
    words = element("span", text)
    return element("div", time or element("time"), words, id=place, class_=kind)


def _draw_ways(view: _View, window: Window) -> Markup:
    """Return the links to the windows before and after."""
    shown = f"{format_bytes(window.start) or '0 B'} to {format_bytes(window.end) or '0 B'}"
    ways: list[Child] = [shown]
    if window.start > 0:
        earlier = view.link("earlier", "earlier", before=window.start + view.moved)
        ways = [view.link("start", start=0), earlier, shown]
    if window.end < window.size:
        ways.append(view.link("later", "later", start=window.end + view.moved))
    if window.end < window.size or not view.is_growing:
        ways.append(view.link("end"))
    return element("p", join(ways, " · "), class_="muted")
