"""Pages as text, without a server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from clawblox.views.html import PageAddress
from clawblox.web import routes
from clawblox.web.page import Ask, Page, draw_page
from clawblox.web.site import Site


class PlainLinks:
    """Readable addresses: ``/run/1234567890?q=x#fragment``."""

    def to(self, *path: str, fragment: str = "", **query: str | int | None) -> PageAddress:
        return PageAddress.make("", *(path or ("",)), fragment=fragment, **query)

    def file(self, name: str) -> PageAddress:
        return PageAddress.make("", "static", name)


def ask(site: Site | Path, cursors: Mapping[str, str] | None = None, **query: str) -> Ask:
    """Return a request for a page."""
    found = site if isinstance(site, Site) else Site(site)
    return Ask(found, PlainLinks(), query, cursors or {})


def make(site: Site | Path, path: str = "", **query: str) -> Page:
    """Return a page of a directory."""
    return routes.make_page(ask(site, **query), path)


def draw(site: Site | Path, path: str = "", **query: str) -> str:
    """Return the body of a page of a directory."""
    _, body = draw_page(make(site, path, **query), PlainLinks())
    return body.html
