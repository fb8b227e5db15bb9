"""Claude Code's driver: results that answer no message, and resumes that fail."""

from __future__ import annotations

import json

import attrs
import pytest

from clawblox.agents.drivers.claude import ClaudeDriver
from clawblox.agents.layout import AgentDir
from tests.agents.drivers.support import (
    FIRST,
    NEW_ID,
    RESUMED,
    build_setup,
    data_by_type,
    read_all,
)

CLAUDE = ClaudeDriver()


@pytest.fixture
def directory(tmp_path) -> AgentDir:
    return AgentDir(tmp_path / "rocky")


ANSWER = {"type": "assistant", "message": {"content": [{"type": "text", "text": "a"}]}}
RESULT = {"type": "result", "subtype": "success", "is_error": False, "usage": {}}
NOTICE = {"origin": {"kind": "task-notification", "producer": "session-task"}}
STARTED = {"type": "command_lifecycle", "state": "started"}


def read_ends(directory: AgentDir, *records: dict, turn=RESUMED, has_init: bool = True) -> list:
    """Return the origin of the turn at each ``turn.finished``; None for turns of messages."""
    conversation = CLAUDE.converse(build_setup(directory), turn)
    init = {"type": "system", "subtype": "init", "session_id": NEW_ID}
    lines = [json.dumps(record).encode() for record in [init, *records][not has_init :]]
    ended = data_by_type(read_all(conversation, lines), "turn.finished")
    return [data.get("origin") for data in ended]


@pytest.mark.parametrize("turns", [0, 1, 7])
@pytest.mark.parametrize("has_init", [True, False])
def test_a_result_of_another_origin_answers_no_message(directory, turns, has_init):
    own = {**RESULT, **NOTICE, "num_turns": turns}
    answered = {**RESULT, "num_turns": 1}
    records = [own, ANSWER, own, answered, own]
    ends = read_ends(directory, *records[: 5 if has_init else 1], has_init=has_init)
    kind = "task-notification"
    assert ends == ([kind, kind, None, kind] if has_init else [kind])


@pytest.mark.parametrize(
    ("result", "has_output", "origin"),
    [
        ({"num_turns": 0}, False, "unknown"),
        ({"num_turns": 0, "origin": None}, False, "unknown"),
        ({"num_turns": 0}, True, None),
        ({"num_turns": 1}, False, None),
        ({}, False, None),
        ({"num_turns": 0, "is_error": True}, False, None),
        ({"num_turns": 0, "subtype": "error_during_execution"}, False, None),
        ({"num_turns": 0, "origin": "channel"}, True, "channel"),
        ({"num_turns": 0, "is_error": True, **NOTICE}, False, "task-notification"),
        ({"num_turns": 0, "origin": {"kind": "human"}}, False, None),
    ],
)
def test_without_an_origin_only_an_empty_result_answers_no_message(
    directory, result, has_output, origin
):
    output = [ANSWER] if has_output else []
    assert read_ends(directory, *output, {**RESULT, **result}) == [origin]


def test_a_message_read_during_any_turn_is_answered_by_that_turn(directory):
    own = {**RESULT, **NOTICE, "num_turns": 2}
    assert read_ends(directory, own, ANSWER, STARTED, ANSWER, own, own) == [
        "task-notification",
        None,
        "task-notification",
    ]


def test_a_read_message_is_not_answered_by_a_turn_without_the_model(directory):
    empty = {**RESULT, **NOTICE, "num_turns": 0}
    records = [STARTED, empty, ANSWER, empty, {**RESULT, "num_turns": 1}]
    assert read_ends(directory, *records) == ["task-notification", "task-notification", None]


def test_a_message_is_unread_until_the_program_starts_on_it(directory):
    conversation = CLAUDE.converse(build_setup(directory), RESUMED)
    unread = []
    for record in ({**STARTED, "state": "queued"}, ANSWER, STARTED, ANSWER, RESULT):
        conversation.read(json.dumps(record).encode())
        unread.append(conversation.has_unread_message)
    assert unread == [True, True, False, False, False]


def test_each_message_has_a_new_id_unless_it_may_be_sent_again(directory):
    conversation = CLAUDE.converse(build_setup(directory), FIRST)
    conversation.say("Begin")
    ids = [json.loads(line)["uuid"] for line in conversation.outgoing().splitlines()]
    assert len(set(ids)) == 2
    onlooker = CLAUDE.converse(build_setup(directory), attrs.evolve(FIRST, is_onlooker=True))
    assert "uuid" not in json.loads(onlooker.outgoing())


FAILED = {"type": "result", "subtype": "error_during_execution", "is_error": True, "num_turns": 0}
UNREADABLE = {**FAILED, "errors": ["null is not an object (evaluating 'e.message.content[0]')"]}
INIT = {"type": "system", "subtype": "init", "session_id": NEW_ID}
WORDS = "Spread syntax requires ...iterable[Symbol.iterator] to be a function"
OWN_WORDS = {"type": "assistant", "message": {**ANSWER["message"], "model": "<synthetic>"}}
SAID = {**RESULT, "is_error": True, "num_turns": 1, "result": WORDS}


@pytest.mark.parametrize(
    ("turn", "records", "kind"),
    [
        (RESUMED, [{**UNREADABLE, "errors": ["Failed to resume session: x is null"]}], "resume"),
        (RESUMED, [UNREADABLE], "resume"),
        (RESUMED, [INIT, UNREADABLE], "resume"),
        (RESUMED, [INIT, OWN_WORDS, SAID], "resume"),
        (RESUMED, [INIT, ANSWER, UNREADABLE], "model"),
        (RESUMED, [INIT, {**OWN_WORDS, "error": "unknown"}, SAID], "model"),
        (RESUMED, [INIT, RESULT, UNREADABLE], "model"),
        (RESUMED, [INIT, {**SAID, "api_error_status": 529}], "overloaded"),
        (FIRST, [INIT, UNREADABLE], "model"),
    ],
)
def test_a_resume_that_fails_before_the_model_is_asked_is_a_failure_of_the_resume(
    directory, turn, records, kind
):
    # A damaged transcript has these results with 2.1.197.
    conversation = CLAUDE.converse(build_setup(directory), turn)
    reports = read_all(conversation, [json.dumps(record).encode() for record in records])
    assert [error["kind"] for error in data_by_type(reports, "error")] == [kind]
