"""The pages in a browser: schemes, widths, keys, changes, and hostile words everywhere."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs
import pytest

from clawblox.agents.layout import AgentDir
from clawblox.agents.status import AgentRecord, StatusWriter
from clawblox.web.site import Site, identify
from tests.agents.test_listing import make_run
from tests.engine.page.chromium import Chromium, Page
from tests.golden.test_golden_experiments import V1_SCORED
from tests.golden.test_golden_run_directory import V1
from tests.support.programs import Programs, npm_install
from tests.support.template import Template
from tests.web.hostile import NAME, SECRET, write_hostile
from tests.web.served import Served, served

pytestmark = pytest.mark.needs("chromium")

VIEWS: Final = tuple(itertools.product((False, True), (1280, 390)))
"""Whether the scheme is dark, and the width."""
PAGES: Final = (
    "",
    "?q=script&state=ended&sort=cost",
    "experiment/{experiment}",
    "usage",
    "reports",
    "run/{run}",
    "run/{run}/log/w000",
    "run/{run}/log/w000?at=0",
    "search?q=onerror&place=run/{run}/log/w000",
    "run/{run}/log/w001",
    "run/{run}/agent/{agent}",
    "run/{run}/save/{save}",
    "search?q=script",
    "lineage",
    "compare",
    "compare?a={run}&b={run}",
)
"""Addresses of pages; the names in braces refer to :attr:`ServedRuns.names`."""
WATCH: Final = """
  var reports = [];
  addEventListener("securitypolicyviolation",
    (event) => reports.push(`${event.effectiveDirective} ${event.blockedURI}`));
