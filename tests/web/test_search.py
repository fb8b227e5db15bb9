"""Searching for texts and regular expressions, slice by slice."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawblox.telemetry.log_segments import LogSegment, begin_segment, list_segments
from clawblox.telemetry.tail import find_line_start, read_lines
from clawblox.web import files as module
from clawblox.web.files import Matches, TextMatch, make_finder, search
from tests.agents.drivers.support import within_limit
from tests.support.files import write_hole
from tests.web.test_files import LINES


@pytest.fixture
def re2() -> None:
    pytest.importorskip("re2")


def search_segments(segments: Sequence[LogSegment], wanted: str, **options: Any) -> list[TextMatch]:
    """Return the matches of all slices."""
    found = list[TextMatch]()
    find, reached = make_finder(wanted, is_pattern=options.pop("is_pattern", False)), 0
    while True:
        slice_ = search(segments[0].path.parent, segments, find, reached, **options)
        found += slice_.found
        if slice_.reached is None:
            return found
        assert slice_.reached > reached
        reached = slice_.reached


def search_all(content: bytes, wanted: str, **options: Any) -> list[TextMatch]:
    """Return the matches of all slices of a search of a file."""
    with TemporaryDirectory() as directory:
        log = Path(directory) / "log"
        log.write_bytes(content)
        return search_segments(list_segments(log), wanted, **options)


@given(LINES, st.sampled_from(["a", "aa", "Ab", "\x00", "0"]), st.integers(1, 3))
def test_text_is_found_at_any_position(content: bytes, wanted: str, most: int) -> None:
    found = search_all(content, wanted, most=most)
    places = [m.start() for m in re.finditer(re.escape(wanted).encode(), content, re.IGNORECASE)]
    assert [match.start for match in found] == places


@pytest.mark.parametrize("seconds", [0.0, 10.0])
def test_a_text_across_two_blocks_is_found_once(
    monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    monkeypatch.setattr(module, "_BLOCK", 16)
    monkeypatch.setattr(module, "_LONG_LINE", 7)
    for start in range(40):
        content = b"." * start + b"Needle" + b"." * 20
        (match,) = search_all(content, "nEEdle", seconds=seconds)
        assert (match.start, match.text) == (start, "Needle")


@pytest.mark.usefixtures("re2")
@pytest.mark.parametrize("seconds", [0.0, 10.0])
def test_an_expression_is_found_in_whole_lines(
    monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    monkeypatch.setattr(module, "_BLOCK", 32)
    content = b"".join(b"line %d ends\n" % number for number in range(20))
    found = search_all(content, r"^LINE \d+ ends$", is_pattern=True, seconds=seconds)
    assert [match.text for match in found] == content.decode().splitlines()


@pytest.mark.usefixtures("re2")
def test_an_expression_is_found_again_after_each_slice() -> None:
    content = (
        "erst Größe 1\n\xff\nGRÖSSE\ngröße 2, größe 3\n".encode() + b"\xff gr\xc3\xb6\xc3\x9fe"
    )
    found = search_all(content, r"größe \d|^gr", is_pattern=True, most=1)
    texts = search_all(content, "Größe")
    assert [match.text for match in found] == ["Größe 1", "GR", "größe 2", "größe 3"]
    for match in found:
        assert content[match.start :].startswith(match.text.encode())
    assert [match.text for match in texts] == ["Größe", "größe", "größe", "größe"]
    assert texts[-1].before == "\\xff "


@pytest.mark.usefixtures("re2")
def test_match_across_blocks_of_a_long_line_is_complete(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_BLOCK", 32)
    monkeypatch.setattr(module, "_LONG_LINE", 8)
    found = search_all(b"x" * 28 + b"12345678" + b"x" * 30, r"\d+", is_pattern=True)
    assert [match.text for match in found] == ["12345678"]


@pytest.mark.usefixtures("re2")
def test_line_start_matches_once_across_slices() -> None:
    found = search_all(b"abc\ndef\n", "^.", is_pattern=True, most=1)
    assert [match.text for match in found] == ["a", "d"]


@pytest.mark.usefixtures("re2")
def test_a_match_stays_within_its_line_and_is_never_empty() -> None:
    content = b"one two\nthree\n"
    assert search_all(content, "x*", is_pattern=True) == []
    found = search_all(content, r"o[^e]*", is_pattern=True)
    assert found == [TextMatch(0, "", "on", "e two"), TextMatch(6, "one tw", "o", "")]


@pytest.mark.usefixtures("re2")
@pytest.mark.parametrize("wanted", ["(", "", "x" * 1001, "[z-a]", r"(.)\1"])
def test_invalid_expression_is_refused(wanted: str) -> None:
    with pytest.raises(ValueError, match=r"^q: "):
        make_finder(wanted, is_pattern=True)


def test_without_re2_an_expression_is_refused_with_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(ValueError, match=r"^q: .* needs the extra re2: .*pip install .*re2"):
        make_finder("a+", is_pattern=True)
    assert [match.start for match in search_all(b"a+", "A+")] == [0]


def test_excerpts_are_short_and_of_one_line() -> None:
    content = b"x" * 500 + b"\nbefore HIT after\n" + b"y" * 500 + b"hit" + b"z" * (8 << 20)
    first, second = search_all(content, "hit")
    (long,) = search_all(content, "y" * 500)
    assert (first.before, first.text, first.after) == ("before ", "HIT", " after")
    assert (len(second.before), len(second.after), len(long.text)) == (120, 120, 120)


def test_search_ends_at_a_file_cut_during_the_search(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"needle\n" * 10)
    segments, find = list_segments(log), make_finder("needle")
    reached = search(tmp_path, segments, find, most=5).reached
    os.truncate(log, 14)
    assert reached == 34
    assert search(tmp_path, segments, find, reached) == Matches((), None)


TEXTS = ('say "Hello"', "a\nb", "naïve", "x" * 40, "hello again", "")


@pytest.mark.parametrize("block", [128, 1 << 18])
@pytest.mark.parametrize(
    "text", ['"HELLO"', "hello", "a\nb", "naïve", "x" * 30, "text", "absent", '{"text": ""}']
)
def test_text_is_found_across_segments_plain_or_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, block: int
) -> None:
    monkeypatch.setattr(module, "_BLOCK", block)
    monkeypatch.setattr(module, "_LONG_LINE", 64)
    log = tmp_path / "agent.log"
    for is_ascii in (True, False):
        begin_segment(log, 1)
        with log.open("ab") as file:
            for said in TEXTS:
                file.write(json.dumps({"text": said}, ensure_ascii=is_ascii).encode() + b"\n")
    wanted = [
        line.offset
        for line in read_lines(log)
        if text.lower() in json.loads(line.data or b"")["text"].lower()
        or text.lower() in (line.data or b"").decode().lower()
    ]
    for most in (1, 100):
        found = search_segments(list_segments(log), text, most=most)
        assert [find_line_start(list_segments(log), match.start) for match in found] == wanted


def test_search_skips_a_hole_of_a_terabyte(tmp_path: Path) -> None:
    log = tmp_path / "agent.log"
    hole = write_hole(log)
    found = list[TextMatch]()
    within_limit(lambda: found.extend(search_segments(list_segments(log), "last")))
    assert [match.start for match in found] == [hole + 8]
