"""Any program with a template: its command line, its output, and errors in the table."""

from __future__ import annotations

import pytest

from clawblox.agents.drivers import find_driver
from clawblox.agents.drivers.command import CommandDriver, CommandTable
from clawblox.agents.drivers.driver import Begin, Turn
from clawblox.agents.layout import AgentDir
from clawblox.agents.programs import SANDBOX_WORKSPACE
from clawblox.agents.values import DriverReport
from clawblox.errors import AgentResumeError, ConfigError
from tests.agents.drivers.support import FIRST, NEW_ID, RESUMED, build_setup, read_all

COMMAND = CommandDriver()
DIRECTORY = AgentDir(SANDBOX_WORKSPACE)
TABLE = {
    "start": ["my-agent", "--prompt={prompt}", "-s", "{system_prompt_file}", "{other} {x-y} {}"],
    "resume": ["my-agent", "--continue", "{session}", "{prompt}", "--cd", "{workspace}"],
    "session": r"session: (\S+)",
}


def setup(**more):
    return build_setup(DIRECTORY, binary="/opt/my-agent", **{"command": TABLE, **more})


def test_placeholders_are_replaced_and_other_braces_stay():
    tricky = Turn(prompt="{session} {prompt} -x", start=Begin(NEW_ID))
    started = COMMAND.invocation(setup(), tricky)
    assert started.argv == (
        "/opt/my-agent",
        "--prompt={session} {prompt} -x",
        "-s",
        str(DIRECTORY.system_prompt_file),
        "{other} {x-y} {}",
    )
    assert not started.has_stdin


def test_a_conversation_is_continued_by_its_id():
    continued = COMMAND.invocation(setup(), RESUMED)
    assert continued.argv[1:] == ("--continue", NEW_ID, "Go on", "--cd", str(DIRECTORY.workspace))


def test_a_conversation_without_a_resume_template_cannot_be_continued():
    only_start = setup(command={"start": ["my-agent", "{prompt}"]})
    with pytest.raises(AgentResumeError, match="cannot continue a conversation"):
        COMMAND.invocation(only_start, RESUMED)


def test_a_prompt_on_standard_input_is_in_no_argument():
    prompt = "line one\nline \u00e9\U0001f41f \ud800\n"
    turn = Turn(prompt=prompt, start=Begin(NEW_ID))
    started = COMMAND.invocation(setup(command={"start": ["cat", "-"], "prompt": "stdin"}), turn)
    assert started.argv == ("/opt/my-agent", "-")
    assert started.input.decode() == "line one\nline \u00e9\U0001f41f ?\n"
    assert not started.has_stdin
    assert COMMAND.invocation(setup(), turn).input == b""


def test_the_pattern_finds_the_id_and_every_line_is_a_message():
    conversation = COMMAND.converse(setup(), FIRST)
    lines = [b"hello", b"session: s-1", b"session: ../../etc", b"", b"\xff", b"session: s-1"]
    reports = read_all(conversation, lines)
    told = [(report.type, *report.data.values()) for report in reports]
    assert told == [
        ("message", "assistant", "hello"),
        ("session.confirmed", "s-1"),
        ("turn.started",),
        ("message", "assistant", "session: s-1"),
        ("message", "assistant", "session: ../../etc"),
        ("message", "assistant", "\ufffd"),
        ("message", "assistant", "session: s-1"),
    ]
    assert read_all(conversation, [b"session: s-2"])[0] == DriverReport(
        "session.confirmed", {"session_id": "s-2"}
    )
    assert not conversation.say("more")


def test_without_a_pattern_the_id_is_ours_from_the_first_line():
    ours = setup(command={"start": ["my-agent", "{prompt}", "--id", "{session}"]})
    assert COMMAND.invocation(ours, FIRST).argv[-1] == NEW_ID
    reports = COMMAND.converse(ours, FIRST).read(b"hello")
    assert reports[0] == DriverReport("session.confirmed", {"session_id": NEW_ID})


def test_a_command_with_a_model_needs_one():
    table = {"start": ["my-agent", "{prompt}", "-m", "{model}"]}
    [requirement] = COMMAND.check(setup(command=table), {}, "")
    assert "model" in requirement.hint
    assert COMMAND.check(setup(command=table, model="big"), {}, "") == []
    assert COMMAND.invocation(setup(command=table, model="big"), FIRST).argv[-1] == "big"


START = ["my-agent", "{prompt}"]
RESUME = ["my-agent", "{session}", "{prompt}"]
SESSION = r"id=(\w+)"


@pytest.mark.parametrize(
    ("table", "complaint", "hint"),
    [
        (None, "command: must be a table such as", None),
        (["my-agent"], "command: must be a table such as", None),
        ({}, r"command\.start: must be the words of a command line", None),
        ({"start": "my-agent"}, r"command\.start: must be the words of a command line", None),
        ({"start": ["", "{prompt}"]}, r"command\.start: must begin with the name", None),
        ({"start": ["a", "b\0{prompt}"]}, r"command\.start: must be the words", None),
        ({"start": ["my-agent"]}, r"command\.start: must have \{prompt\}", "stdin"),
        ({"start": ["a", "{promt}"]}, r"command\.start: must have placeholders", r"\{prompt\}"),
        ({"strat": START}, r"command\.strat: must be one of", "did you mean start"),
        ({"start": START, "prompt": "file"}, r"command\.prompt: must be argument or stdin", None),
        ({"start": START, "prompt": "stdin"}, r"command\.start: must not have", None),
        (
            {"start": START, "resume": START, "session": SESSION},
            r"command\.resume: must have \{session\}",
            None,
        ),
        ({"start": START, "resume": RESUME}, r"command\.resume: must come with", "session"),
        (
            {"start": START, "resume": ["other", *RESUME[1:]], "session": SESSION},
            r"command\.resume: must begin with the same program",
            None,
        ),
        ({"start": START, "session": "("}, r"command\.session: must be a regular expression", None),
        ({"start": START, "session": "id"}, r"command\.session: .* one group", None),
        ({"start": START, "session": 3}, r"command\.session: .* one group", None),
    ],
)
def test_an_invalid_table_is_an_error_with_the_key_and_a_valid_value(table, complaint, hint):
    with pytest.raises(ConfigError, match=complaint) as caught:
        CommandTable.parse(table)
    assert hint is None or hint.replace("\\", "") in (caught.value.hint or "")


def test_the_program_is_the_callers_choice_or_the_first_word_of_the_command():
    assert find_driver("command").name_binary(None, TABLE) == "my-agent"
    assert find_driver("command").name_binary("/opt/x", TABLE) == "/opt/x"
    assert find_driver("acp").name_binary("/opt/kimi", None) == "/opt/kimi"
    assert find_driver("claude").name_binary(None, None) == "claude"
    with pytest.raises(ConfigError, match="command: must be left out"):
        find_driver("claude").name_binary(None, TABLE)
    with pytest.raises(ConfigError, match=r"command\.start"):
        find_driver("command").name_binary("/opt/x", {})
