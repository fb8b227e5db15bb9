"""The screen of an agent whose log continues in another file."""

from __future__ import annotations

from pathlib import Path

from clawblox.agents.drivers import find_driver
from clawblox.agents.layout import AgentDir
from clawblox.agents.screen import ActivityScreen
from clawblox.telemetry.log_segments import begin_segment


def test_no_line_is_lost_between_two_segments_of_a_log(tmp_path: Path) -> None:
    directory = AgentDir(tmp_path)
    log = directory.log_file
    log.parent.mkdir()
    log.write_text("shown before\n")
    command = find_driver("command")
    screen = ActivityScreen(directory, command, log_start=log.stat().st_size, events_start=0)
    shown = screen.news()
    for text in ("one", "two", "three"):
        with log.open("a") as file:
            file.write(f"{text}\n")
        begin_segment(log, 1)
        log.write_text(f"after {text}\n")
        shown += screen.news()
    words = [word for word in shown.decode().split() if word in ("one", "two", "three", "after")]
    screen.close()
    assert words == ["one", "after", "one", "two", "after", "two", "three", "after", "three"]
