"""A log that continues in another file keeps its offsets."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawblox.telemetry.log_segments import begin_segment, list_segments, log_end
from clawblox.telemetry.tail import read_lines
from tests.agents.drivers.support import within_limit


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "agent.log"


def add(log: Path, text: str) -> None:
    with log.open("a") as file:
        file.write(text)


def names(log: Path) -> list[str]:
    return sorted(path.name for path in log.parent.iterdir())


def test_a_log_above_the_limit_continues_in_another_file(log: Path) -> None:
    assert list_segments(log) == []
    assert begin_segment(log, 10).start == 0
    add(log, "one\n")
    assert begin_segment(log, 10).end == 4
    add(log, "two three\n")
    segment = begin_segment(log, 10)
    assert (segment.path, segment.start, segment.end, segment.number) == (log, 14, 14, 2)
    assert names(log) == ["agent.log", "agent.log.1.0-14"]
    assert log.stat().st_mode & 0o777 == 0o600
    add(log, "four five\n")
    begin_segment(log, 10)
    add(log, "six\n")
    assert names(log) == ["agent.log", "agent.log.1.0-14", "agent.log.2.14-24"]
    assert log_end(log) == 28
    found = [(line.offset, line.data) for line in read_lines(log)]
    assert found == [
        (0, b"one"),
        (4, b"two three"),
        (14, b"four five"),
        (24, b"six"),
    ]
    assert [line.offset for line in read_lines(log, 14)] == [14, 24]


def test_an_incomplete_line_of_a_killed_writer_is_terminated(log: Path) -> None:
    add(log, "one\ntw")
    assert begin_segment(log, 100).end == 7
    add(log, "three\n")
    assert [line.data for line in read_lines(log)] == [b"one", b"tw", b"three"]


def test_later_writes_to_an_older_segment_are_not_part_of_the_log(log: Path) -> None:
    with log.open("a") as left_behind:
        add(log, "one two three\n")
        begin_segment(log, 10)
        left_behind.write("late\n")
    add(log, "four\n")
    assert [(line.offset, line.data) for line in read_lines(log)] == [
        (0, b"one two three"),
        (14, b"four"),
    ]


def test_offsets_are_unchanged_after_an_older_segment_is_removed(log: Path) -> None:
    for text in ("one two three\n", "four five six\n"):
        add(log, text)
        begin_segment(log, 10)
    add(log, "seven\n")
    (log.parent / "agent.log.1.0-14").unlink()
    assert [line.offset for line in read_lines(log)] == [14, 28]


def test_names_of_other_files_and_of_impossible_segments_are_ignored(log: Path) -> None:
    add(log, "one\n")
    for name in (
        *(
            "agent.log.1",
            "agent.log.x.0-5",
            "agent.log.1.5-2",
            "agent.log.0.0-9",
            "other.log.1.0-4",
        ),
        *("agent.log.1.0-99999999999999999999", "agent.log.9.2-7"),
    ):
        (log.parent / name).write_text("junk\n")
    (log.parent / "agent.log.8.0-7").write_text("before\n")  # the segment from 2 overlaps it
    assert [(line.offset, line.data) for line in read_lines(log)] == [(0, b"before"), (7, b"one")]


def test_the_hole_of_a_sparse_log_is_skipped(log: Path) -> None:
    add(log, "one\ntw")
    with log.open("r+b") as file:
        file.truncate(8 << 40)
    add(log, "o\nthree\n")
    found = []
    within_limit(lambda: found.extend(read_lines(log)))
    assert [(line.offset, line.data) for line in found] == [
        (0, b"one"),
        (4, None),
        ((8 << 40) + 2, b"three"),
    ]


def test_a_small_hole_in_a_log_is_read_as_zeros(log: Path) -> None:
    hole = 1 << 20
    add(log, "one")
    with log.open("r+b") as file:
        file.truncate(hole)
    add(log, "two\n")
    [line] = read_lines(log)
    assert line.data == b"one" + b"\0" * (hole - 3) + b"two"
