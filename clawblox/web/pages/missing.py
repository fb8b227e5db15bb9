"""The page for an address that has none."""

from __future__ import annotations

from clawblox.views.html import element, link
from clawblox.web.page import Ask, Page, Part


def make_page(ask: Ask, why: str) -> Page:
    """Return the page that says why there is none.

    Args:
        ask: What was asked for.
        why: The reason, for people.
    """
    body = element("p", why, " ", link("All runs", ask.links.to()))
    return Page("Not found", ((ask.site.root.name, ask.links.to()),), (Part("why", body),))
