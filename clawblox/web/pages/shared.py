"""The page for an address that was sent, where it leads to several places."""

from __future__ import annotations

from clawblox.views.html import element, link
from clawblox.web.page import Ask, Page, Part
from clawblox.web.pieces import moment, table
from clawblox.web.shared_address import find_pages


def make_page(ask: Ask) -> Page:
    """Return the page of choice; ``address`` is the address that was sent.

    Raises:
        NoSuchPage: It leads nowhere.
    """
    text = ask.query.get("address", "")
    pages = find_pages(ask, text)
    why = "Several run directories here have this run. Choose one:" if len(pages) > 1 else "It is:"
    rows = [(link(run.name, to), str(run.directory), moment(run.latest) or "") for run, to in pages]
    body = element("p", why), table("Runs", ("Run", "Directory", "Latest"), rows)
    crumbs = ((ask.site.root.name, ask.links.to()),)
    return Page(text[:200], crumbs, (Part("choice", element("div", *body)),))
