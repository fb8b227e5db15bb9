"""The search over all runs: matches, links of results, and bounds."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path

import pytest

from clawblox.web.page import Page
from clawblox.web.pages import log as log_page
from clawblox.web.site import Site
from tests.agents.support import write_status
from tests.web.sites import html_of, links_of, make, words_of, write_log


def results(root: Path, query: str) -> Page:
    return make(Site(root), f"search?{query}")


def test_search_page_finds_logs_agents_names_and_labels(tmp_path: Path) -> None:
    labels = {"labels": {"arm": "needle-b"}}
    write_log(tmp_path / "a", "w000", b"one\nthe NEEDLE in the log\n")
    write_log(tmp_path / "b", "w000", b"", options=labels, world="needle-world")
    agent = tmp_path / "b" / "agents" / "Ada"
    write_status(agent)
    (agent / "logs").mkdir()
    said = {"text": 'a "needle"\n'}
    log = f"{{}}\n{json.dumps(said)}\n"
    (agent / "logs" / "agent.log").write_text(log)
    words = words_of(results(tmp_path, "q=needle"), "found")
    assert words.index("the NEEDLE in the log") < words.index("labels arm=needle-b")
    assert "world needle-world" in words
    assert "agent Ada" in words
    assert words.endswith("4 results shown.")
    page = results(tmp_path, "q=the needle")
    to = next(to for to in links_of(page) if "/log/w000" in to)
    assert "chosen" in html_of(make(Site(tmp_path), to))
    quoted = results(tmp_path, 'q=a "needle"')
    assert "1 result shown" in words_of(quoted)
    at = log.index("\n") + 1
    assert any("/agent/" in to and f"?at={at}#o{at}" in to for to in links_of(quoted))


def test_a_search_continues_until_all_runs_are_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        write_log(tmp_path / f"r{number:02}", "w000", b"needle %02d\n" % number)
    monkeypatch.setattr(log_page, "_MAX_RESULTS", 7)
    page, found, slices = results(tmp_path, "q=needle"), "", 0
    while True:
        found += words_of(page, "found")
        slices += 1
        further = [to for to in links_of(page) if "next=" in to]
        if not further:
            break
        page = make(Site(tmp_path), further[0])
    assert [found.count(f"needle {number:02}") for number in range(30)] == [1] * 30
    assert slices == 5


def test_a_slice_that_ends_within_a_log_continues_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_log(tmp_path / "r", "w000", b"x" * (5 << 18) + b" needle\n")
    at_once = partial(log_page.search, seconds=0.0)
    monkeypatch.setattr(log_page, "search", lambda *given, seconds, **more: at_once(*given, **more))
    page, slices = results(tmp_path, "q=needle"), 1
    while further := [to for to in links_of(page) if "next=" in to]:
        assert slices < 20
        page, slices = make(Site(tmp_path), further[0]), slices + 1
    assert slices >= 5
    assert "needle" in words_of(page, "found")


def test_many_matches_in_a_log_lead_to_its_own_search(tmp_path: Path) -> None:
    write_log(tmp_path / "r", "w000", b"needle\n" * 5000)
    page = results(tmp_path, "q=needle")
    assert html_of(page).count("<mark>") == 10
    assert "10 results shown." in words_of(page)
    more = next(to for to in links_of(page) if "place=" in to)
    assert "%2Flog%2Fw000" in more
    assert html_of(make(Site(tmp_path), more)).count("<mark>") == 100


@pytest.mark.parametrize("start", ["x", "run/0123456789&at=5", "x&at=-1", f"x&at={'9' * 40}"])
def test_invalid_search_position_starts_from_the_beginning(tmp_path: Path, start: str) -> None:
    write_log(tmp_path / "r", "w000", b"needle\n")
    assert "1 result shown" in words_of(results(tmp_path, f"q=needle&next={start}"))


def test_search_refuses_long_text_and_shows_the_form_for_empty_text(tmp_path: Path) -> None:
    write_log(tmp_path / "r", "w000", b"needle\n")
    assert "must have 1 to 1000 characters" in words_of(results(tmp_path, f"q={'x' * 2000}"))
    assert [part.name for part in results(tmp_path, "q=").parts] == ["ask"]


def test_files_of_others_are_not_searched(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("needle\n")
    site = tmp_path / "site"
    write_log(site / "r", "w000", b"", log_file=str(secret))
    for agent in ("Ada", "Bo"):
        write_status(site / "r" / "agents" / agent)
        (site / "r" / "agents" / agent / "logs").mkdir()
    (site / "r/agents/Ada/logs/agent.log").symlink_to(secret)
    os.mkfifo(site / "r/agents/Bo/logs/agent.log")
    page = results(site, "q=needle")
    assert "0 results shown." in words_of(page)
    assert "<ul" not in html_of(page)
