"""An agent's activity as lines; arbitrary output of a program is harmless."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawblox.agents.narration import narrate
from clawblox.agents.prompts import AUTO_CONTINUE
from clawblox.agents.values import EventType

TYPES: tuple[EventType, ...] = get_args(EventType)

CASES: list[tuple[EventType, dict[str, Any], list[tuple[str, str]]]] = [
    (
        "message",
        {"role": "assistant", "text": "One.\n\nTwo."},
        [("| One.", "plain"), ("| ", "plain"), ("| Two.", "plain")],
    ),
    ("message", {"role": "user", "text": "Begin"}, [("> Begin", "faint")]),
    ("message", {"role": "assistant", "text": ""}, []),
    (
        "tool.called",
        {"name": "Bash", "arguments": {"command": "ls\nrm"}},
        [("● Bash ls", "action")],
    ),
    ("tool.called", {"name": "Move", "arguments": {"x": 1}}, [('● Move {"x": 1}', "action")]),
    ("tool.called", {}, [("● tool", "action")]),
    ("tool.returned", {"content": "no such file", "is_error": True}, [("  no such file", "error")]),
    ("error", {"kind": "auth", "message": "401"}, [("! auth: 401", "error")]),
    ("turn.finished", {"ok": True}, [("── end of turn ──", "faint")]),
    ("turn.finished", {"ok": False}, [("── the turn failed ──", "error")]),
    (
        "process.started",
        {"version": "2.1.330", "pid": 7},
        [("── program started, 2.1.330, process 7 ──", "faint")],
    ),
    (
        "session.confirmed",
        {"session_id": "4f1c", "model": "opus"},
        [("── conversation 4f1c, opus ──", "faint")],
    ),
    (
        "process.exited",
        {"exit_code": -9, "error": "killed"},
        [("── program ended, exit status -9, killed ──", "error")],
    ),
    (
        "retry",
        {"status": 429, "attempt": 3, "delay_s": 33},
        [("the program tries again in 33.0 s, status 429, attempt 3", "error")],
    ),
    (
        "retry",
        {"delay_s": "soon", "error": "overloaded"},
        [("the program tries again, overloaded", "error")],
    ),
    (
        "process.exited",
        {"exit_code": 0, "status": "finished"},
        [("── program ended, exit status 0 ──", "faint")],
    ),
    (
        "process.exited",
        {"exit_code": 0, "status": "stopped"},
        [("── agent stopped, exit status 0 ──", "faint")],
    ),
    (
        "process.exited",
        {"exit_code": 1, "status": "failed", "error": "no key"},
        [("── agent failed, exit status 1, no key ──", "error")],
    ),
    ("turn.started", {"prompt": "Come back."}, [("> Come back.", "faint")]),
    ("turn.started", {"prompt": AUTO_CONTINUE}, []),
    ("turn.started", {}, []),
    (
        "limit",
        {"kind": "budget", "message": "budget of 2 turns used up"},
        [("! budget of 2 turns used up", "error")],
    ),
    ("limit", {"kind": "budget"}, [("! budget", "error")]),
    ("usage", {"usage": object()}, []),
]


@pytest.mark.parametrize(("type_", "data", "expected"), CASES)
def test_events_become_lines(type_: EventType, data: dict[str, Any], expected: list[Any]) -> None:
    assert [(line.text, line.tone) for line in narrate(type_, data)] == expected


def test_a_long_result_is_shortened_with_a_mark() -> None:
    content = "\n".join(map(str, range(100)))
    *_, last = narrate("tool.returned", {"content": content})
    assert last.text == "  … 94 more lines"
    (line,) = narrate("tool.returned", {"content": "x" * 10_000})
    assert len(line.text) < 400


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
MEMBERS = ("role", "text", "name", "arguments", "content", "kind", "message", "pid", "error", "ok")


@settings(max_examples=40)
@given(st.sampled_from(TYPES), st.dictionaries(st.sampled_from(MEMBERS), anything))
def test_any_output_of_a_program_becomes_printable_lines(
    type_: EventType, data: dict[str, Any]
) -> None:
    for line in narrate(type_, data):
        assert line.text.isprintable() or not line.text.isascii()
        assert not {"\x1b", "\n", "\r", "\x07", "\u202e"} & set(line.text)


def test_the_terminal_gets_no_control_characters() -> None:
    (line,) = narrate("message", {"role": "assistant", "text": "\x1b]0;title\x07\x1b[2Jhi\u202e"})
    assert line.text == r"| \x1b]0;title\x07\x1b[2Jhi\u202e"


@pytest.mark.parametrize("type_", ["message", "reasoning", "tool.returned", "error", "limit"])
def test_no_line_of_a_program_resembles_a_line_of_clawblox(type_: EventType) -> None:
    ours = [
        line.text
        for data in ({"status": "failed", "exit_code": 1}, {"version": "2"})
        for line in narrate("process.exited", data)
    ]
    ours += ["Checkpoint: runs/r/x.ckpt", "● Bash ls", "> Begin", "World 'w' is ready at http://x"]
    text = "\n".join(["first", *ours])
    data = {"role": "assistant", "message": text, "kind": ours[0]}
    for forged in (text, *ours):
        lines = narrate(type_, {**data, "text": forged, "content": forged, "message": forged})
        assert lines
        assert {line.text for line in lines}.isdisjoint(ours)
