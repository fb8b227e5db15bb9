"""Kimi's driver: command lines, the private home, and lines that version 2.1.0 wrote."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tracemalloc
from pathlib import Path

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawblox.agents.drivers.driver import RecordedUsage
from clawblox.agents.drivers.kimi import KimiDriver
from clawblox.agents.layout import AgentDir
from clawblox.agents.programs import SANDBOX_WORKSPACE
from clawblox.agents.programs.kimi import work_dir_key
from clawblox.agents.usage import Ledger
from clawblox.agents.values import DriverReport, Usage
from clawblox.concurrency.threads import Interruption
from tests.agents.drivers.support import (
    FIRST,
    PLACES,
    RECORDED,
    RESUMED,
    build_setup,
    data_by_type,
    read_all,
    recorded_lines,
    types,
    within_limit,
)

KIMI = KimiDriver()
SESSION = "session_8037735d-eec7-4ef9-ab26-42d25e2aa0f8"
OTHER = "session_99999999-2222-4333-8444-555555555555"
MODEL = {"KIMI_MODEL_NAME": "k", "KIMI_MODEL_API_KEY": "not-a-key"}


@pytest.fixture
def directory(tmp_path) -> AgentDir:
    made = AgentDir(tmp_path / "rocky")
    made.workspace.mkdir(parents=True)
    return made


def keep_session(directory: AgentDir, workspace: Path, conversation_id: str = SESSION) -> Path:
    """Write a conversation like the program; return its transcript."""
    home = directory.state / "sessions" / work_dir_key(workspace) / conversation_id
    wire = home / "agents" / "main" / "wire.jsonl"
    wire.parent.mkdir(parents=True)
    shutil.copy(RECORDED / "kimi-2.1.0-wire.jsonl", wire)
    agents = {"main": {"homedir": str(wire.parent), "type": "main"}}
    state = {"id": conversation_id, "cwd": str(workspace), "agents": agents}
    (home / "state.json").write_text(json.dumps(state))
    return wire


def records(wire: Path) -> list[dict]:
    return [json.loads(line) for line in wire.read_text().splitlines()]


# The command line


def test_a_prompt_may_start_with_a_dash_and_a_conversation_is_continued_by_its_id(directory):
    begun = KIMI.invocation(build_setup(directory), FIRST)
    assert begun.argv == ("/bin/program", "--prompt=Begin", "--output-format", "stream-json")
    assert not begun.has_stdin
    assert begun.input == b""
    assert begun.env == {
        "KIMI_CODE_HOME": str(directory.state),
        "KIMI_CODE_NO_AUTO_UPDATE": "1",
        "KIMI_DISABLE_TELEMETRY": "1",
    }
    resumed = KIMI.invocation(build_setup(directory, model="k2"), RESUMED)
    assert resumed.argv[1] == "--prompt=Go on"
    assert resumed.argv[-2:] == ("-r", RESUMED.continued_id)
    assert resumed.env["KIMI_MODEL_NAME"] == "k2"


# The check


@pytest.mark.parametrize("version", ["", "kimi, version 1.52.0", "2.0.9"])
def test_another_program_or_an_old_version_is_refused(directory, version):
    [missing] = KIMI.check(build_setup(directory), MODEL, version)
    assert "2.1" in missing.problem or "does not print" in missing.problem
    assert "@moonshot-ai/kimi-code" in missing.hint


@pytest.mark.parametrize(
    ("env", "model", "problem"),
    [
        ({}, None, "may not be logged in"),
        ({"KIMI_MODEL_NAME": "k"}, None, "KIMI_MODEL_API_KEY is not set"),
        ({}, "k", "KIMI_MODEL_API_KEY is not set"),
        ({"KIMI_MODEL_API_KEY": "x"}, None, "no model is named"),
        (MODEL, None, None),
        ({"KIMI_MODEL_API_KEY": "x"}, "k", None),
    ],
)
def test_a_model_needs_its_name_and_its_key(directory, env, model, problem):
    missing = KIMI.check(build_setup(directory, model=model), env, "2.1.0\n")
    assert [problem in each.problem for each in missing] == ([True] if problem else [])


def test_a_warning_next_to_the_version_is_ignored(directory):
    assert KIMI.check(build_setup(directory), MODEL, "(node:7) Warning: old\n2.1.0\n") == []


@pytest.mark.parametrize("places", PLACES)
def test_a_login_in_the_private_home_suffices(directory, places):
    setup = build_setup(directory, **places)
    [missing] = KIMI.check(setup, {}, "2.1.0")
    assert f"KIMI_CODE_HOME={directory.state} " in missing.hint
    directory.state.mkdir()
    (directory.state / "config.toml").write_text("")
    assert KIMI.check(setup, {}, "2.1.0") == []


def test_an_unknown_permission_mode_is_named(directory):
    assert KIMI.check(build_setup(directory, permission_mode="auto"), MODEL, "2.1.0") == []
    assert (
        KIMI.check(build_setup(directory, permission_mode="bypassPermissions"), MODEL, "2.1.0")
        == []
    )
    [missing] = KIMI.check(build_setup(directory, permission_mode="plan"), MODEL, "2.1.0")
    assert "'plan'" in missing.problem


# The private home


def rendered(template: str) -> str:
    """Render ``SYSTEM.md`` like the program, which leaves unknown variables unchanged."""
    known = {"base_prompt": "BASE ${cwd}", "role_additional": "", "cwd": "/secret"}
    pattern = r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}"
    return re.sub(pattern, lambda found: known.get(found[1], found[0]), template)


@hypothesis.settings(max_examples=20)
@given(
    pieces=st.lists(
        st.sampled_from(
            ["$", "{", "}", "${cwd}", "${role_additional}", "${other}", "$$", "\\", "\n"]
        )
        | st.text(st.characters(exclude_categories=["Cs"]))
    )
)
def test_the_system_prompt_follows_the_programs_own_literally(tmp_path_factory, pieces):
    directory = AgentDir(tmp_path_factory.mktemp("agent"))
    prompt = "".join(pieces)
    KIMI.prepare(build_setup(directory, system_prompt=prompt), {})
    template = (directory.state / "SYSTEM.md").read_bytes().decode()
    assert rendered(template) == f"BASE ${{cwd}}\n\n{prompt}\n"


def test_the_newest_transcript_of_each_conversation_is_found(directory, tmp_path):
    stale = keep_session(directory, tmp_path / "old")
    newest = keep_session(directory, directory.workspace)
    other = keep_session(directory, directory.workspace, OTHER)
    keep_session(directory, directory.workspace, "../x")
    os.utime(stale, ns=(1, 1))
    assert KIMI.transcripts(directory) == {SESSION: newest, OTHER: other}
    os.utime(stale, ns=(1 << 62, 1 << 62))
    assert KIMI.transcripts(directory)[SESSION] == stale
    assert KIMI.transcripts(AgentDir(tmp_path / "none")) == {}


# Another workspace


def test_a_conversation_of_another_workspace_is_bound_to_this_workspace(directory, tmp_path):
    old = keep_session(directory, tmp_path / "old")
    before = records(old)
    setup = build_setup(directory)
    KIMI.adopt(setup, SESSION, Interruption())
    moved = KIMI.transcripts(directory)[SESSION]
    home = directory.state / "sessions" / work_dir_key(directory.workspace) / SESSION
    assert moved == home / "agents" / "main" / "wire.jsonl"
    assert not old.exists()
    state = json.loads((home / "state.json").read_text())
    assert state["cwd"] == str(directory.workspace)
    assert state["agents"]["main"]["homedir"] == str(moved.parent)
    after = records(moved)
    assert [record for record in after if record not in before] == [
        {**before[1], "workspaceId": work_dir_key(directory.workspace)}
    ]
    assert [record["type"] for record in before if record not in after] == [
        "runtime.set_binding",
        "permission.set_mode",
    ]


def test_a_conversation_of_this_workspace_is_left_unchanged(directory):
    wire = keep_session(directory, directory.workspace)
    os.utime(wire, ns=(1, 1))
    content = wire.read_bytes()
    KIMI.adopt(build_setup(directory), SESSION, Interruption())
    KIMI.adopt(build_setup(directory), OTHER, Interruption())
    assert wire.read_bytes() == content
    assert wire.stat().st_mtime_ns == 1


def test_a_conversation_is_bound_to_the_workspace_inside_the_sandbox(directory):
    keep_session(directory, directory.workspace)
    setup = build_setup(directory, workspace=SANDBOX_WORKSPACE, state=Path("/state"))
    for _ in range(2):
        KIMI.adopt(setup, SESSION, Interruption())
        wire = KIMI.transcripts(directory)[SESSION]
        session = f"/state/sessions/{work_dir_key(SANDBOX_WORKSPACE)}/{SESSION}"
        assert (
            wire == directory.state / Path(session).relative_to("/state") / "agents/main/wire.jsonl"
        )
        state = json.loads((wire.parents[2] / "state.json").read_text())
        assert state["cwd"] == "/workspace"
        assert state["agents"]["main"]["homedir"] == f"{session}/agents/main"


# Output


def test_a_turn_is_reported_from_its_start_to_its_conversation():
    told = read_all(KIMI.converse(None, FIRST), recorded_lines("kimi-2.1.0-first.log"))
    assert types(told) == [
        "turn.started",
        "tool.called",
        "tool.returned",
        "message",
        "session.confirmed",
        "turn.finished",
    ]
    _, called, returned, message, confirmed, finished = (report.data for report in told)
    assert called == {"id": "call_1", "name": "Bash", "arguments": {"command": "echo hi"}}
    assert returned == {"id": "call_1", "content": "hi\n", "is_error": False}
    assert message == {"role": "assistant", "text": "I have noted that."}
    assert confirmed == {"session_id": SESSION, "version": "2.1.0"}
    assert finished == {"ok": True, "text": "I have noted that."}


def test_a_refused_turn_reports_its_reason():
    lines = recorded_lines("kimi-2.1.0-refused.log")
    assert types(read_all(KIMI.converse(None, RESUMED), lines)) == ["turn.started"]
    error = KIMI.explain([line.decode() for line in lines])
    assert (error.data["kind"], error.data["status"]) == ("auth", 401)


FAILURES = [
    (f'Session "{OTHER}" not found.', "resume", None),
    ("provider.api_error: 400 no such tool", "invalid", 400),
    ("provider.api_error: 529 later", "overloaded", 529),
    ("provider.rate_limit: 429 later", "rate_limit", 429),
    ("provider.connection_error: fetch failed", "overloaded", None),
    ("No model configured. Run `kimi` and use /login to sign in", "auth", None),
    ("provider __kimi_env__ has no credential configured", "auth", None),
    ("context.overflow: too long", "invalid", None),
    ("something else", "model", None),
]


@pytest.mark.parametrize(("message", "kind", "status"), FAILURES)
def test_a_failed_turn_has_the_kind_of_its_error(message, kind, status):
    line = f"error: failed to run prompt: {message}"
    error = KIMI.explain([line, "error: expected ';' after expression", "See log: /x"])
    assert (error.data["kind"], error.data.get("status")) == (kind, status)
    assert error.data["message"] == message


def test_errors_in_a_tool_s_output_are_not_errors_of_the_program():
    assert KIMI.explain(["error: unknown option '--prompt'"]).data["kind"] == "invalid"
    for line in (b"error: unknown option '--prompt'", b"error: failed to run prompt: no"):
        assert KIMI.converse(None, FIRST).read(line) == ()


def test_a_retry_is_reported():
    line = {
        "role": "meta",
        "type": "turn.step.retrying",
        "failed_attempt": 2,
        "max_attempts": 10,
        "delay_ms": 1153.5,
        "error_message": "500 later",
        "status_code": 500,
    }
    [retry] = KIMI.converse(None, FIRST).read(json.dumps(line).encode())
    assert retry.data == {
        "attempt": 2,
        "max_attempts": 10,
        "delay_s": 1.1535,
        "status": 500,
        "error": "500 later",
    }


def hint(conversation_id: str) -> bytes:
    line = {"role": "meta", "type": "session.resume_hint", "session_id": conversation_id}
    return json.dumps(line).encode()


def test_a_conversation_id_printed_by_a_tool_does_not_end_a_resumed_turn():
    assert types(KIMI.converse(None, FIRST).read(hint(OTHER))) == [
        "session.confirmed",
        "turn.finished",
    ]
    conversation = KIMI.converse(None, RESUMED)
    assert types(conversation.read(hint(OTHER))) == ["session.confirmed"]  # ends no turn
    assert len(conversation.read(hint(RESUMED.continued_id))) == 2


@hypothesis.settings(max_examples=20)
@given(
    line=st.recursive(
        st.none() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ),
    role=st.sampled_from(["meta", "assistant", "tool", "new"]),
    kind=st.sampled_from(["session.resume_hint", "turn.step.retrying", None]),
    key=st.sampled_from(["content", "tool_calls", "delay_ms", "session_id"]),
)
def test_a_line_of_any_shape_is_never_an_error(line, role, kind, key):
    record = {"role": role, "type": kind, key: line}
    call = {"role": "assistant", "tool_calls": [{"function": {"arguments": line}}]}
    read_all(
        KIMI.converse(None, FIRST), [json.dumps(each).encode() for each in (record, call, line)]
    )


def test_arguments_that_are_not_an_object_are_kept_as_text():
    call = {"function": {"name": "Bash", "arguments": '["x"'}, "id": "c"}
    line = json.dumps({"role": "assistant", "tool_calls": [call]})
    [called] = data_by_type([*KIMI.converse(None, FIRST).read(line.encode())], "tool.called")
    assert called["arguments"] == {"text": '["x"'}


# Usage


def test_the_usage_of_a_conversation_is_read_from_its_transcripts(directory):
    assert KIMI.read_usage(directory, SESSION, RecordedUsage()) is None
    main = keep_session(directory, directory.workspace)
    helper = main.parents[1] / "helper" / "wire.jsonl"
    helper.parent.mkdir()
    record = {"type": "usage.record", "usage": {"inputCacheCreation": 3, "output": True}}
    torn = '{"type":"usage.record","usage":{"output":1'
    said = {"type": "turn.prompt", "input": [{"text": '"usage.record"'}]}
    helper.write_text(f"{json.dumps(record)}\n{json.dumps(said)}\n{torn}")
    report = KIMI.read_usage(directory, SESSION, RecordedUsage())
    assert report.data["scope"] == "recorded"
    assert report.data["usage"] == Usage(
        input_tokens=44, cached_tokens=28, cache_write_tokens=3, output_tokens=20
    )


def use(wire: Path, tokens: int) -> None:
    wire.parent.mkdir(exist_ok=True)
    record = {"type": "usage.record", "usage": {"output": tokens}}
    with wire.open("a") as file:
        file.write(json.dumps(record) + "\n")


def test_a_wire_file_is_read_from_the_last_position(directory, monkeypatch):
    main = keep_session(directory, directory.workspace)
    recorded = RecordedUsage()
    before = KIMI.read_usage(directory, SESSION, recorded).data["usage"].output_tokens
    place = recorded.files["main"].position
    assert place == main.stat().st_size
    assert KIMI.read_usage(directory, SESSION, recorded) is None
    main.write_bytes(b"#" * place)  # lines are read only once
    use(main, 5)
    use(main.parents[1] / "helper" / "wire.jsonl", 7)
    report = KIMI.read_usage(directory, SESSION, recorded)
    assert report.data["usage"].output_tokens == before + 12
    assert {name: usage.output_tokens for name, usage in report.data["files"].items()} == {
        "main": before + 5,
        "helper": 7,
    }


def test_usage_is_not_counted_twice_after_a_wire_file_disappears(directory):
    helper = keep_session(directory, directory.workspace).parents[1] / "helper" / "wire.jsonl"
    use(helper, 7)
    ledger, totals = Ledger.empty(), []
    for _ in range(3):
        report = KIMI.read_usage(directory, SESSION, RecordedUsage())
        ledger.count(
            conversation_id=SESSION, version=None, reading=report.data["usage"], **rest(report)
        )
        totals.append(ledger.usage.output_tokens)
        shutil.rmtree(helper.parent, ignore_errors=True)
    assert totals == [totals[0]] * 3


def rest(report: DriverReport) -> dict:
    return {key: report.data[key] for key in ("scope", "files")}


def test_a_sparse_file_in_place_of_a_wire_file_is_skipped(directory, monkeypatch):
    wires = sys.modules["clawblox.agents.drivers.kimi"]
    monkeypatch.setattr(wires, "_MAX_READ_BYTES", 64 << 20)
    main = keep_session(directory, directory.workspace)
    expected = KIMI.read_usage(directory, SESSION, RecordedUsage()).data["usage"]
    for name, size in (("helper", 8 << 40), ("other", 2 << 30)):
        wire = main.parents[1] / name / "wire.jsonl"
        wire.parent.mkdir()
        with wire.open("wb") as file:
            file.truncate(size)
    recorded, found = RecordedUsage(), []
    tracemalloc.start()
    within_limit(lambda: found.append(KIMI.read_usage(directory, SESSION, recorded)))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found[0].data["usage"] == expected
    assert recorded.files["helper"].position == 0
    assert recorded.files["other"].position <= 72 << 20  # the sum is also limited
    assert most < 40 << 20


def test_reading_and_adopting_end_at_an_interruption(directory):
    main = keep_session(directory, directory.workspace)
    recorded, interruption = RecordedUsage(), Interruption()
    recorded.interruption.set()
    assert KIMI.read_usage(directory, SESSION, recorded) is None
    content = main.read_bytes()
    interruption.set()
    elsewhere = build_setup(directory, workspace=Path("/workspace"))
    with pytest.raises(InterruptedError):
        KIMI.adopt(elsewhere, SESSION, interruption)
    assert main.read_bytes() == content
    assert [path.name for path in main.parent.iterdir()] == ["wire.jsonl"]


def test_a_line_that_is_too_long_is_skipped_and_later_lines_are_counted(directory, monkeypatch):
    wires = sys.modules["clawblox.agents.drivers.kimi"]
    monkeypatch.setattr(wires, "_MAX_LINE_BYTES", 1000)
    wire = keep_session(directory, directory.workspace)
    wire.write_bytes(b"x" * 5300 + b'"usage.record"\n')
    use(wire, 5)
    assert KIMI.read_usage(directory, SESSION, RecordedUsage()).data["usage"].output_tokens == 5


def test_a_wire_file_that_is_too_large_is_not_adopted(directory):
    main = keep_session(directory, directory.workspace)
    with main.open("ab") as file:
        file.truncate(8 << 40)
    elsewhere, raised = build_setup(directory, workspace=Path("/workspace")), []

    def adopt() -> None:
        try:
            KIMI.adopt(elsewhere, SESSION, Interruption())
        except OSError as error:
            raised.append(error)

    within_limit(adopt)
    assert "is larger than" in str(raised[0])


def test_a_process_takes_only_one_message():
    conversation = KIMI.converse(None, FIRST)
    assert conversation.say("more") is False
    assert conversation.outgoing() == b""
