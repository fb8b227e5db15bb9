"""The pages as files: a directory that can be sent, and read without a program.

It has every page that other pages link to, from the first one on. Of a page with many windows, such
as a log, it has so many that it stays readable; links beyond them lead to a page that says so.
"""

from __future__ import annotations

import heapq
import json
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, TypeAlias

import attrs

from clawblox.checkpoint.secrets import known_values
from clawblox.errors import ClawbloxError, ConfigError
from clawblox.system.amounts import format_bytes
from clawblox.system.clock import utc_now
from clawblox.system.files import (
    NO_REPLACE,
    fsync_directory,
    partial_name,
    rename_with,
    sweep_partials,
)
from clawblox.system.regular_files import PRIVATE_DIR, PRIVATE_FILE
from clawblox.system.trees import discard_tree
from clawblox.views.formatting import count_words
from clawblox.views.html import Address, Markup, document, element, join, link
from clawblox.web import routes
from clawblox.web.outgoing import Identity, Outgoing
from clawblox.web.page import Ask, Page, Part, draw_page, read_static
from clawblox.web.pieces import code
from clawblox.web.site import NoSuchPage, Site

MAX_BYTES: Final = 200 * 1000**2
"""How large a bundle may be by default."""
_MAX_WINDOWS: Final = 500
"""Number of windows, long texts or other choices of a page."""
_MAX_MOMENTS: Final = 50
"""Number of moments of a recording; each shows the whole world."""
_MAX_LISTED: Final = 30
_MAX_PAGES: Final = 20_000
_FIRST: Final = "index.html"
_LEFT_OUT: Final = "left-out.html"
_SHARED: Final = "addresses.js"
_STATIC: Final = ("app.js", "icon.svg", "style.css")
_COMMAND: Final = "clawblox app DIR"
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; form-action 'none'; "
    "base-uri 'none'; require-trusted-types-for 'script'; trusted-types server"
)
"""For ``file:``, browsers take ``'self'`` as any file; pages name only files of the bundle."""

_FORM: Final = re.compile(r"<form\b[^>]*>(.*?)</form>", re.DOTALL)
_CONTROL: Final = re.compile(
    r"<label\b[^>]*>.*?</label>|<(button|select|textarea)\b[^>]*>.*?</\1>"
    r'|<input\b(?![^>]*class="filter")[^>]*>',
    re.DOTALL,
)
_FILTER: Final = re.compile(r'<input\b[^>]*class="filter"')
_SCRIPT: Final = re.compile(r"<script\b[^>]*></script>")
_HREF: Final = re.compile(r'href="([^"#]+)')
_SPAN: Final = re.compile(r'id="span" data-begin="([^"]+)" data-end="([^"]+)"')
_OFFSET: Final = re.compile(r' id="o(\d{1,15})"')

