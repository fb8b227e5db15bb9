"""The index of a log is correct after growth, cuts, torn writes and other orchestrators."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.to_thread import run_sync

from clawblox.results import LogLine
from clawblox.telemetry import log_index
from clawblox.telemetry.log_index import LogIndex, note_end
from clawblox.telemetry.log_reader import LogReader
from clawblox.telemetry.log_times import LEFT, LogTimes, cutting, index_path
from tests.support.waiting import HANG_S

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


class Clock:
    """The wall clock of the index and of writes to the log."""

    def __init__(self, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log = log
        self.now = 1_782_154_800_000_000_000  # 2026-06-22T19:00:00Z
        monkeypatch.setattr(log_index, "utc_now_ns", lambda: self.now)
        log.touch()

    def write(self, text: str, *, after: float) -> None:
        """Append to the log, some seconds later."""
        self.now += int(after * 1e9)
        with self.log.open("a") as file:
            file.write(text)
        os.utime(self.log, ns=(self.now, self.now))


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(tmp_path / "w000.log", monkeypatch)


def entries(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in index_path(log).read_text().splitlines()]


def begin(clock: Clock) -> LogIndex:
    index = LogIndex(clock.log, clock.log.stat().st_size)
    index.begin_run()
    return index


def read(log: Path, **options: Any) -> list[LogLine]:
    async def read_all() -> list[LogLine]:
        reader = LogReader(
            instance="w000", path=log, follow=False, has_notes=True, **{"tail": None, **options}
        )
        async with reader:
            return [line async for line in reader]

    return anyio.run(read_all)


def times(log: Path, **options: Any) -> list[tuple[str, str]]:
    """Return each line with the seconds and milliseconds of its time."""
    return [(line.text, (line.at or "-")[17:-1]) for line in read(log, **options)]


# --------------------------------------------------------------------------------- growth


def test_a_line_has_the_time_of_the_last_write_before_the_inspection(clock: Clock) -> None:
    index = begin(clock)
    clock.write("alone\n", after=1.25)
    clock.now += 200_000_000
    index.note_length()
    clock.write("one\n", after=1.0)
    clock.write("two\n", after=0.1)
    index.note_length()
    index.note_length()
    assert times(clock.log) == [("alone", "01.250"), ("one", "02.550"), ("two", "02.550")]
    assert [entry["size"] for entry in entries(clock.log)] == [0, 6, 14]
    assert index_path(clock.log).stat().st_mode & 0o777 == 0o600


def test_lines_not_yet_inspected_have_the_time_of_the_last_write(clock: Clock) -> None:
    index = begin(clock)
    clock.write("seen\n", after=1)
    index.note_length()
    clock.write("unseen\n", after=3)
    assert times(clock.log) == [("seen", "01.000"), ("unseen", "04.000")]
    index.note(LEFT, "")
    clock.write("in absence\n", after=1)
    assert (times(clock.log))[-1] == ("in absence", "")
    assert (times(clock.log, is_watched=False))[1:] == [
        ("unseen", "04.000"),
        ("in absence", ""),
    ]


def test_a_log_without_an_index_has_no_times(clock: Clock) -> None:
    clock.write("one\ntwo\n", after=1)
    assert times(clock.log) == [("one", ""), ("two", "")]
    assert [line.text for line in read(clock.log, since="2027")] == ["one", "two"]


def test_times_stay_between_the_inspections_after_a_touch_or_a_clock_change(clock: Clock) -> None:
    index = begin(clock)
    index.note_length()
    clock.write("touched\n", after=5)
    os.utime(clock.log, ns=(0, 0))
    index.note_length()
    clock.write("from the future\n", after=5)
    os.utime(clock.log, ns=(clock.now * 2, clock.now * 2))
    index.note_length()
    assert times(clock.log) == [("touched", "00.000"), ("from the future", "10.000")]


def test_a_world_without_output_gets_no_index(clock: Clock) -> None:
    index = begin(clock)
    for _ in range(3):
        index.note_length()
    assert not index_path(clock.log).exists()


# ------------------------------------------------------------------------------- restarts


def test_notes_of_ends_and_restarts_appear_at_their_times(clock: Clock) -> None:
    index = begin(clock)
    clock.write("first\nin the mid", after=1)
    index.note_end("exited", "exited: killed by SIGKILL")
    index.note_end("stopped", "stopped: this is not noted twice")
    index.note("restarted", "restarted fresh")
    clock.write("second\n", after=1)
    index.note_end("stopped", "stopped: exit status 0")
    assert [(line.text, line.event, line.offset) for line in read(clock.log)] == [
        ("first", None, 0),
        ("in the mid", None, 6),
        ("exited: killed by SIGKILL", "exited", 16),
        ("restarted fresh", "restarted", 16),
        ("second", None, 16),
        ("stopped: exit status 0", "stopped", 23),
    ]
    assert clock.log.read_text() == "first\nin the midsecond\n"
    assert [line.offset for line in read(clock.log, tail=1)] == [6, 16, 16, 16, 23]
    assert read(clock.log, tail=0) == []


def test_a_restarted_run_is_read_from_its_start_without_older_runs(
    clock: Clock,
) -> None:
    clock.write("without an index\n", after=1)
    for run in ("first", "second"):
        index = begin(clock)
        clock.write(f"{run}\n", after=1)
        index.note_end("exited", "exited: exit status 1")
        index.note("restarted", "restarted fresh")
    start = clock.log.stat().st_size
    clock.write("again\n", after=1)
    expected = ["second", "exited: exit status 1", "restarted fresh", "again"]
    found = read(clock.log, start=start, was_restarted=True)
    assert [line.text for line in found] == expected
    started = LogIndex(clock.log, clock.log.stat().st_size)
    started.begin_run()
    last = clock.log.stat().st_size
    clock.write("third\n", after=1)  # before the index contains its run
    assert [line.text for line in read(clock.log, start=last)] == ["third"]
    started.note_length()
    assert [line.text for line in read(clock.log, start=last)] == ["third"]


def test_another_orchestrator_continues_the_index(clock: Clock) -> None:
    index = begin(clock)
    clock.write("first\n", after=1)
    index.note_length()
    with index_path(clock.log).open("ab") as file:
        file.write(b'{"size":99,"at":"20')  # the instance was killed
    clock.write("unseen\n", after=1)
    later = LogIndex(clock.log, clock.log.stat().st_size)
    later.note("resumed", "resumed fresh")
    clock.write("second\n", after=1)
    later.note_length()
    assert times(clock.log) == [
        ("first", "01.000"),
        ("unseen", ""),
        ("resumed fresh", "02.000"),
        ("second", "03.000"),
    ]


def test_an_end_recorded_afterwards_keeps_the_times(clock: Clock) -> None:
    note_end(clock.log, "interrupted", "interrupted", was_watched=True)
    assert entries(clock.log)[-1]["event"] == "interrupted"
    index_path(clock.log).unlink()
    note_end(clock.log.with_name("missing"), "interrupted", "interrupted", was_watched=True)
    assert not index_path(clock.log.with_name("missing")).exists()
    index = begin(clock)
    clock.write("one\n", after=1)
    index.note_length()
    clock.write("last words\n", after=0.2)
    note_end(clock.log, "interrupted", "interrupted", was_watched=True)
    assert [line.text for line in read(clock.log)] == ["one", "last words", "interrupted"]
    assert (times(clock.log))[1] == ("last words", "01.200")


# ----------------------------------------------------------------------------------- cuts


def numbered(first: int, last: int) -> str:
    return "".join(f"line {number:04}\n" for number in range(first, last))


def test_the_index_of_a_cut_log_covers_the_rest(clock: Clock) -> None:
    index = begin(clock)
    for number in range(100):
        clock.write(numbered(10 * number, 10 * number + 10), after=0.5)
        if number == 80:
            index.note("restarted", "restarted fresh")
        index.note_length()
    before = {line.text: line.at for line in read(clock.log)}
    index.note_length(max_bytes=8000)
    after = read(clock.log)
    assert len(after) < 500
    assert after[0].text.startswith("[clawblox] log over 8000 bytes")
    assert {line.text: line.at for line in after[1:]}.items() <= before.items()
    assert "restarted fresh" in [line.text for line in after]
    clock.write("after the cut\n", after=1)
    index.note_length()
    assert (times(clock.log))[-1] == ("after the cut", "51.000")
    # The run started in the removed half.
    found = read(clock.log, start=5000, was_restarted=True)
    assert found[0].offset == 0


def test_an_index_of_a_longer_log_is_ignored_and_replaced(clock: Clock) -> None:
    index = begin(clock)
    clock.write(numbered(0, 50), after=1)
    index.note_end("exited", "exited: exit status 0")
    clock.log.write_text("")
    clock.write("short\n", after=1)
    assert times(clock.log) == [("short", "")]
    for watcher in (index, LogIndex(clock.log, clock.log.stat().st_size)):
        watcher.note_length()
        clock.write("new\n", after=1)
        watcher.note_length()
        assert (times(clock.log))[-1] == ("new", f"0{clock.log.stat().st_size // 4 + 1}.000")
        assert entries(clock.log)[0] == {"size": 6, "at": None}


def test_a_new_orchestrator_replaces_the_index_of_a_longer_log(clock: Clock) -> None:
    begin(clock).note_end("exited", "exited: exit status 0")
    clock.write(numbered(0, 50), after=1)
    begin(clock).note_length()
    index = begin(clock)
    clock.write("more\n", after=1)
    index.note_length()
    clock.log.write_text("old\n")
    index = begin(clock)
    clock.write("new\n", after=1)
    index.note_length()
    assert entries(clock.log)[0] == {"size": 4, "at": None}
    assert times(clock.log, start=4) == [("new", "03.000")]


def test_a_cut_log_is_read_from_the_new_start_of_its_run(clock: Clock) -> None:
    begin(clock)
    clock.write(numbered(0, 600), after=1)
    start = clock.log.stat().st_size
    index = begin(clock)
    for first in range(600, 1000, 100):
        clock.write(numbered(first, first + 100), after=1)
        index.note_length()
    index.note_length(max_bytes=9000)
    clock.write(numbered(1000, 1300), after=1)
    index.note_length()
    found = read(clock.log, start=start)  # the start of the run before the cut
    assert clock.log.stat().st_size > start
    assert int(found[0].text[5:]) < 700 or found[0].offset == 0


def test_a_large_index_loses_times_of_its_older_half_but_no_event(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_index, "_MAX_BYTES", 4000)
    index = begin(clock)
    index._thin_at = 4000
    sizes = []
    for number in range(300):
        clock.write(f"{number}\n", after=0.05)
        index.note_length()
        if number == 10:
            index.note("restarted", "restarted fresh")
        sizes.append(index_path(clock.log).stat().st_size)
    assert max(sizes) < 4100
    found = read(clock.log)
    assert [line.text for line in found if line.event] == ["restarted fresh"]
    lines = [line for line in found if not line.event]
    times = [line.at or "" for line in lines]
    assert times == sorted(times)
    for number, line in enumerate(lines):
        exact = f"2026-06-22T19:00:{(number + 1) * 0.05:06.3f}Z"
        assert (line.at or "") >= exact
        if number > 270:
            assert line.at == exact


# ----------------------------------------------------------------------------- selections


@pytest.mark.parametrize(
    ("since", "expected"),
    [
        ("2026-06-22T19:00:00.000Z", [0, 1, 2, 3, 4]),
        ("2026-06-22T19:00:01.001Z", [1, 2, 3, 4]),
        ("2026-06-22T19:00:03.000Z", [2, 3, 4]),
        ("2026-06-22T19:00:04.500Z", [4]),
        ("2026-06-22T19:00:05.001Z", []),
    ],
)
def test_since_starts_at_the_offset_in_the_index(
    clock: Clock, since: str, expected: list[int]
) -> None:
    index = begin(clock)
    for number in range(5):
        clock.write(f"{number}\n", after=1)
        if number < 4:
            index.note_length()
    assert [int(line.text) for line in read(clock.log, since=since)] == expected
    assert [int(line.text) for line in read(clock.log, since=since, tail=2)] == expected[-2:]


def test_since_does_not_start_within_a_line_or_before_the_run(clock: Clock) -> None:
    index = begin(clock)
    clock.write("old\n", after=1)
    index.note_end("stopped", "stopped: exit status 0")
    start = clock.log.stat().st_size
    index = begin(clock)
    clock.write("first\nhal", after=1)
    index.note_length()
    clock.write("f\nlast\n", after=1)
    index.note_end("exited", "exited: exit status 0")
    early, late = "2026-06-22T19:00:00.000Z", "2026-06-22T19:00:02.500Z"
    texts = [line.text for line in read(clock.log, start=start, since=early)]
    assert texts == ["first", "half", "last", "exited: exit status 0"]
    texts = [line.text for line in read(clock.log, start=start, since=late)]
    assert texts == ["last", "exited: exit status 0"]


def test_since_does_not_read_earlier_lines(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    index = begin(clock)
    clock.write(numbered(0, 200_000), after=1)
    index.note_length()
    clock.write("new\n", after=1)
    index.note_length()
    from clawblox.telemetry import log_reader

    chunks: list[int] = []
    read_from = log_reader._read_from

    def count(path: Path, offset: int) -> tuple[int, bytes]:
        found = read_from(path, offset)
        chunks.append(len(found[1]))
        return found

    monkeypatch.setattr(log_reader, "_read_from", count)
    found = read(clock.log, since="2026-06-22T19:00:02.000Z")
    assert ([line.text for line in found], sum(chunks)) == (["new"], 4)


def test_a_pattern_selects_lines_and_tail_counts_them(clock: Clock) -> None:
    index = begin(clock)
    for number in range(50_000):
        if number % 10_000 == 0:
            clock.write(f"milestone {number}\n" + "x" * 99 + "\r\n", after=0)
        clock.write(f"{number}\n" * 1, after=0) if number % 1000 == 0 else None
    index.note_end("exited", "exited: exit status 0")
    pattern = re.compile(r"^milestone [1-4]")
    expected = [f"milestone {number}0000" for number in range(1, 5)]
    assert [line.text for line in read(clock.log, pattern=pattern)] == expected
    for tail in range(6):
        found = read(clock.log, pattern=pattern, tail=tail)
        assert [line.text for line in found] == expected[len(expected) - min(tail, 4) :]
    (end,) = read(clock.log, pattern=re.compile("exit"))
    assert end.event == "exited"
    assert len(read(clock.log, pattern=re.compile("x$"))) == 5


def test_a_tail_with_a_pattern_is_found_through_pieces_and_endless_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from clawblox.telemetry import log_reader

    monkeypatch.setattr(log_reader, "_CHUNK_BYTES", 32)
    monkeypatch.setattr(log_reader, "_LINE_BYTES", 30)
    log = tmp_path / "log"
    log.write_text("match 1\n\nno\nmatch 2\n" + "z" * 100 + "\nmatch 3\nno")
    for tail, expected in ((1, ["3"]), (2, ["2", "3"]), (3, ["1", "2", "3"]), (9, ["1", "2", "3"])):
        found = read(log, pattern=re.compile("match"), tail=tail)
        assert [line.text[6:] for line in found] == expected
    everything = read(log)
    for tail in range(1, len(everything) + 2):
        found = read(log, pattern=re.compile(""), tail=tail)
        assert found[-1].text == "no"


# ------------------------------------------------------------------------------ following


@pytest.mark.anyio
async def test_a_followed_log_shows_ends_restarts_and_times_as_they_happen(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    index = LogIndex(log, 0)
    index.begin_run()
    is_over = False
    reader = LogReader(
        instance="w000", path=log, follow=True, tail=None, has_notes=True, is_over=lambda: is_over
    )

    async def next_line() -> LogLine:
        with anyio.fail_after(HANG_S):
            return await anext(reader)

    with log.open("a", buffering=1) as file:
        file.write("one\nhalf")
        assert (await next_line()).text == "one"
        await run_sync(index.note_end, "exited", "exited: killed by SIGKILL")
        assert (await next_line()).text == "half"
        assert (await next_line()).event == "exited"
        await run_sync(index.note, "restarted", "restarted fresh")
        assert (await next_line()).event == "restarted"
        file.write("two\n")
        line = await next_line()
        assert line.text == "two"
        assert TIME.fullmatch(line.at or "")
    await run_sync(index.note_end, "stopped", "stopped: exit status 0")
    is_over = True
    assert (await next_line()).event == "stopped"
    with pytest.raises(StopAsyncIteration):
        await next_line()


@pytest.mark.anyio
async def test_a_follower_loses_no_line_that_a_cut_keeps(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(numbered(0, 1000))
    index = LogIndex(log, 0)
    index.begin_run()
    await run_sync(index.note, "restarted", "restarted fresh")
    reader = LogReader(
        instance="w000", path=log, follow=True, tail=1, has_notes=True, is_over=lambda: False
    )
    cut = "the log was cut to its newer half"
    with anyio.fail_after(HANG_S), log.open("a") as file:

        def write(first: int, last: int) -> None:
            file.write(numbered(first, last))
            file.flush()

        async def next_texts(count: int) -> list[str]:
            return [(await anext(reader)).text for _ in range(count)]

        assert await next_texts(2) == ["line 0999", "restarted fresh"]
        # The follower has not read these lines when the log is cut.
        await run_sync(write, 1000, 1300)
        await run_sync(index.note_length, 7000)
        await run_sync(write, 1300, 1400)
        await run_sync(index.note_length, 4000)
        await run_sync(write, 1400, 1500)
        note = (await anext(reader)).text
        unread = int(note.removeprefix(f"{cut}; ").split()[0])
        first = 1000 + unread // 10
        assert 1000 < first < 1300
        assert await next_texts(1500 - first) == numbered(first, 1500).splitlines()
        # All lines were read before the next cut, so none is lost.
        await run_sync(write, 1500, 1600)
        assert (await next_texts(50))[-1] == "line 1549"
        await run_sync(index.note_length, 3000)
        await run_sync(write, 1600, 1610)
        await run_sync(index.note_end, "exited", "exited: exit status 0")
        rest = numbered(1550, 1610).splitlines()
        seen = await next_texts(len(rest) + 2)
    assert [text for text in seen if text != cut] == [*rest, "exited: exit status 0"]
    assert cut in seen


@pytest.mark.anyio
async def test_a_follower_waits_while_the_log_is_cut(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("one\n")
    reader = LogReader(instance="w000", path=log, follow=True, tail=None, is_over=lambda: False)
    with anyio.fail_after(HANG_S):
        assert (await anext(reader)).text == "one"
        with cutting(log) as file:
            file.seek(0, os.SEEK_END)
            file.write(b"half of a li")
            file.flush()
            assert await reader.next_written() is None
            await run_sync(reader._read_on)
            assert reader._offset == 4
            file.write(b"ne\n")
        assert (await anext(reader)).text == "half of a line"


def test_a_tail_that_counts_notes_has_the_given_number_of_lines(clock: Clock) -> None:
    index = begin(clock)
    for number in range(4):
        clock.write(f"{number}\n", after=1)
        index.note("restarted", "restarted fresh")
    everything = [line.text for line in read(clock.log)]
    assert len(everything) == 8
    for tail in range(10):
        found = read(clock.log, tail=tail, tail_counts_notes=True)
        assert [line.text for line in found] == everything[8 - min(tail, 8) :]


# ------------------------------------------------------------------------------- failures


def test_an_end_with_a_text_that_json_cannot_represent_is_recorded(clock: Clock) -> None:
    index = begin(clock)
    clock.write("one\n", after=1)
    index.note_end("exited", "exited: it had halted: the \ud800 value")
    assert [line.text for line in read(clock.log)][-1] == "exited: it had halted: the \ufffd value"


def test_lines_that_are_not_entries_are_skipped(clock: Clock) -> None:
    index = begin(clock)
    clock.write("one\n", after=1)
    index.note_length()
    with index_path(clock.log).open("ab") as file:
        file.write(b'\n\xff\xfe\n[]\n{"size":"x"}\nnull\n')
    clock.write("two\n", after=1)
    index.note_length()
    assert times(clock.log) == [("one", "01.000"), ("two", "02.000")]


def test_an_index_that_cannot_be_written_is_created_later(clock: Clock) -> None:
    index = begin(clock)
    index_path(clock.log).mkdir()
    for _ in range(3):
        clock.write("line\n", after=1)
        index.note_length()
        index.note("restarted", "restarted fresh")
    index_path(clock.log).rmdir()
    clock.write("line\n", after=1)
    index.note_length()
    assert [entry["size"] for entry in entries(clock.log)] == [20]


@pytest.mark.parametrize("make", ["missing", "device"])
def test_only_a_file_gets_an_index(tmp_path: Path, make: str) -> None:
    log = tmp_path / "log"
    if make == "device":
        os.mkfifo(log)
    index = LogIndex(log, 0)
    index.note_length()
    times = LogTimes(log)
    times.read_on()
    assert times.is_empty
    assert not index_path(log).exists()
