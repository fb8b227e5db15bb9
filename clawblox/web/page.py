"""A page: a title, its place, and parts that can change separately.

A page is a pure function of the site and an address. The same call serves the first answer, and
later answers with only the changed parts.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Final, Protocol, TypeAlias

import attrs

from clawblox.views.html import Markup, PageAddress, element, join, link, read_rules, void
from clawblox.web.frames import RecordedWorld, Viewers
from clawblox.web.site import RunSummary, Site

STATIC_FILES: Final = ("app.js", "icon.svg", "replay.js", "style.css")

Query: TypeAlias = Mapping[str, str]
"""The parameters of an address."""


class Links(Protocol):
    """Converts pages to addresses, of a server or of files."""

    def to(self, *path: str, fragment: str = "", **query: str | int | None) -> PageAddress:
        """Return the address of a page.

        Args:
            *path: Its path, for example ``"run", ident``.
            fragment: The place in the page.
            **query: Parameters of the page; None leaves a parameter out.
        """

    def file(self, name: str) -> PageAddress:
        """Return the address of a file of ``web/static``."""

    def frame(self, run: str, number: str, world: RecordedWorld) -> PageAddress | None:
        """Return the address of a recording's renderer; None if foreign code cannot be shown.

        Args:
            run: The run's name in addresses.
            number: The number of the recording.
            world: Its world.
        """


@attrs.frozen
class Ask:
    """The request for a page.

    Attributes:
        site: The site.
        links: Makes addresses.
        query: The parameters of the address.
        cursors: Versions of the browser's parts, by name. The version of a growing part is its end;
            without a version, a part is returned from its start.
        viewers: The viewers that this server has started; None if it cannot start viewers.
    """

    site: Site
    links: Links
    query: Query = attrs.field(factory=dict)
    cursors: Query = attrs.field(factory=dict)
    viewers: Viewers | None = None

    def whole(self, name: str) -> int | None:
        """Return a parameter as a whole number of at most 15 digits; None if it is not one."""
        text = self.query.get(name, "")
        return int(text) if text.isascii() and text.isdigit() and len(text) <= 15 else None

    def crumbs(self, run: RunSummary | None = None) -> Sequence[tuple[str, PageAddress]]:
        """Return the pages above a page: the first page, and then the page of a run, if any."""
        of_run = [(run.name, self.links.to("run", run.ident))] if run else []
        return (self.site.root.name, self.links.to()), *of_run


@attrs.frozen
class Part:
    """A part of a page.

    Attributes:
        name: Its name, unique in the page: the id of its element.
        body: Its content; for a growing part, only the content after the requested cursor.
        cursor: The end of a growing part; empty for a part that is replaced.
    """

    name: str
    body: Markup
    cursor: str = ""

    @functools.cached_property
    def version(self) -> str:
        """Version of the content; never equal to the cursor of another part."""
        return self.cursor or f"v{hashlib.sha256(self.body.html.encode()).hexdigest()[:12]}"


@attrs.frozen
class Page:
    """A page.

    Attributes:
        title: Its title.
        crumbs: The pages above it, outermost first: words and address.
        parts: Its parts in order.
        is_live: Whether the parts can still change.
        share: The address to share (see ``shared_address``); empty for none.
        frame: Whether the page shows a foreign renderer in a frame.
    """

    title: str
    crumbs: Sequence[tuple[str, PageAddress]]
    parts: Sequence[Part]
    is_live: bool = False
    share: str = ""
    frame: bool = False


def draw_page(page: Page, links: Links) -> tuple[Markup, Markup]:
    """Return the head and body of a page.

    Args:
        page: The page.
        links: Makes addresses.
    """
    head = (
        void("link", rel="stylesheet", href=links.file("style.css")),
        void("link", rel="icon", href=links.file("icon.svg")),
        element("script", src=links.file("app.js"), defer=""),
    )
    above = [piece for words, to in page.crumbs for piece in (link(words, to), " / ")]
    share = {"id": "share", "data_address": page.share, "hidden": ""}
    right = (
        element("button", "copy link", type="button", **share) if page.share else None,
        element("span", "● updating", class_="good", id="live") if page.is_live else None,
    )
    bar = (
        link("Skip to content", PageAddress("#content"), class_="skip"),
        element("nav", *above, element("b", page.title), aria_label="Where this page is"),
        element("span", *right, class_="right"),
    )
    parts = (element("h1", page.title), *map(draw_part, page.parts))
    header = element("header", *bar, class_="bar")
    main = element("main", *parts, id="content", tabindex="-1")
    return join(head), join((header, main))


def draw_part(part: Part) -> Markup:
    """Return a part with its name and version, which the browser uses to request changes."""
    known = {"data_version": part.version, "data_cursor": part.cursor or None}
    return element("section", part.body, id=part.name, **known)


@functools.cache
def read_static(name: str) -> bytes:
    """Return a file of :data:`STATIC_FILES`; the style sheet includes the rules of the views."""
    data = (resources.files("clawblox.web") / "static" / name).read_bytes()
    if name != "style.css":
        return data
    return "".join(map(read_rules, ("page", "picture", "check", "agent"))).encode() + data
