"""The borders of lines are found across segments and blocks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clawblox.system import regular_files
from clawblox.telemetry import tail
from clawblox.telemetry.log_segments import begin_segment, list_segments
from clawblox.telemetry.tail import find_line_end, find_line_start, read_lines
from tests.agents.drivers.support import within_limit
from tests.support.files import write_hole

TEXTS = ('say "Hello"', "a\nb", "naïve", "x" * 40, "hello again", "")


@pytest.fixture(params=[7, 64, 1 << 20])
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    monkeypatch.setattr(tail, "_STEP_BYTES", request.param)
    monkeypatch.setattr(regular_files, "_PIECE_BYTES", request.param)
    path = tmp_path / "agent.log"
    for is_ascii in (True, False):
        begin_segment(path, 1)
        with path.open("ab") as file:
            for text in TEXTS:
                line = json.dumps({"text": text}, ensure_ascii=is_ascii)
                file.write(line.encode() + b"\n")
    return path


def test_the_borders_of_the_line_around_each_byte_are_found(log: Path) -> None:
    segments = list_segments(log)
    for line in read_lines(log):
        for offset in range(line.offset, line.offset + line.size + 1):
            assert find_line_start(segments, offset) == line.offset
            assert find_line_end(segments, offset) == line.offset + line.size + 1


def test_a_hole_of_a_terabyte_is_skipped(tmp_path: Path) -> None:
    log = tmp_path / "agent.log"
    hole = write_hole(log)
    found: list[object] = []

    def look() -> None:
        found.append(find_line_end(list_segments(log), 7))
        found.append(find_line_start(list_segments(log), hole + 3) > hole - (9 << 20))

    within_limit(look)
    assert found == [hole + 8, True]
