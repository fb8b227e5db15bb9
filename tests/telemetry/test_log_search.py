"""Lines of a log are found by their text, over all segments and borders of blocks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clawblox.telemetry import log_search
from clawblox.telemetry.log_search import find_line_end, find_line_start, find_lines
from clawblox.telemetry.log_segments import begin_segment
from clawblox.telemetry.tail import read_lines
from tests.agents.drivers.support import within_limit

TEXTS = ('say "Hello"', "a\nb", "naïve", "x" * 40, "hello again", "")


@pytest.fixture(params=[7, 64, 1 << 20])
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    monkeypatch.setattr(log_search, "_BLOCK_BYTES", request.param)
    monkeypatch.setattr(log_search, "_STEP_BYTES", request.param)
    path = tmp_path / "agent.log"
    for is_ascii in (True, False):
        begin_segment(path, 1)
        with path.open("ab") as file:
            for text in TEXTS:
                line = json.dumps({"text": text}, ensure_ascii=is_ascii)
                file.write(line.encode() + b"\n")
    return path


@pytest.mark.parametrize(
    "text", ['"HELLO"', "hello", "a\nb", "naïve", "x" * 30, "text", "absent", '{"text": ""}']
)
def test_a_text_is_found_in_each_line_that_has_it(log: Path, text: str) -> None:
    wanted = [
        line.offset
        for line in read_lines(log)
        if text.lower() in json.loads(line.data or b"")["text"].lower()
        or text.lower() in (line.data or b"").decode().lower()
    ]
    assert find_lines(log, text).offsets == wanted
    assert find_lines(log, text).is_all
    found, start = list[int](), 0
    while not (hits := find_lines(log, text, start=start, max_lines=1)).is_all:
        assert len(hits.offsets) == 1
        found, start = found + hits.offsets, hits.end
    assert found + hits.offsets == wanted


def test_a_search_goes_on_in_what_was_added(log: Path) -> None:
    end = find_lines(log, "again and").end
    with log.open("ab") as file:
        file.write(b"again")
    torn = find_lines(log, "again and", start=end)
    assert (torn.offsets, torn.end) == ([], end)
    with log.open("ab") as file:
        file.write(b" and again\n")
    assert find_lines(log, "again and", start=torn.end).offsets == [end]
    assert find_lines(log, "").offsets == []
    assert find_lines(log.with_name("missing"), "x").offsets == []


def test_the_borders_of_the_line_around_each_byte_are_found(log: Path) -> None:
    for line in read_lines(log):
        for offset in range(line.offset, line.offset + line.size + 1):
            assert find_line_start(log, offset) == line.offset
            assert find_line_end(log, offset) == line.offset + line.size + 1


def test_a_hole_of_a_terabyte_is_passed_over(tmp_path: Path) -> None:
    log, hole = tmp_path / "agent.log", 1 << 40
    with log.open("wb") as file:
        file.write(b"before\n")
        file.truncate(hole)
        file.seek(hole)
        file.write(b" behind\nlast\n")
    found: list[object] = []

    def look() -> None:
        found.append(find_lines(log, "last").offsets)
        found.append(find_line_end(log, 7))
        found.append(find_line_start(log, hole + 3) > hole - (9 << 20))

    within_limit(look)
    assert found == [[hole + 8], hole + 8, True]
