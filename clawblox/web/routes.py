"""The pages by address, for the server and the bundle."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from clawblox.views.html import element, link
from clawblox.web import shared_address
from clawblox.web.page import Ask, Page, Part
from clawblox.web.pages import (
    agent,
    compare,
    experiment,
    lineage,
    log,
    replay,
    reports,
    run,
    runs,
    save,
)
from clawblox.web.site import NoSuchPage

_PAGES: Final[Sequence[tuple[str, Callable[..., Page]]]] = (
    ("", runs.make_page),
    ("run/*", run.make_page),
    ("run/*/log/*", log.make_page),
    ("run/*/agent/*", agent.make_page),
    ("run/*/agent/*/part", agent.make_part),
    ("search", log.make_search_page),
    ("open", shared_address.make_page),
    ("experiment/*", experiment.make_page),
    ("usage", runs.make_usage_page),
    ("reports", reports.make_page),
    ("check/*", reports.make_report_page),
    ("run/*/replay", replay.make_page),
    ("run/*/replay/*", replay.make_page),
    ("run/*/save/*", save.make_page),
    ("run/*/save/*/file", save.make_file_page),
    ("lineage", lineage.make_page),
    ("compare", compare.make_page),
)
"""Paths of pages, with ``*`` for an id, and the functions that make a page from an ask and ids."""


def is_of_site(path: str) -> bool:
    """Return whether a page depends only on the entries of the site."""
    return path.strip("/").partition("/")[0] in ("", "experiment")


def make_page(ask: Ask, path: str) -> Page:
    """Return the page at a path.

    Args:
        ask: The request.
        path: The path, without the key and the parameters.

    Raises:
        NoSuchPage: There is no page at this path.
    """
    for pattern, make in _PAGES:
        match = re.fullmatch(pattern.replace("*", "([^/]+)"), path.strip("/"))
        if match is not None:
            return make(ask, *match.groups())
    raise NoSuchPage("There is no page at this address.")


def make_missing(ask: Ask, why: str) -> Page:
    """Return the page that explains why an address has no page.

    Args:
        ask: The request.
        why: The reason, for people.
    """
    body = element("p", why, " ", link("All runs", ask.links.to()))
    return Page("Not found", ask.crumbs(), (Part("why", body),))