_Key: TypeAlias = tuple[tuple[str, ...], tuple[tuple[str, str], ...]]
"""Path and query of a page."""


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
        bundle: The directory to make; it is complete or absent.
        redact: Whether secrets are masked; else they refuse the bundle.
        max_size: Maximum size of the bundle in bytes.
        announce: Called with the size, for people, before anything is written.

    Raises:
        ConfigError: ``bundle`` exists, or its parent does not.
        ClawbloxError: A page has a secret, or the pages are larger than ``max_size``.
        OSError: A file cannot be written.
    """
    if os.path.lexists(bundle):
        hint = "remove it, or give another name"
        raise ConfigError("must not exist yet", key="bundle", value=str(bundle), hint=hint)
    if not bundle.parent.is_dir():
        hint = "make its parent directory first"
        raise ConfigError("must be in a directory", key="bundle", value=str(bundle), hint=hint)
    site = Site(root, clock=lambda: 0.0)  # which looks once, so that all pages show the same
    agents = [agent.dir for run in site.runs() for agent in run.agents]
    known = known_values(os.environ, agents)
    outgoing = Outgoing(site.root, Identity.read(root), known, redact=redact)
    files: dict[str, bytes] = {}
    number = size = 0
    for name, data in _draw(site, outgoing):
        files[name] = zlib.compress(data)
        number += name.endswith(".html")
        size += len(data)
        if size > max_size:
            few = count_words(number, "page")
            raise ClawbloxError(
                f"the bundle is larger than {format_bytes(max_size)} after {few} already",
                hint="give a larger max_size=, or the directory of a single run",
            )
    outgoing.check()
    announce(f"The bundle has {count_words(number, 'page')}, {format_bytes(size)}")
    _publish(files, bundle)


def _draw(site: Site, outgoing: Outgoing) -> Iterator[tuple[str, bytes]]:
    """Yield names and contents of all files, cleared."""
    walk = _Walk(site)
    for name, content in walk.draw():
        yield name, outgoing.clear(name, content.encode(errors="replace"))
    for name in _STATIC:
        yield f"static/{name}", read_static(name)
    shared = f"const ADDRESSES = {json.dumps(walk.shared)};\n"
    yield f"static/{_SHARED}", outgoing.clear(_SHARED, shared.encode())


class _Walk:
    """Draws the first page, and each page that a drawn one links to.

    It makes the addresses, and so knows what is linked; see :class:`clawblox.web.page.Links`.

    Args:
        site: The site.

    Attributes:
        shared: The windows at each address to send: file, first and last byte.
    """

    def __init__(self, site: Site) -> None:
        self.shared: dict[str, list[tuple[str, int, int]]] = {}
        self._site = site
        self._names: dict[_Key, str] = {}
        self._windows: dict[tuple[str, ...], int] = {}
        self._named: dict[str, tuple[int, int, _Key]] = {}
        self._waiting: list[tuple[int, int, _Key]] = []
        self._drawn: tuple[int, tuple[str, ...]] = 0, ()
        self._lacks_frame = False

    def to(self, *path: str, fragment: str = "", **query: str | int | None) -> Address:
        """Return the file of a page, which is drawn if the drawn page links to it."""
        given = sorted((name, str(value)) for name, value in query.items() if value is not None)
        key = tuple(path) or ("",), tuple(given)
        name = self._names.get(key) or self._add(key)
        return Address.make(name, fragment=fragment if name != _LEFT_OUT else "")

    def file(self, name: str) -> Address:
        """Return the address of a static file."""
        return Address.make("static", name)

    def frame(self, run: str, number: str) -> None:
        """Note that the page would show a renderer, for which there is no address."""
        self._lacks_frame = True

    def _add(self, key: _Key) -> str:
        """Give a page a name and a place; windows reached from their own page come first."""
        path, query = key
        given = dict(query)
        rank, drawn = self._drawn
        if query:
            self._windows[path] = number = self._windows.get(path, 0) + 1
            if number > (_MAX_MOMENTS if given.keys() & {"t", "utc"} else _MAX_WINDOWS):
                return self._find_nearest(path, given.get("t"))
            rank = rank if path == drawn else 1
        else:
            rank = 0
        number = len(self._names)
        if number >= _MAX_PAGES:
            return _LEFT_OUT
        kind = path[::2][-1]  # the words between ids
        word = kind if re.fullmatch("[a-z]{1,20}", kind) else "page"
        self._names[key] = name = f"{word}-{number:04}.html" if number else _FIRST
        self._named[name] = rank, number, key
        return name

    def _find_nearest(self, path: tuple[str, ...], time: str | None) -> str:
        """Return the page of the moment of a recording that is nearest to one without a page."""
        if time is None:
            return _LEFT_OUT
        moments = {
            float(dict(query)["t"]): name
            for (other, query), name in self._names.items()
            if other == path and dict(query).keys() == {"t"}
        }
        nearest = min(moments, key=lambda moment: abs(moment - float(time)), default=None)
        return _LEFT_OUT if nearest is None else moments[nearest]

    def draw(self) -> Iterator[tuple[str, str]]:
        """Yield names and contents of the pages."""
        self.to()
        self._waiting.append(self._named.pop(_FIRST))
        while self._waiting:
            rank, _, key = heapq.heappop(self._waiting)
            self._drawn = rank, key[0]
            self._lacks_frame = False
            yield self._names[key], self._draw_page(key)
        self._lacks_frame = False
        why = (
            f"This page is not in the bundle, which has at most {_MAX_WINDOWS} windows of a log, "
            f"{_MAX_MOMENTS} moments of a recording, and {_MAX_PAGES} pages."
        )
        yield _LEFT_OUT, self._finish(routes.make_missing(Ask(self._site, self), why), _LEFT_OUT)

    def _draw_page(self, key: _Key) -> str:
        path, query = key
        ask = Ask(self._site, self, dict(query))
        try:
            page = routes.make_page(ask, "/".join(path))
        except NoSuchPage as error:
            page = routes.make_missing(ask, str(error))
        except (ClawbloxError, OSError) as error:
            page = routes.make_missing(ask, f"This page cannot be drawn: {error}")
        if path[::2][-1] == "replay":
            page = attrs.evolve(page, parts=[*self._draw_moments(path, page), *page.parts])
        return self._finish(page, self._names[key])

    def _draw_moments(self, path: tuple[str, ...], page: Page) -> Iterator[Part]:
        """Yield links to moments of a recording at equal distances, in place of the slider."""
        span = _SPAN.search("".join(part.body.html for part in page.parts))
        if span is not None:
            begin, end = map(float, span.groups())
            step = (end - begin) / (_MAX_LISTED - 1)
            times = [f"{begin + step * number:.3f}" for number in range(_MAX_LISTED)]
            links = [link(f"{float(time):.1f}", self.to(*path, t=time)) for time in times]
            yield Part("moments", element("p", "Moments, in s: ", join(links, " · ")))

    def _finish(self, page: Page, name: str) -> str:
        """Return a page as a document that needs no server, and let what it links to wait."""
        parts = [attrs.evolve(part, cursor="") for part in page.parts]
        if self._lacks_frame:
            parts.insert(0, Part("no-frame", _say("The 3D view needs a program: ")))
        made = f"Made {utc_now():%Y-%m-%d %H:%M} UTC. Changes, searches and the 3D view: "
        parts.append(Part("bundle", element("footer", _say(made))))
        page = attrs.evolve(page, parts=parts, is_live=False)
        head, body = draw_page(page, self)
        if name == _FIRST:
            head = join((element("script", src=self.file(_SHARED)), head))
        html = document(f"{page.title} · clawblox", head, _drop_controls(body), policy=_POLICY)
        for linked in _HREF.findall(html):
            if linked in self._named:  # else it waits, or is drawn
                heapq.heappush(self._waiting, self._named.pop(linked))
        if page.share:
            offsets = [int(offset) for offset in _OFFSET.findall(html)]
            window = name, min(offsets, default=0), max(offsets, default=0)
            self.shared.setdefault(page.share, []).append(window)
        return html


def _say(words: str) -> Markup:
    return element("p", words, code(_COMMAND), class_="muted")


def _drop_controls(body: Markup) -> Markup:
    """Return the content of a page without what needs a server.

    Of a form, the field that filters rows and the links remain; foreign text has no tags.
    """

    def drop(form: re.Match[str]) -> str:
        rest = _CONTROL.sub("", form[1])
        note = "" if _FILTER.search(rest) else _say("The controls need a program: ").html
        return f'<div class="row">{rest}{note}</div>'

    return Markup(_SCRIPT.sub("", _FORM.sub(drop, body.html)))


def _publish(files: Mapping[str, bytes], bundle: Path) -> None:
    """Write compressed contents into a new directory, and give it its name at the end."""
    sweep_partials(bundle.parent)
    partial = bundle.parent / partial_name(bundle.name)
    try:
        for directory in (partial, partial / "static"):
            directory.mkdir(PRIVATE_DIR)
        for name, data in files.items():
            fd = os.open(partial / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
            with os.fdopen(fd, "wb") as file:
                file.write(zlib.decompress(data))
        try:
            if not rename_with(NO_REPLACE, partial, bundle):
                partial.rename(bundle)  # which replaces an empty directory at most
        except OSError as error:
            reason = str(error.strerror)
            raise ConfigError(reason, key="bundle", value=str(bundle)) from error
        fsync_directory(bundle.parent)
    finally:
        if partial.exists():
            discard_tree(partial)
