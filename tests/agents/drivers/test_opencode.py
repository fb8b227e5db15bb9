"""opencode's driver: command lines, the private home, and lines that version 1.18.33 wrote."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawblox.agents.drivers.opencode import OpencodeDriver
from clawblox.agents.layout import AgentDir
from clawblox.agents.programs import SANDBOX_WORKSPACE
from clawblox.agents.values import Usage
from clawblox.concurrency.threads import Interruption
from tests.agents.drivers.support import (
    FIRST,
    PLACES,
    RESUMED,
    build_setup,
    data_by_type,
    read_all,
    recorded_lines,
    types,
)

OPENCODE = OpencodeDriver()
SESSION = "ses_dfcdb625bffeM6eRLKv0Y4QivG"
CHILD = "ses_dfcdb625bffeM6eRLKv0Y4Qiv2"
OTHER = "ses_dfcdb625bffeM6eRLKv0Y4Qiv3"


@pytest.fixture
def directory(tmp_path) -> AgentDir:
    made = AgentDir(tmp_path / "rocky")
    made.workspace.mkdir(parents=True)
    return made


def reports(*records: object) -> list:
    lines = [json.dumps(record).encode() for record in records]
    return read_all(OPENCODE.converse(None, FIRST), lines)


@contextlib.contextmanager
def database(directory: AgentDir):
    path = directory.state / "data" / "opencode" / "opencode.db"
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.closing(sqlite3.connect(path)) as opened, opened:
        yield opened


def keep_sessions(directory: AgentDir, *rows: tuple[str, str | None, str]) -> Path:
    with database(directory) as opened:
        opened.execute("CREATE TABLE session (id TEXT, parent_id TEXT, directory TEXT, path TEXT)")
        opened.execute("CREATE TABLE message (id TEXT, session_id TEXT)")
        values = [(*row, row[2].lstrip("/")) for row in rows]
        opened.executemany("INSERT INTO session VALUES (?, ?, ?, ?)", values)
    return directory.state / "data" / "opencode" / "opencode.db"


def places(directory: AgentDir) -> dict[str, tuple[str, str]]:
    with database(directory) as opened:
        rows = opened.execute("SELECT id, directory, path FROM session").fetchall()
    return {id_: (place, path) for id_, place, path in rows}


# The command line


def test_the_prompt_is_on_standard_input_and_a_conversation_is_continued_by_its_id(directory):
    setup = build_setup(directory, model="openai/gpt-5")
    begun = OPENCODE.invocation(setup, FIRST)
    assert begun.argv == (
        *("/bin/program", "run", "--format", "json", "--thinking"),
        *("--model", "openai/gpt-5", "--title", "agent"),
    )
    assert begun.input == b"Begin"
    assert not begun.has_stdin
    assert begun.env["XDG_DATA_HOME"] == str(directory.state / "data")
    assert begun.env["OPENCODE_CONFIG"] == str(directory.state / "opencode.json")
    assert begun.env["OPENCODE_DISABLE_PROJECT_CONFIG"] == "1"
    resumed = OPENCODE.invocation(build_setup(directory), RESUMED)
    assert resumed.argv[5:] == ("--session", RESUMED.continued_id)


# The check


@pytest.mark.parametrize("version", ["", "1.17.9", "opencode"])
def test_another_program_or_an_old_version_is_refused(directory, version):
    [missing] = OPENCODE.check(build_setup(directory), {}, version)
    assert "opencode-ai" in missing.hint


@pytest.mark.parametrize(
    ("model", "env", "problem"),
    [
        (None, {}, None),
        ("gpt-5", {}, "does not name its provider"),
        ("openai/gpt-5", {}, "OPENAI_API_KEY is not set"),
        ("openai/gpt-5", {"OPENAI_API_KEY": "k"}, None),
        ("anthropic/opus", {"OPENAI_API_KEY": "k"}, "ANTHROPIC_API_KEY is not set"),
        ("local/m1", {}, None),
    ],
)
def test_a_model_names_its_provider_whose_key_is_required(directory, model, env, problem):
    missing = OPENCODE.check(build_setup(directory, model=model), env, "1.18.33\n")
    assert [problem in each.problem for each in missing] == ([True] if problem else [])


def test_a_warning_next_to_the_version_is_ignored(directory):
    assert OPENCODE.check(build_setup(directory), {}, "(node:7) Warning: old\n1.18.33\n") == []


@pytest.mark.parametrize("places", PLACES)
def test_a_login_in_the_private_home_suffices(directory, places):
    login = directory.state / "data" / "opencode" / "auth.json"
    login.parent.mkdir(parents=True)
    login.write_text("{}")
    assert (
        OPENCODE.check(build_setup(directory, model="openai/gpt-5", **places), {}, "1.18.33") == []
    )


@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("name", [".opencode/plugin", ".opencode/plugins"])
def test_plugins_in_the_workspace_are_refused_because_the_program_always_runs_them(
    directory, name, places
):
    (directory.workspace / name).mkdir(parents=True)
    [missing] = OPENCODE.check(build_setup(directory, **places), {}, "1.18.33")
    assert str(directory.workspace / name) in missing.problem


def test_an_unknown_permission_mode_is_named(directory):
    setup = build_setup(directory, permission_mode="plan")
    [missing] = OPENCODE.check(setup, {}, "1.18.33")
    assert "'plan'" in missing.problem


# The private home


def settings(directory: AgentDir, env: dict[str, str], **more) -> dict:
    OPENCODE.prepare(build_setup(directory, **more), env)
    return json.loads((directory.state / "opencode.json").read_text())


def test_the_settings_name_the_system_prompt_and_contain_no_key(directory):
    env = {"OPENAI_API_KEY": "secret-key", "OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}
    written = settings(directory, env, model="openai/gpt-5")
    assert written["instructions"] == [str(directory.system_prompt_file)]
    assert written["permission"] == "allow"
    options = {"baseURL": "http://127.0.0.1:1/v1"}
    assert written["provider"] == {"openai": {"options": options, "models": {"gpt-5": {}}}}
    local = settings(directory, env, model="local/m/1")["provider"]["local"]
    assert local["npm"] == "@ai-sdk/openai-compatible"
    assert local["options"] == {**options, "apiKey": "{env:OPENAI_API_KEY}"}
    assert local["models"] == {"m/1": {}}
    assert "secret" not in (directory.state / "opencode.json").read_text()
    assert "provider" not in settings(directory, env)
    assert "provider" not in settings(directory, env, model="anthropic/opus")
    assert settings(directory, {}, system_prompt="")["instructions"] == []


def test_conversations_are_read_from_the_database_without_sub_agents(directory):
    assert OPENCODE.transcripts(directory) == {}
    rows = [(SESSION, None, "/old"), (CHILD, SESSION, "/old"), ("../x", None, "/old")]
    path = keep_sessions(directory, *rows)
    assert OPENCODE.transcripts(directory) == {SESSION: path}


def test_an_incomplete_database_has_no_conversations(directory):
    with database(directory) as opened:
        opened.execute("CREATE TABLE migration (id TEXT)")
    assert OPENCODE.transcripts(directory) == {}


def test_a_file_that_is_not_a_database_is_an_error_that_names_it(directory):
    path = directory.state / "data" / "opencode" / "opencode.db"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"not a database" * 100)
    with pytest.raises(OSError, match=r"opencode\.db"):
        OPENCODE.transcripts(directory)


# Another workspace


def test_a_conversation_of_another_workspace_is_recorded_for_this_workspace(directory):
    rows = [(SESSION, None, "/old/ws"), (CHILD, SESSION, "/old/ws"), (OTHER, None, "/other")]
    keep_sessions(directory, *rows)
    OPENCODE.adopt(build_setup(directory), OTHER[:-1], Interruption())
    assert places(directory)[SESSION] == ("/old/ws", "old/ws")
    OPENCODE.adopt(build_setup(directory), SESSION, Interruption())
    here = str(directory.workspace)
    assert places(directory) == {
        SESSION: (here, here.lstrip("/")),
        CHILD: (here, here.lstrip("/")),
        OTHER: ("/other", "other"),
    }
    OPENCODE.adopt(build_setup(directory, workspace=SANDBOX_WORKSPACE), SESSION, Interruption())
    assert places(directory)[CHILD] == ("/workspace", "workspace")


# Output


def test_a_turn_is_reported_from_its_conversation_to_its_end():
    told = read_all(OPENCODE.converse(None, FIRST), recorded_lines("opencode-1.18.33-first.log"))
    assert types(told) == [
        "session.confirmed",
        "turn.started",
        "tool.called",
        "tool.returned",
        "usage",
        "message",
        "usage",
        "turn.finished",
    ]
    assert told[0].data == {"session_id": SESSION}
    [called] = data_by_type(told, "tool.called")
    assert called["name"] == "bash"
    assert called["arguments"]["command"] == "echo hi"
    [returned] = data_by_type(told, "tool.returned")
    assert returned == {"id": called["id"], "content": "hi\n", "is_error": False}
    for usage in data_by_type(told, "usage"):
        assert usage["scope"] == "turn"
        assert usage["usage"] == Usage(input_tokens=11, cached_tokens=7, output_tokens=5)
    assert told[-1].data == {"ok": True, "text": "I have noted that."}


def test_output_includes_reasoning_and_a_cost_of_zero_is_unknown():
    tokens = {"input": 1, "output": 3, "reasoning": 2, "cache": {"read": 4, "write": 5}}
    for cost, told in ((0.5, 0.5), (0, None), ("x", None)):
        part = {"reason": "tool-calls", "tokens": tokens, "cost": cost}
        *_, usage = reports({"type": "step_finish", "sessionID": SESSION, "part": part})
        assert usage.data["usage"] == Usage(
            input_tokens=1,
            cached_tokens=4,
            cache_write_tokens=5,
            output_tokens=5,
            reasoning_tokens=2,
            cost_usd=told,
        )


@pytest.mark.parametrize(("reason", "ends"), [("stop", 1), ("tool-calls", 0), ("unknown", 0)])
def test_a_step_after_which_the_program_continues_does_not_end_the_turn(reason, ends):
    part = {"reason": reason, "tokens": {}}
    told = reports({"type": "step_finish", "sessionID": SESSION, "part": part})
    assert types(told).count("turn.finished") == ends


def test_a_tool_that_failed_is_an_error():
    part = {"callID": "c", "tool": "bash", "state": {"status": "error", "error": "no"}}
    [returned] = data_by_type(
        reports({"type": "tool_use", "sessionID": SESSION, "part": part}), "tool.returned"
    )
    assert returned == {"id": "c", "content": "no", "is_error": True}


def test_a_refused_turn_reports_its_reason():
    lines = recorded_lines("opencode-1.18.33-refused.log")
    told = read_all(OPENCODE.converse(None, RESUMED), lines)
    assert types(told) == ["session.confirmed", "turn.started", "error", "turn.finished"]
    assert told[2].data == {"kind": "auth", "message": "The stand-in refuses.", "status": 401}
    assert told[3].data["ok"] is False
    assert OPENCODE.explain([line.decode() for line in lines]) == told[2]


FAILURES = [
    ({"name": "APIError", "data": {"message": "m", "statusCode": 429}}, "rate_limit"),
    ({"name": "APIError", "data": {"message": "m", "statusCode": 529}}, "overloaded"),
    ({"name": "APIError", "data": {"message": "m", "statusCode": 400}}, "invalid"),
    ({"name": "ProviderAuthError", "data": {"message": "m"}}, "auth"),
    ({"name": "UnknownError", "data": {"message": "m"}}, "model"),
    ({"name": "m"}, "model"),
]


@pytest.mark.parametrize(("error", "kind"), FAILURES)
def test_a_failed_turn_has_the_kind_of_its_error(error, kind):
    record = {"type": "error", "sessionID": SESSION, "error": error}
    told = OPENCODE.explain([json.dumps(record), "more"])
    assert (told.data["kind"], told.data["message"]) == (kind, "m")


def test_an_unknown_conversation_is_a_resume_error():
    lines = [line.decode() for line in recorded_lines("opencode-1.18.33-unknown.log")]
    assert OPENCODE.explain(lines).data == {"kind": "resume", "message": "Session not found"}
    assert OPENCODE.explain(["Error: Unknown argument"]).data["kind"] == "invalid"
    assert OPENCODE.explain(["a line", "{}"]) is None


@hypothesis.settings(max_examples=20)
@given(
    line=st.recursive(
        st.none() | st.integers() | st.text(), lambda inner: st.dictionaries(st.text(), inner)
    ),
    kind=st.sampled_from(["text", "reasoning", "tool_use", "step_finish", "error", "new"]),
    key=st.sampled_from(["part", "error", "sessionID"]),
)
def test_a_line_of_any_shape_is_never_an_error(line, kind, key):
    reports(line, {"sessionID": SESSION, "type": kind, key: line})
    reports({"sessionID": SESSION, "type": kind, "part": {"tokens": line, "state": line}})


def test_a_process_takes_only_one_message():
    conversation = OPENCODE.converse(None, FIRST)
    assert conversation.say("more") is False
    assert conversation.outgoing() == b""
