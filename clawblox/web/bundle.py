"""The pages as files: a directory that can be sent, and read in a browser without a server.

The bundle has every page that is linked, directly or indirectly, from the first page. Of a page
with many windows, such as a log, it has a limited number; further links lead to a page that
explains this.
"""

from __future__ import annotations

import functools
import heapq
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

import attrs

from clawblox.errors import ClawbloxError, ConfigError
from clawblox.system.amounts import format_bytes
from clawblox.system.clock import utc_now
from clawblox.system.files import partial_tree, publish_tree, sweep_partials
from clawblox.system.regular_files import PRIVATE_DIR
from clawblox.views.formatting import count_words
from clawblox.views.html import Markup, PageAddress, document, element, join, link
from clawblox.web import routes
from clawblox.web.frame_file import draw_frame, draw_states
from clawblox.web.frames import RecordedWorld
from clawblox.web.outgoing import Outgoing
from clawblox.web.page import STATIC_FILES, Ask, Page, Part, draw_page, read_static
from clawblox.web.pages.replay import find_replay
from clawblox.web.pieces import code
from clawblox.web.site import NoSuchPage, Site

MAX_BYTES: Final = 200 * 1000**2
"""Default maximum size of a bundle, in bytes."""
_MAX_WINDOWS: Final = 500
"""Maximum number of windows, long texts or other choices of a page."""
_MAX_MOMENTS: Final = 50
"""Maximum number of moments of a recording; each shows the whole world."""
_MAX_LISTED: Final = 30
_MAX_FRAMES: Final = 20
"""Maximum number of recordings to draw; each has a copy of the engine's page."""
_FIRST: Final = "index.html"
_LEFT_OUT: Final = "left-out.html"
_SHARED: Final = "addresses.js"
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; frame-src 'self'; "
    "form-action 'none'; base-uri 'none'; require-trusted-types-for 'script'; trusted-types server"
)
"""For ``file:``, browsers interpret ``'self'`` as any file; pages name only files of the bundle."""

_FORM: Final = re.compile(r"<form\b[^>]*>(.*?)</form>", re.DOTALL)
_CONTROL: Final = re.compile(
    r"<label\b[^>]*>.*?</label>|<(button|select|textarea)\b[^>]*>.*?</\1>"
    r'|<input\b(?![^>]*class="filter")[^>]*>',
    re.DOTALL,
)
_SCRIPT: Final = re.compile(r"<script\b[^>]*></script>")
_HREF: Final = re.compile(r'href="([^"#]+)')
_STATES: Final = re.compile(r'data-states="([^"]+)\.html"')
_SPAN: Final = re.compile(r'id="span" data-begin="([^"]+)" data-end="([^"]+)"')
_OFFSET: Final = re.compile(r' id="o(\d{1,15})"')

_Key: TypeAlias = tuple[tuple[str, ...], tuple[tuple[str, str], ...]]
"""The path and the query of a page."""


