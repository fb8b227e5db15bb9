"""Texts and regular expressions are found where they are, slice by slice."""

from __future__ import annotations

import importlib
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawblox.web import search as module
from clawblox.web.search import Match, search
from tests.web.test_files import LINES, holding


@pytest.fixture(params=["re2", "re"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Search with RE2, or as without it."""
    if request.param == "re":
        import_module = importlib.import_module

        def miss(name: str) -> object:
            if name == "re2":
                raise ImportError(name)
            return import_module(name)

        monkeypatch.setattr("clawblox.web.search.importlib.import_module", miss)
    else:
        pytest.importorskip("re2")
    return str(request.param)


def search_all(fd: int, wanted: str, **options: object) -> list[Match]:
    """Return the matches of all slices."""
    found, reached = [], 0
    while True:
        slice_ = search(fd, wanted, reached, **options)  # type: ignore[arg-type]
        found += slice_.found
        assert slice_.is_complete or slice_.reached > reached
        reached = slice_.reached
        if slice_.is_complete:
            return found


@given(LINES, st.sampled_from(["a", "aa", "Ab", "\x00", "0"]), st.integers(1, 3))
def test_a_text_is_found_wherever_it_is(content: bytes, wanted: str, most: int) -> None:
    with holding(content) as fd:
        found = search_all(fd, wanted, max_matches=most)
    places = [m.start() for m in re.finditer(re.escape(wanted).encode(), content, re.IGNORECASE)]
    assert [match.start for match in found] == places


@pytest.mark.parametrize("seconds", [0.0, 10.0])
def test_a_text_across_two_blocks_is_found_once(
    monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    monkeypatch.setattr(module, "_TEXT_BLOCK", 16)
    for start in range(40):
        with holding(b"." * start + b"Needle" + b"." * 20) as fd:
            (match,) = search_all(fd, "nEEdle", seconds=seconds)
        assert (match.start, match.end, match.text) == (start, start + 6, "Needle")


@pytest.mark.parametrize("seconds", [0.0, 10.0])
def test_an_expression_is_found_in_whole_lines(
    monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    pytest.importorskip("re2")
    monkeypatch.setattr(module, "_PATTERN_BLOCK", 32)
    content = b"".join(b"line %d ends\n" % number for number in range(20))
    with holding(content) as fd:
        found = search_all(fd, r"^LINE \d+ ends$", is_pattern=True, seconds=seconds)
    assert [match.text for match in found] == content.decode().splitlines()


@pytest.mark.usefixtures("engine")
def test_an_expression_is_found_again_after_each_slice() -> None:
    content = (
        "erst Größe 1\n\xff\nGRÖSSE\ngröße 2, größe 3\n".encode() + b"\xff gr\xc3\xb6\xc3\x9fe"
    )
    with holding(content) as fd:
        found = search_all(fd, r"größe \d|^gr", is_pattern=True, max_matches=1)
        texts = search_all(fd, "GRÖß")
    assert [match.text for match in found] == ["Größe 1", "GR", "größe 2", "größe 3"]
    assert [content[match.start : match.end].decode() for match in found] == [
        match.text for match in found
    ]
    assert len(texts) == 4
    assert texts[-1].before == "\\xff "


def test_a_match_across_two_blocks_of_a_long_line_is_found_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("re2")
    monkeypatch.setattr(module, "_PATTERN_BLOCK", 32)
    monkeypatch.setattr(module, "_LONG_LINE", 8)
    with holding(b"x" * 28 + b"12345678" + b"x" * 30) as fd:
        assert [match.text for match in search_all(fd, r"\d+", is_pattern=True)] == ["12345678"]


@pytest.mark.usefixtures("engine")
def test_a_line_begins_only_once_whatever_slice_finds_it() -> None:
    with holding(b"abc\ndef\n") as fd:
        found = search_all(fd, "^.", is_pattern=True, max_matches=1)
    assert [match.text for match in found] == ["a", "d"]


def test_the_number_of_matches_is_bounded_whatever_is_asked() -> None:
    with holding(b"x" * 1000) as fd:
        assert len(search(fd, "x", max_matches=10**9).found) == module.MAX_MATCHES
        assert len(search(fd, "x", max_matches=-1).found) == 1


@pytest.mark.usefixtures("engine")
def test_a_match_stays_within_its_line_and_is_never_empty() -> None:
    with holding(b"one two\nthree\n") as fd:
        assert search_all(fd, "x*", is_pattern=True) == []
        found = search_all(fd, r"o[^e]*", is_pattern=True)
    assert found == [
        Match(0, 2, "", "on", "e two"),
        Match(6, 7, "one tw", "o", ""),
    ]


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("wanted", ["(", "", "x" * 1001, "[z-a]"])
def test_what_is_no_expression_is_refused(wanted: str) -> None:
    with holding(b"x") as fd, pytest.raises(ValueError, match=r"^q: "):
        search(fd, wanted, is_pattern=True)


def test_an_expression_that_only_re_has_is_searched_apart() -> None:
    with holding(b"abab\ncdcd x") as fd:
        found = search_all(fd, r"(..)\1(?! x)", is_pattern=True)
    assert [match.text for match in found] == ["abab"]


def test_an_expression_that_takes_too_long_is_ended(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BOOT_S", 0.5)
    with holding(b"a" * 5000 + b"!") as fd:
        if engine == "re2":
            assert search_all(fd, "(a+)+$", is_pattern=True) == []
        with pytest.raises(ValueError, match=r"takes too long; .*pip install .*re2"):
            search(fd, r"(a+)+$(?=b)", is_pattern=True, seconds=0.1)


def test_excerpts_are_short_and_of_one_line() -> None:
    with holding(
        b"x" * 500 + b"\nbefore HIT after\n" + b"y" * 500 + b"hit" + b"z" * (8 << 20)
    ) as fd:
        first, second = search_all(fd, "hit")
        (long,) = search_all(fd, "y" * 500)
    assert (first.before, first.text, first.after) == ("before ", "HIT", " after")
    assert (len(second.before), len(second.after), len(long.text)) == (120, 120, 120)


def test_a_file_that_was_cut_meanwhile_ends_the_search(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"needle\n" * 10)
    fd = os.open(tmp_path / "log", os.O_RDWR)
    try:
        reached = search(fd, "needle", max_matches=5).reached
        os.truncate(fd, 14)
        after = search(fd, "needle", reached)
    finally:
        os.close(fd)
    assert (after.found, after.reached, after.is_complete) == ((), 14, True)
