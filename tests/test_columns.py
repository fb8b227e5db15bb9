"""The columns of a table fit terminals of every width."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Literal

import attrs
import pytest
from rich.cells import cell_len

from clawblox.columns import Column, distinct_width, fit_columns, format_line, shorten
from clawblox.printable import printable_name
from clawblox.results import ProcessExit
from clawblox.views.board import BoardFrame, BoardView, render
from clawblox.views.event_lines import EventLine
from clawblox.views.rows import InstanceRow, instance_columns, make_row
from tests.views.test_board import AT, status

WIDTHS = range(40, 201)
HALT = "ValueError: the simulation left the range of numbers that it can hold"


def rows_of_many_kinds() -> list[InstanceRow]:
    """Return rows with long names, long reasons, wide characters, and every cell filled."""
    full = {"saved_at": AT, "sim_time": 123456.7, "restarts": 12, "rss_bytes": 48_000_000}
    found = [
        status("w000", **full),
        status("a-name-that-is-much-longer-than-others-007", "starting", **full),
        status("w001", "halted", pid=None, halt=HALT),
        status("w002", "halted", pid=None, halt="世界が止まった" * 5),
        status("w003", "exited", pid=None, exit=ProcessExit(signal="SIGKILL"), **full),
        status("w004", url="http://world.example.org:20001/a/base/path", **full),
    ]
    runs = ("marbles-20260622T185925Z", "", "/home/ada/elsewhere/runs/exp8", "", "", "")
    return [
        make_row(one, one.state, 0.5, run=run, note="connection failed " * 20)
        for one, run in zip(found, runs, strict=True)
    ]


ROWS = {
    "plain": [make_row(status(f"w{number:03}"), "ready", 0.1) for number in range(4)],
    "many kinds": rows_of_many_kinds(),
    "one run": [attrs.evolve(row, is_bad=False, run="", note="") for row in rows_of_many_kinds()],
    "bare": [InstanceRow("w000", "starting")],
    "none": [],
}


def headings(rows: list[InstanceRow], width: int | None) -> list[str]:
    columns = instance_columns(rows, is_live=True)
    return [one.column.heading for one in fit_columns(columns, width)]


@pytest.mark.parametrize("is_live", [True, False])
@pytest.mark.parametrize("kind", ROWS)
def test_no_line_is_wider_than_the_terminal(kind: str, is_live: bool) -> None:
    rows = ROWS[kind]
    for width in WIDTHS:
        fitted = fit_columns(instance_columns(rows, is_live=is_live), width)
        lines = [format_line(fitted, row) for row in (None, *range(len(rows)))]
        assert max(map(cell_len, lines)) <= width
        assert [one.column.heading for one in fitted if not one.column.rank] == ["NAME", "STATE"]


@pytest.mark.parametrize("kind", ROWS)
def test_a_wider_terminal_shows_at_least_as_many_columns(kind: str) -> None:
    for narrow, wide in pairwise(WIDTHS):
        lost = set(headings(ROWS[kind], narrow)) - set(headings(ROWS[kind], wide))
        assert lost <= {"PORT"}  # it is in the address
        if lost:
            assert "URL" in headings(ROWS[kind], wide)


def test_a_column_is_shown_only_with_all_more_important_columns() -> None:
    columns = instance_columns(ROWS["many kinds"], is_live=True)
    for width in WIDTHS:
        shown = headings(ROWS["many kinds"], width)
        least = max(one.rank for one in columns if one.heading in shown)
        missing = {one.heading for one in columns if one.rank < least and any(one.cells)} - {*shown}
        assert missing <= ({"PORT"} if "URL" in shown else set())


def test_columns_fit_terminals_of_80_and_160_characters() -> None:
    rows = [
        make_row(status(f"w{place:03}", saved_at=AT, sim_time=9.5, restarts=1), "ready", 0.5)
        for place in range(4)
    ]
    most = "NAME STATE UPTIME RSS CPU SAVED SIM TIME RESTARTS PORT"
    assert " ".join(headings(rows, 79)) == most
    everything = "NAME STATE PID UPTIME RSS CPU CPU TIME SAVED SIM TIME RESTARTS URL"
    assert " ".join(headings(rows, 159)) == " ".join(headings(rows, None)) == everything


def test_empty_columns_are_left_out() -> None:
    assert headings(ROWS["bare"], None) == ["NAME", "STATE"]


def test_remaining_room_shows_the_whole_reason() -> None:
    (line,) = (
        format_line(fit_columns(instance_columns(rows), 160), 0)
        for rows in [[make_row(status("w001", "halted", pid=None, halt=HALT[:38]), "halted")]]
    )
    assert f"halted: {HALT[:38]}" in line


@pytest.mark.thorough
def test_lines_of_the_live_table_do_not_wrap() -> None:
    troubles = [EventLine(AT, "w003", "failed: " + "界" * 400, needs_attention=True)] * 20
    view = BoardView(
        title="世界 · " + "runs/a-very-long-name/" * 8,
        elapsed_s=133.0,
        counts={"failed": 3, "ready": 2, "starting": 1},
        rows=ROWS["many kinds"],
        pressure=0.5,
        ramp="busy " * 40,
    )
    for width in WIDTHS:
        frame = BoardFrame(width, 50, troubles, "Ctrl-C " * 40)
        lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in render(view, frame)]
        assert max(map(cell_len, lines)) <= width
        assert sum("connection failed" in line for line in lines) == 6


@pytest.mark.parametrize("cut", ["middle", "end"])
@pytest.mark.parametrize("text", ["", "w000", "a-long-name-007", "世界が止まった", "e\u0301" * 9])
def test_a_shortened_text_fits_and_shows_that_it_was_cut(text: str, cut: str) -> None:
    for width in range(20):
        short = shorten(text, width, cut)  # type: ignore[arg-type]
        assert cell_len(short) <= width
        assert short == text or width == 0 or "…" in short


def test_names_are_cut_in_the_middle() -> None:
    assert shorten("experiment-alpha-007", 12, "middle") == "experi…a-007"


def test_a_column_is_cut_before_a_less_important_one_is_dropped() -> None:
    columns = [Column("A", ["x" * 30], 0, shortest=5), Column("B", ["y" * 10], 1)]
    assert [one.width for one in fit_columns(columns, 17)] == [5, 10]
    assert [one.width for one in fit_columns(columns, 16)] == [16]
    assert [one.width for one in fit_columns(columns, 30)] == [18, 10]
    assert [one.width for one in fit_columns(columns, None)] == [30, 10]


NAMES = [
    f"temperature0.7-{model}-no_workspace-r{repeat}" for model in ("a", "b") for repeat in (1, 2)
]


def test_cut_names_stay_distinct() -> None:
    least = distinct_width(NAMES, 12)
    assert len({shorten(name, least, "middle") for name in NAMES}) == 4
    assert len({shorten(name, least - 1, "middle") for name in NAMES}) < 4
    columns = [Column("NAME", NAMES, 0, shortest=12, cut="middle"), Column("B", ["y"] * 4, 1)]
    assert [one.width for one in fit_columns(columns, least + 3)] == [least, 1]
    assert len(fit_columns(columns, least + 2)) == 1


def test_cut_names_may_become_equal_without_enough_room() -> None:
    columns = [Column("NAME", NAMES, 0, shortest=12, cut="middle")]
    assert [one.width for one in fit_columns(columns, 20)] == [20]


def test_texts_other_than_names_need_not_stay_distinct() -> None:
    assert distinct_width(["x" * 100 + end + "x" * 300 for end in "ab"], 12) == 12
    assert distinct_width([], 12) == distinct_width(["w000", "w001"], 12) == 12
    assert distinct_width(["w" * 30], 12) == 12


@pytest.mark.parametrize("width", [30, 50])
def test_columns_with_the_same_heading_have_separate_widths(width: int) -> None:
    columns = [Column("A", ["x" * 30], 0, shortest=5), Column("A", ["y" * 10], 1)]
    widths = [one.width for one in fit_columns(columns, width)]
    assert widths == [min(30, width - 12), 10]


@pytest.mark.parametrize("cut", ["end", "middle"])
@pytest.mark.parametrize("width", range(1, 12))
def test_an_emoji_is_cut_as_a_whole(width: int, cut: Literal["end", "middle"]) -> None:
    astronaut = "\U0001f469\U0001f3fd\u200d\U0001f680"
    for text in (astronaut * 3, "ab\u2764\ufe0f\u200d\U0001f525cd\u2764\ufe0f\u200d\U0001f525"):
        short = shorten(text, width, cut)
        assert printable_name(short) == short
        assert cell_len(short) <= width
        assert not short.partition("…")[2].startswith("\U0001f3fd")
