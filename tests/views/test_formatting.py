"""Values as text."""

from __future__ import annotations

import json
from pathlib import Path

from clawblox.printable import printable, printable_lines
from clawblox.system.amounts import format_bytes
from clawblox.views.formatting import (
    format_age,
    format_json,
    format_rough_seconds,
    format_table,
    suggest,
)


def test_sizes_are_formatted_with_units() -> None:
    sizes = (None, 0, 152, 9_949_999, 48_000_000, 999_499_999, 999_500_000, 31_000_000_000)
    assert [format_bytes(size) for size in sizes] == [
        *("", "0 B", "152 B", "9.9 MB", "48 MB", "999 MB", "1.0 GB", "31 GB"),
    ]


def test_rough_durations_have_no_zeros_and_no_seconds_beyond_a_minute() -> None:
    seconds = (0, 5.7, 42, 60, 754.9, 3600, 7500, 36000, 3 * 86400, 3 * 86400 + 4 * 3600)
    assert [format_rough_seconds(one) for one in seconds] == [
        *("0s", "5s", "42s", "1m", "12m", "1h", "2h05m", "10h", "3d", "3d04h"),
    ]


def test_a_malformed_time_is_shown_as_unknown() -> None:
    assert format_age(None) == ""
    assert [format_age(text) for text in ("yesterday", "2026-06-22T18:59:25")] == ["?", "?"]


def test_empty_columns_are_left_out() -> None:
    assert format_table(["A", "B", "C"], [["1", "", "x"], ["22", "", ""]]) == "A   C\n1   x\n22"


def test_untrusted_text_cannot_move_the_cursor() -> None:
    assert printable("\x1b[2Ja\rb\x07 \x1b]0;title\x07\nsecond") == (
        r"\x1b[2Ja\rb\x07 \x1b]0;title\x07"
    )
    assert printable("a\u202eb\u2028c\tä") == r"a\u202eb\u2028c   ä"
    assert printable_lines("one:\n  a\rb\n\n  \x1b[31mc") == ("one:\n  a\\rb\n\n  \\x1b[31mc")


def test_a_suggested_command_can_be_pasted(tmp_path: Path) -> None:
    directory = tmp_path / "my runs"
    assert suggest("ps", directory, "-w") == f"clawblox ps '{directory}' -w"
    assert suggest("experiment resume", directory) == f"clawblox experiment resume '{directory}'"


def test_a_suggested_command_is_one_line_and_no_directory_looks_like_an_option() -> None:
    foreign = Path("/a\nb; touch owned\n\x1b[2J")
    assert suggest("ps", foreign) == r"clawblox ps $'/a\nb; touch owned\n\033[2J'"
    assert printable(suggest("ps", foreign)) == suggest("ps", foreign)
    assert suggest("stop", Path.cwd() / "--now") == "clawblox stop ./--now"


def test_numbers_without_json_form_are_printed_as_null() -> None:
    printed = format_json([{"time": float("nan"), "path": Path("a")}, {"n": 10**5000}])
    assert json.loads(printed) == [{"time": None, "path": "a"}, {"n": None}]
    assert format_json({"é": "\udcff"}) == json.dumps({"é": "\udcff"}, indent=2)
