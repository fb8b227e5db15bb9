"""``DateTime``: simulation time as dates."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawblox.engine.values.date_time import DateTime
from tests.engine.playing import say
from tests.engine.values.support import error, run, text

MOMENT = "DateTime.fromUniversalTime(2024, 2, 29, 15, 4, 5, 67)"


def test_date_time_now_is_simulation_time(tmp_path: Path) -> None:
    main = "print(DateTime.now()) task.wait(1.5) print(DateTime.now(), os.time())"
    lines = say(tmp_path, main, 99)
    assert lines == ["0", "1500\t1"]


def test_a_moment_has_seconds_and_milliseconds() -> None:
    source = f"local at = {MOMENT} return at.UnixTimestamp, at.UnixTimestampMillis"
    assert run(source) == (1709219045.0, 1709219045067.0)
    assert run("local at = DateTime.fromUnixTimestampMillis(-1) return at.UnixTimestamp") == -1.0
    assert text("DateTime.fromUnixTimestamp(1.9)") == "1000"


def test_date_time_has_the_parts_that_it_was_created_from() -> None:
    source = f"""
    local at = {MOMENT}
    local t = at:ToUniversalTime()
    local again = DateTime.fromUniversalTime(
        t.Year, t.Month, t.Day, t.Hour, t.Minute, t.Second, t.Millisecond
    )
    return again == at, rawequal(again, at), at < again, at <= again, t.Hour, at:ToLocalTime().Hour
    """
    assert run(source) == (True, False, False, True, 15.0, 15.0)
    assert run("return DateTime.fromLocalTime().UnixTimestamp") == 0.0


@pytest.mark.parametrize(
    ("iso", "expected"),
    [
        ("2024-02-29T15:04:05.067Z", "1709219045067"),
        ("2024-02-29T15:04:05.06789Z", "1709219045067"),
        ("2024-02-29T17:04:05.067+02:00", "1709219045067"),
        ("2024-02-29 15:04:05-0130", "1709224445000"),
        ("1970-01-02", "86400000"),
        ("1970-1-2", "nil"),
        ("2023-02-29T00:00:00Z", "nil"),
        ("1970-01-01T24:00:00Z", "nil"),
        ("0001-01-01T00:00:00Z", "nil"),
        ("nonsense", "nil"),
    ],
)
def test_iso_dates_are_read_and_written(iso: str, expected: str) -> None:
    assert text(f"DateTime.fromIsoDate('{iso}')") == expected


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("YYYY YY MMMM MMM MM M", "2024 24 February Feb 02 2"),
        ("dddd ddd DD D", "Thursday Thu 29 29"),
        ("HH H hh h mm m ss s SSS A a", "15 15 03 3 04 4 05 5 067 PM pm"),
        ("[at] LT [on] l", "at 3:04 PM on 2/29/2024"),
        ("LLLL", "Thursday, February 29, 2024 3:04 PM"),
        ("LTS, L", "3:04:05 PM, 02/29/2024"),
        ("", ""),
    ],
)
def test_date_time_formats_follow_moment_js(form: str, expected: str) -> None:
    assert text(f"{MOMENT}:FormatUniversalTime('{form}', 'en-us')") == expected
    assert text(f"{MOMENT}:FormatLocalTime('{form}')") == expected
    assert text(f"{MOMENT}:ToIsoDate()") == "2024-02-29T15:04:05Z"


def test_midnight_is_formatted_as_12_am() -> None:
    assert text("DateTime.fromUnixTimestamp(0):FormatUniversalTime('h A')") == "12 AM"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("fromUnixTimestamp(0/0)", "fromUnixTimestamp: the year must be from 1400 to 9999"),
        ("fromUnixTimestampMillis(1e300)", "fromUnixTimestampMillis: the year must be"),
        ("fromUniversalTime(2023, 2, 29)", "fromUniversalTime: there is no such date"),
        ("fromUniversalTime(2023, 1/0)", "fromUniversalTime: there is no such date"),
        ("fromUniversalTime(1970, 1, 1, 0, 0, 0, 1000)", "fromUniversalTime: there is no such"),
        ("fromUniversalTime(1399)", "fromUniversalTime: the year must be from 1400 to 9999"),
        ("fromIsoDate({})", "#1 to 'fromIsoDate' (string expected"),
        ("now().UnixTimestmp", "did you mean 'UnixTimestamp'?"),
    ],
)
def test_invalid_date_is_refused(call: str, message: str) -> None:
    assert message in error(f"local _ = DateTime.{call}")


@pytest.mark.parametrize("number", [0.5, 1e300, float("nan")])
def test_invalid_date_in_a_snapshot_is_refused(number: float) -> None:
    with pytest.raises(ValueError, match="no DateTime"):
        DateTime.empty().fill(number)
