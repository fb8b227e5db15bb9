"""Turns and windows of a trajectory, compared with the whole trajectory."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import attrs
import pytest

from clawblox.agents.layout import AgentDir
from clawblox.agents.trajectory import export_trajectory
from clawblox.agents.trajectory.turns import TurnIndex
from clawblox.agents.trajectory.window import StepWindow, read_window
from clawblox.telemetry.log_index import LogIndex
from tests.agents.trajectory.support import PROMPTS, make_agent, write_events

NEWLINE = b"\n"
BEGUN_AT_NS = 1_782_154_800_000_000_000  # 2026-06-22T19:00:00Z


@pytest.fixture(params=["2.1.197", "2.1.330"])
def eko(tmp_path: Path, request: pytest.FixtureRequest) -> AgentDir:
    directory = make_agent(tmp_path / "Eko", request.param)
    write_events(directory, request.param)
    return directory


def read_turns(directory: AgentDir) -> TurnIndex:
    turns = TurnIndex(directory.path)
    turns.read_on()
    return turns


def read_windows(turns: TurnIndex, max_bytes: int) -> list[StepWindow]:
    """Return all windows of a log, from the first to the last."""
    found = [read_window(turns, 0, max_bytes=max_bytes)]
    while found[-1].has_later:
        found.append(read_window(turns, found[-1].last, max_bytes=max_bytes))
    return found


def whole(directory: AgentDir) -> list[dict[str, Any]]:
    """Return the steps of the whole trajectory in the form of windows."""
    steps = export_trajectory(directory.path)["steps"][1:]
    return [facts(step) for step in steps]


def facts(step: dict[str, Any]) -> dict[str, Any]:
    kept = ("source", "message", "reasoning_content", "tool_calls", "observation", "timestamp")
    return {name: step[name] for name in kept if name in step} | {"turn": step["extra"]["turn"]}


def test_turns_have_their_offsets_prompts_times_and_usage(eko: AgentDir) -> None:
    turns = read_turns(eko)
    assert [turn.prompt for turn in turns.turns] == [*PROMPTS]
    assert [turn.number for turn in turns.turns] == [1, 2, 3]
    log = eko.log_file.read_bytes()
    assert [turn.start for turn in turns.turns[1:]] == [turn.end for turn in turns.turns[:-1]]
    assert turns.turns[-1].end == len(log)
    for turn in turns.turns:
        assert json.loads(log[turn.start :].split(b"\n")[0])["subtype"] == "init"
        assert turn.started_at is not None
        assert turn.ended_at is not None
        assert turn.started_at < turn.ended_at
        assert turns.find_turn(turn.start) is turn


@pytest.mark.parametrize("max_bytes", [1, 700, 3000, 1 << 20])
def test_consecutive_windows_contain_the_whole_trajectory(eko: AgentDir, max_bytes: int) -> None:
    windows = read_windows(read_turns(eko), max_bytes)
    steps = [facts(step) for window in windows for step in window.steps]
    assert [step["message"] for step in steps if step["source"] == "user"] == [*PROMPTS]
    said = [step["message"] for step in steps if step["source"] == "agent" and step["message"]]
    assert said == [step["message"] for step in whole(eko) if step["source"] == "agent"][1:]
    calls = [call for step in steps for call in step.get("tool_calls", ())]
    assert [call["arguments"]["command"] for call in calls] == ["echo hi-there"]
    if max_bytes > 2000:
        assert steps == whole(eko)
    backwards = [read_window(read_turns(eko), max_bytes=max_bytes)]
    while backwards[0].has_earlier:
        first = backwards[0].first
        backwards.insert(0, read_window(read_turns(eko), before=first, max_bytes=max_bytes))
    assert [window.last for window in backwards[:-1]] == [w.first for w in backwards[1:]]
    again = [step["message"] for window in backwards for step in window.steps if step["message"]]
    assert again == [step["message"] for step in steps if step["message"]]


def test_a_step_has_the_time_at_which_its_line_arrived(eko: AgentDir) -> None:
    log = eko.log_file
    content = log.read_bytes()
    log.write_bytes(b"")
    index = LogIndex(log)
    for second, line in enumerate(content.splitlines(keepends=True)):
        with log.open("ab") as file:
            file.write(line)
        at = BEGUN_AT_NS + second * 10**9
        os.utime(log, ns=(at, at))
        index._looked_at = 0
        index.note_length()
    turns = read_turns(eko)
    window = read_window(turns)
    agent = [step for step in window.steps if step["source"] == "agent"]
    assert len({step["timestamp"] for step in agent}) == len(agent)
    for step in agent:
        offset = step["extra"]["raw_offset"]
        own = json.loads(content[offset:].split(b"\n")[0]).get("timestamp")
        arrived_at = f"2026-06-22T19:00:{content[:offset].count(NEWLINE):02}.000Z"
        assert step["timestamp"] == (own or arrived_at)
        assert turns.find_time(arrived_at) == offset
    assert [facts(step) for step in window.steps] == whole(eko)


def test_without_an_index_a_time_leads_to_the_start_of_its_turn(eko: AgentDir) -> None:
    turns = read_turns(eko)
    second = turns.turns[1]
    assert second.started_at is not None
    assert turns.find_time(second.started_at) == second.start
    assert turns.find_time("2027-01-01T00:00:00.000Z") is None


def test_turns_are_read_while_their_file_grows(eko: AgentDir) -> None:
    lines = eko.events_file.read_bytes().splitlines(keepends=True)
    eko.events_file.write_bytes(b"")
    turns = read_turns(eko)
    for line in lines:
        for part in (line[:20], line[20:]):
            with eko.events_file.open("ab") as file:
                file.write(part)
            turns.read_on()
    at_once = read_turns(eko)
    assert [attrs.asdict(turn) for turn in turns.turns] == [
        attrs.asdict(turn) for turn in at_once.turns
    ]
    # Another file under the same name is read from its start.
    eko.events_file.unlink()
    eko.events_file.write_bytes(b"".join(lines[:4]))
    turns.read_on()
    assert [turn.prompt for turn in turns.turns] == [PROMPTS[0]]


def test_a_result_after_the_window_is_attached_or_missing(eko: AgentDir) -> None:
    turns = read_turns(eko)
    (calling,) = [step for step in whole(eko) if step.get("tool_calls")]
    offset = next(
        step["extra"]["raw_offset"] for step in read_window(turns).steps if step.get("tool_calls")
    )
    window = read_window(turns, offset, max_bytes=1)
    assert window.first == offset
    assert window.steps[0]["observation"] == calling["observation"]
    assert not window.unanswered
    with eko.log_file.open("r+b") as file:
        file.truncate(window.last)
    window = read_window(turns, offset, max_bytes=1)
    assert "observation" not in window.steps[0]
    assert window.unanswered == {calling["tool_calls"][0]["tool_call_id"]}


def test_a_line_that_is_being_written_belongs_to_a_later_window(eko: AgentDir) -> None:
    lines = eko.events_file.read_bytes().splitlines(keepends=True)
    while b"turn.started" not in lines[-1]:
        lines.pop()
    eko.events_file.write_bytes(b"".join(lines))
    content = eko.log_file.read_bytes()
    eko.log_file.write_bytes(content[:-30])
    turns = read_turns(eko)
    window = read_window(turns)
    assert window.last == content[:-30].rfind(b"\n") + 1
    assert window.has_later
    eko.log_file.write_bytes(content)
    turns.read_on()
    assert read_window(turns, window.last).last == len(content)


def test_the_segments_of_the_log_are_listed_once_however_many_turns_are_read(
    eko: AgentDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed, listdir = list[object](), os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: listed.append(path) or listdir(path))
    assert len(read_turns(eko).turns) == 3
    assert listed == [eko.log_file.parent]
