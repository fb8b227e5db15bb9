"""Sites for the tests of pages: pages as text, and hand-written run directories."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from clawblox.results import ProcessExit
from clawblox.views.html import PageAddress
from clawblox.web import routes
from clawblox.web.app import ServerLinks
from clawblox.web.page import Ask, Page, draw_page
from clawblox.web.site import RunSummary, Site
from tests.rundir.test_records import written

LINKS = ServerLinks("key")


def make(site: Site, page: PageAddress | str, cursors: dict[str, str] | None = None) -> Page:
    """Return the page at an address."""
    text = page.text if isinstance(page, PageAddress) else page
    path, _, query = text.partition("#")[0].removeprefix("/key/").partition("?")
    return routes.make_page(Ask(site, LINKS, dict(parse_qsl(query)), cursors or {}), path)


def html_of(page: Page) -> str:
    return draw_page(page, LINKS)[1].html


def words_of(page: Page, *names: str) -> str:
    """Return the text of a page or of some of its parts, with single spaces."""
    parts = [part.body.html for part in page.parts if not names or part.name in names]
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", " ".join(parts))).split())


def links_of(page: Page) -> list[str]:
    return [unescape(to) for to in re.findall(r'href="([^"]+)"', html_of(page))]


def only_run(site: Site) -> RunSummary:
    (run,) = site.runs()
    return run


def write_log(run: Path, name: str, content: bytes, **changes: Any) -> Path:
    """Write the record and the log of an ended instance, with ``changes`` of the record."""
    log = run / "logs" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(content)
    ended = {
        "state": "exited",
        "exit": ProcessExit(status=0),
        "restarts": 0,
        "run_id": f"{name}-id",
    }
    written(run, name, **{**ended, "instance_dir": str(run), "log_file": str(log), **changes})
    return log