def write_bundle(
    root: Path,
    bundle: Path,
    *,
    redact: bool = False,
    max_size: int = MAX_BYTES,
    announce: Callable[[str], object] = lambda _text: None,
) -> None:
    """Write the pages of a directory as files. Blocks.

    Args:
        root: The directory.
        bundle: The directory to make; after an error it does not exist.
        redact: Whether to mask secrets; otherwise a secret is an error.
        max_size: Maximum size of the bundle in bytes.
        announce: Called with a text about the number of pages and their size, before ``bundle``
            exists.

    Raises:
        ConfigError: ``bundle`` exists, or its parent does not.
        ClawbloxError: A page contains a secret, or the pages are larger than ``max_size``.
        OSError: A file cannot be written.
    """
    if os.path.lexists(bundle):
        hint = "remove it, or give another name"
        raise ConfigError("must not exist yet", key="bundle", value=str(bundle), hint=hint)
    if not bundle.parent.is_dir():
        hint = "create its parent directory first"
        raise ConfigError("must be in a directory", key="bundle", value=str(bundle), hint=hint)
    # The site scans only once, so that all pages are consistent.
    site = Site(root, clock=lambda: 0.0)
    outgoing = Outgoing(root, [one.dir for run in site.runs() for one in run.agents], redact=redact)
    sweep_partials(bundle.parent)
    pages = size = 0
    with partial_tree(bundle.parent, bundle.name) as partial:
        (partial / "static").mkdir(PRIVATE_DIR)
        for name, data in _draw(site, outgoing, max_size // _MAX_FRAMES // 2):
            pages += name.endswith(".html")
            size += len(data)
            if size > max_size:
                few, most = count_words(pages, "page"), format_bytes(max_size)
                hint = "give a larger max_size=, or the directory of a single run"
                raise ClawbloxError(f"the bundle is larger than {most} after {few}", hint=hint)
            (partial / name).write_bytes(data)
        outgoing.check()
        announce(f"The bundle has {count_words(pages, 'page')}, {format_bytes(size)}")
        publish_tree(partial, bundle)


def _draw(site: Site, outgoing: Outgoing, max_states: int) -> Iterator[tuple[str, bytes]]:
    """Yield names and cleared contents of all files; states of a recording are limited in size."""
    walk = _Walk(site)
    for name, content in walk.draw():
        yield name, outgoing.clear(name, content.encode(errors="replace"))
    yield from ((f"static/{name}", read_static(name)) for name in STATIC_FILES)
    shared = f"const ADDRESSES = {json.dumps(walk.shared)};\n"
    yield f"static/{_SHARED}", outgoing.clear(_SHARED, shared.encode())
    for name, key in walk.frames.items():
        replay = find_replay(Ask(site, walk), *key)
        clear = functools.partial(outgoing.clear, name)
        yield f"{name}-frame.html", draw_frame(replay.find_world(), clear)
        with replay.opened() as recording:
            yield from draw_states(recording, name, clear, max_states)


class _Walk:
    """Draws the first page, and each page that a drawn page links to.

    The walk makes the addresses and thereby knows the linked pages; see
    :class:`clawblox.web.page.Links`.

    Args:
        site: The site.

    Attributes:
        frames: The recordings to draw (the run's name in addresses, and the number), by the prefix
            of their file names.
        shared: The windows at each shared address: file, first and last byte.
    """

    def __init__(self, site: Site) -> None:
        self.shared: dict[str, list[tuple[str, int, int]]] = {}
        self.frames: dict[str, tuple[str, str]] = {}
        self._site = site
        self._names: dict[_Key, str] = {}
        self._windows = Counter[tuple[str, ...]]()
        self._named: dict[str, tuple[int, int, _Key]] = {}
        self._waiting: list[tuple[int, int, _Key]] = []
        self._drawn: tuple[int, tuple[str, ...]] = 0, ()

    def to(self, *path: str, fragment: str = "", **query: str | int | None) -> PageAddress:
        """Return the file of a page; the page is drawn if the current page links to it."""
        given = sorted((name, str(value)) for name, value in query.items() if value is not None)
        key = tuple(path) or ("",), tuple(given)
        name = self._names.get(key) or self._add(key)
        return PageAddress.make(name, fragment=fragment if name != _LEFT_OUT else "")

    def file(self, name: str) -> PageAddress:
        """Return the address of a static file."""
        return PageAddress.make("static", name)

    def frame(self, run: str, number: str, world: RecordedWorld) -> PageAddress | None:
        """Return the file of the engine's page for a recording; None if it cannot be drawn."""
        name = self.to("run", run, "replay", number, "states").text.removesuffix(".html")
        is_ours = world.config is not None and world.config.is_engine_world
        if name not in self.frames and (not is_ours or len(self.frames) == _MAX_FRAMES):
            return None
        self.frames[name] = run, number
        return PageAddress.make(f"{name}-frame.html")

    def _add(self, key: _Key) -> str:
        """Give a page a file name and a rank; windows linked from their own page come first."""
        path, query = key
        given = dict(query)
        rank, drawn = self._drawn
        if query:
            self._windows[path] += 1
            if self._windows[path] > (_MAX_MOMENTS if {"t", "utc"} & {*given} else _MAX_WINDOWS):
                return self._find_nearest(path, given.get("t"))
        rank = (rank if path == drawn else 1) if query else 0
        number = len(self._names)
        kind = path[::2][-1]  # the words between ids
        word = kind if re.fullmatch("[a-z]{1,20}", kind) else "page"
        self._names[key] = name = f"{word}-{number:04}.html" if number else _FIRST
        self._named[name] = rank, number, key
        return name

    def _find_nearest(self, path: tuple[str, ...], time: str | None) -> str:
        """Return the nearest moment of a recording that has a page."""
        moments = [
            (abs(float(dict(query)["t"]) - float(time)), name)
            for (other, query), name in self._names.items()
            if time is not None and other == path and dict(query).keys() == {"t"}
        ]
        return min(moments, default=(0.0, _LEFT_OUT))[1]

    def draw(self) -> Iterator[tuple[str, str]]:
        """Yield names and contents of the pages."""
        self.to()
        self._waiting.append(self._named.pop(_FIRST))
        while self._waiting:
            rank, _, key = heapq.heappop(self._waiting)
            self._drawn = rank, key[0]
            yield self._names[key], self._draw_page(key)
        why = (
            f"This page is not in the bundle, which has at most {_MAX_WINDOWS} windows of a log "
            f"and {_MAX_MOMENTS} moments of a recording."
        )
        yield _LEFT_OUT, self._finish(routes.make_missing(Ask(self._site, self), why), _LEFT_OUT)

    def _draw_page(self, key: _Key) -> str:
        path, query = key
        ask = Ask(self._site, self, dict(query))
        try:
            page = routes.make_page(ask, "/".join(path))
        except (NoSuchPage, ClawbloxError, OSError) as error:
            page = routes.make_missing(ask, str(error))
        parts = [*self._draw_moments(path, page), *page.parts]
        return self._finish(attrs.evolve(page, parts=parts), self._names[key])

    def _draw_moments(self, path: tuple[str, ...], page: Page) -> Iterator[Part]:
        """Yield links to evenly spaced moments of a recording, in place of the slider."""
        span = _SPAN.search("".join(part.body.html for part in page.parts))
        if span is not None:
            begin, end = map(float, span.groups())
            step = (end - begin) / (_MAX_LISTED - 1)
            times = [f"{begin + step * number:.3f}" for number in range(_MAX_LISTED)]
            links = [link(f"{float(time):.1f}", self.to(*path, t=time)) for time in times]
            yield Part("moments", element("p", "Moments, in s: ", join(links, " · ")))

    def _finish(self, page: Page, name: str) -> str:
        """Return a page as a document that needs no server, and queue the pages it links to."""
        parts = [attrs.evolve(part, cursor="") for part in page.parts]
        made = f"Made {utc_now():%Y-%m-%d %H:%M} UTC. "
        needed = "Changes, forms and the renderers of worlds need a program: "
        words = (made, needed, code("clawblox app DIR"))
        parts.append(Part("bundle", element("footer", element("p", *words, class_="muted"))))
        head, body = draw_page(attrs.evolve(page, parts=parts, is_live=False), self)
        if name == _FIRST:
            head = join((element("script", src=self.file(_SHARED)), head))
        if "<iframe" in body.html:  # foreign text cannot contain this tag
            states = "".join(_STATES.findall(body.html))
            head = join((head, element("script", src=PageAddress.make(f"{states}.js"), defer="")))
        else:
            body = _drop_controls(body)
        html = document(f"{page.title} · clawblox", head, body, policy=_POLICY)
        for linked in _HREF.findall(html):
            if linked in self._named:  # otherwise the page is queued or drawn already
                heapq.heappush(self._waiting, self._named.pop(linked))
        if page.share:
            offsets = [int(offset) for offset in _OFFSET.findall(html)]
            window = name, min(offsets, default=0), max(offsets, default=0)
            self.shared.setdefault(page.share, []).append(window)
        return html


def _drop_controls(body: Markup) -> Markup:
    """Return the content of a page without the controls that need a server.

    The fields that filter rows, and links in forms, remain. Foreign text contains no tags.
    """
    rows = _FORM.sub(lambda form: f'<div class="row">{_CONTROL.sub("", form[1])}</div>', body.html)
    return Markup(_SCRIPT.sub("", rows))
