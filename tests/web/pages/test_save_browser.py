"""The pages of saves, lineage and comparisons in a browser: layout, links and no errors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawblox.web.site import Site
from tests.engine.page.chromium import Chromium, Page
from tests.engine.page.conftest import browser
from tests.support.template import Template
from tests.support.waiting import wait_until
from tests.web.families import make_family, save_agent, saves_of
from tests.web.pages.test_compare import instances
from tests.web.served import Served, served

__all__ = ["browser"]

pytestmark = pytest.mark.needs("chromium")

HOSTILE = "<img src=http://example.com/x onerror=evil()>\u202e" + "long" * 300


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lab = make_family(tmp_path_factory.mktemp("family"))
    save_agent(lab / "first", "a", "I am.\n", old="1")
    save_agent(lab / "first", "b", f"{HOSTILE}\n", **{"a b&c<d>.md": "2", "x" * 200: "3"})
    return lab


@pytest.fixture(scope="module")
def site(template: Template, lab: Path) -> Iterator[Served]:
    with served(template, lab) as found:
        yield found


def addresses(lab: Path) -> dict[str, str]:
    """Return the addresses of the pages, by names for people."""
    found = Site(lab)
    idents, archives = instances(found, "first"), saves_of(found, "first", "")
    latest = next(page for page, path in archives if path.name == "b.ckpt")
    return {
        "an archive": latest,
        "a file": f"{latest}/file?agent=rocky&file=SOUL.md",
        "a snapshot": saves_of(found, "first", "alpha")[0][0],
        "lineage": "lineage",
        "a comparison": f"compare?a={idents['alpha']}&b={idents['w000']}",
        "a choice": "compare",
    }


def check(page: Page, wanted: str, name: str = "") -> None:
    """Wait for an element on this page or its successor, and check that page."""

    def is_there() -> bool:
        with contextlib.suppress(RuntimeError):  # the page is navigating
            return bool(page.evaluate(f"document.querySelector('{wanted}') !== null"))
        return False

    wait_until(is_there)
    page.wait_for("document.readyState === 'complete'")
    assert page.evaluate("document.documentElement.scrollWidth") <= page.evaluate("innerWidth"), (
        name
    )
    assert page.complaints() == [], name


@pytest.mark.thorough
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_every_page_fits_and_runs_no_foreign_script(
    lab: Path, site: Served, browser: Chromium, width: int, dark: bool
) -> None:
    for name, address in addresses(lab).items():
        with browser.open(site.address + address, width=width, height=900, dark=dark) as page:
            check(page, "h1", name)


@pytest.mark.thorough
def test_two_runs_can_be_compared_and_their_lineage_links_to_a_save(
    lab: Path, site: Served, browser: Chromium
) -> None:
    with browser.open(site.address, width=1280, height=900) as page:
        check(page, "#compare form")
        page.evaluate("document.querySelector('#compare form').requestSubmit()")
        check(page, "#parting")
    with browser.open(f"{site.address}lineage", width=1280, height=900) as page:
        check(page, "svg a")
        page.evaluate(
            "document.querySelector('svg a[href*=\"/save/\"]')"
            ".dispatchEvent(new MouseEvent('click', {bubbles: true, cancelable: true}))"
        )
        check(page, "#holds")
