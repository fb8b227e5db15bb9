"""The page of a log: windows, times and notes, appending, search, and foreign logs."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from clawblox.telemetry.log_index import LogIndex
from clawblox.telemetry.log_times import LogTimes
from clawblox.web.page import Page, Part
from clawblox.web.site import NoSuchPage, Site
from tests.rundir.test_records import alive
from tests.web.sites import html_of, links_of, make, only_run, words_of, write_log

__all__ = ["alive"]


def open_page(root: Path, query: str = "", cursor: str = "") -> Page:
    site = Site(root)
    cursors = {"log": cursor} if cursor else {}
    return make(site, f"run/{only_run(site).ident}/log/w000{query}", cursors)


def part_of(page: Page, name: str) -> Part:
    return next(part for part in page.parts if part.name == name)


def lines_of(page: Page) -> str:
    return words_of(page, "log")


def search(root: Path, wanted: str) -> Page:
    site = Site(root)
    place = re.search(r'name="place" value="([^"]+)"', html_of(open_page(root)))
    assert place, "the page has no form that searches its log"
    return make(site, f"search?q={wanted}&place={place[1]}")


def numbered(count: int) -> bytes:
    return b"".join(b"line %06d of the world\n" % number for number in range(count))


@pytest.fixture
def index(tmp_path: Path) -> LogIndex:
    """Return the index of the log of w000, as its orchestrator writes it."""
    log = write_log(tmp_path / "run", "w000", b"")
    return LogIndex(log, 0)


def test_log_page_shows_the_end_with_links_through_the_whole_log(tmp_path: Path) -> None:
    write_log(tmp_path / "run", "w000", numbered(20_000))
    page, seen = open_page(tmp_path), ""
    assert "line 019999" in lines_of(page)
    assert len(html_of(page)) < 400_000
    while True:
        seen = f"{lines_of(page)} {seen}"
        earlier = [to for to in links_of(page) if "before=" in to]
        if not earlier:
            break
        page = make(Site(tmp_path), earlier[0].removeprefix("/key/"))
    assert seen.split() == numbered(20_000).decode().split()
    assert 'data-key="later"' in html_of(page)


def test_log_lines_have_arrival_times_and_ends_are_lines(tmp_path: Path, index: LogIndex) -> None:
    log = tmp_path / "run" / "logs" / "w000.log"
    index.begin_run()
    log.write_bytes(b"first\n")
    index.note_length()
    index.note("exited", "exited: killed by SIGKILL")
    index.note("restarted", "restarted fresh")
    log.write_bytes(b"first\nsecond\n")
    index.note_length()
    page = open_page(tmp_path)
    words = lines_of(page)
    assert words.index("first") < words.index("— exited: killed by SIGKILL")
    assert words.index("— restarted fresh") < words.index("second")
    assert '<time datetime="' in part_of(page, "log").body.html


def test_log_page_without_an_index_has_a_note_about_missing_times(tmp_path: Path) -> None:
    write_log(tmp_path / "run", "w000", b"a line\n")
    page = open_page(tmp_path, "?since=10m")
    assert "the log has no index" in words_of(page, "head")
    assert "a line" in lines_of(page)


def test_since_selects_lines_that_arrived_later(tmp_path: Path, index: LogIndex) -> None:
    log = tmp_path / "run" / "logs" / "w000.log"
    log.write_bytes(b"first\n")
    index.note_length()
    assert "first" in lines_of(open_page(tmp_path, "?since=1h"))
    assert "nothing was written since 2096" in words_of(open_page(tmp_path, "?since=2096-01-01"))
    assert "must be a duration" in words_of(open_page(tmp_path, "?since=soon"))


def test_a_growing_log_is_appended_from_the_cursor_on(
    tmp_path: Path, alive: dict[str, Any]
) -> None:
    log = write_log(tmp_path / "run", "w000", b"one\ntwo\nthr", state="ready", exit=None, **alive)
    first = open_page(tmp_path)
    assert lines_of(first) == "one two"
    assert words_of(first, "rest") == "thr"
    assert first.is_live
    cursor = part_of(first, "log").cursor
    assert cursor.startswith("8-")
    with log.open("ab") as file:
        file.write(b"ee\nfour\n")
    second = open_page(tmp_path, cursor=cursor)
    assert lines_of(second) == "three four"
    assert words_of(second, "rest") == ""
    assert [part.name for part in second.parts] == [part.name for part in first.parts]
    third = open_page(tmp_path, cursor=part_of(second, "log").cursor)
    assert lines_of(third) == ""
    assert part_of(third, "log").version == part_of(second, "log").version


def test_a_note_without_a_line_is_appended_once(
    tmp_path: Path, index: LogIndex, alive: dict[str, Any]
) -> None:
    log = tmp_path / "run" / "logs" / "w000.log"
    write_log(tmp_path / "run", "w000", b"one\n", state="ready", exit=None, **alive)
    index.note_length()
    before = part_of(open_page(tmp_path), "log").cursor
    index.note("unresponsive", "does not answer")
    page = open_page(tmp_path, cursor=before)
    assert lines_of(page).endswith("— does not answer")
    assert "one" not in lines_of(page)
    assert lines_of(open_page(tmp_path, cursor=part_of(page, "log").cursor)) == ""
    assert log.read_bytes() == b"one\n"


def test_log_places_stay_valid_after_a_cut(tmp_path: Path, index: LogIndex) -> None:
    log = tmp_path / "run" / "logs" / "w000.log"
    text = numbered(3000)
    place = text.index(b"line 002900")
    log.write_bytes(text)
    index.note_length()
    index.note_length(max_bytes=40_000)
    assert log.stat().st_size < 40_000
    page = open_page(tmp_path, f"?at={place}")
    assert f'id="o{place}" class="line chosen"' in html_of(page)
    chosen = html_of(page).partition(f'id="o{place}"')[2]
    assert "line 002900" in chosen[: chosen.index("</div>")]


def test_search_finds_literal_text_and_expressions_as_links(tmp_path: Path) -> None:
    write_log(tmp_path / "run", "w000", numbered(5000) + b"a [bracket] <b>\n")
    literal = search(tmp_path, "[BRACKET] <b")
    assert "1 result" in words_of(literal, "found")
    assert "<mark>[bracket] &lt;b</mark>" in html_of(literal)
    to = next(to for to in links_of(literal) if "at=" in to and "#o" in to)
    assert "chosen" in html_of(make(Site(tmp_path), to))
    everywhere = next(to for to in links_of(literal) if "search?" in to)
    assert "place=" not in everywhere
    pytest.importorskip("re2")
    pattern = search(tmp_path, "0049[0-9]{2} of&re=1")
    assert "100 results" in words_of(pattern, "found")
    assert "is not a valid regular expression" in words_of(search(tmp_path, "(&re=1"), "found")


def test_a_search_with_many_matches_continues(tmp_path: Path) -> None:
    write_log(tmp_path / "run", "w000", numbered(450))
    page, found = search(tmp_path, "of the"), 0
    while True:
        html = part_of(page, "found").body.html
        assert html.count("<mark>") <= 100
        found += html.count("<mark>")
        further = [to for to in links_of(page) if "next=" in to]
        if not further:
            break
        page = make(Site(tmp_path), further[0])
    assert found == 450


def test_matches_have_the_times_of_their_lines_after_the_log_was_cut(
    tmp_path: Path, index: LogIndex
) -> None:
    log = tmp_path / "run" / "logs" / "w000.log"
    text = numbered(3000)
    log.write_bytes(text)
    index.note_length()
    index.note_length(max_bytes=40_000)
    with log.open("ab") as file:
        file.write(b"the last line\n")
    index.note_length()
    os.utime(log, (2**31, 2**31))  # time of a line without a time in the index
    page = search(tmp_path, "line 002900")
    place = text.index(b"line 002900")
    assert any(f"at={place}#o{place}" in to for to in links_of(page))
    times = LogTimes(log)
    times.read_on()
    assert times.cut is not None
    assert f'datetime="{times.arrival(place - times.cut.moved)}"' in html_of(page)


def test_search_in_a_log_ignores_other_files(tmp_path: Path) -> None:
    write_log(tmp_path / "run", "w000", b"a needle\n")
    write_log(tmp_path / "run", "w001", b"another needle\n", world="needle")
    found = words_of(search(tmp_path, "needle"), "found")
    assert "log of w000" in found
    assert "1 result shown." in found


HOSTILE = {
    "tags": b"<script>alert(1)</script><img src=x onerror=alert(1)>\n",
    "terminal": b"\x1b[2J\x1b]0;title\x07\x9b31m red\n",
    "direction": "a\u202eb\u2066c\u200b\n".encode(),
    "nul": b"\x00" * 5000 + b"\n",
    "no text": bytes(range(128, 256)) * 20 + b"\n",
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_hostile_lines_are_shown_and_not_interpreted(tmp_path: Path, content: bytes) -> None:
    write_log(tmp_path / "run", "w000", content)
    body = html_of(open_page(tmp_path))
    assert "<script>" not in body
    assert "<img" not in body
    assert not any(char in body for char in "\x00\x1b\x07\x9b\u202e\u2066\u200b")


def test_log_line_of_8_mb_is_shown_in_windows(tmp_path: Path) -> None:
    write_log(tmp_path / "run", "w000", b"x" * (8 << 20) + b"end\n")
    page = open_page(tmp_path)
    assert len(html_of(page)) < 80_000
    assert "… xxx" in lines_of(page)
    assert 'data-key="earlier"' in html_of(page)


def test_a_log_that_is_a_link_or_a_pipe_is_not_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the secret")
    (tmp_path / "site").mkdir()
    log = write_log(tmp_path / "site" / "run", "w000", b"")
    log.unlink()
    log.symlink_to(secret)
    page = open_page(tmp_path / "site")
    assert "cannot be shown" in words_of(page)
    assert "the secret" not in html_of(page)
    log.unlink()
    os.mkfifo(log)
    assert "cannot be shown" in words_of(open_page(tmp_path / "site"))


def test_log_path_outside_the_directory_is_not_shown(tmp_path: Path) -> None:
    write_log(tmp_path / "run", "w000", b"", log_file="/etc/passwd")
    for query in ("", "?at=3", "?since=1d"):
        page = open_page(tmp_path, query)
        assert "cannot be shown" in words_of(page)
        assert "root:" not in html_of(page)


def test_foreign_record_cannot_show_other_files_of_the_directory(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("private")
    write_log(tmp_path / "run", "w000", b"", log_file=str(tmp_path / "notes.txt"))
    page = open_page(tmp_path)
    assert "is outside of the run directory" in words_of(page)
    assert "private" not in html_of(page)


@pytest.mark.parametrize("name", ["w001", "..", "%2e%2e", "w000.log", ""])
def test_log_page_requires_an_exact_instance_name(tmp_path: Path, name: str) -> None:
    write_log(tmp_path / "run", "w000", b"a\n")
    site = Site(tmp_path)
    with pytest.raises(NoSuchPage):
        make(site, f"run/{only_run(site).ident}/log/{name}")