"""
AXE: Final = """axe.run(document, {resultTypes: ["violations"]}).then((found) =>
  found.violations.flatMap((one) => one.nodes.map((node) =>
    [one.id, node.html, ...node.any.map((any) => JSON.stringify(any.data))].join(" "))))"""


@attrs.frozen
class ServedRuns:
    """A directory with runs and experiments, served.

    Attributes:
        site: Its pages.
        root: The directory.
        names: Values for the names in :data:`PAGES`.
    """

    site: Served
    root: Path
    names: dict[str, str]

    def address(self, page: str) -> str:
        """Return the address of one of the pages."""
        return self.site.address + page.format(**self.names)


def make_lab(root: Path, site: Served, run: Path, experiment: Path) -> ServedRuns:
    """Return the served runs with the pages of a run and an experiment."""
    (found,) = Site(run).runs()
    ident = identify(os.path.relpath(run, root))
    saves = re.findall(rf"/run/{ident}/save/(\w+)", site.text(f"run/{ident}"))
    names = {
        "save": next(iter(saves), "none"),
        "run": ident,
        "experiment": identify(os.path.relpath(experiment, root)),
        "agent": identify(os.path.relpath(found.agents[0].dir, root)),
    }
    return ServedRuns(site, root, names)


@pytest.fixture(scope="module")
def runs(template: Template, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedRuns]:
    root = tmp_path_factory.mktemp("runs")
    run = Path(shutil.copytree(V1, root / "golden"))
    experiment = Path(shutil.copytree(V1_SCORED, root / "scored"))
    for number in range(30):
        make_run(root / f"ended-{number}")
    make_run(root / "live", os.getpid())
    with served(template, root) as site:
        yield make_lab(root, site, run, experiment)


@pytest.fixture(scope="module")
def hostile(template: Template, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedRuns]:
    root = tmp_path_factory.mktemp("hostile")
    run, experiment = write_hostile(root)
    with served(template, root) as site:
        yield make_lab(root, site, run, experiment)


def look(runs: ServedRuns, page: Page) -> None:
    """Check that a page fits its width, reports no errors and contains no foreign markup."""
    page.wait_for("document.readyState === 'complete'")
    too_wide = page.evaluate("""
      document.documentElement.scrollWidth <= innerWidth ? [] :
        [...document.querySelectorAll("body *")]
          .filter((one) => one.getBoundingClientRect().right > innerWidth + 1)
          .slice(0, 5).map((one) => one.outerHTML.slice(0, 200))""")
    assert too_wide == []
    assert page.evaluate("reports") == []
    assert page.complaints() == []
    own = runs.site.address.removesuffix(f"{runs.site.key}/")
    assert [url for url in page.requests() if not url.startswith(own)] == []
    assert page.evaluate("typeof ran") == "undefined"


def take_turn(run: Path, turn: int) -> None:
    """Record a turn of the agent in a run of :func:`make_run`."""
    agent = AgentDir(run / "agents" / f"of-{run.name}")
    record = AgentRecord(name=agent.path.name, driver="claude", state="working", turn=turn)
    StatusWriter(agent).write(record)


def press(page: Page, key: str) -> None:
    """Press a character key, Enter or Escape."""
    code = {"Enter": 13, "Escape": 27}.get(key, 0)
    text = "\r" if key == "Enter" else key if len(key) == 1 else ""
    event = {"key": key, "text": text, "windowsVirtualKeyCode": code}
    page.call("Input.dispatchKeyEvent", type="keyDown", **event)
    page.call("Input.dispatchKeyEvent", type="keyUp", **event)


@pytest.mark.thorough
@pytest.mark.parametrize("address", PAGES)
def test_pages_render_without_errors_in_both_schemes_and_widths(
    address: str, runs: ServedRuns, browser: Chromium
) -> None:
    colours = set()
    for dark, width in VIEWS:
        where = runs.address(address)
        with browser.open(where, width=width, height=900, dark=dark, script=WATCH) as page:
            look(runs, page)
            colours.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(colours) == 2


@pytest.mark.needs("npm")
@pytest.mark.thorough
@pytest.mark.parametrize("address", PAGES)
def test_pages_have_no_accessibility_violations(
    address: str, runs: ServedRuns, browser: Chromium, axe: str
) -> None:
    for dark, width in VIEWS:
        where = runs.address(address)
        with browser.open(where, width=width, height=900, dark=dark, script=axe) as page:
            page.wait_for("document.readyState === 'complete'")
            assert page.evaluate(AXE) == [], (dark, width)


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = Programs.make(tmp_path_factory.mktemp("axe")).root / "axe-core"
    script = root / "node_modules" / "axe-core" / "axe.min.js"
    if not script.exists():
        npm_install(root, "axe-core@4", os.environ["PATH"])
    return script.read_text()


@pytest.mark.thorough
@pytest.mark.parametrize("address", PAGES)
def test_hostile_words_in_every_field_are_escaped(
    address: str, hostile: ServedRuns, browser: Chromium
) -> None:
    for dark, width in VIEWS[::3]:
        where = hostile.address(address)
        with browser.open(where, width=width, height=900, dark=dark, script=WATCH) as page:
            look(hostile, page)
            text = page.evaluate("document.documentElement.textContent")
            assert SECRET not in text
            assert not any(sign in text for sign in "\x1b\u202e\u2066\u200b")
            if address not in ("reports", "lineage"):  # no list on this page
                assert "onerror=ran=1" in text
            assert page.evaluate("document.querySelectorAll('img, iframe, object').length") == 0


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["pipes", "links", NAME])
def test_pages_survive_links_and_pipes_in_place_of_agent_files(
    name: str, hostile: ServedRuns, browser: Chromium
) -> None:
    agent = identify(os.path.relpath(hostile.root / NAME / "agents" / name, hostile.root))
    where = hostile.address(f"run/{{run}}/agent/{agent}")
    with browser.open(where, width=1280, height=900, script=WATCH) as page:
        look(hostile, page)
        assert SECRET not in page.evaluate("document.documentElement.textContent")


@pytest.mark.thorough
def test_pages_survive_records_with_impossible_paths(
    hostile: ServedRuns, browser: Chromium
) -> None:
    where = hostile.address(f"run/{identify('places')}")
    with browser.open(where, width=390, height=900, script=WATCH) as page:
        look(hostile, page)


@pytest.mark.thorough
def test_a_hostile_run_is_listed_with_all_its_agents(hostile: ServedRuns) -> None:
    text = hostile.site.text("")
    for name in ("Eko", "pipes", "links"):
        assert (
            identify(os.path.relpath(hostile.root / NAME / "agents" / name, hostile.root)) in text
        )


@pytest.mark.thorough
def test_live_page_shows_changes_and_keeps_the_readers_state(
    template: Template, tmp_path: Path, browser: Chromium
) -> None:
    run = make_run(tmp_path / "live", os.getpid())
    make_run(tmp_path / "ended")
    with (
        served(template, tmp_path) as site,
        browser.open(site.address, width=1280, script=WATCH) as page,
    ):
        page.wait_for("document.querySelector('time')?.textContent.endsWith('ago')")
        page.evaluate("document.querySelector('#runs thead th').click()")
        press(page, "j")
        page.evaluate("document.querySelectorAll('#runs tbody a')[1].focus()")
        read = """[document.querySelector(".chosen").textContent.slice(0, 5),
                   document.activeElement.textContent,
                   [...document.querySelectorAll("#runs tbody th")].map((one) => one.textContent),
                   document.querySelector("th[aria-sort]").ariaSort]"""
        before = page.evaluate(read)
        take_turn(run, 77)
        page.wait_for("document.querySelector('#runs').textContent.includes('turn 77')")
        assert page.evaluate(read) == before
        site.process.kill()
        page.wait_for("document.querySelector('#old')?.textContent.includes('is old')")
        assert page.evaluate("reports") == []


KEYS: Final = "/jko[]?"


@pytest.mark.thorough
def test_keyboard_moves_selects_and_unfolds(runs: ServedRuns, browser: Chromium) -> None:
    with browser.open(runs.site.address, width=1280, height=900, script=WATCH) as page:
        page.wait_for("document.readyState === 'complete'")
        press(page, "?")
        assert page.evaluate("document.querySelector('dialog').open")
        assert page.evaluate(
            "[...document.querySelectorAll('dialog dt')].map((one) => one.textContent)"
        ) == list(KEYS)
        press(page, "Escape")
        page.wait_for("!document.querySelector('dialog').open")
        rows = "[...document.querySelectorAll('tbody tr')].map((one) => one.className)"
        press(page, "j")
        press(page, "j")
        assert page.evaluate(rows)[:3] == ["", "chosen", ""]
        press(page, "k")
        assert page.evaluate(rows)[:3] == ["chosen", "", ""]
        press(page, "/")
        assert page.evaluate("document.activeElement.type") == "search"
        press(page, "j")
        assert page.evaluate("document.activeElement.value") == "j"
        press(page, "Escape")
        assert page.evaluate("document.activeElement === document.body")
        for key in "[]":
            press(page, key)
        assert page.complaints() == []
        press(page, "o")
        page.wait_for("location.pathname.includes('/experiment/')")


@pytest.mark.thorough
def test_rows_are_filtered_while_typing_and_sorted_by_keyboard(
    runs: ServedRuns, browser: Chromium
) -> None:
    with browser.open(runs.site.address, width=1280, height=900) as page:
        page.wait_for("document.readyState === 'complete'")
        shown = (
            "[...document.querySelectorAll('#runs tbody tr')].filter((one) => !one.hidden).length"
        )
        assert page.evaluate(shown) == 32
        press(page, "/")
        for key in "ended-7":
            press(page, key)
        assert page.evaluate(shown) == 1
        press(page, "Escape")
        page.evaluate("document.querySelector('#runs thead button').focus()")
        press(page, "Enter")
        page.wait_for("document.querySelector('#runs thead th').ariaSort === 'ascending'")


@pytest.mark.thorough
def test_eight_tabs_follow_a_run(runs: ServedRuns, browser: Chromium) -> None:
    with contextlib.ExitStack() as stack:
        pages = [stack.enter_context(browser.open(runs.site.address, width=1280)) for _ in range(8)]
        for page in pages:
            page.call("Page.bringToFront")
            page.wait_for("document.visibilityState === 'visible'")
        take_turn(runs.root / "live", 88)
        for page in pages:
            page.call("Page.bringToFront")
            page.wait_for("document.querySelector('#runs').textContent.includes('turn 88')")
            assert page.complaints() == []


@pytest.mark.thorough
def test_open_folds_and_focus_survive_a_change(runs: ServedRuns, browser: Chromium) -> None:
    fold = "<details><summary>Why</summary><a href=x>x</a></details>"
    with browser.open(runs.site.address, width=1280) as page:
        page.wait_for("document.readyState === 'complete'")
        other = "<details><summary>Other</summary></details>"
        change = f"apply(`<section id=summary>{fold}{other}</section>`)"
        page.evaluate(change)
        page.evaluate("document.querySelector('#summary details').open = true")
        page.evaluate("document.querySelector('#summary a').focus()")
        page.evaluate(change)
        read = "[...document.querySelectorAll('#summary details')].map((one) => one.open)"
        assert page.evaluate(read) == [True, False]
        assert page.evaluate("document.activeElement.textContent") == "x"
