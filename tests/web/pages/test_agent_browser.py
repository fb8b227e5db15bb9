"""The page of an agent in a browser: it follows, keeps folds, fetches long texts, and is quiet."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from clawblox.web.app import Server
from clawblox.web.site import Site
from tests.engine.page.chromium import Chromium, Page
from tests.engine.page.conftest import browser
from tests.web.agent_runs import URL, WrittenAgent
from tests.web.pages.test_run_browser import check, serve
from tests.web.sites import only_run

__all__ = ["browser", "serve"]

pytestmark = pytest.mark.needs("chromium")

HOSTILE = "<script>window.evil=1</script><img src=http://example.com/x onerror=evil()>\x1b[2J\u202e"
FOLD = "document.querySelector('#steps .call')"


@pytest.fixture
def ada(tmp_path: Path) -> WrittenAgent:
    ada = WrittenAgent(tmp_path, state="working", turn=1)
    ada.begin("Begin")
    ada.call(command=f"curl -s {URL}/observe")
    ada.answer(json.dumps({"time": 1, "notes": ["word"] * 900 + ["the last"]}))
    return ada


def open_agent(browser: Chromium, server: Server, root: Path, place: str = "", **how: int) -> Page:
    site = Site(root)
    run = only_run(site)
    path = f"run/{run.ident}/agent/{site.identify(run.agents[0].dir)}{place}"
    return browser.open(server.address + path, **{"width": 1280, "height": 900, **how})


@pytest.mark.thorough
def test_new_steps_are_appended_and_open_folds_stay_open(
    ada: WrittenAgent, tmp_path: Path, browser: Chromium, serve: Callable[[Path], Server]
) -> None:
    with open_agent(browser, serve(tmp_path), tmp_path) as page:
        page.wait_for(FOLD)
        page.evaluate(f"{FOLD}.open = true")
        page.wait_for(f"{FOLD}.textContent.includes('the last')")
        ada.steer(0.5, 2)
        page.wait_for("document.querySelectorAll('#steps .call').length === 2")
        shown = page.evaluate("document.querySelector('#steps').innerText")
        assert "time 1 → 2" in shown
        assert page.evaluate(f"{FOLD}.open")
        ada.finish()
        ada.begin("Come back")
        page.wait_for("document.querySelector('#outline').textContent.includes('2')")
        page.wait_for("document.querySelector('#end').textContent.includes('turn 2')")
        check(page)


@pytest.mark.thorough
@pytest.mark.parametrize("width", [1280, 390])
def test_hostile_words_are_inert_and_fit_the_page(
    ada: WrittenAgent,
    tmp_path: Path,
    browser: Chromium,
    serve: Callable[[Path], Server],
    width: int,
) -> None:
    ada.say(HOSTILE + "x" * 500)
    ada.think(HOSTILE * 20)
    ada.call(HOSTILE, command=HOSTILE)
    ada.answer(HOSTILE * 200)
    server = serve(tmp_path)
    with open_agent(browser, server, tmp_path, width=width, height=800) as page:
        page.wait_for("document.readyState === 'complete'")
        page.evaluate("document.querySelectorAll('details').forEach((one) => one.open = true)")
        check(page)


@pytest.mark.thorough
def test_turn_list_shows_the_turn_of_the_selected_minute(
    ada: WrittenAgent, tmp_path: Path, browser: Chromium, serve: Callable[[Path], Server]
) -> None:
    ada.finish()
    for _ in range(26):
        ada.begin()
        ada.say("word " * 20)
        ada.finish()
    server = serve(tmp_path)
    with open_agent(browser, server, tmp_path, height=300) as page:
        page.wait_for("document.readyState === 'complete'")
        action = page.evaluate("document.querySelector('input[name=minute]').form.action")
        assert action.endswith("#steps")
    with open_agent(browser, server, tmp_path, "?minute=0.7#steps", height=300) as page:
        entry = "document.querySelector('#outline [aria-current]')"
        page.wait_for(entry)
        page.wait_for(f"{entry}.getBoundingClientRect().bottom < innerHeight")
        assert page.evaluate(f"{entry}.getBoundingClientRect().top") >= 0
        assert page.evaluate(f"{entry}.closest('ol').scrollTop") > 0


@pytest.mark.thorough
def test_keys_move_among_steps_and_the_turn_in_view_is_marked(
    ada: WrittenAgent, tmp_path: Path, browser: Chromium, serve: Callable[[Path], Server]
) -> None:
    ada.finish()
    for _ in range(12):
        ada.begin()
        for _ in range(3):
            ada.say("word " * 100)
        ada.finish()
    with open_agent(browser, serve(tmp_path), tmp_path) as page:
        page.wait_for("document.querySelector('#outline a[aria-current]')")
        page.evaluate("scrollTo(0, document.body.scrollHeight)")
        page.wait_for("document.querySelector('#outline a[aria-current] b').textContent === '13'")
        page.press("KeyJ", "j")
        page.press("KeyJ", "j")
        page.press("KeyO", "o")
        page.wait_for("document.querySelector('.step.chosen .call').open")
        check(page)
