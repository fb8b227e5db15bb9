"""The stand-in for opencode behaves like the program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.agents.standins.running import StandIn

pytestmark = pytest.mark.thorough


RUN = ["run", "--format", "json", "-m", "provider/model", "--auto"]


@pytest.fixture
def opencode(tmp_path: Path) -> StandIn:
    return StandIn(tmp_path, "opencode")


def test_a_turn_has_the_format_of_the_real_program(opencode: StandIn) -> None:
    ended = opencode.run(*RUN, "RUN echo hello")
    assert ended.status == 0
    kinds = [record["type"] for record in ended.records]
    step = ["step_start", "text", "step_finish"]
    assert kinds == ["step_start", "tool_use", "step_finish", *step]
    assert ended.of("tool_use")[0]["part"]["state"]["output"] == "hello\n"
    assert len({record["sessionID"] for record in ended.records}) == 1
    assert (opencode.state / "opencode" / "opencode.db").exists()


def test_a_conversation_is_continued_by_its_id(opencode: StandIn) -> None:
    session = opencode.run(*RUN, "one").records[0]["sessionID"]
    again = opencode.run(*RUN, "--session", session, "WHO")
    assert again.records[0]["sessionID"] == session
    assert json.loads(again.of("text")[0]["part"]["text"])["told"] == ["one", "WHO"]


def test_command_line_words_are_quoted_and_standard_input_is_unchanged(
    opencode: StandIn,
) -> None:
    session = opencode.run(*RUN, "one two").records[0]["sessionID"]
    again = opencode.run(*RUN, "--session", session, stdin="three four\nWHO")
    answer = json.loads(again.of("text")[0]["part"]["text"])
    assert answer["told"] == ['"one two"', "three four\nWHO"]


def test_an_unknown_conversation_is_refused(opencode: StandIn) -> None:
    ended = opencode.run(*RUN, "--session", "ses_x", "x")
    assert (ended.status, ended.output) == (1, "")
    assert "Session not found" in ended.errors


def test_an_error_of_the_model_is_a_record(opencode: StandIn) -> None:
    opencode.misbehave(api_error=401)
    ended = opencode.run(*RUN, "x")
    assert ended.status == 1
    assert ended.records[0]["error"]["data"]["statusCode"] == 401


def test_an_unknown_flag_is_refused(opencode: StandIn) -> None:
    assert opencode.run("run", "--frobnicate", "x").status == 1
