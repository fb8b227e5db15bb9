"""Texts are compared line by line, within bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawblox.web import text_diff
from clawblox.web.text_diff import diff_texts

TEXTS = st.lists(st.sampled_from([b"a", b"b", b"c", b"", b"\xff"]), max_size=30).map(b"\n".join)


@given(TEXTS, TEXTS)
def test_both_texts_can_be_rebuilt_from_their_difference(before: bytes, after: bytes) -> None:
    diff = diff_texts(before, after)
    assert (diff.lines == ()) == (before == after)
    ours, theirs = ([text_diff.decode(x) for x in t.split(b"\n")] for t in (before, after))
    for line in diff.lines:
        if line.sign != "@":
            assert line.before is None or ours[line.before - 1] == line.text
            assert line.after is None or theirs[line.after - 1] == line.text
    gone = {line.before for line in diff.lines if line.sign == "-"}
    new = {line.after for line in diff.lines if line.sign == "+"}
    kept = [text for number, text in enumerate(ours, 1) if number not in gone]
    assert kept == [text for number, text in enumerate(theirs, 1) if number not in new]


@given(TEXTS, TEXTS)
def test_only_lines_near_a_difference_are_in_it(before: bytes, after: bytes) -> None:
    diff = diff_texts(before, after)
    for number, line in enumerate(diff.lines):
        if line.sign == " ":
            near = diff.lines[max(number - 3, 0) : number + 4]
            assert any(other.sign in "+-" for other in near)


def test_equal_lines_at_both_ends_are_not_compared() -> None:
    lines = [b"line %d" % number for number in range(20_000)]
    changed = [*lines]
    changed[10_000] = b"other"
    diff = diff_texts(b"\n".join(lines), b"\n".join(changed))
    assert [(line.sign, line.before, line.after) for line in diff.lines] == [
        ("@", 9998, 9998),
        *((" ", number, number) for number in (9998, 9999, 10_000)),
        ("-", 10_001, None),
        ("+", None, 10_001),
        *((" ", number, number) for number in (10_002, 10_003, 10_004)),
    ]


def test_too_many_different_lines_are_not_compared() -> None:
    before = b"\n".join(b"a%d" % number for number in range(6000))
    diff = diff_texts(before, before.replace(b"a", b"b"))
    assert (diff.lines, diff.reason) == ((), "More than 5000 lines would have to be compared.")


def test_a_comparison_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_diff, "_COMPARED_S", -1.0)
    assert diff_texts(b"a\nb", b"b\na").reason == "The comparison of the lines takes too long."


def test_the_lines_of_a_difference_and_their_lengths_are_bounded() -> None:
    diff = diff_texts(b"", b"\n".join(b"%d" % number * 3000 for number in range(2000)))
    assert (len(diff.lines), diff.is_cut) == (1000, True)
    assert {len(line.text) for line in diff.lines[2:]} == {2000}
